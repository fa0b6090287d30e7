"""The page that `kraftlab` prints without arguments: the clusters that are up here, and the next commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlab.lab.cluster_plan import ClusterPlan

_NOTHING_UP = """\
No cluster is up on this machine.

  kraftlab demo                            see the whole story in half a minute
  kraftlab up --data /tmp/lab              start 3 controllers and 4 brokers"""

_NEXT = """\
  kraftlab top                             everything on one page, live
  kraftlab topics --describe               topics, replicas, in-sync replicas
  kraftlab cluster list-endpoints --long   brokers and their last contact
  kraftlab metadata-quorum describe --status
  kraftlab reassign-partitions --list --details"""

_ALWAYS = """\
  kraftlab sim --seeds 200                 crash the consensus code in simulation
  kraftlab --help                          all commands; each has examples"""


def page() -> str:
    """Return the page for the clusters that are up now."""
    return "\n".join(_lines())


def _kafka(plan: ClusterPlan) -> str:
    return next((f", Kafka clients {node.kafka}" for node in plan.brokers if node.kafka is not None), "")


def _lines() -> Iterator[str]:
    from kraftlab.lab import ClusterError, contexts

    yield "kraftlab: a KIP-500-style metadata quorum to run, break and study\n"
    directories = contexts.running()
    if directories:
        yield "Up on this machine, newest first:\n"
        for directory in directories:
            with suppress(ClusterError):  # the cluster has just stopped
                plan = contexts.plan_of(directory)
                yield f"  {directory}    {len(plan.nodes)} nodes, gRPC {plan.nodes[0].grpc}{_kafka(plan)}"
        yield ""
    yield _NEXT if directories else _NOTHING_UP
    yield _ALWAYS
