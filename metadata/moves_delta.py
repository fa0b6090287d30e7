"""Replay of the records about moves (`moves.py`), and the records of a snapshot.

A `MovesDelta` collects changes in dicts over the image it starts with, and writes each changed map once. ReplayError for a
record that does not fit the records before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, TypeVar

import immutables
import msgspec

from kraftlab.common.uuids import Uuid

from .maps import newest, written
from .moves import MoveImage, MovesImage, PlanImage, PlannedPartition, QueuedMoveImage, TopicPartition
from .records import AnyRecord, ChangeMoveThrottles, DequeueMoves, MovePlan, QueueMoves, RemovePlan, StartMoves
from .replay_error import ReplayError

M = TypeVar("M", MoveImage, QueuedMoveImage)

PARTITIONS_PER_RECORD = 1000
"""Largest number of partitions in a plan's record of a snapshot: several requests can make a plan larger than a batch."""

_Overlay = dict[Uuid, dict[int, M | None]]
_NOTHING: immutables.Map[int, Any] = immutables.Map()


class MovesDelta:
    """Records replayed over `before` and not yet applied."""

    __slots__ = ("_before", "_plans", "_queued", "_running")

    def __init__(self, before: MovesImage) -> None:
        self._before = before
        self._running: _Overlay[MoveImage] = {}
        self._queued: _Overlay[QueuedMoveImage] = {}
        self._plans: dict[str, PlanImage | None] = {}

    def running(self, topic_id: Uuid, partition: int) -> MoveImage | None:
        """Newest running move of the partition."""
        return newest(self._before.running.get(topic_id, _NOTHING), self._running.get(topic_id, {}), partition)

    def queued(self, topic_id: Uuid, partition: int) -> QueuedMoveImage | None:
        """Newest queued target of the partition."""
        return newest(self._before.queued.get(topic_id, _NOTHING), self._queued.get(topic_id, {}), partition)

    def ended(self, topic_id: Uuid, partition: int) -> None:
        """Drop the partition's move: its reassignment has ended."""
        if self.running(topic_id, partition) is not None:
            self._running.setdefault(topic_id, {})[partition] = None

    def topic_removed(self, topic_id: Uuid) -> None:
        """Drop the topic's running and queued moves. Plans keep the topic: a rollback has to report that it is gone."""
        for base, overlay in ((self._before.running, self._running), (self._before.queued, self._queued)):
            if topic_id in base or topic_id in overlay:
                overlay[topic_id] = dict.fromkeys({*base.get(topic_id, ()), *overlay.get(topic_id, ())})

    def start(self, record: StartMoves) -> None:
        for topic_id, partition, index in record.moves:
            self._running.setdefault(topic_id, {})[partition] = MoveImage(
                record.request_offset,
                index,
                record.initiator,
                record.reason,
                record.started_ms,
                record.plan_id,
                record.throttle,
                record.throttle_until_ms,
            )
            if self.queued(topic_id, partition) is not None:
                self._queued.setdefault(topic_id, {})[partition] = None

    def queue(self, record: QueueMoves) -> None:
        for topic_id, partition, index, target, directories in record.moves:
            self._queued.setdefault(topic_id, {})[partition] = QueuedMoveImage(
                record.request_offset,
                index,
                target,
                record.initiator,
                record.reason,
                record.queued_ms,
                record.plan_id,
                record.throttle,
                record.throttle_for_ms,
                record.priority,
                directories,
            )

    def dequeue(self, record: DequeueMoves) -> None:
        for topic_id, partition in record.partitions:
            if self.queued(topic_id, partition) is None:
                raise ReplayError(f"nothing is queued for partition {partition} of that topic")
            self._queued.setdefault(topic_id, {})[partition] = None

    def change_throttles(self, record: ChangeMoveThrottles) -> None:
        for topic_id, partition in record.partitions:
            move = self.running(topic_id, partition)
            if move is None:
                raise ReplayError(f"partition {partition} of that topic has no move")
            self._running.setdefault(topic_id, {})[partition] = msgspec.structs.replace(
                move, throttle=record.throttle, throttle_until_ms=record.throttle_until_ms
            )

    def plan(self, record: MovePlan) -> None:
        """Add a plan, or more partitions of a known plan. For a known partition only the target changes."""
        known = newest(self._before.plans, self._plans, record.plan_id)
        nothing: immutables.Map[TopicPartition, PlannedPartition] = immutables.Map()
        partitions = (nothing if known is None else known.partitions).mutate()
        for entry in record.partitions:
            key = (entry.topic_id, entry.partition)
            before = partitions.get(key)
            partitions[key] = entry if before is None else msgspec.structs.replace(before, target=entry.target)
        self._plans[record.plan_id] = PlanImage(
            record.plan_id,
            record.created_offset if known is None else known.created_offset,
            record.created_ms if known is None else known.created_ms,
            record.initiator,
            record.reason,
            partitions.finish(),
        )

    def remove_plan(self, record: RemovePlan) -> None:
        known = newest(self._before.plans, self._plans, record.plan_id)
        if known is None:
            raise ReplayError(f"there is no plan {record.plan_id}")
        self._plans[record.plan_id] = None

    def apply(self) -> MovesImage:
        """Return the image after all replayed records."""
        if not (self._running or self._queued or self._plans):
            return self._before
        before = self._before
        return MovesImage(
            _merged(before.running, self._running), _merged(before.queued, self._queued), written(before.plans, self._plans)
        )


def _merged(
    base: immutables.Map[Uuid, immutables.Map[int, M]], overlay: _Overlay[M]
) -> immutables.Map[Uuid, immutables.Map[int, M]]:
    return written(base, {key: written(base.get(key, _NOTHING), inner) or None for key, inner in overlay.items()})


def move_records(moves: MovesImage) -> Iterator[AnyRecord]:
    """Records of `moves`, after the topics' records: running moves by id, then queued ones, then plans by age."""
    running = sorted(_each(moves.running), key=lambda entry: (*_running_group(entry[1]), entry[1].index, entry[0]))
    for _, started in groupby(running, key=lambda entry: _running_group(entry[1])):
        group = list(started)
        first = group[0][1]
        yield StartMoves(
            0,
            first.request_offset,
            first.initiator,
            first.reason,
            first.started_ms,
            tuple((*key, move.index) for key, move in group),
            first.plan_id,
            first.throttle,
            first.throttle_until_ms,
        )
    queued = sorted(_each(moves.queued), key=lambda entry: (*_queued_group(entry[1]), entry[1].index, entry[0]))
    for _, waiting in groupby(queued, key=lambda entry: _queued_group(entry[1])):
        wait_group = list(waiting)
        head = wait_group[0][1]
        yield QueueMoves(
            0,
            head.request_offset,
            head.initiator,
            head.reason,
            head.queued_ms,
            tuple((*key, move.index, move.target, move.directories) for key, move in wait_group),
            head.plan_id,
            head.throttle,
            head.throttle_for_ms,
            head.priority,
        )
    for plan in sorted(moves.plans.values(), key=lambda plan: (plan.created_offset, plan.plan_id)):
        entries = tuple(plan.partitions[key] for key in sorted(plan.partitions))
        for start in range(0, max(len(entries), 1), PARTITIONS_PER_RECORD):
            part = entries[start : start + PARTITIONS_PER_RECORD]
            yield MovePlan(0, plan.plan_id, plan.created_offset, plan.created_ms, plan.initiator, plan.reason, part)


def _each(moves: immutables.Map[Uuid, immutables.Map[int, M]]) -> Iterator[tuple[TopicPartition, M]]:
    for topic_id, inner in moves.items():
        for partition, move in inner.items():
            yield (topic_id, partition), move


def _running_group(move: MoveImage) -> tuple[object, ...]:
    """Common fields of the moves in one record, as a sort key that does not compare None with a number."""
    rest = (move.plan_id, move.throttle, move.throttle_until_ms)
    return (move.request_offset, move.started_ms, move.initiator, move.reason, *_comparable(rest))


def _queued_group(move: QueuedMoveImage) -> tuple[object, ...]:
    rest = (move.plan_id, move.throttle, move.throttle_for_ms)
    return (move.request_offset, move.queued_ms, move.priority, move.initiator, move.reason, *_comparable(rest))


def _comparable(values: tuple[object | None, ...]) -> Iterator[tuple[bool, object]]:
    for value in values:
        yield (value is not None, "" if value is None else value)
