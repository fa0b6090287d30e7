"""Records of one request, collected while its entries are judged.

Partition changes come first, in the order of the entries; then at most one record of each other kind, which refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.common.uuids import UNASSIGNED, Uuid
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.moves import (
    MoveImage,
    MovesImage,
    PlannedPartition,
    QueuedMoveImage,
    TopicPartition,
    move_id_text,
)
from kraftlab.metadata.records import (
    AnyRecord,
    ChangeMoveThrottles,
    DequeueMoves,
    MovePlan,
    PartitionChange,
    QueueMoves,
    RemovePlan,
    StartMoves,
)

from ..engine.state import Context
from .options import ReassignmentOptions
from .plans import outdated
from .policy import MovePolicy
from .queueing import Selection, current_load, in_order, waiting_for


class Slots:
    """Free slots for the targets of one request, after the running and the queued moves."""

    def __init__(self, image: MetadataImage, policy: MovePolicy) -> None:
        self._image = image
        self._policy = policy
        self._selection: Selection | None = None

    def take(self, key: TopicPartition, target: tuple[int, ...], priority: int) -> bool:
        """Return True if the target may start now. Then it counts as running. `priority` is the request's."""
        if self._selection is None:
            self._selection = self._after_those_ahead(priority)
        move = waiting_for(self._image, key, target)
        return move is not None and self._selection.offer(move)

    def _after_those_ahead(self, priority: int) -> Selection:
        """Selection after all queued moves of at least this priority, which start first."""
        image = self._image
        selection = Selection(current_load(image), self._policy)
        queued = [
            ((topic_id, number), move)
            for topic_id, waiting in image.moves.queued.items()
            for number, move in waiting.items()
            if move.priority >= priority
        ]
        for key, move in in_order(queued, "fifo", {}):
            waits = waiting_for(image, key, move.target)
            if waits is not None:
                selection.offer(waits)
        return selection


class Draft:
    """See the module's docstring. `index` is always the index of an entry in the request."""

    def __init__(self, options: ReassignmentOptions, policy: MovePolicy, context: Context, slots: Slots) -> None:
        self.slots = slots
        self._options = options
        self._policy = policy
        self._now_ms = context.now_ms
        self._offset = context.next_offset
        self._changes: list[AnyRecord] = []
        self._started: list[tuple[Uuid, int, int]] = []
        self._queued: list[tuple[Uuid, int, int, tuple[int, ...], tuple[Uuid, ...]]] = []
        self._dequeued: list[TopicPartition] = []
        self._throttled: list[TopicPartition] = []
        self._planned: list[PlannedPartition] = []

    def move_id(self, index: int) -> str:
        """Id of the move of this entry; "" if nothing is written."""
        return "" if self._options.validate_only else move_id_text(self._offset, index)

    def change(self, record: PartitionChange | None) -> None:
        if record is not None:
            self._changes.append(record)

    def start(self, key: TopicPartition, index: int) -> None:
        self._started.append((*key, index))

    def queue(self, key: TopicPartition, index: int, target: tuple[int, ...], directories: Mapping[int, Uuid]) -> None:
        placed = tuple(directories.get(broker_id, UNASSIGNED) for broker_id in target) if directories else ()
        self._queued.append((*key, index, target, placed))

    def dequeue(self, topic_id: Uuid, partition_index: int) -> None:
        self._dequeued.append((topic_id, partition_index))

    def throttle(self, key: TopicPartition, move: MoveImage | None) -> None:
        """Give the running move the throttle of this request, if it has one."""
        options = self._options
        if options.throttle is None or move is None:
            return
        if (move.throttle, move.throttle_until_ms) != (options.throttle or None, self._throttle_until_ms):
            self._throttled.append(key)

    def plan(self, planned: PlannedPartition) -> None:
        self._planned.append(planned)

    @property
    def _throttle_until_ms(self) -> int | None:
        for_ms = self._options.throttle_for_ms
        return None if for_ms is None else self._now_ms + for_ms

    def records(self, moves: MovesImage) -> list[AnyRecord]:
        """All records of the request. `moves`: the image's moves before the request."""
        options = self._options
        throttle = options.throttle or None
        records = self._changes
        if self._started:
            records.append(
                StartMoves(
                    0,
                    self._offset,
                    options.initiator,
                    options.reason,
                    self._now_ms,
                    tuple(self._started),
                    options.plan_id,
                    throttle,
                    self._throttle_until_ms,
                )
            )
        if self._queued:
            records.append(
                QueueMoves(
                    0,
                    self._offset,
                    options.initiator,
                    options.reason,
                    self._now_ms,
                    tuple(self._queued),
                    options.plan_id,
                    throttle,
                    options.throttle_for_ms,
                    options.priority,
                )
            )
        if self._dequeued:
            records.append(DequeueMoves(0, tuple(self._dequeued)))
        if self._throttled:
            records.append(ChangeMoveThrottles(0, tuple(self._throttled), throttle, self._throttle_until_ms))
        if self._planned and options.plan_id is not None:
            records.append(
                MovePlan(
                    0,
                    options.plan_id,
                    self._offset,
                    self._now_ms,
                    options.initiator,
                    options.reason,
                    tuple(self._planned),
                )
            )
            records += [RemovePlan(0, plan_id) for plan_id in outdated(moves, options.plan_id, self._policy.plans_kept)]
        return records


def start_queued(started: list[tuple[TopicPartition, QueuedMoveImage]], now_ms: int) -> list[StartMoves]:
    """StartMoves records of queued moves that start now. They keep their ids and initiators."""
    groups: dict[tuple[object, ...], list[tuple[TopicPartition, QueuedMoveImage]]] = {}
    for key, move in started:
        common = (move.request_offset, move.initiator, move.reason, move.plan_id, move.throttle, move.throttle_for_ms)
        groups.setdefault(common, []).append((key, move))
    records = []
    for members in groups.values():
        head = members[0][1]
        until_ms = None if head.throttle_for_ms is None else now_ms + head.throttle_for_ms
        moves = tuple((*key, move.index) for key, move in members)
        records.append(
            StartMoves(0, head.request_offset, head.initiator, head.reason, now_ms, moves, head.plan_id, head.throttle, until_ms)
        )
    return records
