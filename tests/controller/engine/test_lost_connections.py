"""A broker is fenced at once if its connection ended and its port refuses; anything else leaves it to the session."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.controller.engine.lost_connections import GRACE_MS, PAUSE_MS, REFUSALS, WINDOW_MS

SESSION_MS = 9000


class Ports:
    """The ports that a controller tries. A test answers each try itself."""

    def __init__(self) -> None:
        self.tries: list[tuple[Endpoint, Callable[[bool], None]]] = []

    def probe(self, endpoint: Endpoint, tell: Callable[[bool], None]) -> None:
        self.tries.append((endpoint, tell))

    def answer(self, was_refused: bool) -> None:
        for _, tell in self.take():
            tell(was_refused)

    def take(self) -> list[tuple[Endpoint, Callable[[bool], None]]]:
        tries, self.tries = self.tries, []
        return tries


class Watched:
    """Brokers 1 to 3 with heartbeats over a connection each, and partition t-0 that broker 1 leads."""

    def __init__(self, cluster: Any, ports: Ports) -> None:
        self.cluster = cluster
        self.ports = ports
        self.connections = {broker_id: object() for broker_id in (1, 2, 3)}

    async def beat(self, broker_id: int, **changes: Any) -> Any:
        request = self.cluster.beat(broker_id, **changes)
        return await self.cluster.done(self.cluster.controller.heartbeat(request, self.connections[broker_id]))

    def lose(self, broker_id: int) -> None:
        """End the connection of a broker; its next heartbeat comes over another one."""
        lost, self.connections[broker_id] = self.connections[broker_id], object()
        self.cluster.controller.connection_closed(lost)

    async def refuse(self, times: int) -> None:
        """Refuse the controller that often, for as long as it tries."""
        for _ in range(times):
            self.ports.answer(was_refused=True)
            await self.cluster.pass_time(PAUSE_MS)

    def is_fenced(self, broker_id: int) -> bool:
        return bool(self.cluster.broker(broker_id).fenced)


@pytest.fixture
async def watched(tools: Any) -> AsyncIterator[Watched]:
    ports = Ports()
    cluster = tools.Cluster(probe=ports.probe)
    await cluster.lead()
    await cluster.pass_time(GRACE_MS)
    await cluster.start_brokers(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    watched = Watched(cluster, ports)
    for broker_id in (1, 2, 3):
        await watched.beat(broker_id)
    yield watched
    cluster.check_images()


async def test_a_broker_whose_connection_ended_and_whose_port_refuses_is_fenced_at_once(watched: Watched) -> None:
    watched.lose(1)
    [(endpoint, _)] = watched.ports.tries
    assert endpoint == Endpoint(*_peer_of(watched.cluster.broker(1)))
    await watched.refuse(REFUSALS - 1)
    assert not watched.is_fenced(1), "one refusal may be a coincidence"
    await watched.refuse(1)
    assert watched.is_fenced(1)
    partition = watched.cluster.partition("t")
    assert 1 not in partition.isr, "nobody waits for the dead replica"
    assert partition.leader != 1, "another replica leads, as of the same change"
    assert watched.cluster.controller.statistics().brokers_fenced == 1


async def test_a_port_that_accepts_for_a_moment_longer_is_tried_again(watched: Watched) -> None:
    watched.lose(1)
    watched.ports.answer(was_refused=False)
    await watched.cluster.pass_time(PAUSE_MS)
    await watched.refuse(REFUSALS - 1)
    assert not watched.is_fenced(1)
    await watched.refuse(1)
    assert watched.is_fenced(1)


@pytest.mark.parametrize("answers", [(False,), (True, False), (True, True, False), (False, True, True)])
async def test_a_port_that_does_not_refuse_leaves_the_broker_to_its_session(watched: Watched, answers: tuple[bool, ...]) -> None:
    watched.lose(1)
    tries = 0
    for was_refused in itertools.cycle(answers):
        if not watched.ports.tries:
            break
        tries += 1
        watched.ports.answer(was_refused)
        await watched.cluster.pass_time(PAUSE_MS)
    assert tries == WINDOW_MS // PAUSE_MS
    assert not watched.is_fenced(1)
    for _ in range(SESSION_MS // 100):
        await watched.cluster.pass_time(100)
    assert watched.is_fenced(1)


async def test_a_heartbeat_over_another_connection_ends_the_suspicion(watched: Watched) -> None:
    watched.lose(1)
    await watched.refuse(REFUSALS - 1)
    await watched.beat(1)
    await watched.refuse(REFUSALS)
    assert not watched.is_fenced(1)


async def test_a_fence_that_has_to_wait_is_called_off_by_a_heartbeat(watched: Watched) -> None:
    watched.cluster.quorum.overloaded = True
    watched.lose(1)
    await watched.refuse(REFUSALS)
    await watched.beat(1)
    watched.cluster.quorum.overloaded = False
    await watched.cluster.pass_time(PAUSE_MS)
    assert not watched.is_fenced(1)


async def test_the_end_of_an_older_connection_means_nothing(watched: Watched) -> None:
    older, watched.connections[1] = watched.connections[1], object()
    await watched.beat(1)
    watched.cluster.controller.connection_closed(older)
    assert not watched.ports.tries


async def test_an_incarnation_that_has_registered_meanwhile_is_not_fenced_for_the_earlier_one(watched: Watched) -> None:
    watched.lose(1)
    await watched.refuse(REFUSALS - 1)
    [(_, late)] = watched.ports.take()
    await watched.cluster.start_brokers(1, incarnation=2)
    late(True)
    await watched.cluster.commit()
    assert not watched.is_fenced(1)
    await watched.refuse(REFUSALS)
    assert not watched.is_fenced(1)


async def test_a_broker_that_lives_after_all_is_fenced_this_way_only_once(watched: Watched) -> None:
    watched.lose(1)
    await watched.refuse(REFUSALS)
    assert watched.is_fenced(1)
    await watched.beat(1)
    assert not watched.is_fenced(1), "it lives, so it is unfenced"
    for _ in range(3):
        watched.lose(1)
        await watched.refuse(REFUSALS)
        await watched.beat(1)
        assert not watched.is_fenced(1), "its port says nothing about it"
    assert watched.cluster.controller.statistics().brokers_fenced == 1

    await watched.cluster.start_brokers(1, incarnation=2)
    await watched.beat(1)
    watched.lose(1)
    await watched.refuse(REFUSALS)
    assert watched.is_fenced(1), "the next incarnation has a chance of its own"


async def test_a_controller_that_lost_the_leadership_suspects_nobody(watched: Watched) -> None:
    watched.lose(1)
    await watched.cluster.lose_leadership(survives=True)
    watched.lose(2)
    await watched.refuse(REFUSALS)
    assert not watched.ports.tries
    assert not watched.is_fenced(1)


async def test_a_new_active_controller_tries_the_ports_of_brokers_that_send_no_heartbeat(watched: Watched) -> None:
    await watched.cluster.lose_leadership(survives=True)
    await watched.cluster.lead()
    await watched.beat(2)
    await watched.cluster.pass_time(GRACE_MS)
    tried = [endpoint for endpoint, _ in watched.ports.tries]
    assert tried == [Endpoint(*_peer_of(watched.cluster.broker(broker_id))) for broker_id in (1, 3)]
    [(_, tell_1), (_, tell_3)] = watched.ports.take()
    tell_1(True)
    tell_3(False)
    await watched.cluster.pass_time(PAUSE_MS)
    await watched.refuse(REFUSALS - 1)
    assert [watched.is_fenced(broker_id) for broker_id in (1, 2, 3)] == [True, False, False]


async def test_a_broker_that_shut_down_in_order_is_not_fenced_again(watched: Watched) -> None:
    written = len(watched.cluster.quorum.batches)
    assert (await watched.beat(1, want_fence=True)).is_fenced
    watched.lose(1)
    await watched.refuse(REFUSALS)
    assert len(watched.cluster.quorum.batches) == written + 1


def _peer_of(broker: Any) -> tuple[str, int]:
    [peer] = [listener for listener in broker.listeners if listener.name == "PEER"]
    return peer.host, peer.port
