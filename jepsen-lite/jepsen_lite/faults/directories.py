"""Log directories of brokers: describe them and move replicas among them (KIP-113)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import answer_of

CHANGE_TIMEOUT_MS = 5_000

Replica = tuple[str, int]
"""(topic, partition)."""


class Directories(Protocol):
    """The log directories of a cluster's brokers. Errors are CLUSTER_FAULTS."""

    def described(self, broker: int) -> Sequence[object] | Awaitable[Sequence[object]]:
        """Return the results of DescribeLogDirs."""

    def moved(self, broker: int, paths: Mapping[Replica, str]) -> Awaitable[None] | None:
        """Tell the broker to move these replicas to these directories. A replica that it refuses stays."""


class ProcessDirectories:
    """The log directories of a LocalCluster. Methods block."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def described(self, broker: int) -> Sequence[object]:
        with self._cluster.admin(timeout_ms=CHANGE_TIMEOUT_MS) as client:
            return tuple(client.call_broker(broker, pb.DescribeLogDirsResponse, pb.DescribeLogDirsRequest()).results)

    def moved(self, broker: int, paths: Mapping[Replica, str]) -> None:
        with self._cluster.admin(timeout_ms=CHANGE_TIMEOUT_MS) as client:
            answer_of(lambda: client.alter_replica_log_dirs(broker, dict(paths)))
