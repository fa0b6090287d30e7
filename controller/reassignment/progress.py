"""How far replicas are that are being filled, as their brokers say: kept in the active controller's memory, never in the log.

Theory of operation. Each broker that fills replicas of running moves, or leads partitions that wait in the queue, tells the
active controller about them every second (`MoveProgressRequest`): bytes held, bytes still lacking, rate, what is in the way;
and the sizes of what waits. A report replaces the broker's last one as a whole, so nothing has to be taken back when a move
ends. What is older than a few seconds is not believed. After a failover the new active controller knows everything again within
a second.
"""

from __future__ import annotations

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


class MoveProgressTable:
    """What brokers reported, by broker. `now_ms` is the controller's clock."""

    def __init__(self) -> None:
        self._replicas: dict[int, dict[TopicPartition, ReplicaReport]] = {}
        self._sizes: dict[int, dict[TopicPartition, int]] = {}
        self._reported_ms: dict[int, int] = {}

    def report(self, request: MoveProgressRequest, now_ms: int) -> None:
        """Takes a broker's report in place of its last one."""
        self._reported_ms[request.broker_id] = now_ms
        self._replicas[request.broker_id] = {
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
        self._sizes[request.broker_id] = {(size.topic_id, size.partition): size.size_bytes for size in request.sizes}

    def of(self, key: TopicPartition, broker_id: int, now_ms: int) -> ReplicaReport | None:
        """The newest report of a replica, None if there is none to be believed."""
        found = self._replicas.get(broker_id, {}).get(key)
        return found if found is not None and now_ms - found.reported_ms <= BELIEVED_MS else None

    def sizes(self, now_ms: int) -> dict[TopicPartition, int]:
        """The sizes of partitions that wait, as their leaders reported them."""
        sizes: dict[TopicPartition, int] = {}
        for broker_id, reported in self._sizes.items():
            if now_ms - self._reported_ms[broker_id] <= BELIEVED_MS:
                sizes.update(reported)
        return sizes

    def clear(self) -> None:
        """Forgets everything: this controller is not active any more, or only now."""
        self._replicas.clear()
        self._sizes.clear()
        self._reported_ms.clear()
