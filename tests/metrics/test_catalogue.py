"""The catalogue against names recorded from Apache Kafka 4.3 with Strimzi's rules of the JMX exporter: `recorded_names.tsv`."""

from __future__ import annotations

from pathlib import Path

from kraftlab.metrics.catalogue import METRICS

_ROWS = (line.split("\t") for line in Path(__file__).with_name("recorded_names.tsv").read_text().splitlines()[1:])
RECORDED = {name: (kind, tuple(sorted(filter(None, labels.split(","))))) for name, kind, labels in _ROWS}
NEVER_PER_TOPIC = {
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
}
"""The recorded broker had no event of these in any topic; with one it has the label `topic`, as the other families."""
NOT_RECORDED = {
    "kafka_coordinator_group_groupmetadatamanager_": "Strimzi's rules drop groups; named as in the exporter's own example",
    "kafka_log_logflushstats_logflushrateandtimems_count": "recorded with _total after _count, which the exporter adds",
    "kafka_network_requestmetrics_totaltimems_count": "recorded with _total after _count, which the exporter adds",
    "kafka_server_raftmetrics_commit_latency_max": "recorded as a counter with _total, which a maximum is not",
    "kafka_server_raftmetrics_election_latency_max": "recorded as a counter with _total, which a maximum is not",
}


def test_names_types_and_labels_are_the_recorded_ones() -> None:
    ours = {name: (metric.kind, tuple(sorted(metric.labels))) for name, metric in METRICS.items() if name in RECORDED}
    per_topic = {name: (RECORDED[name][0], ("topic",)) for name in NEVER_PER_TOPIC}
    assert ours == {name: recorded for name, recorded in RECORDED.items() if name in METRICS} | per_topic


def test_a_name_of_kafka_that_was_not_recorded_has_a_reason() -> None:
    of_nodes = [metric.name for metric in METRICS.values() if metric.nodes != "cluster"]
    unknown = {name for name in of_nodes if name.startswith("kafka_") and name not in RECORDED}
    assert {name for name in unknown if not name.startswith(tuple(NOT_RECORDED))} == set()
    with_total = [name for name, reason in NOT_RECORDED.items() if "_total" in reason]
    assert all(f"{name}_total" in RECORDED for name in with_total)


def test_names_of_our_own_have_base_units_and_counters_end_in_total() -> None:
    own = [metric for name, metric in METRICS.items() if name.startswith("kraftlab_")]
    assert [metric.name for metric in own if metric.name.endswith(("_ms", "_kb", "_percent"))] == []
    assert [metric.name for metric in own if metric.name.endswith("_total") != (metric.kind == "counter")] == []
