"""Replay: the rules of each record, and the independence of an image from the cut of its records into batches."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.common.uuids import MIGRATING
from kraftlab.metadata.changes import MetadataChanges, changes_between, local_changes
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, PartitionImage, Provenance
from kraftlab.metadata.index import EMPTY_INDEX, index_of
from kraftlab.metadata.records import (
    RECOVERING,
    AbortTransaction,
    AnyRecord,
    BeginTransaction,
    BrokerRegistrationChange,
    ClearElr,
    Config,
    EndTransaction,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.snapshot import image_digest, image_records

T = b"topic id topic id"[:16]
U = b"another topic id"
D1, D2, D3 = (bytes([n]) * 16 for n in (101, 102, 103))
AT_END = Provenance(999, 1, 0)

History = Callable[[int, int], list[AnyRecord]]


def replay(records: list[AnyRecord], image: MetadataImage = EMPTY, base_offset: int = 0) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records, base_offset)
    return delta.apply(AT_END)


FOO = [Topic(0, "foo", T), Partition(0, 0, T, (1, 2), (1, 2), leader=1, directories=(D1, D2))]


def foo(*changes: AnyRecord) -> PartitionImage:
    partition = replay([*FOO, *changes]).topics.partition(T, 0)
    assert partition is not None
    return partition


class TestPartitionChange:
    def test_raises_the_partition_epoch_alone_if_it_has_no_leader(self) -> None:
        changed = foo(PartitionChange(0, 0, T, isr=(1,)))
        assert (changed.isr, changed.partition_epoch, changed.leader_epoch) == ((1,), 1, 0)

    def test_raises_the_leader_epoch_even_for_the_same_leader(self) -> None:
        changed = foo(PartitionChange(0, 0, T, leader=1))
        assert (changed.leader, changed.partition_epoch, changed.leader_epoch) == (1, 1, 1)

    def test_leaves_absent_fields_alone(self) -> None:
        assert foo(PartitionChange(0, 0, T, leader_recovery_state=RECOVERING)) == PartitionImage(
            (1, 2), (D1, D2), (1, 2), 1, partition_epoch=1, leader_recovery_state=RECOVERING
        )

    def test_brings_the_directories_of_a_longer_replica_list(self) -> None:
        longer = foo(PartitionChange(0, 0, T, replicas=(3, 1, 2), directories=(D3, D1, D2)))
        assert longer.directory_of(3) == D3
        with pytest.raises(ReplayError, match="3 replicas with 2 directories"):
            foo(PartitionChange(0, 0, T, replicas=(3, 1, 2)))

    def test_carries_all_four_lists_of_a_reassignment_or_none(self) -> None:
        moving = foo(
            PartitionChange(0, 0, T, adding_replicas=(2,), removing_replicas=(), original_replicas=(1,), target_replicas=(1, 2))
        )
        assert (moving.adding, moving.removing, moving.original, moving.target) == ((2,), (), (1,), (1, 2))
        with pytest.raises(ReplayError, match="adding replicas without"):
            foo(PartitionChange(0, 0, T, adding_replicas=(2,)))
        with pytest.raises(ReplayError, match="without the adding"):
            foo(PartitionChange(0, 0, T, target_replicas=(2,)))


def test_a_partition_without_directories_gets_migrating_ones() -> None:
    image = replay([Topic(0, "foo", T), Partition(0, 0, T, (1, 2), (1,))])
    assert image.topics.by_id[T].partitions[0].directories == (MIGRATING, MIGRATING)


BROKER = RegisterBroker(0, 1, U, 5)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([*FOO, Topic(0, "foo", U)], "a topic of this name exists"),
        ([*FOO, Topic(0, "bar", T)], "a topic of this id exists"),
        ([*FOO, Partition(0, 0, T, (1,), (1,))], "the partition exists"),
        ([Partition(0, 0, T, (1,), (1,))], "there is no topic with id"),
        ([PartitionChange(0, 0, T)], "there is no topic with id"),
        ([*FOO, PartitionChange(0, 1, T)], "topic foo has no such partition"),
        ([*FOO, RemoveTopic(0, T), PartitionChange(0, 0, T)], "there is no topic with id"),
        ([*FOO, RemoveTopic(0, T), RemoveTopic(0, T)], "there is no topic with id"),
        ([Topic(0, "a", T), Partition(0, 0, T, (1,), (1,), directories=(D1, D2))], "1 replicas and 2 directories"),
        ([Topic(0, "a", T), Partition(0, 0, T, (1, 2), (1,), adding_replicas=(2,))], "go with original and target"),
        ([UnregisterBroker(0, 1, 5)], "broker 1 is not registered"),
        ([BROKER, UnregisterBroker(0, 1, 4)], "broker 1 is registered with epoch 5"),
        ([BROKER, UnregisterBroker(0, 1, 5), UnregisterBroker(0, 1, 5)], "broker 1 is not registered"),
        ([BrokerRegistrationChange(0, 1, 5, fenced=False)], "broker 1 is not registered"),
        ([BROKER, BrokerRegistrationChange(0, 1, 6, fenced=False)], "broker 1 is registered with epoch 5"),
        ([FeatureLevel(0, "metadata.version", 31)], "does not support that level"),
        ([FeatureLevel(0, "group.version", 2)], "does not support that level"),
        ([ProducerIds(0, 1, 5, 1000), ProducerIds(0, 2, 6, 1000)], "producer ids below 1000 have been given out already"),
        ([EndTransaction(0)], "no transaction is open"),
        ([AbortTransaction(0)], "no transaction is open"),
        ([BeginTransaction(0), BeginTransaction(0)], "begun at offset 100 is still open"),
    ],
)
@pytest.mark.parametrize("one_delta", [True, False])
def test_a_record_that_does_not_fit_names_itself_its_offset_and_the_next_step(
    records: list[AnyRecord], reason: str, one_delta: bool
) -> None:
    image = EMPTY if one_delta else replay(records[:-1], base_offset=100)
    delta = MetadataDelta(image)
    if one_delta:
        delta.replay_all(records[:-1], 100)
    with pytest.raises(ReplayError) as error:
        delta.replay(records[-1], 99 + len(records))
    assert reason in str(error.value)
    assert f"{records[-1]!r} at offset {99 + len(records)}" in str(error.value)
    assert "this node must stop" in str(error.value)


def test_removing_a_topic_takes_its_configs_and_its_reassignments_along() -> None:
    moving = PartitionChange(0, 0, T, adding_replicas=(2,), removing_replicas=(), original_replicas=(1,), target_replicas=(1, 2))
    image = replay([*FOO, moving, Config(0, 2, "foo", "a", "1"), Config(0, 2, "bar", "a", "1")])
    assert dict(image.topics.reassigning) == {T: (0,)}
    after = replay([RemoveTopic(0, T)], image)
    assert (len(after.topics.by_id), len(after.topics.by_name), len(after.topics.reassigning)) == (0, 0, 0)
    assert list(after.configs) == [(2, "bar")]


def test_a_topic_may_come_back_under_its_old_name_in_the_same_delta() -> None:
    after = replay([RemoveTopic(0, T), Topic(0, "foo", U)], replay(FOO))
    assert dict(after.topics.by_name) == {"foo": U}


def test_a_topic_that_is_made_again_under_its_own_id_in_the_same_delta_moves_no_more() -> None:
    moving = PartitionChange(0, 0, T, adding_replicas=(2,), removing_replicas=(), original_replicas=(1,), target_replicas=(1, 2))
    before = replay([*FOO, moving])
    for again in (FOO, FOO[:1]):
        records = [RemoveTopic(0, T), *again]
        delta = MetadataDelta(before)
        delta.replay_all(records, 0)
        after = delta.apply(AT_END)
        assert after == replay(records[1:], replay(records[:1], before))
        assert dict(after.topics.reassigning) == {}
        check_changes(delta.changes(), changes_between(before, after))
        assert index_of(before).apply(delta, after) == index_of(after)


def test_configs_are_set_and_deleted_and_an_empty_resource_is_gone() -> None:
    image = replay([Config(0, 4, "", "x", "1"), Config(0, 4, "", "x", "2"), Config(0, 4, "1", "y", "3")])
    assert (image.config(4, "", "x"), image.config(4, "1", "y"), image.config(4, "1", "x")) == ("2", "3", None)
    assert list(replay([Config(0, 4, "", "x", None), Config(0, 4, "", "never", None)], image).configs) == [(4, "1")]


def test_a_registration_remembers_its_offset_and_changes_field_by_field() -> None:
    image = replay([NoOp(0), BROKER], base_offset=40)
    assert image.cluster.brokers[1].registration_offset == 41
    for change, fenced, shutting_down in (({"fenced": False}, False, False), ({"in_controlled_shutdown": True}, False, True)):
        image = replay([BrokerRegistrationChange(0, 1, 5, **change)], image)
        assert (image.cluster.brokers[1].fenced, image.cluster.brokers[1].in_controlled_shutdown) == (fenced, shutting_down)
    assert not image.cluster.brokers[1].is_active


def test_cordoned_directories_stay_until_the_next_report_or_incarnation() -> None:
    image = replay([RegisterBroker(0, 1, U, 5, log_dirs=(D1, D2)), BrokerRegistrationChange(0, 1, 5, cordoned_log_dirs=(D1,))])
    assert image.cluster.brokers[1].cordoned_log_dirs == (D1,)
    assert not image.cluster.brokers[1].is_cordoned
    image = replay([BrokerRegistrationChange(0, 1, 5, cordoned_log_dirs=(D1, D2)), BrokerRegistrationChange(0, 1, 5)], image)
    assert image.cluster.brokers[1].is_cordoned
    assert not replay([BrokerRegistrationChange(0, 1, 5, cordoned_log_dirs=())], image).cluster.brokers[1].is_cordoned
    assert not replay([RegisterBroker(0, 1, T, 6, log_dirs=(D1, D2))], image).cluster.brokers[1].is_cordoned


class TestClearElr:
    ELIGIBLE = [*FOO, PartitionChange(0, 0, T, isr=(1,), eligible_leader_replicas=(2,), last_known_elr=(1,))]

    @pytest.mark.parametrize("name", ["foo", ""])
    def test_empties_the_eligible_leader_replicas_of_a_topic_or_of_all(self, name: str) -> None:
        after = replay([*self.ELIGIBLE, ClearElr(0, name)]).topics.partition(T, 0)
        assert after is not None
        assert (after.isr, after.elr, after.last_known_elr, after.partition_epoch, after.leader_epoch) == ((1,), (), (), 2, 0)

    def test_leaves_partitions_alone_that_have_none(self) -> None:
        assert replay([*FOO, ClearElr(0, "foo")]).topics == replay(FOO).topics

    def test_leaves_the_eligible_replicas_of_a_partition_with_an_empty_isr(self) -> None:
        emptied = [*FOO, PartitionChange(0, 0, T, isr=(), leader=-1, eligible_leader_replicas=(2,), last_known_elr=(1,))]
        assert replay([*emptied, ClearElr(0, "foo")]).topics == replay(emptied).topics

    def test_of_a_topic_that_is_not_there_does_not_fit(self) -> None:
        with pytest.raises(ReplayError, match="no topic named bar"):
            replay([*FOO, ClearElr(0, "bar")])


def test_producer_ids_only_rise() -> None:
    assert replay([ProducerIds(0, 1, 5, 1000), ProducerIds(0, 2, 6, 2000)]).next_producer_id == 2000


class TestTransactions:
    def test_records_count_from_the_end_marker_on_with_their_own_offsets(self) -> None:
        begun = replay([BeginTransaction(0, "big"), BROKER], base_offset=10)
        assert len(begun.cluster.brokers) == 0
        assert begun.transaction is not None and begun.transaction.begin_offset == 10
        further = replay([*FOO], begun, base_offset=12)
        assert len(further.topics.by_id) == 0
        ended = replay([EndTransaction(0)], further, base_offset=14)
        assert ended.cluster.brokers[1].registration_offset == 11
        assert list(ended.topics.by_name) == ["foo"]
        assert ended.transaction is None

    def test_an_abort_drops_them(self) -> None:
        begun = replay([BeginTransaction(0), *FOO])
        aborted = replay([AbortTransaction(0, "controller failover")], begun)
        assert (len(aborted.topics.by_id), aborted.transaction) == (0, None)

    def test_a_held_record_that_does_not_fit_fails_at_the_end(self) -> None:
        begun = replay([BeginTransaction(0), UnregisterBroker(0, 1, 1)], base_offset=3)
        with pytest.raises(ReplayError, match="offset 4 cannot be replayed: broker 1 is not registered"):
            replay([EndTransaction(0)], begun, base_offset=5)


def at(image: MetadataImage) -> MetadataImage:
    """The image without its position, for comparison."""
    return msgspec.structs.replace(image, provenance=EMPTY.provenance)


def cut(records: list[AnyRecord], seed: int) -> list[tuple[int, list[AnyRecord]]]:
    """(base offset, records) of random batches."""
    source = random.Random(seed)
    batches, start = [], 0
    while start < len(records):
        end = start + source.randint(1, 12)
        batches.append((start, records[start:end]))
        start = end
    return batches


@given(st.integers(0, 100_000), st.integers(1, 150))
@settings(max_examples=60)
def test_an_image_does_not_depend_on_how_its_records_were_batched(history: History, seed: int, length: int) -> None:
    records = history(seed, length)
    at_once = replay(records)
    image, index = EMPTY, EMPTY_INDEX
    for base_offset, batch in cut(records, seed):
        delta = MetadataDelta(image)
        delta.replay_all(batch, base_offset)
        after = delta.apply(AT_END)
        check_changes(delta.changes(), changes_between(image, after))
        older, copy = index, index_of(image)
        index = index.apply(delta, after)
        assert older == copy, "an older index stays as it was"
        image = after
    assert at(image) == at(at_once)
    assert index == index_of(at_once)
    rebuilt = replay(list(image_records(at_once)), base_offset=7_000_000)
    assert at(rebuilt) == at(at_once)
    assert image_digest(rebuilt) == image_digest(image)


def check_changes(noted: MetadataChanges, found: MetadataChanges) -> None:
    assert noted[:3] == found[:3]
    assert all(small <= large for small, large in zip(found[3:], noted[3:], strict=True))


@given(st.integers(0, 100_000), st.integers(1, 150))
@settings(max_examples=40)
def test_replay_agrees_with_plain_dicts(history: History, seed: int, length: int) -> None:
    """Naive twin: partitions as dicts of fields, replayed one record at a time, transactions unrolled first."""
    records = history(seed, length)
    image = replay(records)
    topics: dict[bytes, dict[int, dict[str, object]]] = {}
    names: dict[bytes, str] = {}
    for record in unrolled(records):
        match record:
            case Topic():
                topics[record.topic_id] = {}
                names[record.topic_id] = record.name
            case RemoveTopic():
                del topics[record.topic_id]
            case Partition():
                topics[record.topic_id][record.partition_id] = {
                    "replicas": record.replicas,
                    "isr": record.isr,
                    "leader": record.leader,
                    "leader_epoch": 0,
                    "partition_epoch": 0,
                    "adding": (),
                    "elr": (),
                    "last_known_elr": (),
                }
            case ClearElr():
                for topic_id, partitions in topics.items():
                    if record.topic_name in ("", names[topic_id]):
                        for fields in partitions.values():
                            if fields["isr"] and (fields["elr"] or fields["last_known_elr"]):
                                fields |= {"elr": (), "last_known_elr": ()}
                                fields["partition_epoch"] = int(str(fields["partition_epoch"])) + 1
            case PartitionChange():
                fields = topics[record.topic_id][record.partition_id]
                new = {"replicas": record.replicas, "isr": record.isr, "leader": record.leader, "adding": record.adding_replicas}
                new |= {"elr": record.eligible_leader_replicas, "last_known_elr": record.last_known_elr}
                fields |= {name: value for name, value in new.items() if value is not None}
                fields["partition_epoch"] = int(str(fields["partition_epoch"])) + 1
                fields["leader_epoch"] = int(str(fields["leader_epoch"])) + (record.leader is not None)
    assert set(image.topics.by_id) == set(topics)
    for topic_id, partitions in topics.items():
        shown = {
            number: {name: getattr(partition, name) for name in partitions[number]}
            for number, partition in image.topics.by_id[topic_id].partitions.items()
        }
        assert shown == partitions
        moving = sorted(n for n, p in image.topics.by_id[topic_id].partitions.items() if p.is_reassigning)
        assert list(image.topics.reassigning.get(topic_id, ())) == moving


def unrolled(records: list[AnyRecord]) -> list[AnyRecord]:
    """Records that count, without markers."""
    counting: list[AnyRecord] = []
    begin = 0
    for record in records:
        if isinstance(record, BeginTransaction):
            begin = len(counting)
        elif isinstance(record, AbortTransaction):
            del counting[begin:]
        elif not isinstance(record, EndTransaction):
            counting.append(record)
    return counting


class TestLocalChanges:
    before = replay(
        [
            Topic(0, "foo", T),
            Partition(0, 0, T, (1, 2), (1, 2), leader=1, directories=(D1, D2)),
            Partition(0, 1, T, (2, 1), (1, 2), leader=2, directories=(D2, D1)),
            Partition(0, 2, T, (2, 3), (2, 3), leader=2, directories=(D2, D3)),
            Topic(0, "gone", U),
            Partition(0, 0, U, (1, 3), (1, 3), leader=1, directories=(D1, D3)),
        ]
    )

    @pytest.mark.parametrize(
        ("record", "deleted", "leading", "elected", "following", "directories"),
        [
            pytest.param(RemoveTopic(0, U), [(U, 0)], [], [], [], [], id="topic gone"),
            pytest.param(
                PartitionChange(0, 0, T, replicas=(2, 3), directories=(D2, D3), isr=(2,), leader=2),
                [(T, 0)],
                [],
                [],
                [],
                [],
                id="moved away",
            ),
            pytest.param(PartitionChange(0, 1, T, leader=1), [], [(T, 1)], [(T, 1)], [], [], id="elected"),
            pytest.param(PartitionChange(0, 0, T, isr=(1,)), [], [(T, 0)], [], [], [], id="still leading"),
            pytest.param(PartitionChange(0, 0, T, leader=2), [], [], [], [(T, 0)], [], id="follows now"),
            pytest.param(
                PartitionChange(0, 2, T, replicas=(2, 3, 1), directories=(D2, D3, D1)),
                [],
                [],
                [],
                [(T, 2)],
                [(T, 2)],
                id="new replica",
            ),
            pytest.param(PartitionChange(0, 0, T, directories=(D3, D2)), [], [(T, 0)], [], [], [(T, 0)], id="other directory"),
            pytest.param(PartitionChange(0, 2, T, isr=(2,)), [], [], [], [], [], id="none of its business"),
        ],
    )
    def test_of_broker_1(
        self, record: AnyRecord, deleted: object, leading: object, elected: object, following: object, directories: object
    ) -> None:
        delta = MetadataDelta(self.before)
        delta.replay(record, 50)
        after = delta.apply(AT_END)
        mine = local_changes(delta.changes(), self.before, after, 1)
        assert [list(part) for part in mine] == [deleted, leading, elected, following, directories]

    def test_a_newcomer_gets_everything_it_hosts(self) -> None:
        mine = local_changes(changes_between(EMPTY, self.before), EMPTY, self.before, 2)
        assert sorted(mine.leading) == [(T, 1), (T, 2)] == sorted(mine.elected)
        assert sorted(mine.following) == [(T, 0)]
        assert len(mine.directories) == 3
