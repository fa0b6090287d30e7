"""The phases of a run under trio, on a real clock or a mock one, for any kind of cluster.

The cluster starts and the workload sets up; clients and faults run for the options' time; everything is healed, and the cluster
has `READY_WITHIN_S` to become ready; then the final phase, and the workload's `collect`. Time 0 is the begin of the clients. No
client request is in flight when the final phase begins: every request has a deadline, on the node too, and workers wait for their
own requests. A cancellation during the faults still heals everything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import trio

from kraftlab.checking.facts import Observation, Strike

from ..committed_log import CommittedLog
from ..fault_plan import FaultPlan
from ..history import History
from ..scheduler import Interpreter
from ..workload import Options, Port, Run, Workload
from .trio_drive import TrioDrive
from .world import Listener, RunStatus, WorldFailed, newest

PROPERTIES: Mapping[str, str] = {
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""Properties of all nodes: a snapshot every two hundred records or so, and brokers that are fenced within a short run."""
READY_WITHIN_S = 30.0
FINAL_WITHIN_S = 60.0
LOG_WITHIN_S = 15.0
"""Time limit for reading the committed log to its end."""


class PhasedRun(ABC):
    """One run. Create it under trio: its clock is the run's clock."""

    start_within_s = READY_WITHIN_S

    def __init__(self, workload: Workload, options: Options, plan: FaultPlan, listener: Listener) -> None:
        self._workload, self._options, self._plan, self._listener = workload, options, plan, listener
        self._observations: list[Observation] = []
        self._last: dict[int, Observation] = {}
        self.strikes: list[Strike] = []
        self._striking: list[Strike] = []
        self._phase, self.not_ready, self.cut_short = "start", "", ""
        self._healed_ns = self._started_at_ms = 0
        self._data: dict[str, Any] = {}
        self.drive = TrioDrive(self._new_port, options.concurrency)
        self.interpreter = Interpreter(workload, options, self.drive, listener.ended)

    # -- hooks of the worlds --------------------------------------------------------------------------------------------

    @abstractmethod
    def _new_port(self, process: int) -> Port: ...

    @abstractmethod
    async def _start(self) -> None:
        """Start the cluster without waiting until it is ready."""

    @abstractmethod
    async def _came_up(self) -> None:
        """Called when the cluster is ready for the first time."""

    @abstractmethod
    def _begin(self) -> int:
        """Called at time 0, when clients and faults begin. Return the wall-clock time in ms."""

    @abstractmethod
    async def _strike(self) -> None:
        """Apply the plan."""

    @abstractmethod
    async def _heal_all(self) -> None:
        """Heal links, nodes and disks, and start the nodes."""

    @abstractmethod
    async def wait_ready(self, within_s: float) -> None:
        """Wait until the cluster is ready; otherwise set `not_ready` to what it lacks."""

    # -- phases --------------------------------------------------------------------------------------------------------

    async def run_phases(self) -> None:
        """Run all phases. WorldFailed."""
        self._enter("start")
        await self._start()
        await self.wait_ready(self.start_within_s)
        if self.not_ready:
            raise WorldFailed(f"the cluster did not come up: {self.not_ready}")
        await self._came_up()
        self._enter("setup")
        await self.interpreter.setup()
        self.drive.begin()
        self._observations.clear()
        self._started_at_ms = self._begin()
        self._enter("clients")
        try:
            async with trio.open_nursery() as both:
                both.start_soon(self._strike)
                await self.interpreter.clients()
                both.cancel_scope.cancel()
        finally:
            await self._heal()
        if not self.not_ready:
            self._enter("final")
            with trio.move_on_after(FINAL_WITHIN_S) as final:
                await self.interpreter.final()
            if final.cancelled_caught:
                self.not_ready = f"the final phase did not end within {FINAL_WITHIN_S:g} s"
        self._enter("collect")
        self._data = await self.interpreter.collect()

    async def _heal(self) -> None:
        self._enter("heal")
        with trio.CancelScope(shield=True):
            await self._heal_all()
            self._healed_ns = self.drive.now_ns()
        await self.wait_ready(READY_WITHIN_S)

    def _run(self, log: CommittedLog | None, node_exits: dict[int, str], violations: tuple[str, ...]) -> Run:
        return Run(
            options=self._options,
            history=History(self.interpreter.ops),
            log=log,
            strikes=tuple(sorted(self.strikes, key=lambda strike: (strike.begin_ns, strike.kind))),
            observations=tuple(sorted(self._observations, key=lambda observation: (observation.at_ns, observation.node))),
            healed_ns=self._healed_ns or self.drive.now_ns(),
            ended_ns=self.drive.now_ns(),
            started_at_ms=self._started_at_ms,
            node_exits=node_exits,
            violations=violations,
            not_ready=self.not_ready,
            cut_short=self.cut_short,
            data=self._data,
        )

    # -- notifications ------------------------------------------------------------------------------------------------

    def _strike_begun(self, strike: Strike) -> None:
        self._striking.append(strike)

    def _strike_ended(self, strike: Strike) -> None:
        self.strikes.append(strike)
        ended = (strike.kind, strike.begin_ns)
        self._striking = [each for each in self._striking if (each.kind, each.begin_ns) != ended]

    def _observed(self, observation: Observation) -> None:
        self._observations.append(observation)
        self._last[observation.node] = observation

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self.report_status()

    def report_status(self) -> None:
        leader, epoch, committed, lag = newest(self._last)
        down = tuple(node for node, seen in sorted(self._last.items()) if not seen.is_up)
        striking = tuple(dict.fromkeys(strike.kind for strike in self._striking))
        self._listener.report(RunStatus(self._phase, self.drive.now_ns(), leader, epoch, committed, lag, down, striking))
