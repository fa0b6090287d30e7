"""The trio shell on a mock clock: real drivers, controllers and doors in one process, and a seed is a run.

Theory of operation. `ShellCluster` is what a process of each node runs, without sockets, threads and gRPC. Nothing takes time
there but what waits for the clock, and that jumps to the next thing that is due as soon as nobody can go on; which task goes
first is drawn from the seed as well. So the same seed gives the same history, however fast the machine is. The phases and the
faults are those of real processes, carried out by the same code; what nodes commit is read from each of them, and compared.

This shows what the shell does with what the core wants: what is acknowledged before it is durable, who is woken and when, what
becomes of half-sent frames, of connections that break, of a node that is cancelled anywhere. It does not show gRPC, the kernel's
sockets, files and threads, nor what a loss of power leaves of brokers' log directories.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio
import trio.testing

from kraftlab.checking.scratch_directory import own_directory
from kraftlab.quorum.core.batch import decode_all
from kraftlab.quorum.core.types import Endpoint
from kraftlab.simulation.runtime.disks import MemoryPower, MemoryTampering
from kraftlab.simulation.runtime.held_tasks import HeldTasks
from kraftlab.simulation.runtime.machine import STARTED_S, deterministic, logged

from ..committed_log import LogBatch, decoded
from ..fault_plan import FaultPlan, Observation
from ..faults.injector import carry_out_in
from ..faults.plan_generator import NoSuchNemesis, draw_plan
from ..faults.quorum_guard import QuorumGuard
from ..faults.scene import Scene
from ..history import Op
from ..outcomes import of_broken_call
from ..workload import CallFailed, Options, Port, Run, Workload
from .cluster_port import ASIDE, ClusterPort
from .phases import LOG_WITHIN_S, PROPERTIES, PhasedRun, own_exits
from .shell_cluster import ShellCluster, Unanswered
from .shell_kinds import SHELL_KINDS
from .trio_drive import first_of
from .world import Assignment, Listener, Played, Standing, WorldFailed

LOG_NAME = "shell.log"
STEPS_MAX = 20_000_000
"""Steps of tasks after which a run goes round in circles."""
_LOOK_S = 0.05
_OBSERVE_S = 0.2
_STANDING_EVERY = 5


class ShellRun(NamedTuple):
    """`steps` of tasks, and the lines of all nodes' `log`, are the same for the same seed."""

    run: Run
    plan: FaultPlan
    steps: int
    log: tuple[str, ...]


class Quiet:
    """A listener that is not told to."""

    def ended(self, op: Op) -> None:
        """Nobody looks."""

    def stands(self, standing: Standing) -> None:
        """Nobody looks."""


def play(assignment: Assignment) -> Played:
    """WorldFailed."""
    properties = dict(assignment.workload.properties) | dict(assignment.properties)
    played = run_shell(
        assignment.workload._replace(properties=properties),
        assignment.options,
        assignment.plan,
        nemeses=assignment.nemeses,
        listener=assignment.listener,
    )
    (assignment.directory.nodes / LOG_NAME).write_text("".join(f"{line}\n" for line in played.log))
    return Played(played.run, played.plan, properties={**PROPERTIES, **properties})


def run_shell(
    workload: Workload,
    options: Options,
    plan: FaultPlan | None = None,
    *,
    nemeses: Collection[str] = (),
    listener: Listener | None = None,
) -> ShellRun:
    """Plays one seed, with that plan or the one that the seed draws for the nemeses. WorldFailed, SetupFailed, GeneratorStuck."""
    plan = plan or _drawn(options, nemeses)
    refused = sorted({action.kind for action in plan.actions}.difference(SHELL_KINDS))
    if refused:
        raise WorldFailed(f"{', '.join(refused)} cannot strike in the world shell, which has {', '.join(SHELL_KINDS)}")
    steps, held = _Steps(), HeldTasks()
    with own_directory() as directory, deterministic(options.seed), logged(directory) as lines:
        told = listener or Quiet()
        try:
            clock = trio.testing.MockClock(autojump_threshold=0)
            play = partial(_play, workload, options, plan, told, steps, held, Path(directory))
            run: Run = trio.run(play, clock=clock, instruments=[steps, held])
        except BaseExceptionGroup as group:
            raise first_of(group) from group
    return ShellRun(run, plan, steps.count, tuple(lines))


def _drawn(options: Options, nemeses: Collection[str]) -> FaultPlan:
    """WorldFailed for a nemesis that there is not."""
    try:
        return draw_plan(options, nemeses, kinds=SHELL_KINDS)
    except NoSuchNemesis as error:
        raise WorldFailed(str(error)) from error


class _Steps(trio.abc.Instrument):
    """Counts the steps of all tasks, and ends a run that has too many."""

    def __init__(self) -> None:
        self.count = 0
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        if self.count == STEPS_MAX:
            self.scope.cancel()


class ShellPort(ClusterPort):
    """To nodes in this process."""

    def __init__(
        self, cluster: ShellCluster, options: Options, process: int, now_ns: Callable[[], int], guard: QuorumGuard
    ) -> None:
        super().__init__(cluster, options, process, now_ns, guard)
        self._cluster = cluster

    async def _carry(self, node: int, api: str, request: Any, timeout_s: float) -> Any:
        try:
            return await self._cluster.ask(self._random, node, api, request, timeout_s)
        except Unanswered as error:
            self._leader = -1
            raise CallFailed(of_broken_call(error.status, str(error)), error.status, node=node) from None

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> bytes:
        """Sends a request of the peer protocol once. OSError, ApiError."""
        return await self._cluster.ask_peer(at, api, body, timeout_ms)

    def _likely(self) -> int:
        chance, other = self._random.random(), self._random.choice(self.controllers)
        return self._leader if self._leader in self.controllers and chance >= ASIDE else other


class Tail:
    """The committed log, as it grows: what any node applies, every other must have there too. `violations` are sentences."""

    def __init__(self) -> None:
        self._crcs: dict[int, int] = {}
        """By the first offset of each batch."""
        self.batches: list[LogBatch] = []
        self.end = 0
        self.violations: list[str] = []

    def hear(self, node: int, data: bytes) -> None:
        """Of batches that a node applies. Nobody skips what no other node has applied, so there are no gaps."""
        for batch in decode_all(data):
            header = batch.header
            if self._crcs.setdefault(header.base_offset, header.crc) != header.crc:
                self.violations.append(f"node {node} has committed {header!r}, and another node another batch at that offset")
            elif header.base_offset == self.end:
                self.batches.append(
                    LogBatch(
                        header.base_offset, header.end_offset, header.epoch, header.append_time_ms, header.is_control, batch.body
                    )
                )
                self.end = header.end_offset
            elif header.end_offset > self.end:
                self.violations.append(f"node {node} has committed {header!r}, which does not follow offset {self.end}")


async def _play(
    workload: Workload, options: Options, plan: FaultPlan, listener: Listener, steps: _Steps, held: HeldTasks, directory: Path
) -> Run:
    return await _ShellRun(workload, options, plan, listener, steps, held, directory).play()


class _ShellRun(PhasedRun):
    """One run, under trio."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        plan: FaultPlan,
        listener: Listener,
        steps: _Steps,
        held: HeldTasks,
        directory: Path,
    ) -> None:
        super().__init__(workload, options, plan, listener)
        self._steps = steps
        properties = {**PROPERTIES, **workload.properties}
        self._cluster = cluster = ShellCluster(options.controllers, options.brokers, properties, self._chance, held, directory)
        self._guard = QuorumGuard(cluster, cluster.find_voters, cluster.files)
        self._tail = Tail()
        cluster.on_commit = self._tail.hear
        self._nursery: trio.Nursery

    async def play(self) -> Run:
        with self._cluster.log_dir_disks.watching():
            return await self._play()

    async def _play(self) -> Run:
        async with trio.open_nursery() as self._nursery:
            with self._steps.scope:
                await self._phases()
                await self._read_log()
            run = self._told()
            self._nursery.cancel_scope.cancel()
        return run

    def _chance(self, name: str) -> random.Random:
        return self._options.random(f"shell/{name}")

    def _new_port(self, process: int) -> Port:
        return ShellPort(self._cluster, self._options, process, self._drive.now_ns, self._guard)

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
        tampering = MemoryTampering(cluster.media, cluster.disks, cluster.mend)
        scene = Scene(cluster, cluster.find_leader, self._guard, None, disks, _at_once, tampering, cluster)
        begun = self._striking.append
        await carry_out_in(
            scene,
            self._plan,
            self._drive.now_ns,
            tell=self._struck,
            begun=lambda action: begun(action.kind),
            kinds=SHELL_KINDS,
        )

    async def _mend(self) -> None:
        self._cluster.heal_all()

    async def _wait_ready(self, within_s: float) -> None:
        deadline = trio.current_time() + within_s
        while lacking := self._cluster.lacking():
            if trio.current_time() >= deadline:
                self._not_ready = f"{lacking}, after {within_s:g} s"
                return
            await trio.sleep(_LOOK_S)

    async def _read_log(self) -> None:
        answered = max((op.offset for op in self._interpreter.ops), default=0)
        deadline = trio.current_time() + LOG_WITHIN_S
        while self._tail.end < answered:
            if trio.current_time() >= deadline:
                self._not_ready = self._not_ready or f"offset {answered}, which was answered, is not committed anywhere"
                return
            await trio.sleep(_LOOK_S)

    def _told(self) -> Run:
        if self._steps.scope.cancelled_caught:
            self._not_ready = f"{STEPS_MAX} steps in the phase {self._phase!r}, and no end"
        return self._run(
            decoded(self._tail.batches), own_exits(self._exits(), self._strikes, SHELL_KINDS), tuple(self._tail.violations)
        )

    def _exits(self) -> Iterator[tuple[int, int, str]]:
        for at_s, node, words in self._cluster.exits:
            yield node, self._drive.ns_at(at_s), words

    # -- watching ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        looks = 0
        while True:
            self._observe()
            if looks % _STANDING_EVERY == 0:
                self._tell()
            looks += 1
            await trio.sleep(_OBSERVE_S)

    def _observe(self) -> None:
        up = self._cluster.up()
        for node in self._cluster.node_ids:
            at_ns, life = self._drive.now_ns(), up.get(node)
            seen = Observation(at_ns=at_ns, node=node, is_up=False)
            if life is not None:
                epoch, leader, high_watermark, log_end = life.said()
                seen = Observation(
                    at_ns=at_ns, node=node, is_up=True, epoch=epoch, leader=leader, high_watermark=high_watermark, log_end=log_end
                )
            self._observed(seen)


async def _at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Nothing here blocks."""
    await trio.lowlevel.checkpoint()
    done = work(*arguments)
    return await done if inspect.isawaitable(done) else done
