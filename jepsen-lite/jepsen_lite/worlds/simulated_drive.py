"""The drive and the ports of a workload in the simulated world."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kraftlab.simulation.clients.drive import SimulatedBell, Together
from kraftlab.simulation.clients.world import ClientWorld
from kraftlab.simulation.metadata.admin_network import NoResponse
from kraftlab.simulation.metadata.coroutines import sleep

from ..history import FAIL
from ..outcomes import of_broken_call
from ..workload import CallFailed, Options, Port, Reply
from .cluster_port import reply_of

REMOVE_VOTER = "RemoveRaftVoter"
KNOWN_LEADER_RATE = 0.9
"""Share of the requests without a node that go to the last known leader."""


class SimulatedDrive:
    """The `scheduler.Drive` of one world."""

    def __init__(self, world: ClientWorld, options: Options) -> None:
        self._world = world
        self._options = options
        self._ports: dict[int, SimulatedPort] = {}
        self._together = Together(world)

    def now_ns(self) -> int:
        return self._world.now_us * 1_000

    def port(self, process: int) -> Port:
        if process not in self._ports:
            self._ports[process] = SimulatedPort(self._world, self._options, process)
        return self._ports[process]

    def bell(self) -> SimulatedBell:
        return SimulatedBell(self._world)

    async def together(self, tasks: Sequence[Callable[[], Coroutine[object, object, None]]]) -> None:
        await self._together.run(tasks)

    def break_off(self) -> None:
        """Cancel the running tasks."""
        self._together.cancel()


class SimulatedPort:
    """The cluster as one client sees it, with a random generator of its own."""

    def __init__(self, world: ClientWorld, options: Options, process: int) -> None:
        self._world = world
        self._timeout_ms = options.timeout_ms
        self._random = options.random(f"port/{process}")
        self._leader_id = -1
        self.controllers: Sequence[int] = tuple(machine.node_id for machine in world.machines)
        self.brokers: Sequence[int] = world.broker_ids

    async def call(self, api: str, request: Any, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        node_id = self._likely() if node is None else node
        if node_id not in (*self.controllers, *self.brokers):
            raise ValueError(f"unknown node {node_id}; known: {[*self.controllers, *self.brokers]}")
        if api == REMOVE_VOTER and not self._world.may_leave(request.voter_id):
            raise CallFailed(FAIL, f"not sent: without node {request.voter_id}, no majority of the voters would be undamaged")
        try:
            response = await self._world.admin_network.ask(self._random, node_id, api, request, timeout_ms)
        except NoResponse as error:
            self._leader_id = -1
            raise CallFailed(of_broken_call(error.status, str(error)), error.status, node=node_id) from None
        if response.header.leader_id in self.controllers:
            self._leader_id = response.header.leader_id
        return reply_of(response, node_id)

    def _likely(self) -> int:
        known, chance = self._leader_id, self._random.random()
        other = self._random.choice(self.controllers)
        return known if known >= 0 and chance < KNOWN_LEADER_RATE else other

    async def sleep(self, seconds: float) -> None:
        await sleep(round(seconds * 1_000_000))

    def now_ns(self) -> int:
        return self._world.now_us * 1_000
