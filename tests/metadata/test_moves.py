"""Replay of the records about moves: their preconditions, replacements, and ends without a record."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.common.uuids import UNASSIGNED
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.invariants import check_image
from kraftlab.metadata.moves import MovesImage, PlannedPartition
from kraftlab.metadata.records import (
    AnyRecord,
    ChangeMoveThrottles,
    DequeueMoves,
    MovePlan,
    Partition,
    PartitionChange,
    QueueMoves,
    RemovePlan,
    RemoveTopic,
    StartMoves,
    Topic,
)
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.snapshot import image_records

T = b"topic id topic id"[:16]
FOO: list[AnyRecord] = [
    Topic(0, "foo", T),
    *(Partition(0, number, T, (1,), (1,), directories=(UNASSIGNED,)) for number in range(3)),
]


def replay(*records: AnyRecord, image: MetadataImage = EMPTY) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records, 100)
    return delta.apply(Provenance(999, 1, 0))


def moves_to(number: int, target: int) -> PartitionChange:
    return PartitionChange(
        0,
        number,
        T,
        replicas=(target, 1),
        directories=(UNASSIGNED,) * 2,
        adding_replicas=(target,),
        removing_replicas=(1,),
        original_replicas=(1,),
        target_replicas=(target,),
    )


def stands_still(number: int) -> PartitionChange:
    nothing: dict[str, Any] = dict.fromkeys(("adding_replicas", "removing_replicas", "original_replicas", "target_replicas"), ())
    return PartitionChange(0, number, T, replicas=(1,), directories=(UNASSIGNED,), **nothing)


def starts(*numbers: int, offset: int = 50, **fields: Any) -> StartMoves:
    return StartMoves(0, offset, "User:a", "why", 7, tuple((T, n, index) for index, n in enumerate(numbers)), **fields)


def queues(*numbers: int, offset: int = 60, **fields: Any) -> QueueMoves:
    moves = tuple((T, n, index, (2,), ()) for index, n in enumerate(numbers))
    return QueueMoves(0, offset, "User:b", "", 8, moves, **fields)


def planned(number: int, before: tuple[int, ...], target: tuple[int, ...]) -> PlannedPartition:
    return PlannedPartition(T, number, "foo", before, (UNASSIGNED,) * len(before), target)


def plan(*entries: PlannedPartition, plan_id: str = "p", offset: int = 1) -> MovePlan:
    return MovePlan(0, plan_id, offset, 9, "User:c", "because", entries)


def test_a_move_has_the_id_of_its_request_and_place() -> None:
    image = replay(*FOO, moves_to(0, 2), moves_to(2, 3), starts(2, 0))
    found = [image.moves.move(T, number) for number in range(3)]
    assert [move and move.move_id for move in found] == ["50.1", None, "50.0"]


@pytest.mark.parametrize("in_one_batch", [True, False])
@pytest.mark.parametrize("end", [stands_still(0), RemoveTopic(0, T)], ids=["it stands still", "the topic goes"])
def test_a_move_ends_without_a_record_of_its_own(end: AnyRecord, in_one_batch: bool) -> None:
    records = [*FOO, moves_to(0, 2), starts(0)]
    image = replay(*records, end) if in_one_batch else replay(end, image=replay(*records))
    assert image.moves == MovesImage()
    assert check_image(image) == ()


def test_a_move_outlives_changes_of_its_partition_that_do_not_end_it() -> None:
    image = replay(*FOO, moves_to(0, 2), starts(0), PartitionChange(0, 0, T, isr=(1, 2)), moves_to(0, 3))
    assert image.moves.move(T, 0) is not None


def test_a_later_start_replaces_the_earlier_one() -> None:
    image = replay(*FOO, moves_to(0, 2), starts(0), moves_to(0, 3), starts(0, offset=70, throttle=5))
    move = image.moves.move(T, 0)
    assert move is not None and (move.move_id, move.throttle) == ("70.0", 5)


def test_a_start_takes_the_partition_off_the_queue() -> None:
    image = replay(*FOO, queues(0, 1), moves_to(0, 2), starts(0))
    assert image.moves.waiting(T, 0) is None
    waiting = image.moves.waiting(T, 1)
    assert waiting is not None and (waiting.target, waiting.move_id) == ((2,), "60.1")


def test_the_queue_goes_with_its_topic_and_by_name() -> None:
    assert replay(*FOO, queues(0, 1), DequeueMoves(0, ((T, 0), (T, 1)))).moves == MovesImage()
    assert replay(RemoveTopic(0, T), image=replay(*FOO, queues(0))).moves == MovesImage()


def test_throttles_change_for_the_moves_that_are_named() -> None:
    image = replay(*FOO, moves_to(0, 2), moves_to(1, 2), starts(0, 1, throttle=9), ChangeMoveThrottles(0, ((T, 1),), 4, 77))
    throttles = [(move.throttle, move.throttle_until_ms) for n in (0, 1) if (move := image.moves.move(T, n))]
    assert throttles == [(9, None), (4, 77)]


def test_a_plan_grows_and_keeps_the_state_before_its_first_request() -> None:
    image = replay(*FOO, plan(planned(0, (1,), (2,))), plan(planned(0, (2,), (3,)), planned(1, (1,), (2,)), offset=5))
    known = image.moves.plans["p"]
    assert known.created_offset == 1
    assert {key[1]: (entry.replicas, entry.target) for key, entry in known.partitions.items()} == {
        0: ((1,), (3,)),
        1: ((1,), (2,)),
    }
    assert replay(RemovePlan(0, "p"), image=image).moves == MovesImage()


def test_a_plan_outlives_the_topics_it_names() -> None:
    assert replay(*FOO, plan(planned(0, (1,), (2,))), RemoveTopic(0, T)).moves.plans["p"].partitions


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([starts(0)], "is not being reassigned"),
        ([moves_to(0, 2), starts(9)], "is not being reassigned"),
        ([RemoveTopic(0, T), starts(0)], "no topic with id"),
        ([moves_to(0, 2), queues(0)], "is being reassigned already"),
        ([queues(9)], "does not exist"),
        ([DequeueMoves(0, ((T, 0),))], "nothing is queued"),
        ([queues(0), DequeueMoves(0, ((T, 0), (T, 0)))], "nothing is queued"),
        ([ChangeMoveThrottles(0, ((T, 0),))], "has no move"),
        ([moves_to(0, 2), starts(0), stands_still(0), ChangeMoveThrottles(0, ((T, 0),))], "has no move"),
        ([RemovePlan(0, "p")], "there is no plan p"),
        ([plan(), RemovePlan(0, "p"), RemovePlan(0, "p")], "there is no plan p"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(records: list[AnyRecord], reason: str) -> None:
    with pytest.raises(ReplayError, match=reason):
        replay(*FOO, *records)


def test_moves_of_one_request_are_one_record_in_a_snapshot_as_long_as_they_are_alike() -> None:
    changes = [moves_to(number, 2) for number in range(3)]
    image = replay(*FOO, *changes, starts(2, 1, 0, throttle=9), ChangeMoveThrottles(0, ((T, 1),)))
    written = [record for record in image_records(image) if isinstance(record, StartMoves)]
    assert [(record.throttle, record.moves) for record in written] == [
        (None, ((T, 1, 1),)),
        (9, ((T, 2, 0), (T, 0, 2))),
    ]
    assert replay(*image_records(image)).moves == image.moves


@pytest.mark.parametrize("what", [MovesImage(running=replay(*FOO, moves_to(0, 2), starts(0)).moves.running)])
def test_moves_without_a_partition_break_a_rule(what: MovesImage) -> None:
    image = MetadataImage(moves=what)
    assert any("a move belongs to a partition that is being reassigned" in line for line in check_image(image))
