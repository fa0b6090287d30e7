"""All metrics of kraftlab's nodes, and of a cluster: `catalogue.tsv`.

`kafka_` names have the spelling of Strimzi's rules for the JMX exporter, which its dashboards and alerts use. A name of that kind
keeps Kafka's unit, milliseconds included; `kraftlab_` names have base units. Names of a cluster are those of kafka_exporter.
docs/metrics.md is made from this table.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Metric(NamedTuple):
    """One family. `nodes` serve it: controller, broker, or every node; cluster is `kraftlab exporter`. `kafka`: the MBean behind
    a `kafka_` name of a node, as `domain:type,name`. `difference`: from Kafka's, or kafka_exporter's.
    """

    name: str
    kind: str
    nodes: str
    labels: tuple[str, ...]
    kafka: str
    meaning: str
    difference: str


def _load() -> dict[str, Metric]:
    rows = (line.split("\t") for line in Path(__file__).with_suffix(".tsv").read_text().splitlines()[1:])
    made = (Metric(name, kind, nodes, tuple(filter(None, labels.split(","))), *rest) for name, kind, nodes, labels, *rest in rows)
    return {metric.name: metric for metric in made}


METRICS = _load()
"""Every family by its name."""
