"""Metrics of a cluster, read by an independent reader of the exposition format."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kraftlab.cli.exporter.families import write
from kraftlab.client.cluster_offsets import ClusterOffsets, GroupOffsets, PartitionOffsets
from kraftlab.client.groups import TopicPartition
from kraftlab.common.endpoint import Endpoint
from kraftlab.metrics.catalogue import METRICS
from kraftlab.metrics.exposition import Exposition

Samples = dict[tuple[str, ...], float]
WHOLE = PartitionOffsets(1, (1, 2), (2, 1), 3, 10)


def seen(partitions: Mapping[TopicPartition, PartitionOffsets] = {}, **groups: GroupOffsets) -> ClusterOffsets:
    return ClusterOffsets({1: Endpoint("a", 9092), 2: Endpoint("::1", 9093)}, partitions, groups, {})


def samples(of: ClusterOffsets) -> dict[str, Samples]:
    """Return value by labels, of each family. All of them stand in the catalogue with these labels."""
    page = Exposition()
    write(page, of)
    found: dict[str, Samples] = {}
    for family in text_string_to_metric_families(page.text()):
        assert family.type == "gauge"
        labels = METRICS[family.name].labels
        assert METRICS[family.name].nodes == "cluster"
        for sample in family.samples:
            assert {*sample.labels} == {*labels}
            key = tuple(sample.labels[name] for name in labels)
            assert key not in found.setdefault(family.name, {})
            found[family.name][key] = sample.value
    return found


def test_brokers_topics_and_partitions_have_kafka_exporters_names() -> None:
    lost = PartitionOffsets(-1, (2, 1), ())
    assert samples(seen({("t", 0): WHOLE, ("t", 1): lost, ("u", 0): WHOLE._replace(leader=2)})) == {
        "kafka_brokers": {(): 2},
        "kafka_broker_info": {("1", "a:9092"): 1, ("2", "[::1]:9093"): 1},
        "kafka_topic_partitions": {("t",): 2, ("u",): 1},
        "kafka_topic_partition_current_offset": {("t", "0"): 10, ("u", "0"): 10},
        "kafka_topic_partition_oldest_offset": {("t", "0"): 3, ("u", "0"): 3},
        "kafka_topic_partition_leader": {("t", "0"): 1, ("t", "1"): -1, ("u", "0"): 2},
        "kafka_topic_partition_leader_is_preferred": {("t", "0"): 1, ("t", "1"): 0, ("u", "0"): 0},
        "kafka_topic_partition_replicas": {("t", "0"): 2, ("t", "1"): 2, ("u", "0"): 2},
        "kafka_topic_partition_in_sync_replica": {("t", "0"): 2, ("t", "1"): 0, ("u", "0"): 2},
        "kafka_topic_partition_under_replicated_partition": {("t", "0"): 0, ("t", "1"): 1, ("u", "0"): 0},
    }


def of_groups(found: dict[str, Samples]) -> dict[str, Samples]:
    return {name.removeprefix("kafka_consumergroup_"): found[name] for name in found if name.startswith("kafka_consumergroup_")}


def test_a_group_lags_by_what_it_has_not_committed() -> None:
    """A partition without a committed offset is -1 and counts in no sum, if the group has committed in its topic."""
    partitions = {("t", 0): WHOLE, ("t", 1): WHOLE, ("t", 2): WHOLE, ("u", 0): WHOLE}
    group = GroupOffsets(2, {("t", 0): 4, ("t", 1): 10})
    assert of_groups(samples(seen(partitions, g=group))) == {
        "members": {("g",): 2},
        "current_offset": {("g", "t", "0"): 4, ("g", "t", "1"): 10, ("g", "t", "2"): -1},
        "lag": {("g", "t", "0"): 6, ("g", "t", "1"): 0, ("g", "t", "2"): -1},
        "current_offset_sum": {("g", "t"): 14},
        "lag_sum": {("g", "t"): 6},
    }


def test_lag_is_never_negative() -> None:
    """A topic that was made again under its name is shorter than what a group has committed before."""
    found = of_groups(samples(seen({("t", 0): WHOLE}, g=GroupOffsets(0, {("t", 0): 500}))))
    assert (found["lag"], found["lag_sum"], found["current_offset"]) == (
        *({("g", "t", "0"): 0}, {("g", "t"): 0}),
        {("g", "t", "0"): 500},
    )


def test_a_log_without_a_leader_has_no_lag() -> None:
    found = of_groups(samples(seen({("t", 0): PartitionOffsets(-1, (1,), ())}, g=GroupOffsets(0, {("t", 0): 5}))))
    assert ("lag" in found, found["current_offset"], found["lag_sum"]) == (False, {("g", "t", "0"): 5}, {("g", "t"): 0})


def test_offsets_in_a_deleted_topic_are_not_shown() -> None:
    assert of_groups(samples(seen({("t", 0): WHOLE}, g=GroupOffsets(0, {("gone", 0): 5})))) == {"members": {("g",): 0}}


def test_members_that_are_not_known_are_not_counted() -> None:
    assert of_groups(samples(seen(g=GroupOffsets(None, {})))) == {}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.sampled_from(["t", "x" * 249]))
def test_any_name_can_be_read_back(group_id: str, topic: str) -> None:
    """Names with quotes, backslashes, newlines and other alphabets."""
    found = of_groups(samples(ClusterOffsets({}, {(topic, 0): WHOLE}, {group_id: GroupOffsets(1, {(topic, 0): 4})}, {})))
    assert found["lag"] == {(group_id, topic, "0"): 6}
    assert found["lag_sum"] == {(group_id, topic): 6}
    assert found["members"] == {(group_id,): 1}
