"""Observations of every node, several times a second: the leader and epoch that it knows, and the end of its log.

Each node is asked directly, past the proxies that may cut it off: a node that is cut off still reports its view. Controllers are
asked on their own peer ports, brokers by the cheapest request that they answer themselves. Brokers report how far they have
applied the log and the epoch of that record, not the leader. A node that does not answer in time counts as down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import msgspec
import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.checking.facts import Observation
from kraftlab.client.data import PeerConnection
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError
from kraftlab.quorum.driver.quorum_description import DESCRIBE_QUORUM, QuorumDescription
from kraftlab.wire.frames import FrameError

from .grpc_port import Nodes, answer_to

PERIOD_S = 0.2
TIMEOUT_S = 0.5
_decode = msgspec.msgpack.Decoder(QuorumDescription).decode
_Ask = Callable[[], Awaitable[Observation]]


async def sample(cluster: object, nodes: Nodes, now_ns: Callable[[], int], note: Callable[[Observation], None]) -> None:
    """Ask every node of a LocalCluster until cancelled."""
    limiter = trio.CapacityLimiter(len(nodes.controller_ids))
    async with trio.open_nursery() as nursery:
        for node_id in nodes.controller_ids:
            nursery.start_soon(_sample_controller, cluster, nodes, node_id, limiter, now_ns, note)
        for node_id in nodes.broker_ids:
            nursery.start_soon(_repeat, partial(_of_broker, nodes, node_id, now_ns), node_id, now_ns, note)


async def _repeat(ask: _Ask, node_id: int, now_ns: Callable[[], int], note: Callable[[Observation], None]) -> None:
    while True:
        next_s = trio.current_time() + PERIOD_S
        try:
            note(await ask())
        except (OSError, FrameError, ApiError, grpc.RpcError):
            note(Observation(at_ns=now_ns(), node=node_id, is_up=False))
        await trio.sleep_until(next_s)


async def _sample_controller(
    cluster: Any,
    nodes: Nodes,
    node_id: int,
    limiter: trio.CapacityLimiter,
    now_ns: Callable[[], int],
    note: Callable[[Observation], None],
) -> None:
    at: Endpoint = cluster.node(node_id).listens
    connection = PeerConnection(at, cluster.cluster_id, security=nodes.security)

    async def ask() -> Observation:
        request = partial(connection.request, DESCRIBE_QUORUM, b"", TIMEOUT_S)
        body = await trio.to_thread.run_sync(request, limiter=limiter, abandon_on_cancel=True)
        quorum = _decode(body)
        return Observation(
            at_ns=now_ns(),
            node=node_id,
            is_up=True,
            epoch=quorum.leader_epoch,
            leader=quorum.leader_id,
            high_watermark=quorum.high_watermark,
            log_end=quorum.log_end_offset,
        )

    try:
        await _repeat(ask, node_id, now_ns, note)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(connection.close)


async def _of_broker(nodes: Nodes, node_id: int, now_ns: Callable[[], int]) -> Observation:
    sending: Any = nodes.channels.unary(nodes.endpoints[node_id], "ApiVersions")
    response = await answer_to(sending.future(admin_pb2.ApiVersionsRequest(), timeout=TIMEOUT_S))
    header = response.header
    applied = header.metadata_offset
    return Observation(at_ns=now_ns(), node=node_id, is_up=True, epoch=header.epoch, high_watermark=applied, log_end=applied)
