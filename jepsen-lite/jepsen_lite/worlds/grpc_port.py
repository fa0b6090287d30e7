"""A client's port to a cluster of processes: each call is sent once, over gRPC, to one node.

Nothing is sent again here, whatever becomes of it: a retry would hide what a node did with the first sending. gRPC's own retries
are off, and a call to a node that cannot be reached fails at once, which certainly did nothing. Every call says for which cluster
it is: while a node is down, another cluster of this machine may be laid out on its ports. Answers come on gRPC's threads
and wake the task that waits.

A change of the voters is sent only if the guard of the quorum lets it pass: while a log is damaged it may be one too many.

A call that names no node goes to who this process believes to lead, as the last answer said, and now and then to another
controller: so one that was deposed and does not know it is asked too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import grpc
import trio

from kraftlab.client.channels import Channels
from kraftlab.client.data import PeerConnection
from kraftlab.quorum.core.types import Endpoint

from ..history import FAIL
from ..nemeses.quorum_guard import QuorumGuard
from ..outcomes import of_broken_call
from ..workload import CallFailed, Options, Reply
from .answers import guarded, reply_of

_GRACE_S = 0.5
"""How much longer than a node's own deadline its answer is waited for: it says whether anything was done."""
_ASIDE = 0.15
"""How many calls without a node go to a controller that is not believed to lead."""
_AVOIDED_S = 1.0
"""How long a node is not chosen that could not be reached."""


class HasEndpoints(Protocol):
    """What is needed of a LocalCluster."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def controller_ids(self) -> tuple[int, ...]: ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...

    def node(self, node_id: int) -> Any: ...


class Nodes:
    """The nodes of a cluster and the channels to them, which all processes share. Close it when done."""

    def __init__(self, cluster: HasEndpoints) -> None:
        self.cluster_id = cluster.cluster_id
        self.controllers, self.brokers = cluster.controller_ids, cluster.broker_ids
        self.endpoints: dict[int, Endpoint] = {
            node_id: cluster.node(node_id).grpc for node_id in (*self.controllers, *self.brokers)
        }
        self.channels = Channels()

    def close(self) -> None:
        self.channels.close()


class GrpcPort:
    """`workload.Port` of one process. `now_ns` is the run's clock, `guard` that of the quorum."""

    def __init__(self, nodes: Nodes, options: Options, process: int, now_ns: Callable[[], int], guard: QuorumGuard) -> None:
        self.controllers: Sequence[int] = nodes.controllers
        self.brokers: Sequence[int] = nodes.brokers
        self.now_ns = now_ns
        self._nodes, self._guard, self._timeout_ms = nodes, guard, options.timeout_ms
        self._random: Random = options.random(f"port/{process}")
        self._leader = -1
        self._avoided: dict[int, float] = {}
        self._connections: dict[Endpoint, PeerConnection] = {}

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def call(self, api: str, request: Any, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        """Sends a request once. CallFailed."""
        return await guarded(self._guard, api, request, lambda: self._send(api, request, node, timeout_ms))

    async def _send(self, api: str, request: Any, node: int | None, timeout_ms: int | None) -> Reply:
        target = self._likely() if node is None else node
        header = request.header
        if not header.HasField("timeout_ms"):
            header.timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        header.cluster_id = self._nodes.cluster_id
        sending: Any = self._nodes.channels.unary(self._nodes.endpoints[target], api)
        try:
            response = await answer_to(sending.future(request, timeout=header.timeout_ms / 1000 + _GRACE_S))
        except grpc.RpcError as error:
            raise self._broken(error, target) from None
        self._leader = response.header.leader_id
        return reply_of(response, target)

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> bytes:
        """Sends a request of the peer protocol once. OSError, FrameError, ApiError."""
        connection = self._connections.get(at)
        if connection is None:
            connection = self._connections[at] = PeerConnection(at, self._nodes.cluster_id)
        return await trio.to_thread.run_sync(connection.request, api, body, timeout_ms / 1000)

    def _likely(self) -> int:
        """A controller that is likely to lead."""
        now = trio.current_time()
        reachable = [node for node in self.controllers if self._avoided.get(node, 0.0) <= now] or list(self.controllers)
        if self._leader in reachable and self._random.random() >= _ASIDE:
            return self._leader
        return self._random.choice(reachable)

    def _broken(self, error: Any, target: int) -> CallFailed:
        status = error.code().name
        outcome = of_broken_call(status, error.details() or "")
        self._avoided[target] = trio.current_time() + _AVOIDED_S
        return CallFailed(outcome, f"{status}, {'never sent' if outcome == FAIL else 'no answer'}", node=target)


async def answer_to(future: Any) -> Any:
    """The response to a call that was begun (`unary(…).future(…)`). Raises what the call raised; cancelled, so is the call."""
    over, token = trio.Event(), trio.lowlevel.current_trio_token()

    def wake(_: Any) -> None:
        try:
            token.run_sync_soon(over.set)
        except trio.RunFinishedError:
            return  # nobody waits any more

    future.add_done_callback(wake)
    try:
        await over.wait()
    except BaseException:
        future.cancel()
        raise
    return future.result()
