"""Plays seeds and plans, and returns their results: the functions of `kraftlab sim`.

`run_seed` plays one seed in this process, and `run_plan` a plan that was drawn or read from a file. `run_many` plays many seeds,
in several processes if asked, and yields results in the order of the seeds. A result is small and picklable.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from kraftlab.checking.mutant import Mutant, planted
from kraftlab.checking.workers import done_by
from kraftlab.common.errors import InvariantViolation
from kraftlab.common.garbage import without_gc
from kraftlab.quorum.core.errors import CorruptBatch, LogTruncationRefused
from kraftlab.quorum.storage import LogCorrupt, StorageError

from .coverage import Coverage
from .faults import FAULTS
from .invariants import Violation
from .mutants import MUTANTS
from .mutants.seeds import Seeds
from .options import SimulationOptions, draw_options
from .plan import Plan
from .transcript import TAIL_LINES, Transcript
from .world import World

WorldFactory = Callable[[SimulationOptions, Transcript], World]


OWN_RULES = frozenset(error.__name__ for error in (InvariantViolation, LogTruncationRefused, CorruptBatch, LogCorrupt))
"""Errors that core and storage raise when one of their own rules is broken."""


class SeedResult(NamedTuple):
    """The result of one seed. `violations` is empty if no rule broke; then `tail`, the last lines of the transcript, is empty as
    well. Real times are not determined by the seed.
    """

    seed: int
    trace_hash: str
    steps: int
    ended_us: int
    """The virtual time at which the run ended or a rule broke."""
    voters: int
    observers: int
    faults: tuple[str, ...]
    committed: int
    acknowledged: int
    reads: int
    asked: int
    """Size of the workload: proposals, linearizable reads and calls of clients."""
    epochs: int
    mended_logs: int
    violations: tuple[str, ...]
    tail: tuple[str, ...]
    real_s: float
    processor_s: float
    coverage: Coverage
    calls: int
    """Number of clients' calls whose history was checked."""
    excuse: str | None
    """The reason why liveness was impossible after the heal, computed from the world; None: liveness was shown."""
    plan: Plan
    """The plan of the run, to play it again."""

    @property
    def simulated_ms(self) -> int:
        return self.ended_us // 1000

    @property
    def rule(self) -> str:
        """The broken invariant, with which the violation begins; "" if none was broken."""
        return self.violations[0].partition(" ")[0].rstrip(":") if self.violations else ""

    @property
    def breaks_invariant(self) -> bool:
        """True if a checker, or the code under test itself, found a broken rule; False after another exception."""
        return bool(re.fullmatch(r"[SLD]\d+", self.rule)) or self.rule in OWN_RULES

    @property
    def ok(self) -> bool:
        return not self.violations


class Tally:
    """Sums over the results of many seeds. Rates are per second of `real_s`, the time that all of it took, except for
    `core_steps_per_s`, which is per second of one core's processor time.
    """

    def __init__(self, results: Iterable[SeedResult] = ()) -> None:
        self.seeds = 0
        self.failures: list[SeedResult] = []
        self.steps = 0
        self.simulated_s = 0.0
        self.real_s = 0.0
        self.processor_s = 0.0
        self.acknowledged = 0
        self.calls = 0
        self.excused = 0
        self.coverage = Coverage()
        for result in results:
            self.add(result)

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        if not result.ok:
            self.failures.append(result)
        self.steps += result.steps
        self.simulated_s += result.simulated_ms / 1000
        self.processor_s += result.processor_s
        self.acknowledged += result.acknowledged
        self.calls += result.calls
        self.excused += result.excuse is not None
        self.coverage.add(result.coverage)

    @property
    def failed_seeds(self) -> list[int]:
        return [result.seed for result in self.failures]

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.real_s if self.real_s else 0.0

    @property
    def simulated_s_per_s(self) -> float:
        return self.simulated_s / self.real_s if self.real_s else 0.0

    @property
    def core_steps_per_s(self) -> float:
        return self.steps / self.processor_s if self.processor_s else 0.0


def run_seed(
    seed: int,
    *,
    faults: Iterable[str] | None = None,
    fault_phase_ms: int | None = None,
    mutant: str | None = None,
    write: Callable[[str], None] | None = None,
    trace: Callable[[str], object] | None = None,
    make_world: WorldFactory | None = None,
) -> SeedResult:
    """Play one seed. `faults` limits the faults that are drawn, `write` gets one line per step, `trace` NDJSON, `mutant` plants a
    bug. Another `make_world` runs another state machine or workload.
    """
    bug = MUTANTS[mutant] if mutant else None
    options = options_for(bug, seed, faults, fault_phase_ms)
    with planted(bug):
        return play(options, mutant=mutant, write=write, trace=trace, make_world=make_world)


def options_for(
    bug: Mutant[Seeds] | None, seed: int, faults: Iterable[str] | None, fault_phase_ms: int | None = None
) -> SimulationOptions:
    """Draw the options of a seed, in the weather that the bug needs."""
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
    """Play a plan, with or without the bug that it plants."""
    with planted(MUTANTS[plan.mutant] if plan.mutant and with_mutant else None):
        return play(plan.options, plan=plan, write=write, trace=trace, with_tail=with_tail)


def play(
    options: SimulationOptions,
    *,
    plan: Plan | None = None,
    mutant: str | None = None,
    write: Callable[[str], None] | None = None,
    trace: Callable[[str], object] | None = None,
    make_world: WorldFactory | None = None,
    with_tail: bool = True,
) -> SeedResult:
    """Play a world with these options and the strikes of `plan`; without a plan, the options draw them. `mutant` is only noted in
    the result. With `with_tail`, a run that broke a rule is played once more for its last lines.
    """

    def begin(transcript: Transcript) -> World:
        made = (make_world or World)(options, transcript)
        if plan is not None:
            made.strikes, made.until_us, made.asks = plan.strikes, plan.until_us, plan.asks
        return made

    def as_plan(played: World) -> Plan:
        return plan or Plan(mutant=mutant, options=options, strikes=played.strikes)

    with without_gc():
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


def _run(world: World) -> tuple[str, ...]:
    """Run the world and return its violations."""
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
) -> Iterator[SeedResult]:
    """Play seeds in this process or in several. Results come in the order of the seeds."""
    run = partial(run_seed, faults=None if faults is None else tuple(faults), mutant=mutant)
    return done_by(processes, run, seeds)


def report(tally: Tally) -> str:
    """Return the tally as lines for people."""
    failed = f"FAILED: {', '.join(map(str, tally.failed_seeds))}" if tally.failures else "all invariants held"
    return (
        f"{tally.seeds:,} seed{'s' if tally.seeds != 1 else ''}, {failed}\n"
        f"{tally.steps:,} steps in {tally.real_s:.1f} s ({rates(tally)}), "
        f"{tally.acknowledged:,} batches acknowledged, {tally.calls:,} client calls checked, {tally.excused} excuses\n"
        f"{tally.coverage.line()}"
    )


def rates(tally: Tally) -> str:
    """Return seeds, steps and simulated time per second."""
    return (
        f"{tally.seeds / tally.real_s if tally.real_s else 0:.1f} seeds/s, {tally.steps_per_s:,.0f} steps/s, "
        f"{tally.simulated_s_per_s / 3600:.3f} simulated hours per second"
    )
