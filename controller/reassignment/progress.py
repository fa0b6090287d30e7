"""How far replicas are that are being filled, as their brokers say: kept in the active controller's memory, never in the log.

Theory of operation. Each broker that fills replicas of running moves, or leads partitions that wait in the queue, tells the
active controller about them every second (`MoveProgressRequest`): bytes held, bytes still lacking, rate, what is in the way;
and the sizes of what waits. A report replaces the broker's last one as a whole, so nothing has to be taken back when a move
ends. What is older than a few seconds is not believed. After a failover the new active controller knows everything again within
a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.metadata.moves import TopicPartition
from kraftlab.metadata.peer_rpc import MoveProgressRequest

BELIEVED_MS = 10_000
"""A report older than this says nothing any more."""


class ReplicaReport(NamedTuple):
    """One replica as its broker described it. `bytes_left` -1: not known yet; `error`: why nothing moves."""

    bytes_done: int
    bytes_left: int
    bytes_per_second: float
    is_throttled: bool
    error: str
    reported_ms: int

    @property
    def eta_ms(self) -> int:
        """How long the rest takes at this rate; -1 unknown."""
        if self.bytes_left == 0:
            return 0
        if self.bytes_left < 0 or self.bytes_per_second <= 0:
            return -1
        return int(self.bytes_left / self.bytes_per_second * 1000)


class _Report(NamedTuple):
    """What one broker said last."""

    replicas: dict[TopicPartition, ReplicaReport]
    sizes: dict[TopicPartition, int]
    reported_ms: int


class MoveProgressTable:
    """What brokers reported, by broker. `now_ms` is the controller's clock.

    Nothing in it is changed in place, so other threads may read it while reports come in.
    """

    def __init__(self) -> None:
        self._reports: dict[int, _Report] = {}

    def report(self, request: MoveProgressRequest, now_ms: int) -> None:
        """Takes a broker's report in place of its last one."""
        replicas = {
            (replica.topic_id, replica.partition): ReplicaReport(
                replica.bytes_done,
                replica.bytes_left,
                replica.bytes_per_second,
                replica.is_throttled,
                replica.error,
                now_ms,
            )
            for replica in request.replicas
        }
        sizes = {(size.topic_id, size.partition): size.size_bytes for size in request.sizes}
        self._reports = {**self._reports, request.broker_id: _Report(replicas, sizes, now_ms)}

    def of(self, key: TopicPartition, broker_id: int, now_ms: int) -> ReplicaReport | None:
        """The newest report of a replica, None if there is none to be believed."""
        known = self._reports.get(broker_id)
        return known.replicas.get(key) if known is not None and now_ms - known.reported_ms <= BELIEVED_MS else None

    def replicas(self, now_ms: int) -> Iterator[tuple[TopicPartition, int, ReplicaReport]]:
        """Every report that is young enough, with its partition and broker."""
        for broker_id, known in self._reports.items():
            if now_ms - known.reported_ms <= BELIEVED_MS:
                for key, report in known.replicas.items():
                    yield key, broker_id, report

    def sizes(self, now_ms: int) -> dict[TopicPartition, int]:
        """The sizes of partitions that wait, as their leaders reported them."""
        sizes: dict[TopicPartition, int] = {}
        for known in self._reports.values():
            if now_ms - known.reported_ms <= BELIEVED_MS:
                sizes.update(known.sizes)
        return sizes

    def clear(self) -> None:
        """Forgets everything: this controller is not active any more, or only now."""
        self._reports = {}
