"""A workload on the real runtime under a mock clock: drivers, controllers and services in one process; a seed is a run.

Theory of operation. `RuntimeCluster` runs what a process of each node runs, without sockets, threads and gRPC. Only waiting takes
time: the clock jumps to the next due time when no task can continue. The order of tasks is drawn from the seed as well. So the
same seed gives the same history, however fast the machine is. The phases and the faults are those of real processes, applied
by the same code; the committed log is read from each node and compared.

This tests how the runtime applies the effects of the core: answers before a batch is durable, lost wake-ups, half-sent
frames, broken connections, a node cancelled anywhere. It does not test gRPC, or the kernel's sockets, files and threads.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import trio

from kraftlab.checking.facts import Observation
from kraftlab.common.endpoint import Endpoint
from kraftlab.simulation.metadata.admin_network import NoResponse
from kraftlab.simulation.runtime.cluster import RuntimeCluster
from kraftlab.simulation.runtime.disks import MemoryPower, MemoryTampering
from kraftlab.simulation.runtime.machine import STARTED_S, STEPS_MAX, Machine, run_seed

from ..committed_log import LogBatch, decoded
from ..fault_plan import FaultPlan
from ..faults.cluster_under_faults import ClusterUnderFaults, Leads
from ..faults.injector import carry_out
from ..faults.plan_generator import NoSuchNemesis, draw_plan
from ..faults.quorum_guard import QuorumGuard
from ..outcomes import of_broken_call
from ..workload import CallFailed, Options, Port, Run, Workload
from .cluster_port import ASIDE, ClusterPort
from .node_exits import own_exits
from .phases import LOG_WITHIN_S, PROPERTIES, PhasedRun
from .shell_kinds import SHELL_KINDS
from .trio_drive import first_of
from .world import Assignment, Listener, PlayedRun, Quiet, WorldFailed

LOG_NAME = "shell.log"
_LOOK_S = 0.05
_OBSERVE_S = 0.2
_STANDING_EVERY = 5


class ShellRun(NamedTuple):
    """The `steps` of tasks and the `log` lines of all nodes are the same for the same seed."""

    run: Run
    plan: FaultPlan
    steps: int
    log: tuple[str, ...]


def play(assignment: Assignment) -> PlayedRun:
    """Play the run. WorldFailed."""
    properties = dict(assignment.workload.properties) | dict(assignment.properties)
    played = run_shell(
        assignment.workload._replace(properties=properties),
        assignment.options,
        assignment.plan,
        nemeses=assignment.nemeses,
        listener=assignment.listener,
    )
    (assignment.directory.nodes / LOG_NAME).write_text("".join(f"{line}\n" for line in played.log))
    return PlayedRun(played.run, played.plan, properties={**PROPERTIES, **properties})


def run_shell(
    workload: Workload,
    options: Options,
    plan: FaultPlan | None = None,
    *,
    nemeses: Collection[str] = (),
    listener: Listener | None = None,
) -> ShellRun:
    """Play one seed with that plan, or with the one that the seed draws for the nemeses. WorldFailed, SetupFailed,
    GeneratorStuck.
    """
    plan = plan or _drawn(options, nemeses)
    refused = sorted({action.kind for action in plan.actions}.difference(SHELL_KINDS))
    if refused:
        raise WorldFailed(f"{', '.join(refused)} is not available in the world shell; available: {', '.join(SHELL_KINDS)}")

    async def main(machine: Machine) -> Run:
        return await _ShellRun(workload, options, plan, listener or Quiet(), machine).play()

    try:
        ran = run_seed(options.seed, main)
    except BaseExceptionGroup as group:
        raise first_of(group) from group
    return ShellRun(ran.result, plan, ran.steps, ran.log)


def _drawn(options: Options, nemeses: Collection[str]) -> FaultPlan:
    """Draw a plan. WorldFailed for an unknown nemesis."""
    try:
        return draw_plan(options, nemeses, kinds=SHELL_KINDS)
    except NoSuchNemesis as error:
        raise WorldFailed(str(error)) from error


class ShellPort(ClusterPort):
    """A port to nodes in this process."""

    def __init__(
        self, cluster: RuntimeCluster, options: Options, process: int, now_ns: Callable[[], int], guard: QuorumGuard
    ) -> None:
        super().__init__(cluster, options, process, now_ns, guard)
        self._cluster = cluster

    async def _carry(self, node: int, api: str, request: Any, timeout_s: float) -> Any:
        try:
            return await self._cluster.ask(self._random, node, api, request, timeout_s)
        except NoResponse as error:
            self._leader = -1
            raise CallFailed(of_broken_call(error.status, str(error)), error.status, node=node) from None

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> memoryview:
        """Send a request of the peer protocol once. OSError, ApiError."""
        return await self._cluster.ask_peer(at, api, body, timeout_ms)

    def _likely(self) -> int:
        chance, other = self._random.random(), self._random.choice(self.controllers)
        return self._leader if self._leader in self.controllers and chance >= ASIDE else other


class _ShellRun(PhasedRun):
    """One run, under trio."""

    def __init__(self, workload: Workload, options: Options, plan: FaultPlan, listener: Listener, machine: Machine) -> None:
        super().__init__(workload, options, plan, listener)
        self._steps = machine.steps
        properties = {**PROPERTIES, **workload.properties}
        self._cluster = cluster = RuntimeCluster(
            options.controllers, options.brokers, properties, self._chance, machine.held, machine.directory
        )
        self._guard = QuorumGuard(cluster, self._find_voters, cluster.files)
        self._nursery: trio.Nursery

    async def play(self) -> Run:
        with self._cluster.log_dir_disks.watching():
            return await self._play()

    async def _play(self) -> Run:
        async with trio.open_nursery() as self._nursery:
            with self._steps.scope:
                await self.run_phases()
                await self._read_log()
            run = self._result()
            self._nursery.cancel_scope.cancel()
        return run

    def _chance(self, name: str) -> random.Random:
        return self._options.random(f"shell/{name}")

    def _new_port(self, process: int) -> Port:
        return ShellPort(self._cluster, self._options, process, self.drive.now_ns, self._guard)

    async def _find_leader(self, above: int | None = None) -> Leads | None:
        await trio.lowlevel.checkpoint()
        leader = self._cluster.leader()
        return None if leader is None else Leads(leader.leader_id, leader.epoch)

    async def _find_voters(self) -> dict[int, frozenset[int]]:
        await trio.lowlevel.checkpoint()
        return self._cluster.voters()

    # -- phases --------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._nursery.start(self._cluster.run)
        self._nursery.start_soon(self._watch)

    async def _came_up(self) -> None:
        """The log is known from its beginning."""

    def _begin(self) -> int:
        return int((STARTED_S + trio.current_time()) * 1000)

    async def _strike(self) -> None:
        cluster = self._cluster
        disks = {node: MemoryPower(node, cluster.media) for node in cluster.node_ids}
        tampering = MemoryTampering(cluster.media, cluster.disks, cluster.restart_degraded)
        victim = ClusterUnderFaults(cluster, self._find_leader, self._guard, None, disks, _at_once, tampering, cluster)
        await carry_out(
            victim, self._plan, self.drive.now_ns, ended=self._strike_ended, begun=self._strike_begun, kinds=SHELL_KINDS
        )

    async def _heal_all(self) -> None:
        self._cluster.heal_all()

    async def wait_ready(self, within_s: float) -> None:
        deadline = trio.current_time() + within_s
        while lacking := self._cluster.lacking():
            if trio.current_time() >= deadline:
                self.not_ready = f"{lacking}, after {within_s:g} s"
                return
            await trio.sleep(_LOOK_S)

    async def _read_log(self) -> None:
        answered = max((op.offset for op in self.interpreter.ops), default=0)
        deadline = trio.current_time() + LOG_WITHIN_S
        while self._cluster.committed.end < answered:
            if trio.current_time() >= deadline:
                self.not_ready = self.not_ready or f"offset {answered} was acknowledged but is not committed anywhere"
                return
            await trio.sleep(_LOOK_S)

    def _result(self) -> Run:
        if self._steps.scope.cancelled_caught:
            self.not_ready = f"{STEPS_MAX} steps in the phase {self._phase!r} without an end"
        return self._run(
            decoded(map(LogBatch.of, self._cluster.committed.batches)),
            own_exits(self.exits(), self.strikes, SHELL_KINDS),
            tuple(self._cluster.committed.violations),
        )

    def exits(self) -> Iterator[tuple[int, int, str]]:
        for at_s, node, words in self._cluster.exits:
            yield node, self.drive.ns_at(at_s), words

    # -- watching ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        looks = 0
        while True:
            self._observe()
            if looks % _STANDING_EVERY == 0:
                self.report_status()
            looks += 1
            await trio.sleep(_OBSERVE_S)

    def _observe(self) -> None:
        up = self._cluster.up()
        for node in self._cluster.node_ids:
            at_ns, life = self.drive.now_ns(), up.get(node)
            status = {} if life is None else life.status()._asdict()
            self._observed(Observation(at_ns=at_ns, node=node, is_up=life is not None, **status))


async def _at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run the work directly: nothing blocks here."""
    await trio.lowlevel.checkpoint()
    done = work(*arguments)
    return await done if inspect.isawaitable(done) else done
