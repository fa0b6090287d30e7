"""A client's port to a cluster of processes: each request is sent once, over gRPC, to one node.

gRPC's own retries are off, and a request to an unreachable node fails at once, certainly without an effect; that node is avoided
for a while. Requests name their cluster because another cluster of this machine may use the ports of a node that is down. Answers
arrive on gRPC's threads and wake the waiting task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import grpc
import trio

from kraftlab.client.channels import Channels
from kraftlab.client.data import PeerConnection
from kraftlab.client.security import ClientSecurity
from kraftlab.common.endpoint import Endpoint

from ..faults.quorum_guard import QuorumGuard
from ..history import FAIL
from ..outcomes import of_broken_call
from ..workload import CallFailed, Options
from . import cluster_port
from .cluster_port import ASIDE, ClusterPort

_AVOIDED_S = 1.0
"""An unreachable node is avoided so long."""


class HasEndpoints(cluster_port.Nodes, Protocol):
    """The needed part of a LocalCluster."""

    @property
    def security(self) -> ClientSecurity: ...

    def node(self, node_id: int) -> Any: ...


class Nodes:
    """The nodes of a cluster and the channels to them, shared by all processes. Close it when done."""

    def __init__(self, cluster: HasEndpoints) -> None:
        self.cluster_id = cluster.cluster_id
        self.controller_ids, self.broker_ids = cluster.controller_ids, cluster.broker_ids
        self.endpoints: dict[int, Endpoint] = {
            node_id: cluster.node(node_id).grpc for node_id in (*self.controller_ids, *self.broker_ids)
        }
        self.security = cluster.security
        self.channels = Channels(self.security)

    def close(self) -> None:
        self.channels.close()


class GrpcPort(ClusterPort):
    """A port to processes."""

    def __init__(self, nodes: Nodes, options: Options, process: int, now_ns: Callable[[], int], guard: QuorumGuard) -> None:
        super().__init__(nodes, options, process, now_ns, guard)
        self._nodes = nodes
        self._avoided: dict[int, float] = {}
        self._connections: dict[Endpoint, PeerConnection] = {}

    async def _carry(self, node: int, api: str, request: Any, timeout_s: float) -> Any:
        sending: Any = self._nodes.channels.unary(self._nodes.endpoints[node], api)
        try:
            return await answer_to(sending.future(request, timeout=timeout_s))
        except grpc.RpcError as error:
            raise self._broken(error, node) from None

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> memoryview:
        """Send a request of the peer protocol once. OSError, FrameError, ApiError."""
        connection = self._connections.get(at)
        if connection is None:
            connection = self._connections[at] = PeerConnection(at, self._cluster_id, security=self._nodes.security)
        return await trio.to_thread.run_sync(connection.request, api, body, timeout_ms / 1000)

    def _likely(self) -> int:
        now = trio.current_time()
        reachable = [node for node in self.controllers if self._avoided.get(node, 0.0) <= now] or list(self.controllers)
        if self._leader in reachable and self._random.random() >= ASIDE:
            return self._leader
        return self._random.choice(reachable)

    def _broken(self, error: Any, target: int) -> CallFailed:
        status = error.code().name
        outcome = of_broken_call(status, error.details() or "")
        self._avoided[target] = trio.current_time() + _AVOIDED_S
        return CallFailed(outcome, f"{status}, {'never sent' if outcome == FAIL else 'no answer'}", node=target)


async def answer_to(future: Any) -> Any:
    """Wait for the response to a call in progress (`unary(…).future(…)`). Its error is raised; a cancellation
    cancels the call.
    """
    over, token = trio.Event(), trio.lowlevel.current_trio_token()

    def wake(_: Any) -> None:
        try:
            token.run_sync_soon(over.set)
        except trio.RunFinishedError:
            return  # the caller no longer waits

    future.add_done_callback(wake)
    try:
        await over.wait()
    except BaseException:
        future.cancel()
        raise
    return future.result()
