"""A workload in the simulated world: a seed is a run.

Theory of operation. Seed and options draw the world (`simulated_faults.py`), the world plays the workload's coroutines in virtual
time (`kraftlab.simulation.clients`), and the result is the same kind of `Run` as from a real cluster, for the same checkers. In
addition the simulator checks the rules of consensus and of the controller, which no client can see, after every step; the first
broken rule ends the run as a violation. Nothing here reads a clock: the same seed gives the same history and the same trace, in
any process and with any hash seed.
"""

from __future__ import annotations

import hashlib
import re
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from kraftlab.common.errors import InvariantViolation
from kraftlab.common.garbage import without_gc
from kraftlab.quorum.storage import StorageError
from kraftlab.simulation.clients.world import ClientWorld
from kraftlab.simulation.consensus.invariants import Violation
from kraftlab.simulation.consensus.machine import ANCHOR_MS
from kraftlab.simulation.consensus.transcript import TAIL_LINES, Transcript
from kraftlab.simulation.metadata.coroutines import first_of

from ..checkers.judgement import judge
from ..checkers.stats import Course
from ..committed_log import CommittedLog, LogBatch, decoded
from ..fault_plan import FaultPlan
from ..history import History, Op
from ..scheduler import GeneratorStuck, Interpreter
from ..store import TRANSCRIPT
from ..verdicts import Verdict
from ..workload import Options, Run, Workload
from ..workloads.callers import SetupFailed
from .simulated_drive import SimulatedDrive
from .simulated_faults import ALL, NoSuchFault, blows_of, draw_plan, draw_world
from .world import Assignment, PlayedRun, RunStatus, WorldFailed

FINAL_MS = 120_000
"""Time limit of the final phase on a healthy cluster."""
HARNESS = ("jepsen_lite", "simulation/clients")
"""An error in these files is not a crash of the cluster."""
_LIVENESS = re.compile(r"(L\d+|M7|M11) ")


class SimulatedRun(NamedTuple):
    """`violation`: the broken rule of the simulator that ended the run, "" if there is none. `trace_hash` covers every step,
    `history_hash` every operation. `tail`: the last lines of the transcript of a run that broke a rule. Only `processor_s`
    depends on this machine.
    """

    run: Run
    verdicts: tuple[Verdict, ...]
    plan: FaultPlan
    violation: str
    trace_hash: str
    history_hash: str
    steps: int
    simulated_ms: int
    processor_s: float
    tail: tuple[str, ...] = ()


def run_simulated(
    workload: Workload,
    seed: int | str,
    options: Options,
    plan: FaultPlan | None = None,
    *,
    nemeses: Collection[str] = (ALL,),
    is_judged: bool = True,
    is_checked: bool = True,
    with_tail: bool = False,
    on_op: Callable[[Op], None] = lambda op: None,
    trace: Callable[[str], object] | None = None,
) -> SimulatedRun:
    """Play one seed. Without a plan the seed draws the faults among `nemeses`.

    `is_judged` False: the controller's rules do not end the run, so that only the clients' results count. `is_checked` False:
    there are no verdicts. `trace` gets the events of nodes as NDJSON. NoSuchFault, SetupFailed, GeneratorStuck.
    """
    options = msgspec.structs.replace(options, seed=str(seed))
    begun_s = time.process_time()
    with without_gc():
        transcript = Transcript()
        played = _SeedRun(workload, options, plan, nemeses, transcript, is_judged, on_op)
        played.world.trace = trace
        violation = played.play()
        tail: tuple[str, ...] = ()
        if violation and with_tail:
            last_lines = Transcript(tail_lines=TAIL_LINES)
            _SeedRun(workload, options, plan, nemeses, last_lines, is_judged).play()
            tail = tuple(last_lines.tail())
        run = played.run()
    return SimulatedRun(
        run=run,
        verdicts=tuple(judge(run, (Course(), *workload.checkers(options)))) if is_checked else (),
        plan=played.plan,
        violation=violation,
        trace_hash=transcript.digest(),
        history_hash=history_hash(run.history),
        steps=transcript.steps,
        simulated_ms=played.world.now_us // 1_000,
        processor_s=time.process_time() - begun_s,
        tail=tail,
    )


def play(assignment: Assignment) -> PlayedRun:
    """Play the run; keep the trace, and the last steps of a run that broke a rule. WorldFailed."""
    workload, options, listener = assignment.workload, assignment.options, assignment.listener
    reported_s, trace = -1, list[str]()

    def ended(op: Op) -> None:
        nonlocal reported_s
        listener.ended(op)
        if op.ended_ns // 1_000_000_000 > reported_s:
            reported_s = op.ended_ns // 1_000_000_000
            listener.report(RunStatus("simulated", op.ended_ns))

    properties = dict(workload.properties) | dict(assignment.properties)
    try:
        played = run_simulated(
            workload._replace(properties=properties),
            options.seed,
            options,
            assignment.plan,
            nemeses=assignment.nemeses,
            is_checked=False,
            with_tail=True,
            on_op=ended,
            trace=trace.append,
        )
    except NoSuchFault as error:
        raise WorldFailed(str(error)) from error
    assignment.directory.write_trace(trace)
    if played.tail:
        assignment.directory.path.joinpath(TRANSCRIPT).write_text("\n".join(played.tail) + "\n")
    return PlayedRun(played.run, played.plan, properties=properties)


def history_hash(history: Iterable[Op]) -> str:
    """Return a hash of all fields of all operations."""
    digest = hashlib.blake2b(digest_size=16)
    for op in history:
        digest.update(msgspec.json.encode(op, order="sorted"))
    return digest.hexdigest()


class _SeedRun:
    """One run of one seed."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        plan: FaultPlan | None,
        nemeses: Collection[str],
        transcript: Transcript,
        is_judged: bool,
        on_op: Callable[[Op], None] = lambda op: None,
    ) -> None:
        drawn = draw_world(options, nemeses)
        self._options = options
        records_max = options.random("batches").choice(workload.batch_records)
        properties = dict(workload.properties)
        self.world = ClientWorld(
            drawn, transcript, options.brokers, properties, is_judged=is_judged, batch_records_max=records_max
        )
        self.plan = draw_plan(options, self.world.options) if plan is None else plan
        self.world.strikes = blows_of(self.plan)
        self.world.play = self._play
        self._drive = SimulatedDrive(self.world, options)
        self._interpreter = Interpreter(workload, options, self._drive, on_op)
        self._healed_ns = 0
        self._violation = ""
        self._data: dict[str, object] = {}

    def play(self) -> str:
        """Play the run; return the broken rule, "" if there is none."""
        self._violation = self._run()
        return self._violation

    def _run(self) -> str:
        try:
            self.world.run()
        except (SetupFailed, GeneratorStuck):
            raise
        except Violation as error:
            return str(error)
        except (InvariantViolation, StorageError) as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            if any(part in where.filename for part in HARNESS):
                raise
            return f"{type(error).__name__}: {error} ({where.name}, {where.filename.rpartition('/')[2]}:{where.lineno})"
        finally:
            self._drive.break_off()
        return ""

    async def _play(self) -> None:
        world, interpreter = self.world, self._interpreter
        await world.ready()
        await interpreter.setup()
        world.begin_trouble()
        await interpreter.clients()
        self._healed_ns = self._drive.now_ns()
        await world.heal()
        if not await first_of(world, self._at_last, FINAL_MS * 1_000):
            raise Violation(f"L6 the phase {interpreter.phase!r} did not end within {FINAL_MS} ms after the cluster recovered")
        world.finish()

    async def _at_last(self) -> bool:
        await self._interpreter.final()
        self._data = dict(await self._interpreter.collect())
        return True

    def run(self) -> Run:
        world, violation = self.world, self._violation
        is_late = bool(_LIVENESS.match(violation))
        return Run(
            options=self._options,
            history=History(self._interpreter.ops),
            log=_log_of(world),
            strikes=tuple(world.struck),
            observations=tuple(world.observations),
            healed_ns=self._healed_ns or self._drive.now_ns(),
            ended_ns=self._drive.now_ns(),
            started_at_ms=ANCHOR_MS,
            violations=() if not violation or is_late else (violation,),
            not_ready=violation if is_late else "",
            data=self._data,
        )


def _log_of(world: ClientWorld) -> CommittedLog:
    return decoded(
        LogBatch(batch.base_offset, batch.end_offset, batch.epoch, batch.append_time_ms, is_control, batch.body)
        for batch, is_control in world.batches
    )
