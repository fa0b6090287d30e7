"""The queue of moves: pure functions of the running moves, the queued moves and the caps.

Theory of operation. A move occupies the brokers that get or lose a replica by it. Queued targets are ordered by priority
(higher first), then by the cluster's order: *fifo*, or the size that the partition's leader reported (unknown sizes last), and
then by age. `select` walks that order and takes each move that fits the caps of its brokers and of the cluster, together with
everything taken before it. A move that does not fit is skipped, so one busy broker does not hold up the rest of the cluster.
But the first skipped move keeps its slots reserved on its free brokers, so it cannot be overtaken forever.

Moves that were started without the queue count like any other and may exceed the caps. Then nothing is taken until they end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.moves import QueuedMoveImage, TopicPartition

from .arithmetic import start
from .policy import MovePolicy

UNKNOWN_SIZE = -1


class QueuedTarget(NamedTuple):
    """A queued target, with the brokers that its move will occupy."""

    key: TopicPartition
    brokers: frozenset[int]


class Load(NamedTuple):
    """Running moves: by broker, and in total."""

    by_broker: Counter[int]
    moves: int


def current_load(image: MetadataImage) -> Load:
    """Load of all running reassignments, queued or not when they started."""
    by_broker: Counter[int] = Counter()
    moves = 0
    for topic_id, numbers in image.topics.reassigning.items():
        partitions = image.topics.by_id[topic_id].partitions
        for number in numbers:
            by_broker.update(partitions[number].adding + partitions[number].removing)
            moves += 1
    return Load(by_broker, moves)


def in_order(
    queued: Iterable[tuple[TopicPartition, QueuedMoveImage]], order: str, sizes: Mapping[TopicPartition, int]
) -> list[tuple[TopicPartition, QueuedMoveImage]]:
    """The queue in the order in which it is walked."""
    sign = {"smallest-first": 1, "largest-first": -1}.get(order, 0)

    def rank(entry: tuple[TopicPartition, QueuedMoveImage]) -> tuple[int, bool, int, int, int, TopicPartition]:
        key, move = entry
        size = sizes.get(key, UNKNOWN_SIZE)
        return (-move.priority, bool(sign) and size < 0, sign * size, move.request_offset, move.index, key)

    return sorted(queued, key=rank)


def waiting_for(image: MetadataImage, key: TopicPartition, target: tuple[int, ...]) -> QueuedTarget | None:
    """The target as a queued move. None if it cannot start now: its partition is moving, or a broker is unregistered."""
    partition = image.topics.partition(*key)
    if partition is None or partition.is_reassigning or not all(broker in image.cluster.brokers for broker in target):
        return None
    move = start(partition, target)
    return QueuedTarget(key, frozenset(move.adding + move.removing))


class Selection:
    """Walks the queue and takes each move that fits on top of `load`."""

    def __init__(self, load: Load, policy: MovePolicy) -> None:
        self._by_broker = Counter(load.by_broker)
        self._moves = load.moves
        self._policy = policy
        self._has_reserved = False

    def offer(self, move: QueuedTarget) -> bool:
        """Take the next move in order if it fits; it counts from now on. Return True if it was taken."""
        cap = self._policy.per_broker
        if self._policy.per_cluster and self._moves >= self._policy.per_cluster:
            return False
        free = [broker for broker in move.brokers if not cap or self._by_broker[broker] < cap]
        if len(free) == len(move.brokers):
            self._by_broker.update(move.brokers)
            self._moves += 1
            return True
        if not self._has_reserved:
            self._has_reserved = True
            self._by_broker.update(free)
        return False


def select(waiting: Iterable[QueuedTarget], load: Load, policy: MovePolicy) -> list[TopicPartition]:
    """Keys of the moves in `waiting`, which is in order, that may start now."""
    selection = Selection(load, policy)
    return [move.key for move in waiting if selection.offer(move)]


def reason_to_wait(image: MetadataImage, key: TopicPartition, target: tuple[int, ...], load: Load, policy: MovePolicy) -> str:
    """Reason why a queued target waits, as text for people."""
    missing = [broker for broker in target if broker not in image.cluster.brokers]
    if missing:
        return f"broker {missing[0]} is not registered"
    waiting = waiting_for(image, key, target)
    if waiting is None:
        return "the partition is being reassigned"
    if policy.per_cluster and load.moves >= policy.per_cluster:
        run = "1 move runs" if load.moves == 1 else f"{load.moves} moves run"
        return f"{run} in the cluster, reassignment.max.moves.per.cluster is {policy.per_cluster}"
    for broker in sorted(waiting.brokers):
        if policy.per_broker and load.by_broker[broker] >= policy.per_broker:
            moves = load.by_broker[broker]
            keep = "1 move keeps" if moves == 1 else f"{moves} moves keep"
            return f"{keep} broker {broker} busy, reassignment.max.moves.per.broker is {policy.per_broker}"
    return "its turn"
