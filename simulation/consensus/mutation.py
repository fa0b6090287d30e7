"""Hunts for the planted bugs of the simulators: plays seeds until an invariant breaks.

The number of seeds measures the simulator, and luck. It can be compared between versions, but not between bugs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial

from kraftlab.checking.mutant import Finding, MutantDoesNotApply, Shown, hunt
from kraftlab.checking.workers import done_by

from .runner import CONSENSUS, SeedResult, game_of, run_seed


def hunt_seeds(name: str, *, world: str = CONSENSUS, seeds_max: int | None = None) -> Finding[SeedResult]:
    """Play seeds 0, 1, 2, … with the bug until one breaks a rule, at most `seeds_max` (None: the limit in the bug's row)."""
    limits = game_of(world).mutants[name].limits

    def attempt(seed: int) -> Shown[SeedResult]:
        result = run_seed(seed, world=world, faults=limits.faults, mutant=name)
        if result.ok:
            return Shown()
        if not result.breaks_invariant:
            raise MutantDoesNotApply(f"{name}: {result.violations[0]}")
        return Shown(result.rule, result.violations[0], evidence=result)

    return hunt(name, range(limits.most if seeds_max is None else seeds_max), attempt, clock=time.perf_counter)


def hunt_all(
    names: Iterable[str], *, world: str = CONSENSUS, seeds_max: int | None = None, processes: int = 1
) -> Iterator[Finding[SeedResult]]:
    """Hunt each of the bugs, in this process or several; findings come in the order of the names."""
    return done_by(processes, partial(hunt_seeds, world=world, seeds_max=seeds_max), names)
