"""A run on processes of this machine: a LocalCluster whose links can be broken, gRPC clients, real faults.

The phases are those of `phases.py`; after them the committed log is read to its end. Nodes that ended by themselves are started
again when everything is healed.

Ctrl-C (or SIGTERM) ends the current phase; then everything is healed and stopped, and the run is kept as far as it came. A second
signal ends the harness at once; the cluster's processes end with it. Before and after the phases there is no run to keep:
everything is stopped and undone.

Not covered: the time that messages between nodes take, and lies of a node about its disk, except under the fault power-loss.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from kraftlab.checking.facts import Observation
from kraftlab.lab import ClusterError, LocalCluster
from kraftlab.lab.cluster_plan import FIRST_CONTROLLER_ID
from kraftlab.lab.faults.active_faults import PAST_ORDERS
from kraftlab.lab.faults.breaker import Breaker
from kraftlab.lab.faults.orders import NodeState, Status
from kraftlab.lab.faults.server import ControlServer
from kraftlab.quorum.core.errors import CorruptBatch

from ..committed_log import CommittedLog
from ..fault_plan import FaultPlan
from ..faults.capabilities import ProbeResult, available_kinds, needed, probe
from ..faults.cluster_under_faults import ClusterUnderFaults
from ..faults.injector import carry_out
from ..faults.kinds import ALL
from ..faults.leaders import LeaderFinder
from ..faults.ledger import Ledger
from ..faults.networks.back_ends import NETS
from ..faults.networks.network import HeldNetwork, own_network
from ..faults.plan_generator import draw_plan
from ..faults.quorum_guard import QuorumGuard
from ..history import FAIL, INFO, OK
from ..workload import OWN, Port, Run
from .grpc_port import GrpcPort, Nodes
from .log_tail import LogTail
from .node_exits import NodeExits, own_exits
from .phases import LOG_WITHIN_S, PROPERTIES, PhasedRun
from .run_orders import RunOrders, orders_of
from .sampler import sample
from .trio_drive import first_of
from .world import Assignment, NotOnThisMachine, PlayedRun, left_out, newest

if TYPE_CHECKING:
    from .kafka_port import KafkaPort

PROXY = "proxy"
_START_WITHIN_S = 60.0
_READY_STEP_S = 2.0
_STANDING_S = 1.0
_TAIL_PAUSE_S = 0.05
_LACKING = re.compile(r"is not ready after .* s \((.*)\); see ")
"""The message of a cluster that is not ready, whose directory will be gone."""
NOTHING_SEEN = Observation(at_ns=0, node=-1, is_up=False)


def play(assignment: Assignment) -> PlayedRun:
    """Play the run. WorldFailed; ClusterError if the cluster cannot start."""
    with ExitStack() as handlers:
        handlers.enter_context(_sigterm_as_ctrl_c())
        played = _played(assignment)
        stop = played.close
        if stop is None:
            return played
        kept = handlers.pop_all()

    def close() -> None:
        with kept:
            stop()

    return played._replace(close=close)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _played(assignment: Assignment) -> PlayedRun:
    options = assignment.options
    plan = _plan(assignment)
    assignment.directory.write_plan(plan)
    properties = {**PROPERTIES, **assignment.workload.properties, **assignment.properties}
    traces = {"kraftlab.trace.file": assignment.directory.node_traces()} if options.trace else {}
    ledger = Ledger()
    data = ledger.new_directory()
    cluster: LocalCluster | None = None
    network: HeldNetwork | None = None
    control: ControlServer | None = None
    watching = ExitStack()
    is_kept = False

    def close() -> None:
        with ExitStack() as last:
            last.callback(ledger.close)
            if network is not None:
                last.callback(network.close)
            if cluster is not None:
                last.callback(_copy_logs, cluster, assignment.directory.nodes)
                last.callback(cluster.close)
            if control is not None:
                last.callback(control.close)
            last.callback(watching.close)

    try:
        seed = options.random("links").getrandbits(63)
        network = _network(assignment, ledger, seed)
        cluster = LocalCluster(
            data,
            options.controllers,
            options.brokers,
            overrides={**properties, **traces},
            allow_chaos=True,
            link_seed=seed,
            network=network,
            own_disks="power" in _needs(plan, assignment.net),
            secure=options.secure,
        )
        with ExitStack() as telling:
            run = trio.run(_play, assignment, cluster, plan, ledger, telling, watching)
        if assignment.leave_running:
            control = ControlServer(cluster.directory, Breaker(cluster, _print_result))
        is_kept = assignment.leave_running
        where = "" if network is None else f" in the network of process {os.getpid()} (nsenter -n -t {os.getpid()})"
        endpoints = cluster.bootstrap_servers + where
        links = PROXY if network is None else assignment.net
        return PlayedRun(run, plan, links, properties, close if is_kept else None, endpoints, str(data) if is_kept else "")
    finally:
        if not is_kept:
            close()


def _print_result(line: str) -> None:
    """Print later results of orders that a user gave."""
    print(line, file=sys.stderr, flush=True)


def _network(assignment: Assignment, ledger: Ledger, seed: int) -> HeldNetwork | None:
    """Return the network of the nodes, None if it is the machine's own. ClusterError."""
    if not NETS[assignment.net].has_namespaces:
        return None
    options = assignment.options
    controllers = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + options.controllers)
    nodes = (*controllers, *range(options.brokers))
    return HeldNetwork(nodes, ledger, seed=seed, observer=own_network())


def _plan(assignment: Assignment) -> FaultPlan:
    """Return the given plan or draw one. WorldFailed if a part of it cannot strike on this machine."""
    names, net = assignment.nemeses, NETS[assignment.net]
    unwanted = left_out(net.name, client=assignment.options.client, secure=assignment.options.secure)
    if net.has_namespaces:
        own_network()  # must come before threads start
    plan = assignment.plan
    if plan is None:
        kept = [kind for kind in available_kinds(net.name) if kind not in unwanted] if ALL in names else None
        plan = draw_plan(assignment.options, names, available=kept)
    kinds = tuple(dict.fromkeys(action.kind for action in plan.actions))
    missing = [found for found in probe(_needs(plan, net.name)) if not found.is_on]
    if missing:
        struck = ", ".join(kind for kind in kinds if _needs_any(kind, missing)) or f"--net {net.name}"
        why = "; ".join(f"{found.name}: {found.detail}" for found in missing)
        raise NotOnThisMachine(f"{struck} is not available on this machine ({why}); see `kraftlab chaos doctor`")
    return plan


def _needs(plan: FaultPlan, net: str) -> frozenset[str]:
    return needed({action.kind for action in plan.actions}, net)


def _needs_any(kind: str, missing: list[ProbeResult]) -> bool:
    return not needed({kind}).isdisjoint(found.name for found in missing)


def _copy_logs(cluster: LocalCluster, target: Path) -> None:
    for node_id in (*cluster.controller_ids, *cluster.broker_ids):
        source = cluster.log_path(node_id)
        if source.exists():
            shutil.copyfile(source, target / source.name)


async def _play(
    assignment: Assignment, cluster: LocalCluster, plan: FaultPlan, ledger: Ledger, telling: ExitStack, watching: ExitStack
) -> Run:
    """Play the run. `telling` ends with the run and `watching` with the cluster."""
    run = RealRun(assignment, cluster, plan, ledger)
    watch = assignment.watched_by

    def let_watch() -> None:
        if watch is not None:
            telling.callback(ControlServer(cluster.directory, RunOrders(run.status)).close)
            watching.enter_context(watch(cluster.directory))

    run.let_watch = let_watch
    return await run.play()


class RealRun(PhasedRun):
    """One run, under trio."""

    start_within_s = _START_WITHIN_S

    def __init__(self, assignment: Assignment, cluster: LocalCluster, plan: FaultPlan, ledger: Ledger) -> None:
        super().__init__(assignment.workload, assignment.options, plan, assignment.listener)
        self._cluster, self._ledger = cluster, ledger
        self._nodes: Nodes
        self._leaders: LeaderFinder
        self._guard: QuorumGuard
        self.tail: LogTail
        self._watchers: trio.Nursery
        self.exits = NodeExits(cluster, self.drive.now_ns)
        self._violations: list[str] = []
        self._reading = trio.Lock()
        self._kafka_ports: dict[int, KafkaPort] = {}
        self.let_watch: Callable[[], None] = lambda: None

    def _new_port(self, process: int) -> Port:
        if self._options.client == OWN:
            return GrpcPort(self._nodes, self._options, process, self.drive.now_ns, self._guard)
        from .kafka_port import KafkaPort

        before = self._kafka_ports.pop(process - self._options.concurrency, None)
        if before is not None:
            self._watchers.start_soon(_in_thread, before.close)
        servers, login = self._cluster.kafka_bootstrap_servers, self._cluster.kafka_python_options
        port = KafkaPort(self._nodes, self._options, process, self.drive.now_ns, self._guard, servers, login)
        self._kafka_ports[process] = port
        return port

    async def play(self) -> Run:
        cluster = self._cluster
        self._nodes = Nodes(cluster)
        self._leaders = LeaderFinder(cluster)
        self._guard = QuorumGuard(cluster, self._leaders.voters)
        listens = {node_id: cluster.node(node_id).listens for node_id in cluster.controller_ids}
        disks = [cluster.metadata_dir(node_id) for node_id in (*cluster.controller_ids, *cluster.broker_ids)]
        self.tail = LogTail(listens, cluster.cluster_id, disks, cluster.security)
        try:
            async with _errors_alone(), trio.open_nursery() as self._watchers:
                with trio.CancelScope() as phases:
                    self._watchers.start_soon(self._stop_on_signal, phases)
                    await self.run_phases()
                with trio.CancelScope(shield=True):
                    log = await self.wind_up()
                    async with trio.open_nursery() as closing:
                        for port in self._kafka_ports.values():
                            closing.start_soon(_in_thread, port.close)
                self._watchers.cancel_scope.cancel()
            return self._run(log, own_exits(self.exits.found, self.strikes), (*self._violations, *self.tail.violations))
        except Exception as error:
            if self.cut_short:
                raise KeyboardInterrupt from error  # the error came on the way out, or would not have come later
            raise
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.tail.close()
            self._leaders.close()
            self._nodes.close()

    async def _stop_on_signal(self, phases: trio.CancelScope) -> None:
        """End the phases at the first signal; later signals end this process at once."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            number = await anext(aiter(signals))
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        self.cut_short = f"{signal.Signals(number).name} in the phase {self._phase!r}"
        phases.cancel()

    # -- phases --------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await _in_thread(self._cluster.start)

    async def _came_up(self) -> None:
        self._watchers.start_soon(self._sample)
        await self._read_to_end(0)
        self._watchers.start_soon(self._follow)
        await _in_thread(self.let_watch)

    def _begin(self) -> int:
        self._watchers.start_soon(self._watch)
        return int(time.time() * 1000)

    async def _strike(self) -> None:
        disks = {node: disk for node, disk in self._cluster.disks.items() if node in self._cluster.controller_ids}
        victim = ClusterUnderFaults(self._cluster, self._leaders, self._guard, self._ledger, disks)
        await carry_out(victim, self._plan, self.drive.now_ns, ended=self._strike_ended, begun=self._strike_begun)

    async def _heal_all(self) -> None:
        await _in_thread(self._cluster.heal_all)
        for node_id in (*self._cluster.controller_ids, *self._cluster.broker_ids):
            await _in_thread(self._cluster.resume_node, node_id)
        for disk in self._cluster.disks.values():
            if not disk.has_power:
                await _in_thread(disk.restore_power)
        await self.start_dead()

    async def start_dead(self) -> None:
        """Note nodes that ended by themselves, and start them again."""
        self.exits.collect(at_rest=True)
        for node_id in (*self._cluster.controller_ids, *self._cluster.broker_ids):
            if self._cluster.pid(node_id) is None:
                await _in_thread(self._cluster.start_node, node_id)

    async def wait_ready(self, within_s: float) -> None:
        self.not_ready = await lacking(self._cluster, within_s)
        if self.not_ready:
            self.exits.collect(at_rest=True)

    async def wind_up(self) -> CommittedLog | None:
        """Read the log to its end; return None if the end is unknown, because then nothing can be called missing. The end is
        known if a leader reports it, even if answers had higher offsets: those are lost.
        """
        self._enter("log")
        tail = self.tail
        if not self.interpreter.ops:
            return None
        tail.ends_at = -1
        answered = max((op.offset for op in self.interpreter.ops), default=0)
        is_whole = await self._read_to_end(answered)
        if not is_whole and not self.not_ready and not self.cut_short:
            self.not_ready = f"the committed log could not be read to its end within {LOG_WITHIN_S:g} s"
        return tail.log() if is_whole or 0 < tail.end == tail.ends_at else None

    async def _read_to_end(self, least: int) -> bool:
        """Read the log up to the highest high watermark of any node, at least to `least`; return False if that takes too long."""
        with trio.move_on_after(LOG_WITHIN_S):
            while True:
                more = await self._advance()
                end = max(least, *(observation.high_watermark for observation in (NOTHING_SEEN, *self._last.values())))
                if not more and 0 < end <= self.tail.end:
                    return True
                if not more:
                    await trio.sleep(_TAIL_PAUSE_S)
        return False

    async def _advance(self) -> bool:
        """Return True if there was more to read. Batches that cannot be read now are read later."""
        leader, epoch, _, _ = newest(self._last)
        async with self._reading:
            try:
                more: bool = await _in_thread(self.tail.advance, leader, epoch)
            except CorruptBatch:
                return False
            return more

    # -- watching ------------------------------------------------------------------------------------------------------

    async def _sample(self) -> None:
        await sample(self._cluster, self._nodes, self.drive.now_ns, self._observed)

    async def _follow(self) -> None:
        """Read the log as it grows."""
        while True:
            if not await self._advance():
                await trio.sleep(_TAIL_PAUSE_S)

    def status(self) -> Status:
        """Return nodes and strikes. Thread-safe."""
        cluster, leader = self._cluster, newest(dict(self._last))[0]
        names = {node.node_id: node.name for node in cluster.plan.nodes}
        states = {node: "running" if cluster.pid(node) is not None else "down" for node in names}
        nodes = tuple(NodeState(name, cluster.pid(node), states[node], node == leader) for node, name in names.items())
        past = orders_of([*self.strikes], names, self._started_at_ms)
        orders = orders_of([*self._striking], names, self._started_at_ms, len(past) + 1)
        return Status(nodes, orders, (), past=past[-PAST_ORDERS:], progress=self._progress())

    def _progress(self) -> str:
        """Return a line about the last second of the run."""
        now_ns = time.time_ns() - self._started_at_ms * 1_000_000 if self._started_at_ms else 0  # trio's clock is its thread's
        ops = self.interpreter.ops
        recent: Counter[str] = Counter()
        for at in range(len(ops) - 1, -1, -1):
            if ops[at].ended_ns < now_ns - 1_000_000_000:
                break
            recent[ops[at].outcome] += 1
        rates = ", ".join(f"{recent[outcome]} {outcome}/s" for outcome in (OK, FAIL, INFO))
        time_s = f"{max(now_ns, 0) / 1e9:.0f} of {self._options.time_s:g} s"
        return f"kraftlab chaos test -w {self._workload.name}: {self._phase}, {time_s}, {rates}"

    async def _watch(self) -> None:
        while True:
            self.exits.collect(at_rest=False)
            self.report_status()
            await trio.sleep(_STANDING_S)


async def lacking(cluster: LocalCluster, within_s: float) -> str:
    """Wait until the cluster is ready. Return what it lacks if it is not ready in time or a node has ended, otherwise "". The
    wait is in short steps, so that it can be interrupted.
    """
    deadline, state = trio.current_time() + within_s, ""
    while trio.current_time() < deadline:
        try:
            await _in_thread(cluster.wait_ready, _READY_STEP_S)
        except ClusterError as error:
            found = _LACKING.search(str(error))
            state = f"{found[1]}, after {within_s:g} s" if found else str(error)
            if cluster.exited():
                break
        else:
            return ""
    return state


async def _in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(work, *arguments)


@asynccontextmanager
async def _errors_alone() -> AsyncIterator[None]:
    """Raise one error instead of a group of one."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first_of(group) from group
