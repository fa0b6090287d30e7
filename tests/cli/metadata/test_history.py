"""`metadata history` in words, and moments that are epochs: over records made here, and over logs that begin with a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.metadata.history import history_lines, parse_subject
from kraftlab.cli.metadata.sources import LiveSource, moment_of, parse_point
from kraftlab.cli.output import CommandFailed, WrongUse
from kraftlab.common.endpoint import Endpoint
from kraftlab.metadata import records as r
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.node.history import NEWEST, LoggedBatch, Moment, PastImage
from kraftlab.node.subject_changes import subject_changes
from kraftlab.quorum.core.batch import LeaderChange
from kraftlab.quorum.core.types import OffsetAndEpoch

CLICKS = bytes([7]) * 16
FENCED = r.BrokerRegistrationChange(0, 2, 5, fenced=True)


def batch(offset: int, *records: Any, epoch: int = 3) -> LoggedBatch:
    return LoggedBatch(offset, epoch, 1_795_280_795_000 + offset, len(records), records)


def changed(**fields: Any) -> r.PartitionChange:
    return r.PartitionChange(0, 4, CLICKS, **fields)


CREATED = batch(10, r.Topic(0, "clicks", CLICKS), r.Partition(0, 4, CLICKS, (1, 2, 3), (1, 2, 3), leader=1))
MOVED = batch(
    12,
    changed(
        replicas=(1, 3, 4, 2),
        adding_replicas=(4,),
        removing_replicas=(2,),
        original_replicas=(1, 2, 3),
        target_replicas=(1, 3, 4),
    ),
    r.StartMoves(0, 12, "User:ann", "rack 2 is retired", 0, ((CLICKS, 4, 0),), "retire-2"),
)
EMPTIED: dict[str, Any] = {"adding_replicas": (), "removing_replicas": (), "original_replicas": (), "target_replicas": ()}
COMPLETED = batch(14, changed(replicas=(1, 3, 4), isr=(1, 3, 4), **EMPTIED))


def told(name: str, *batches: LoggedBatch, before: MetadataImage = EMPTY) -> list[str]:
    return list(history_lines(subject_changes(parse_subject(name.split()), before, batches)))


def test_a_lost_replica_has_the_plan_the_initiator_and_the_reason_of_its_move() -> None:
    lines = told("clicks-4", CREATED, MOVED, COMPLETED)
    place = "2026-11-21T17:06:35.014Z  offset 14  epoch 3"
    change = "replicas: [1,3,4,2] -> [1,3,4] (loses 2); isr: [1,2,3] -> [1,3,4] (loses 2, gains 4); adding: [4] -> []"
    assert lines[-2] == f"{place}  {change}; removing: [2] -> []; reassignment is complete"
    assert lines[-1] == "    move 12.0, plan retire-2, by User:ann: rack 2 is retired"
    cancelled = batch(14, changed(replicas=(1, 2, 3), **EMPTIED))
    assert told("clicks", CREATED, MOVED, cancelled)[-2].endswith("; reassignment is cancelled")


def test_a_change_beside_a_fenced_broker_has_it_as_its_reason() -> None:
    lines = told("clicks", CREATED, batch(20, FENCED, changed(isr=(1, 3), leader=3)))
    assert lines[-2].endswith("  clicks-4: isr: [1,2,3] -> [1,3] (loses 2); leader: 1 -> 3")
    assert lines[-1] == "    broker 2 is fenced"
    moving = told("clicks", CREATED, MOVED, batch(20, FENCED, changed(isr=(1, 3), leader=3)))
    assert moving[-1] == "    broker 2 is fenced", "the move is not why"
    assert [line.split("  ")[-1] for line in told("broker 2", batch(20, FENCED, changed(isr=(1, 3))))] == ["broker 2 is fenced"]


def test_records_of_an_aborted_transaction_did_not_change_anything() -> None:
    aborted = batch(12, r.BeginTransaction(0), changed(isr=(1,)), r.AbortTransaction(0))
    assert "isr: [1,2,3] -> [1,2]" in told("clicks-4", CREATED, aborted, batch(15, changed(isr=(1, 2))))[-1]
    assert len(told("clicks-4", CREATED, aborted)) == 2


def test_a_topic_of_the_name_of_a_partition_comes_first() -> None:
    other = batch(30, r.Topic(0, "clicks-4", bytes(16)))
    assert [line.split("  ")[-1] for line in told("clicks-4", CREATED, other)] == ["topic clicks-4 is created, id " + "A" * 22]


def test_the_quorum_has_a_line_for_each_leader() -> None:
    elected = LoggedBatch(9, 4, 1_795_280_795_000, 1, (), (LeaderChange(0, 3001, (3000, 3001, 3002), (3001, 3002)),))
    (line,) = told("quorum", elected, CREATED)
    assert line.endswith("offset 9  epoch 4  controller 3001 leads epoch 4, elected by [3001,3002] of voters [3000,3001,3002]")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("click", "no topic click is in the log; it has clicks"),
        ("clicks-5", "topic clicks has no partition 5; it has 4"),
        ("broker 9", "no broker 9 is registered"),
    ],
)
def test_names_that_the_log_does_not_know_are_refused_with_those_it_knows(name: str, said: str) -> None:
    with pytest.raises(LookupError, match=said):
        told(name, CREATED)


@pytest.mark.parametrize("words", [("broker",), ("broker", "x"), ("broker", "-1"), ("a", "b"), ("",)])
def test_other_words_are_wrong_use(words: tuple[str, ...]) -> None:
    with pytest.raises(WrongUse, match="expected TOPIC-PARTITION, TOPIC, broker ID, or quorum"):
        parse_subject(words)


def test_a_broker_may_be_quoted() -> None:
    assert parse_subject(["broker 3"]) == parse_subject(["broker", "3"])


class Log:
    """A source with batches at 40 and 50 (epoch 3), 60 (epoch 5) and 70 (epoch 6), which begins at `first`."""

    name = "here"

    def __init__(self, first: OffsetAndEpoch) -> None:
        self._first = first

    def first(self) -> OffsetAndEpoch:
        return self._first

    def at(self, moment: Moment) -> PastImage:
        return PastImage(MetadataImage(Provenance(80, 6, 0)), None, ())

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch | str]:
        assert (start, end) == (self._first.offset, 80)
        yield from (batch(offset, epoch=epoch) for offset, epoch in ((40, 3), (50, 3), (60, 5), (70, 6)))

    def known_committed(self) -> int | None:
        return None


def at(text: str, first: OffsetAndEpoch) -> Moment:
    point = parse_point(text)
    assert isinstance(point, tuple)
    return moment_of(Log(first), point)


def test_an_epoch_is_the_moment_before_its_first_record_or_after_its_last() -> None:
    snapshot = OffsetAndEpoch(40, 2)
    assert [at(f"epoch:{text}", snapshot) for text in ("3", "3+", "5", "5+", "2+")] == [
        Moment(offset=offset) for offset in (40, 60, 60, 70, 40)
    ]
    assert at("epoch:6+", snapshot) == NEWEST


@pytest.mark.parametrize(("log_start", "first"), [(0, (0, 0)), (40, (40, 2))])
def test_the_log_of_a_running_node_begins_at_its_oldest_snapshot_unless_it_is_whole(
    log_start: int, first: tuple[int, int]
) -> None:
    snapshots = [pb.MetadataSnapshot(end_offset=40, epoch=2), pb.MetadataSnapshot(end_offset=60, epoch=5)]
    client = mock.Mock(call_at=lambda *_: pb.ListSnapshotsResponse(snapshots=snapshots, log_start_offset=log_start))
    assert LiveSource(client, Endpoint("h", 1)).first() == first


@pytest.mark.parametrize(
    ("text", "first", "said"),
    [
        ("epoch:4", (0, 0), "epoch 4 has no records in here; there are epochs 3, 5, 6$"),
        ("epoch:7", (0, 0), "epoch 7 has no records in here; there are epochs 3, 5, 6$"),
        ("epoch:0", (0, 0), "epoch 0 has no records in here"),
        ("epoch:1+", (40, 2), "epoch 1 has no records in here, which begins at offset 40; there are epochs 2, 3, 5, 6$"),
        ("epoch:3", (40, 3), "epoch 3 began before offset 40, where the log of here begins; give the moment 40$"),
    ],
)
def test_an_epoch_that_never_was_is_yet_to_come_or_began_before_the_log_is_refused(
    text: str, first: tuple[int, int], said: str
) -> None:
    with pytest.raises(CommandFailed, match=said):
        at(text, OffsetAndEpoch(*first))
