"""Requests find the active controller, wait for one, and do not hang on one that is active no more."""

from __future__ import annotations

import pytest
import trio

from kraftlab.broker.control.controller_channel import ControllerChannel, NoController
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.messages import LeaderView
from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.wire.transport import PeerIdentity, PeerRequest, PeerServer, PeerUnreachable

IDENTITY = PeerIdentity("channel-test", 0, ReplicaKey(1, bytes(16)))


class Quorum:
    """Two controllers on real sockets; `hanging` ones do not answer."""

    def __init__(self) -> None:
        self.view = LeaderView(0)
        self.hanging: set[int] = set()
        self.endpoints: dict[int, Endpoint] = {}

    async def start(self, nursery: trio.Nursery) -> ControllerChannel:
        for node_id in (3000, 3001):
            server = PeerServer(IDENTITY._replace(key=ReplicaKey(node_id)), {63: self._handler(node_id)})
            port = await nursery.start(server.serve, "127.0.0.1", 0)
            self.endpoints[node_id] = Endpoint("127.0.0.1", port)
        voters = VoterSet(
            tuple(Voter(ReplicaKey(node_id), {"CONTROLLER": endpoint}) for node_id, endpoint in self.endpoints.items())
        )
        return ControllerChannel(nursery, IDENTITY, lambda: self.view, voters)

    def _handler(self, node_id: int):  # type: ignore[no-untyped-def]
        async def handle(request: PeerRequest) -> bytes:
            if node_id in self.hanging:
                await trio.sleep_forever()
            return str(node_id).encode() + request.body

        return handle


async def test_a_request_goes_to_the_leader(nursery: trio.Nursery) -> None:
    quorum = Quorum()
    channel = await quorum.start(nursery)
    for epoch, leader in ((1, 3000), (2, 3001)):
        quorum.view = LeaderView(epoch, leader)
        channel.leader_changed()
        assert await channel.request(63, b"?", timeout_ms=5000) == f"{leader}?".encode()
    nursery.cancel_scope.cancel()


async def test_it_waits_for_a_leader_up_to_its_timeout(nursery: trio.Nursery) -> None:
    quorum = Quorum()
    channel = await quorum.start(nursery)
    with pytest.raises(NoController):
        await channel.request(63, b"?", timeout_ms=20)

    async def elect() -> None:
        quorum.view = LeaderView(1, 3001)
        channel.leader_changed()

    nursery.start_soon(elect)
    assert await channel.pass_on(63, b"?", timeout_ms=5000) == b"3001?"
    nursery.cancel_scope.cancel()


async def test_a_request_to_a_controller_that_is_active_no_more_is_given_up(nursery: trio.Nursery) -> None:
    quorum = Quorum()
    channel = await quorum.start(nursery)
    quorum.view, quorum.hanging = LeaderView(1, 3000), {3000}

    async def elect() -> None:
        await trio.testing.wait_all_tasks_blocked(0.01)
        quorum.view = LeaderView(1)
        channel.leader_changed()
        quorum.view = LeaderView(2, 3001)
        channel.leader_changed()

    nursery.start_soon(elect)
    with trio.fail_after(5), pytest.raises(PeerUnreachable, match="is no longer active"):
        await channel.request(63, b"?", timeout_ms=60_000)
    assert await channel.request(63, b"?", timeout_ms=5000) == b"3001?"
    nursery.cancel_scope.cancel()
