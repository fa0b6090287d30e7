"""Facts about moves beyond the partitions themselves: their identity, the queue, and plans.

The lists of a reassignment (adding, removing, original, target) are in the partition. The image keeps three more things.
*Running*: for each partition that moves, the identity of its move (id, plan, initiator, reason, start) and its throttle.
*Queued*: targets that wait for a free slot. *Plans*: for each of the newest plans, the replicas of its partitions before the
plan, with order and directories, for a rollback.

A move ends with its reassignment: replay drops the move with the record that empties the partition's adding and removing
lists, or that removes the topic. There is no record of its own, so no path that completes or cancels a reassignment can forget
it.

A move's id is `<offset>.<index>`: the metadata offset of the request's first record, and the partition's index in the request.
It is unique forever, is known when the request is answered, and sorts by age.
"""

from __future__ import annotations

import immutables
import msgspec

from kraftlab.common.uuids import Uuid

TopicPartition = tuple[Uuid, int]
"""(topic id, partition number)."""


def move_id_text(request_offset: int, index: int) -> str:
    """A move's id as text."""
    return f"{request_offset}.{index}"


class MoveImage(msgspec.Struct, frozen=True, gc=False):
    """Running move of one partition. `throttle` in bytes/s (None: no throttle of its own), `throttle_until_ms` wall clock
    (None: until the move ends).
    """

    request_offset: int
    index: int
    initiator: str
    reason: str
    started_ms: int
    plan_id: str | None = None
    throttle: int | None = None
    throttle_until_ms: int | None = None

    @property
    def move_id(self) -> str:
        return move_id_text(self.request_offset, self.index)


class QueuedMoveImage(msgspec.Struct, frozen=True, gc=False):
    """Queued target of one partition. A higher `priority` starts first; `throttle_for_ms` counts from the start."""

    request_offset: int
    index: int
    target: tuple[int, ...]
    initiator: str
    reason: str
    queued_ms: int
    plan_id: str | None = None
    throttle: int | None = None
    throttle_for_ms: int | None = None
    priority: int = 0
    directories: tuple[Uuid, ...] = ()
    """Directories of new replicas, parallel to `target`; () leaves them to the brokers."""

    @property
    def move_id(self) -> str:
        return move_id_text(self.request_offset, self.index)


class PlannedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One partition of a plan: its `replicas` with their `directories` before the plan, and the plan's target."""

    topic_id: Uuid
    partition: int
    topic: str
    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    target: tuple[int, ...]


class PlanImage(msgspec.Struct, frozen=True):
    """A plan that can be rolled back. `created_offset` orders plans by age."""

    plan_id: str
    created_offset: int
    created_ms: int
    initiator: str
    reason: str
    partitions: immutables.Map[TopicPartition, PlannedPartition]


class MovesImage(msgspec.Struct, frozen=True):
    """Running and queued moves: topic id → partition → move. Plans by id. There are no empty inner maps."""

    running: immutables.Map[Uuid, immutables.Map[int, MoveImage]] = immutables.Map()
    queued: immutables.Map[Uuid, immutables.Map[int, QueuedMoveImage]] = immutables.Map()
    plans: immutables.Map[str, PlanImage] = immutables.Map()

    def move(self, topic_id: Uuid, partition: int) -> MoveImage | None:
        """Running move of the partition. None if it is not moving, or if its move began before moves had records."""
        moves = self.running.get(topic_id)
        return None if moves is None else moves.get(partition)

    def waiting(self, topic_id: Uuid, partition: int) -> QueuedMoveImage | None:
        """Queued target of the partition, None if there is none."""
        waiting = self.queued.get(topic_id)
        return None if waiting is None else waiting.get(partition)
