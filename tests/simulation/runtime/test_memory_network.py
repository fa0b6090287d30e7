"""The network in memory, used by the peers' own client and server: it has the faults of a real network and no others."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.lab.links.shape import Cut, LinkShape
from kraftlab.simulation.runtime.memory_network import WINDOW_BYTES, MemoryNetwork, Place
from kraftlab.wire.network import CONNECT_TIMEOUT_S
from kraftlab.wire.transport import PeerIdentity, PeerPool, PeerRequest, PeerServer, PeerTimeout, PeerUnreachable

ECHO = 7
THERE, NOWHERE = Endpoint("127.0.0.1", 2), Endpoint("127.0.0.1", 3)


async def echo(request: PeerRequest) -> bytes:
    return request.body


def identity(node: int) -> PeerIdentity:
    return PeerIdentity("c", 0, ReplicaKey(node, bytes([node]) * 16))


class Two:
    """A network in which node 1 asks, node 2 answers, and node 3 is down."""

    def __init__(self) -> None:
        places = {Endpoint("127.0.0.1", node): node for node in (1, 2, 3)}
        self.network = MemoryNetwork(places, random.Random)
        self.served = Place(self.network, 2, random.Random(2))
        self.pool: PeerPool

    async def ask(self, body: bytes = b"?", *, at: Endpoint = THERE, timeout_ms: int = 3_000) -> bytes:
        return await self.pool.request(at, ECHO, body, timeout_ms=timeout_ms)


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    them = Two()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(them.network.alarms.run)
        server = PeerServer(identity(2), {ECHO: echo}, network=them.served)
        await nursery.start(server.serve, THERE.host, THERE.port)
        them.pool = PeerPool(nursery, identity(1), Place(them.network, 1, random.Random(1)))
        yield them
        nursery.cancel_scope.cancel()


async def test_messages_of_any_size_arrive_whole(autojump_clock: trio.testing.MockClock) -> None:
    async with two() as them:
        for size in (0, 1, 1_000, 5 * WINDOW_BYTES):
            assert await them.ask(b"x" * size) == b"x" * size


async def test_where_nobody_listens_a_connection_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with two() as them:
        with pytest.raises(PeerUnreachable) as refused:
            await them.ask(at=NOWHERE)
        assert refused.value.refused


async def test_what_a_cut_link_holds_comes_late_or_never(autojump_clock: trio.testing.MockClock) -> None:
    async with two() as them:
        await them.ask()
        for drop in (False, True):
            them.network.cut([(2, 1)], Cut.HOLD)
            async with trio.open_nursery() as nursery:
                answers: list[bytes] = []

                async def asking(into: list[bytes] = answers) -> None:
                    try:
                        into.append(await them.ask(timeout_ms=2_000))
                    except PeerTimeout:
                        into.append(b"too late")

                nursery.start_soon(asking)
                await trio.sleep(1)
                assert not answers
                them.network.heal([(2, 1)], drop=drop)
            assert answers == [b"too late" if drop else b"?"]


async def test_over_a_cut_link_no_connection_can_be_opened_until_it_heals(autojump_clock: trio.testing.MockClock) -> None:
    async with two() as them:
        them.network.cut([(1, 2)], Cut.HOLD)
        began = trio.current_time()
        with pytest.raises(PeerUnreachable, match="cannot connect"):
            await them.ask()
        assert trio.current_time() - began == pytest.approx(CONNECT_TIMEOUT_S)
        them.network.heal([(1, 2)])
        assert await them.ask() == b"?"


async def test_a_link_that_resets_breaks_the_connection_and_a_node_that_dies_ends_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two() as them:
        await them.ask()
        them.network.cut([(1, 2)], Cut.RESET)
        with pytest.raises(PeerUnreachable):
            await them.ask()
        them.network.heal([(1, 2)])
        assert await them.ask() == b"?"
        them.served.die()
        with pytest.raises(PeerUnreachable):
            await them.ask()


async def test_messages_are_lost_and_doubled_one_by_one_and_the_stream_stays_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two() as them:
        await them.ask()
        them.network.shape([(1, 2), (2, 1)], LinkShape(loss=0.2, duplicate=0.3, reorder=0.5, jitter_ms=5))
        outcomes: list[str] = []

        async def asking(number: int) -> None:
            try:
                assert await them.ask(b"%d" % number, timeout_ms=500) == b"%d" % number
                outcomes.append("answered")
            except (PeerTimeout, PeerUnreachable):
                outcomes.append("lost")

        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(asking, number)
        assert set(outcomes) == {"answered", "lost"}
