"""Runs seeds and says what came of them: the plain functions behind `kraftlab sim`.

`run_seed` plays one seed in this process, `run_plan` what a seed has drawn or a file holds; `run_many` plays many seeds, over
several processes if asked, and yields results in the order of the seeds. A result is small and picklable.
"""

from __future__ import annotations

import gc
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from kraftlab.checking.mutant import Mutant, planted
from kraftlab.checking.workers import done_by
from kraftlab.quorum.core.errors import CorruptBatch, InvariantViolation, LogTruncationRefused
from kraftlab.quorum.storage import LogCorrupt, StorageError

from .coverage import Coverage
from .faults import FAULTS
from .invariants import Violation
from .mutants import MUTANTS
from .mutants.seeds import Seeds
from .options import SimulationOptions, draw_options
from .plan import Plan
from .reference import Refinement
from .transcript import TAIL_LINES, Transcript
from .world import World

WorldFactory = Callable[[SimulationOptions, Transcript], World]


CONSENSUS = "consensus"
OWN_RULES = frozenset(error.__name__ for error in (InvariantViolation, LogTruncationRefused, CorruptBatch, LogCorrupt))
"""Errors by which core and storage say that a rule of theirs is broken."""


class SeedResult(NamedTuple):
    """What one seed did. `violations` is empty if all is well; then `tail`, the last lines of its transcript, is, too. Real times
    are not determined by the seed.
    """

    seed: int
    trace_hash: str
    steps: int
    ended_us: int
    """The virtual time at which the run ended: if a rule broke, when."""
    voters: int
    observers: int
    faults: tuple[str, ...]
    committed: int
    acknowledged: int
    reads: int
    asked: int
    """Of the workload: proposals, linearizable reads and calls of clients; with controllers, what their administrator did."""
    epochs: int
    mended_logs: int
    violations: tuple[str, ...]
    tail: tuple[str, ...]
    real_s: float
    processor_s: float
    coverage: Coverage
    calls: int
    """Calls of clients whose history was checked."""
    excuse: str | None
    """Why less than liveness could be demanded after the heal, computed from the world; None: all of it was."""
    plan: Plan
    """What was played, to play it again."""

    @property
    def simulated_ms(self) -> int:
        return self.ended_us // 1000

    @property
    def rule(self) -> str:
        """The invariant that was broken: what a violation begins with; "" if none was."""
        return self.violations[0].partition(" ")[0].rstrip(":") if self.violations else ""

    @property
    def breaks_invariant(self) -> bool:
        """True if a rule of ours was broken, by a checker's word or that of the code under test; False after a mere crash."""
        return bool(re.fullmatch(r"[SLDM]\d+", self.rule)) or self.rule in OWN_RULES

    @property
    def ok(self) -> bool:
        return not self.violations


class Summary(NamedTuple):
    """Many seeds in numbers. Rates are per second of `real_s`; `core_steps_per_s` is per second of one core's processor time."""

    seeds: int
    failed_seeds: tuple[int, ...]
    steps: int
    simulated_s: float
    real_s: float
    steps_per_s: float
    simulated_s_per_s: float
    core_steps_per_s: float
    acknowledged: int
    calls: int
    excused: int
    coverage: Coverage


class Tally:
    """Adds results up, so that ten thousand need not be kept."""

    def __init__(self) -> None:
        self.seeds = 0
        self.failures: list[SeedResult] = []
        self.steps = 0
        self.simulated_ms = 0
        self.processor_s = 0.0
        self.acknowledged = 0
        self.calls = 0
        self.excused = 0
        self.coverage = Coverage()

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        if not result.ok:
            self.failures.append(result)
        self.steps += result.steps
        self.simulated_ms += result.simulated_ms
        self.processor_s += result.processor_s
        self.acknowledged += result.acknowledged
        self.calls += result.calls
        self.excused += result.excuse is not None
        self.coverage.add(result.coverage)

    def summary(self, real_s: float) -> Summary:
        """`real_s` is the time that all of it took."""
        simulated_s = self.simulated_ms / 1000
        return Summary(
            seeds=self.seeds,
            failed_seeds=tuple(result.seed for result in self.failures),
            steps=self.steps,
            simulated_s=simulated_s,
            real_s=real_s,
            steps_per_s=self.steps / real_s if real_s else 0.0,
            simulated_s_per_s=simulated_s / real_s if real_s else 0.0,
            core_steps_per_s=self.steps / self.processor_s if self.processor_s else 0.0,
            acknowledged=self.acknowledged,
            calls=self.calls,
            excused=self.excused,
            coverage=self.coverage,
        )


def run_seed(
    seed: int,
    *,
    faults: Iterable[str] | None = None,
    fault_phase_ms: int | None = None,
    mutant: str | None = None,
    write: Callable[[str], None] | None = None,
    trace: Callable[[str], object] | None = None,
    refine: bool = False,
    make_world: WorldFactory = World,
) -> SeedResult:
    """Play one seed. `faults` limits what may be drawn, `write` gets one line per step, `trace` NDJSON, `mutant` plants a bug.

    With `refine`, or a bug that only it sees, every step is held against the model (reference/).

    Another `make_world` runs another state machine, or has another workload.
    """
    bug = MUTANTS[mutant] if mutant else None
    options = options_for(bug, seed, faults, fault_phase_ms)
    refine = refine or (bug is not None and bug.limits.refine)
    with planted(bug):
        return play(options, mutant=mutant, write=write, trace=trace, refine=refine, make_world=make_world)


def options_for(
    bug: Mutant[Seeds] | None, seed: int, faults: Iterable[str] | None, fault_phase_ms: int | None = None
) -> SimulationOptions:
    """What the seed draws, in the weather that the bug needs."""
    options = draw_options(seed, FAULTS if faults is None else faults, fault_phase_ms=fault_phase_ms)
    return options if bug is None or bug.limits.weather is None else bug.limits.weather(options)


def run_plan(
    plan: Plan,
    *,
    write: Callable[[str], None] | None = None,
    trace: Callable[[str], object] | None = None,
    with_mutant: bool = True,
    with_tail: bool = True,
) -> SeedResult:
    """Play what a plan says, with or without the bug that it plants."""
    with planted(MUTANTS[plan.mutant] if plan.mutant and with_mutant else None):
        return play(plan.options, plan=plan, write=write, trace=trace, refine=plan.refine, with_tail=with_tail)


def play(
    options: SimulationOptions,
    *,
    plan: Plan | None = None,
    mutant: str | None = None,
    write: Callable[[str], None] | None = None,
    trace: Callable[[str], object] | None = None,
    refine: bool = False,
    make_world: WorldFactory = World,
    world_name: str = CONSENSUS,
    with_tail: bool = True,
) -> SeedResult:
    """Play a world with these options, with the strikes they draw or those of `plan`. `mutant` is only noted in the result.

    A run that broke a rule is played once more for its `tail`, unless that is not wanted.
    """

    def begin(transcript: Transcript) -> World:
        world = make_world(options, transcript)
        if plan is not None:
            world.strikes, world.until_us, world.asks = plan.strikes, plan.until_us, plan.asks
        if refine:
            world.checkers.add(Refinement(world))
        return world

    def as_plan(world: World) -> Plan:
        return plan or Plan(world=world_name, mutant=mutant, refine=refine, options=options, strikes=world.strikes)

    with collector_at_rest():
        return _play(options, begin, as_plan, write, trace, with_tail)


def _play(
    options: SimulationOptions,
    begin: Callable[[Transcript], World],
    as_plan: Callable[[World], Plan],
    write: Callable[[str], None] | None,
    trace: Callable[[str], object] | None,
    with_tail: bool,
) -> SeedResult:
    transcript = Transcript(write)
    started, started_processor = time.perf_counter(), time.process_time()
    world = begin(transcript)
    world.trace = trace
    violations = _run(world)
    real_s, processor_s = time.perf_counter() - started, time.process_time() - started_processor
    last_lines = Transcript(tail_lines=TAIL_LINES)
    if violations and with_tail:
        _run(begin(last_lines))
    return SeedResult(
        seed=int(options.seed) if options.seed.isdigit() else 0,
        trace_hash=transcript.digest(),
        steps=transcript.steps,
        ended_us=world.now_us,
        voters=options.voters,
        observers=options.observers,
        faults=options.faults,
        committed=world.history.end_offset,
        acknowledged=world.acknowledged,
        reads=world.reads,
        asked=world.asked + (len(world.clients.history) if world.clients is not None else 0),
        epochs=max((m.process.quorum.epoch for m in world.machines if m.process is not None), default=0),
        mended_logs=world.mended_logs,
        violations=violations,
        tail=tuple(last_lines.tail()),
        real_s=real_s,
        processor_s=processor_s,
        coverage=world.coverage,
        calls=len(world.clients.history) if world.clients is not None else 0,
        excuse=world.liveness.excuse,
        plan=as_plan(world),
    )


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """A world makes hardly any cycles until it ends, and is short-lived: nothing is collected before it is all garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _run(world: World) -> tuple[str, ...]:
    """The violations."""
    try:
        world.run()
    except Violation as error:
        return (str(error),)
    except (InvariantViolation, StorageError) as error:
        return (f"{type(error).__name__}: {error}",)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return (f"{type(error).__name__}: {error} ({where.name}, {where.filename.rpartition('/')[2]}:{where.lineno})",)
    return ()


def run_many(
    seeds: Iterable[int],
    *,
    processes: int = 1,
    faults: Iterable[str] | None = None,
    mutant: str | None = None,
    refine: bool = False,
    play: Callable[..., SeedResult] | None = None,
) -> Iterator[SeedResult]:
    """Play seeds, in this process or in several; results come in the order of the seeds. `play` takes `run_seed`'s place."""
    run = partial(play or run_seed, faults=None if faults is None else tuple(faults), mutant=mutant, refine=refine)
    return done_by(processes, run, seeds)


def report(summary: Summary) -> str:
    """The summary for people."""
    failed = f"FAILED: {', '.join(map(str, summary.failed_seeds))}" if summary.failed_seeds else "all invariants held"
    return (
        f"{summary.seeds:,} seed{'s' if summary.seeds != 1 else ''}, {failed}\n"
        f"{summary.steps:,} steps in {summary.real_s:.1f} s ({rates(summary)}), "
        f"{summary.acknowledged:,} batches acknowledged, {summary.calls:,} client calls checked, {summary.excused} excuses\n"
        f"{summary.coverage.line()}"
    )


def rates(summary: Summary) -> str:
    """How fast it went."""
    return (
        f"{summary.seeds / summary.real_s if summary.real_s else 0:.1f} seeds/s, {summary.steps_per_s:,.0f} steps/s, "
        f"{summary.simulated_s_per_s / 3600:.3f} simulated hours per second"
    )
