"""What the interpreter and the clients of a workload get of the simulated world: its time, its bells, its ports."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from kraftlab.simulation.metadata.admin_network import Unanswered
from kraftlab.simulation.metadata.coroutines import Error, Outcome, Resume, Task, Value, sleep, waiting

from ..history import FAIL
from ..outcomes import of_broken_call
from ..workload import CallFailed, Options, Port, Reply
from .replies import reply_of

if TYPE_CHECKING:
    from .simulated_world import ChaosWorld

REMOVE_VOTER = "RemoveRaftVoter"
KNOWN_LEADER_RATE = 0.9
"""How many of the calls to nobody in particular go to who was last heard to lead."""


class SimulatedBell:
    """Wakes who waits; each of them once."""

    def __init__(self, world: ChaosWorld) -> None:
        self._world = world
        self._waiting: list[Resume[None]] = []

    async def wait(self, until_ns: int | None) -> None:
        def begin(resume: Resume[None]) -> None:
            def wake(result: Outcome[None]) -> None:
                if wake in self._waiting:
                    self._waiting.remove(wake)
                    resume(result)

            self._waiting.append(wake)
            if until_ns is not None:
                self._world.after(max(0, -(-until_ns // 1_000) - self._world.now_us), wake, Value(None))

        await waiting(begin)

    def ring(self) -> None:
        for wake in tuple(self._waiting):
            wake(Value(None))


class SimulatedDrive:
    """The interpreter's `Drive` over one world."""

    def __init__(self, world: ChaosWorld, options: Options) -> None:
        self._world = world
        self._options = options
        self._ports: dict[int, SimulatedPort] = {}
        self._running: list[Task[None]] = []

    def now_ns(self) -> int:
        return self._world.now_us * 1_000

    def port(self, process: int) -> Port:
        if process not in self._ports:
            self._ports[process] = SimulatedPort(self._world, self._options, process)
        return self._ports[process]

    def bell(self) -> SimulatedBell:
        return SimulatedBell(self._world)

    async def together(self, tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        def begin(resume: Resume[None]) -> None:
            left = len(tasks)
            is_over = False

            def ended(result: Outcome[None]) -> None:
                nonlocal left, is_over
                left -= 1
                if not is_over and (left == 0 or isinstance(result, Error)):
                    is_over = True
                    resume(result)

            for task in tasks:
                self._running.append(Task(self._world, task(), ended).start())
            if not tasks:
                resume(Value(None))

        try:
            await waiting(begin)
        finally:
            self.break_off()

    def break_off(self) -> None:
        """What runs beside one another ends where it is."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()


class SimulatedPort:
    """The cluster as one client sees it; its chance is its own."""

    def __init__(self, world: ChaosWorld, options: Options, process: int) -> None:
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
            raise ValueError(f"there is no node {node_id}; there are {[*self.controllers, *self.brokers]}")
        if api == REMOVE_VOTER and not self._world.may_leave(request.voter_id):
            raise CallFailed(FAIL, f"not sent: without node {request.voter_id} no majority of the voters would be whole")
        try:
            response = await self._world.admin_network.ask(self._random, node_id, api, request, timeout_ms)
        except Unanswered as error:
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
