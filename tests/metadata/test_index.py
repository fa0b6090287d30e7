"""Derived indexes: their answers, which equal a recomputation by plain loops."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.common.uuids import LOST, MIGRATING, UNASSIGNED
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, Provenance
from kraftlab.metadata.index import EMPTY_INDEX, collision_form, index_of
from kraftlab.metadata.records import AnyRecord, PartitionChange, RegisterBroker, RemoveTopic, Topic
from kraftlab.metadata.records import Partition as PartitionRecord

T = b"topic id topic id"[:16]
D1, D2 = bytes([101]) * 16, bytes([102]) * 16


def test_answers_follow_the_records() -> None:
    image, index = EMPTY, EMPTY_INDEX
    steps: list[list[AnyRecord]] = [
        [RegisterBroker(0, 1, T, 0, log_dirs=(D1,)), Topic(0, "foo.bar", T)],
        [PartitionRecord(0, n, T, (1, 2), (1, 2), leader=1 + n, directories=(D1, D2)) for n in (0, 1)],
        [PartitionChange(0, 1, T, isr=(1,), leader=-1, directories=(UNASSIGNED, D2))],
        [RemoveTopic(0, T)],
    ]
    seen = []
    for records in steps:
        delta = MetadataDelta(image)
        delta.replay_all(records, 0)
        after = delta.apply(Provenance())
        index = index.apply(delta, after)
        image = after
        seen.append(
            (
                [(number, index.leads_any(1)) for _, number in index.partitions_in_isr(1)],
                [number for _, number in index.partitions_in_isr(2)],
                [number for _, number in index.leaderless()],
                [number for _, number in index.partitions_in_directory(D1)],
                index.colliding_topics("foo_bar"),
                index.broker_of_directory(D1),
            )
        )
    assert seen == [
        ([], [], [], [], ("foo.bar",), 1),
        ([(0, True), (1, True)], [0, 1], [], [0, 1], ("foo.bar",), 1),
        ([(0, True), (1, True)], [0], [1], [0], ("foo.bar",), 1),
        ([], [], [], [], (), 1),
    ]


@given(st.integers(0, 100_000), st.integers(1, 150))
@settings(max_examples=40)
def test_an_index_equals_loops_over_the_image(history: Callable[[int, int], list[AnyRecord]], seed: int, length: int) -> None:
    delta = MetadataDelta(EMPTY)
    delta.replay_all(history(seed, length), 0)
    image = delta.apply(Provenance())
    index = index_of(image)
    partitions = [((t, n), p) for t, topic in image.topics.by_id.items() for n, p in topic.partitions.items()]
    for broker_id in range(7):
        assert index.partitions_in_isr(broker_id) == sorted(key for key, p in partitions if broker_id in p.isr)
        assert index.leads.get(broker_id, 0) == sum(p.leader == broker_id for _, p in partitions)
        assert index.leads_any(broker_id) == any(p.leader == broker_id for _, p in partitions)
        assert index.partitions_in_elr(broker_id) == sorted(key for key, p in partitions if broker_id in p.elr)
        sets = (index.partitions_in_isr(broker_id), index.partitions_in_elr(broker_id), index.leaderless())
        assert index.concerned_by(broker_id) == sum(map(len, sets))
    assert set(index.eligible) == {broker_id for _, p in partitions for broker_id in p.elr}
    assert index.led_by_others() == sorted(key for key, p in partitions if p.leader != p.replicas[0])
    assert index.leaderless() == sorted(key for key, p in partitions if p.leader == -1)
    named = {directory for _, p in partitions for directory in p.directories} - {LOST, UNASSIGNED, MIGRATING}
    assert set(index.directories) == named
    for directory in named:
        assert index.partitions_in_directory(directory) == sorted(key for key, p in partitions if directory in p.directories)
    owned = {directory: broker.broker_id for broker in image.cluster.brokers.values() for directory in broker.log_dirs}
    assert dict(index.owners) == owned
    assert sorted(name for names in index.names.values() for name in names) == sorted(image.topics.by_name)
    for form, names in index.names.items():
        assert names == tuple(sorted(names))
        assert {collision_form(name) for name in names} == {form}
