"""What the log says about moves beyond the partitions themselves: whose they are, what waits, how to go back.

The lists of a reassignment (adding, removing, original, target) live in the partition. Beside them the image keeps three things.
*Running*: for each partition that moves, the identity of its move (id, plan, initiator, reason, start) and the throttle that
belongs to it. *Queued*: targets that wait for a free slot. *Plans*: for the last plans, each partition's replicas, order and
directories before the plan, so that the plan can be rolled back.

A move ends with its reassignment: the record that empties the partition's adding and removing lists, or removes the topic, takes
the move along in replay. No record of its own says so, so no path that completes or cancels a reassignment can forget it.

A move's id is `<offset>.<index>`: the metadata offset of the request's first record and the partition's place in the request. It
is unique for ever, is known when the request is answered, and sorts by age.
"""

from __future__ import annotations

import immutables
import msgspec

from .uuids import Uuid

TopicPartition = tuple[Uuid, int]
"""(topic id, partition number)."""


def move_id_text(request_offset: int, index: int) -> str:
    """A move's id as people see it."""
    return f"{request_offset}.{index}"


class MoveImage(msgspec.Struct, frozen=True, gc=False):
    """One partition's running move. `throttle` in bytes/s (None: none is owned), `throttle_until_ms` wall clock (None: until the
    move ends).
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
    """One partition's target that waits. A higher `priority` starts first; `throttle_for_ms` counts from the start."""

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
    """Where new replicas are to be born, parallel to `target`; () leaves it to the brokers."""

    @property
    def move_id(self) -> str:
        return move_id_text(self.request_offset, self.index)


class PlannedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One partition of a plan: `replicas` with their `directories` before it, and where the plan sends it."""

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
    """All of it: topic id → partition → move, twice, and plans by id. Empty inner maps do not occur."""

    running: immutables.Map[Uuid, immutables.Map[int, MoveImage]] = immutables.Map()
    queued: immutables.Map[Uuid, immutables.Map[int, QueuedMoveImage]] = immutables.Map()
    plans: immutables.Map[str, PlanImage] = immutables.Map()

    def move(self, topic_id: Uuid, partition: int) -> MoveImage | None:
        """The partition's running move, None if it is not moving (or began before moves had records)."""
        moves = self.running.get(topic_id)
        return None if moves is None else moves.get(partition)

    def waiting(self, topic_id: Uuid, partition: int) -> QueuedMoveImage | None:
        """The partition's queued target, None if none waits."""
        waiting = self.queued.get(topic_id)
        return None if waiting is None else waiting.get(partition)
