"""A client's port to a cluster of processes that has the clients of kafka-python too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import trio

from ..faults.quorum_guard import QuorumGuard
from ..history import INFO
from ..kafka_clients import KafkaClients
from ..workload import CallFailed, Options
from .grpc_port import GrpcPort, Nodes

T = TypeVar("T")
_TIMEOUTS_MAX = 5
"""A call consists of a few requests, each with its own timeout. After so many timeouts the answer is not waited for."""


class KafkaPort(GrpcPort):
    """A port to processes. Close it when its process ends."""

    def __init__(
        self,
        nodes: Nodes,
        options: Options,
        process: int,
        now_ns: Callable[[], int],
        guard: QuorumGuard,
        servers: str,
        login: Mapping[str, str],
    ) -> None:
        super().__init__(nodes, options, process, now_ns, guard)
        self._within_s = _TIMEOUTS_MAX * options.timeout_ms / 1000
        self._clients = KafkaClients(servers, options.timeout_ms, login)

    async def in_kafka(self, call: Callable[[KafkaClients], T]) -> T:
        """Return the result of a call in a thread. CallFailed."""
        with trio.move_on_after(self._within_s):
            return await trio.to_thread.run_sync(call, self._clients, abandon_on_cancel=True)
        raise CallFailed(INFO, "kafka-python gave no answer")

    def close(self) -> None:
        self._clients.close()
