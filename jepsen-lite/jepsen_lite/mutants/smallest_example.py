"""The smallest example of a planted bug: a failing seed, shrunk.

Sizes are what a reader has to understand: the number of strikes, operations and nodes, and the permanent conditions of the world
that are worse than normal. Bugs that are hunted in crash images, between processes or on a real node have no fault plan to
shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kraftlab.checking.mutant import processor_s
from kraftlab.simulation.consensus.runner import SeedResult, run_plan
from kraftlab.simulation.consensus.shrink import shrink, weather

from ..fault_plan import FaultPlan
from ..faults.shrink import Case, smallest_case
from ..workload import Workload
from ..worlds.simulated import SimulatedRun, run_simulated


class Size(NamedTuple):
    """The size of a run. `operations`: proposals, reads and calls of clients, or actions of an administrator."""

    faults: int
    operations: int
    nodes: int


class Least(NamedTuple):
    """`size` of the smallest run, `of` the size of the run that the seed had drawn. `kinds`: the faults that strike in it.
    `weather`: its permanent conditions. `replays` were played for it, in `seconds` of a core. `is_least`: no part can be removed;
    False if the budget ended the search.
    """

    size: Size
    of: Size
    kinds: tuple[str, ...]
    weather: tuple[str, ...]
    replays: int
    seconds: float
    is_least: bool


def of_seed(result: SeedResult, budget_s: float) -> Least:
    """Shrink a seed of a simulator that broke a rule. The bug must be planted."""
    begun = processor_s()
    shrunk = shrink(result, partial(run_plan, with_tail=False), is_over=lambda: processor_s() - begun >= budget_s)
    plan = shrunk.plan
    return Least(
        _size(shrunk.result),
        _size(result),
        tuple(sorted({strike.fault for strike in plan.strikes})),
        weather(plan.options),
        shrunk.runs,
        processor_s() - begun,
        shrunk.is_least,
    )


def _size(result: SeedResult) -> Size:
    return Size(len(result.plan.strikes), result.asked, result.voters + result.observers)


def of_run(played: SimulatedRun, replay: Callable[[Case], SimulatedRun], budget_s: float) -> Least:
    """Shrink a workload's run in the simulated world in which checkers found a violation. The bug must be planted."""
    wanted = _wrong(played)
    begun, replays, least = processor_s(), 0, played

    def fails(case: Case) -> bool:
        nonlocal replays, least
        if processor_s() - begun >= budget_s:
            return False
        replays += 1
        tried = replay(case)
        if not wanted & _wrong(tried):
            return False
        least = tried
        return True

    whole = Case(played.run.options, played.plan.actions)
    case = smallest_case(whole, fails)
    return Least(
        _size_of_run(case, least),
        _size_of_run(whole, played),
        tuple(sorted({action.kind for action in case.actions})),
        (),
        replays,
        processor_s() - begun,
        processor_s() - begun < budget_s,
    )


def replayed(workload: Workload, case: Case) -> SimulatedRun:
    """Run a smaller case of a workload's run."""
    seed = case.options.seed
    return run_simulated(workload, seed, case.options, FaultPlan(seed=seed, actions=case.actions))


def _wrong(played: SimulatedRun) -> frozenset[str]:
    return frozenset(verdict.checker for verdict in played.verdicts if verdict.valid is False)


def _size_of_run(case: Case, played: SimulatedRun) -> Size:
    operations = sum(1 for _ in played.run.history)
    return Size(len(case.actions), operations, case.options.controllers + case.options.brokers)
