"""Progress of replicas that are being filled, as brokers report it: kept in the active controller's memory, never in the log.

Theory of operation. A broker that fills replicas of running moves, or leads partitions that are queued, reports to the active
controller every second (`MoveProgressRequest`): bytes held, bytes to go, rate and obstacle of each replica, and the sizes of
queued partitions. A report replaces the broker's last one as a whole, so the end of a move needs no record here. The rate of a
report that is a few seconds old is history, and older reports are ignored. After a failover the new active controller has all
reports within a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.metadata.moves import TopicPartition
from kraftlab.metadata.peer_rpc import MoveProgressRequest

BELIEVED_MS = 10_000
"""Age beyond which a report is ignored."""
CURRENT_MS = 4_000
"""Age beyond which its rate is history: several reports are missing."""


class ReplicaReport(NamedTuple):
    """One replica as its broker reported it. `bytes_left` -1: unknown yet. `error`: the obstacle, or ""."""

    bytes_done: int
    bytes_left: int
    bytes_per_second: float
    is_throttled: bool
    error: str
    reported_ms: int

    @property
    def eta_ms(self) -> int:
        """Time for the rest at this rate; -1 if unknown."""
        if self.bytes_left == 0:
            return 0
        if self.bytes_left < 0 or self.bytes_per_second <= 0:
            return -1
        return int(self.bytes_left / self.bytes_per_second * 1000)


class _Report(NamedTuple):
    """Last report of one broker."""

    replicas: dict[TopicPartition, ReplicaReport]
    sizes: dict[TopicPartition, int]
    reported_ms: int


class MoveProgressTable:
    """Reports by broker. `now_ms` is the controller's clock.

    Nothing in it is changed in place, so other threads may read it while reports arrive.
    """

    def __init__(self) -> None:
        self._reports: dict[int, _Report] = {}

    def report(self, request: MoveProgressRequest, now_ms: int) -> None:
        """Replace a broker's last report."""
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
        """Newest valid report of a replica, None if there is none. The `error` of one that is not current is its age."""
        known = self._reports.get(broker_id)
        if known is None or now_ms - known.reported_ms > BELIEVED_MS or key not in known.replicas:
            return None
        report, age_ms = self._complete(key, known.replicas[key]), now_ms - known.reported_ms
        if age_ms <= CURRENT_MS or report.error:
            return report
        return report._replace(error=f"no report for {age_ms // 1000} s; if this lasts, start it again")

    def replicas(self, now_ms: int) -> Iterator[tuple[TopicPartition, int, ReplicaReport]]:
        """Every valid report, with its partition and broker."""
        for broker_id, known in self._reports.items():
            if now_ms - known.reported_ms <= BELIEVED_MS:
                for key, report in known.replicas.items():
                    yield key, broker_id, self._complete(key, report)

    def _complete(self, key: TopicPartition, report: ReplicaReport) -> ReplicaReport:
        """The report; of a copy that has not begun and has no error, with the rest as of the size that the leader reported."""
        if report.bytes_left >= 0 or report.error:
            return report
        sizes = (known.sizes[key] for known in self._reports.values() if key in known.sizes)
        size = next(sizes, None)
        return report if size is None else report._replace(bytes_left=max(size - report.bytes_done, 0))

    def sizes(self, now_ms: int) -> dict[TopicPartition, int]:
        """Sizes of partitions that move or are queued, as their leaders reported them."""
        sizes: dict[TopicPartition, int] = {}
        for known in self._reports.values():
            if now_ms - known.reported_ms <= BELIEVED_MS:
                sizes.update(known.sizes)
        return sizes

    def clear(self) -> None:
        """Forget all reports. Called when this controller becomes active, and when it stops being active."""
        self._reports = {}
