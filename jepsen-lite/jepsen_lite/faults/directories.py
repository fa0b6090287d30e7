"""Log directories of brokers, as one asks them and as one moves replicas among them (KIP-113)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

CHANGE_TIMEOUT_MS = 5_000

Replica = tuple[str, int]
"""Topic and partition."""


class Directories(Protocol):
    """CLUSTER_FAULTS."""

    def described(self, broker: int) -> Sequence[object] | Awaitable[Sequence[object]]:
        """The results of DescribeLogDirs."""

    def moved(self, broker: int, paths: Mapping[Replica, str]) -> Awaitable[None] | None:
        """The broker has been told to take these replicas to these directories."""


class ProcessDirectories:
    """Of a LocalCluster. Blocks."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def described(self, broker: int) -> Sequence[object]:
        with self._cluster.admin(timeout_ms=CHANGE_TIMEOUT_MS) as client:
            return tuple(client.describe_log_dirs(broker).results)

    def moved(self, broker: int, paths: Mapping[Replica, str]) -> None:
        with self._cluster.admin(timeout_ms=CHANGE_TIMEOUT_MS) as client:
            client.alter_replica_log_dirs(broker, dict(paths))
