"""A drain plan empties one broker, and is spread over brokers and racks like any other placement."""

from __future__ import annotations

from collections import Counter

import immutables
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import UNASSIGNED
from kraftlab.console.drain import drain
from kraftlab.metadata.image import BrokerImage, ClusterImage, MetadataImage, PartitionImage, TopicImage, TopicsImage

BROKERS = 6
Lists = list[tuple[int, ...]]


def broker(broker_id: int, racks: int, fenced: bool = False) -> BrokerImage:
    rack = f"rack-{broker_id % racks}" if racks else None
    return BrokerImage(broker_id, broker_id, bytes(16), (), (), rack, fenced, False, (), 0)


def image(replica_lists: Lists, racks: int = 3, brokers: int = BROKERS, fenced: tuple[int, ...] = ()) -> MetadataImage:
    partitions = immutables.Map(
        (number, PartitionImage(replicas, (UNASSIGNED,) * len(replicas), replicas, replicas[0]))
        for number, replicas in enumerate(replica_lists)
    )
    topic = TopicImage("t", b"t" * 16, partitions)
    cluster = ClusterImage(immutables.Map((each, broker(each, racks, each in fenced)) for each in range(brokers)))
    return with_topic(topic, cluster)


def with_topic(topic: TopicImage, cluster: ClusterImage) -> MetadataImage:
    topics = TopicsImage(immutables.Map({topic.topic_id: topic}), immutables.Map({topic.name: topic.topic_id}))
    return MetadataImage(cluster=cluster, topics=topics)


REPLICAS = st.lists(st.integers(0, BROKERS - 1), min_size=1, max_size=BROKERS - 1, unique=True).map(tuple)
LISTS = st.lists(REPLICAS, max_size=20)


@given(LISTS, st.integers(0, 4), st.integers(0, BROKERS - 1))
def test_the_broker_ends_empty_and_nothing_else_changes(replica_lists: Lists, racks: int, drained: int) -> None:
    found = drain(image(replica_lists, racks), drained)
    assert [each.partition for each in found.partitions] == [n for n, each in enumerate(replica_lists) if drained in each]
    for each in found.partitions:
        assert each.before == replica_lists[each.partition]
        assert drained not in each.after
        assert each.to not in each.before
        assert each.after == tuple(each.to if replica == drained else replica for replica in each.before)
    assert found.after[drained] == 0


@given(LISTS, st.integers(0, 4), st.integers(0, BROKERS - 1))
def test_the_counts_are_those_of_the_replicas(replica_lists: Lists, racks: int, drained: int) -> None:
    found = drain(image(replica_lists, racks), drained)
    planned = {each.partition: each.after for each in found.partitions}
    before = Counter(replica for each in replica_lists for replica in each)
    after = Counter(replica for n, each in enumerate(replica_lists) for replica in planned.get(n, each))
    assert found.before == {each: before[each] for each in range(BROKERS)}
    assert found.after == {each: after[each] for each in range(BROKERS)}


@given(LISTS, st.integers(1, 4), st.integers(0, BROKERS - 1))
def test_no_rack_is_used_twice_while_another_is_free(replica_lists: Lists, racks: int, drained: int) -> None:
    for each in drain(image(replica_lists, racks), drained).partitions:
        rest = {replica % racks for replica in each.before if replica != drained}
        free = {other % racks for other in range(BROKERS) if other != drained and other not in each.before}
        assert each.to % racks not in rest or not free - rest


@given(st.integers(1, 40), st.integers(0, BROKERS - 1))
def test_partitions_of_one_replica_are_spread_evenly(partitions: int, drained: int) -> None:
    found = drain(image([(drained,)] * partitions), drained)
    others = [count for each, count in found.after.items() if each != drained]
    assert max(others) - min(others) <= 1


def test_a_plan_leaves_out_fenced_brokers() -> None:
    found = drain(image([(0, 1)] * 4, brokers=4, fenced=(2,)), 0)
    assert {each.to for each in found.partitions} == {3}


def test_a_plan_counts_running_moves_with_their_targets() -> None:
    moving = PartitionImage((3, 1, 0), (UNASSIGNED,) * 3, (0, 1), 0, 0, 0, (3,), (0,), (0, 1), (3, 1))
    topic = TopicImage("t", b"t" * 16, immutables.Map({0: moving}))
    found = with_topic(topic, image([]).cluster)
    assert drain(found, 0).partitions == (), "its replica is leaving already"
    assert [each.before for each in drain(found, 3).partitions] == [(3, 1)]


def test_a_broker_that_nobody_can_replace_is_refused_with_the_next_step() -> None:
    with pytest.raises(ApiError, match="Start more, or request a lower factor") as refused:
        drain(image([(0, 1, 2)], brokers=3), 0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
