"""A run on processes of this machine: a LocalCluster whose links can be broken, gRPC clients, faults that really strike.

The phases: the cluster starts, the workload sets up; clients and faults go on for the options' time; everything is healed, nodes
that ended by themselves are started again, and the cluster has `READY_WITHIN_S` to be ready; the final phase; what the workload
collects; the committed log to its end. Time 0 is when clients begin. Nothing that a client sent is under way when the final phase
begins: every call has its deadline, on the node too, and workers wait for their own calls.

Ctrl-C (or SIGTERM) ends the phase that is on; then everything is healed and stopped, and what there is by then is the run. A
second one ends the harness as it stands; the cluster's processes end with it.

What this does not see: whether a node lied about what is on its disk (power is never cut here), and how long messages were under
way between nodes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from kraftlab.cluster import ClusterError, LocalCluster
from kraftlab.cluster.layout import FIRST_CONTROLLER_ID
from kraftlab.quorum.core.errors import CorruptBatch

from ..committed_log import CommittedLog
from ..fault_plan import FaultPlan, Observation, Strike
from ..history import History
from ..interpreter import Interpreter
from ..nemeses.capabilities import Found, available_kinds, needed, probe, refusal
from ..nemeses.carrying_out import carry_out
from ..nemeses.drawing import draw_plan
from ..nemeses.kinds import ALL, KINDS
from ..nemeses.leaders import LeaderFinder
from ..nemeses.ledger import Ledger
from ..nemeses.networks.back_ends import NETS
from ..nemeses.networks.network import HeldNetwork, own_network
from ..nemeses.powered_disk import PoweredDisk, controllers_on_disks
from ..nemeses.quorum_guard import QuorumGuard
from ..workload import Options, Run, Workload
from .grpc_port import GrpcPort, Nodes
from .log_tail import LogTail
from .sampler import sample
from .trio_drive import TrioDrive, first_of
from .world import Assignment, Played, Standing, WorldFailed, newest

PROPERTIES: Mapping[str, str] = {
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""A snapshot every two hundred records or so, and brokers that are fenced while a short run still goes on."""
PROXY = "proxy"
READY_WITHIN_S = 30.0
FINAL_WITHIN_S = 60.0
_START_WITHIN_S = 60.0
_LOG_WITHIN_S = 15.0
_READY_STEP_S = 2.0
_STANDING_S = 1.0
_TAIL_PAUSE_S = 0.05
_KILLED = -signal.SIGKILL
_LACKING = re.compile(r"is not ready after .* s \((.*)\); see ")
"""What a cluster says while it is waited for step by step, in a directory that will be gone."""
NOTHING_SEEN = Observation(at_ns=0, node=-1, is_up=False)


def play(assignment: Assignment) -> Played:
    """WorldFailed; ClusterError if the cluster cannot be had."""
    options = assignment.options
    plan = _plan(assignment)
    assignment.directory.write_plan(plan)
    properties = {**PROPERTIES, **assignment.workload.properties, **assignment.properties}
    ledger = Ledger()
    data = ledger.new_directory()
    cluster: LocalCluster | None = None
    network: HeldNetwork | None = None
    is_kept = False

    def close() -> None:
        try:
            if cluster is not None:
                cluster.close()
                _copy_logs(cluster, assignment.directory.nodes)
        finally:
            if network is not None:
                network.close()
            ledger.close()

    try:
        disks = controllers_on_disks(ledger, data, options.controllers) if "power" in _needs(plan, assignment.net) else {}
        seed = options.random("links").getrandbits(63)
        network = _network(assignment, ledger, seed)
        cluster = LocalCluster(
            data,
            options.controllers,
            options.brokers,
            overrides=properties,
            allow_chaos=True,
            link_seed=seed,
            network=network,
        )
        run = trio.run(_RealRun(assignment, cluster, plan, ledger, disks).play)
        is_kept = assignment.leave_running
        where = "" if network is None else f" in the network of process {os.getpid()} (nsenter -n -t {os.getpid()})"
        endpoints = cluster.bootstrap_servers + where
        links = PROXY if network is None else assignment.net
        return Played(run, plan, links, properties, close if is_kept else None, endpoints)
    finally:
        if not is_kept:
            close()


def _network(assignment: Assignment, ledger: Ledger, seed: int) -> HeldNetwork | None:
    """The network of the nodes, None if that is the machine's own. ClusterError."""
    module, options = NETS[assignment.net].module, assignment.options
    if not module:
        return None
    controllers = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + options.controllers)
    nodes = (*controllers, *range(options.brokers))
    return HeldNetwork(module, nodes, ledger, seed=seed, observer=own_network())


def _plan(assignment: Assignment) -> FaultPlan:
    """The plan that is given or drawn. WorldFailed if something of it cannot strike on this machine, or in that net."""
    names, net = assignment.nemeses, NETS[assignment.net]
    if net.module:
        own_network()  # before there are threads
    plan = assignment.plan or draw_plan(assignment.options, names, available=available_kinds(net.name) if ALL in names else None)
    kinds = tuple(dict.fromkeys(action.kind for action in plan.actions))
    if refused := refusal(net.name, kinds):
        raise WorldFailed(refused)
    missing = [found for found in probe(_needs(plan, net.name)) if not found.is_on]
    if missing:
        struck = ", ".join(kind for kind in kinds if _needs_any(kind, missing)) or f"what --net {net.name} breaks"
        why = "; ".join(f"{found.name}: {found.detail}" for found in missing)
        raise WorldFailed(f"{struck} cannot strike on this machine ({why}); see `kraftlab chaos doctor`")
    return plan


def _needs(plan: FaultPlan, net: str) -> frozenset[str]:
    return needed({action.kind for action in plan.actions}, net)


def _needs_any(kind: str, missing: list[Found]) -> bool:
    return not needed({kind}).isdisjoint(found.name for found in missing)


def _copy_logs(cluster: LocalCluster, target: Path) -> None:
    for node_id in (*cluster.controller_ids, *cluster.broker_ids):
        source = cluster.log_path(node_id)
        if source.exists():
            shutil.copyfile(source, target / source.name)


class _RealRun:
    """One run, under trio."""

    def __init__(
        self, assignment: Assignment, cluster: LocalCluster, plan: FaultPlan, ledger: Ledger, disks: dict[int, PoweredDisk]
    ) -> None:
        self._cluster, self._plan, self._ledger, self._disks = cluster, plan, ledger, disks
        self._workload: Workload = assignment.workload
        self._options: Options = assignment.options
        self._listener = assignment.listener
        self._observations: list[Observation] = []
        self._last: dict[int, Observation] = {}
        self._strikes: list[Strike] = []
        self._striking: list[str] = []
        self._exits: dict[int, tuple[int, str]] = {}
        self._violations: list[str] = []
        self._phase, self._not_ready, self._cut_short = "start", "", ""
        self._healed_ns = self._started_at_ms = 0
        self._data: dict[str, Any] = {}
        self._reading = trio.Lock()

    async def play(self) -> Run:
        self._nodes = nodes = Nodes(self._cluster)
        self._leaders = leaders = LeaderFinder(self._cluster)
        self._guard = guard = QuorumGuard(self._cluster, leaders.voters)
        listens = {node_id: self._cluster.node(node_id).listens for node_id in self._cluster.controller_ids}
        disks = [self._cluster.metadata_dir(node_id) for node_id in (*self._cluster.controller_ids, *self._cluster.broker_ids)]
        tail = LogTail(listens, self._cluster.cluster_id, disks)
        try:
            self._drive = TrioDrive(lambda process: GrpcPort(nodes, self._options, process, self._drive.now_ns, guard))
            self._interpreter = Interpreter(self._workload, self._options, self._drive, self._listener.ended)
            async with _errors_alone(), trio.open_nursery() as watchers:
                with trio.CancelScope() as phases:
                    watchers.start_soon(self._stop_on_signal, phases)
                    await self._phases(watchers, tail)
                with trio.CancelScope(shield=True):
                    log = await self._wind_up(tail)
                watchers.cancel_scope.cancel()
            return self._run(log, tail)
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            tail.close()
            leaders.close()
            nodes.close()

    async def _stop_on_signal(self, phases: trio.CancelScope) -> None:
        """The first signal ends the phases; from then on Ctrl-C is the system's own, which ends this process at once."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            number = await anext(aiter(signals))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._cut_short = f"{signal.Signals(number).name} in the phase {self._phase!r}"
        phases.cancel()

    # -- phases --------------------------------------------------------------------------------------------------------

    async def _phases(self, watchers: trio.Nursery, tail: LogTail) -> None:
        self._enter("start")
        await _in_thread(self._cluster.start)
        await self._wait_ready(_START_WITHIN_S)
        if self._not_ready:
            raise WorldFailed(f"the cluster did not come up: {self._not_ready}")
        watchers.start_soon(self._sample)
        await self._read_to_end(tail, 0)
        watchers.start_soon(self._follow, tail)
        self._enter("setup")
        await self._interpreter.setup()
        self._drive.begin()
        self._observations.clear()
        self._started_at_ms = int(time.time() * 1000)
        watchers.start_soon(self._watch)
        self._enter("clients")
        try:
            async with trio.open_nursery() as both:
                both.start_soon(self._strike)
                await self._interpreter.clients()
                both.cancel_scope.cancel()
        finally:
            await self._heal()
        if not self._not_ready:
            self._enter("final")
            with trio.move_on_after(FINAL_WITHIN_S) as final:
                await self._interpreter.final()
            if final.cancelled_caught:
                self._not_ready = f"the final phase had not ended after {FINAL_WITHIN_S:g} s"
        self._enter("collect")
        self._data = await self._interpreter.collect()

    async def _strike(self) -> None:
        await carry_out(
            self._plan,
            self._cluster,
            self._drive.now_ns,
            find_leader=self._leaders,
            guard=self._guard,
            tell=self._struck,
            begun=lambda action: self._striking.append(action.kind),
            ledger=self._ledger,
            disks=self._disks,
        )

    def _struck(self, strike: Strike) -> None:
        self._strikes.append(strike)
        if strike.kind in self._striking:
            self._striking.remove(strike.kind)

    async def _heal(self) -> None:
        """Every link heals, every node runs again, and the cluster is waited for. Also if the run is being cut short."""
        self._enter("heal")
        with trio.CancelScope(shield=True):
            await _in_thread(self._cluster.heal_all)
            for node_id in (*self._cluster.controller_ids, *self._cluster.broker_ids):
                await _in_thread(self._cluster.resume_node, node_id)
            self._healed_ns = self._drive.now_ns()
            await self._start_dead()
        await self._wait_ready(READY_WITHIN_S)

    async def _start_dead(self) -> None:
        """Nodes that ended by themselves are noted, and started again."""
        self._note_exits(at_rest=True)
        for node_id in (*self._cluster.controller_ids, *self._cluster.broker_ids):
            if self._cluster.pid(node_id) is None:
                await _in_thread(self._cluster.start_node, node_id)

    async def _wait_ready(self, within_s: float) -> None:
        """Step by step, so that it can be cut short."""
        deadline, state = trio.current_time() + within_s, ""
        while trio.current_time() < deadline:
            try:
                await _in_thread(self._cluster.wait_ready, _READY_STEP_S)
            except ClusterError as error:
                lacking = _LACKING.search(str(error))
                state = f"{lacking[1]}, after {within_s:g} s" if lacking else str(error)
                if self._cluster.exited():
                    break
            else:
                return
        self._not_ready = state
        self._note_exits(at_rest=True)

    async def _wind_up(self, tail: LogTail) -> CommittedLog | None:
        """The log to its end, if it can be had."""
        self._enter("log")
        if not self._interpreter.ops:
            return None
        answered = max((op.offset for op in self._interpreter.ops), default=0)
        is_whole = await self._read_to_end(tail, answered)
        if not is_whole and not self._not_ready and not self._cut_short:
            self._not_ready = f"the committed log could not be read to its end within {_LOG_WITHIN_S:g} s"
        return tail.log() if is_whole or tail.end else None

    async def _read_to_end(self, tail: LogTail, least: int) -> bool:
        """Reads the log up to the highest offset that any node says is committed, `least` at least; False if that was not to be
        had in time."""
        with trio.move_on_after(_LOG_WITHIN_S):
            while True:
                more = await self._advance(tail)
                end = max(least, *(observation.high_watermark for observation in (NOTHING_SEEN, *self._last.values())))
                if not more and 0 < end <= tail.end:
                    return True
                if not more:
                    await trio.sleep(_TAIL_PAUSE_S)
        return False

    async def _advance(self, tail: LogTail) -> bool:
        """Whether there was more to read. What cannot be read now is read later."""
        leader, epoch, _, _ = newest(self._last)
        async with self._reading:
            try:
                more: bool = await _in_thread(tail.advance, leader, epoch)
            except CorruptBatch:
                return False
            return more

    def _run(self, log: CommittedLog | None, tail: LogTail) -> Run:
        return Run(
            options=self._options,
            history=History(self._interpreter.ops),
            log=log,
            strikes=tuple(sorted(self._strikes, key=lambda strike: (strike.begin_ns, strike.kind))),
            observations=tuple(sorted(self._observations, key=lambda observation: (observation.at_ns, observation.node))),
            healed_ns=self._healed_ns,
            ended_ns=self._drive.now_ns(),
            started_at_ms=self._started_at_ms,
            node_exits=self._own_exits(),
            violations=(*self._violations, *tail.violations),
            not_ready=self._not_ready,
            cut_short=self._cut_short,
            data=self._data,
        )

    # -- watching ------------------------------------------------------------------------------------------------------

    async def _sample(self) -> None:
        await sample(self._cluster, self._nodes, self._drive.now_ns, self._observed)

    def _observed(self, observation: Observation) -> None:
        self._observations.append(observation)
        self._last[observation.node] = observation

    async def _follow(self, tail: LogTail) -> None:
        """Reads the log as it grows."""
        while True:
            if not await self._advance(tail):
                await trio.sleep(_TAIL_PAUSE_S)

    async def _watch(self) -> None:
        while True:
            self._note_exits(at_rest=False)
            self._tell()
            await trio.sleep(_STANDING_S)

    def _note_exits(self, *, at_rest: bool) -> None:
        """Nodes that ended by themselves; while faults strike, a kill looks like an end by kill -9 for a moment."""
        for node_id, code in self._cluster.exited().items():
            if node_id not in self._exits and (at_rest or code != _KILLED):
                words = f"exit code {code}: {self._cluster.last_words(node_id)}"
                self._exits[node_id] = self._drive.now_ns(), words

    def _own_exits(self) -> dict[int, str]:
        """Without those that were to be expected of what struck the node before."""
        expected = [(strike.begin_ns, strike.nodes) for strike in self._strikes if KINDS[strike.kind].ends_nodes]
        return {
            node_id: words
            for node_id, (at_ns, words) in self._exits.items()
            if not any(begin_ns <= at_ns and node_id in nodes for begin_ns, nodes in expected)
        }

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._tell()

    def _tell(self) -> None:
        leader, epoch, committed, lag = newest(self._last)
        down = tuple(node for node, observation in sorted(self._last.items()) if not observation.is_up)
        now_ns = self._drive.now_ns()
        self._listener.stands(
            Standing(self._phase, now_ns, leader, epoch, committed, lag, down, tuple(dict.fromkeys(self._striking)))
        )


async def _in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(work, *arguments)


@asynccontextmanager
async def _errors_alone() -> AsyncIterator[None]:
    """One error instead of a group of one."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first_of(group) from group
