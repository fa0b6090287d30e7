"""Hunts for the planted bugs of the simulators: the seeds until an invariant breaks, and which one breaks.

The number of seeds measures the simulator (and luck: compare it over versions, not between bugs).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from kraftlab.checking.mutant import Finding, Mutant, MutantDoesNotApply, Shown, hunt
from kraftlab.checking.workers import done_by

from .mutants import MUTANTS
from .mutants.seeds import Seeds
from .runner import SeedResult, run_seed

RunSeed = Callable[..., SeedResult]
Load = Callable[[], Mapping[str, Mutant[Seeds]]]


def hunt_seeds(mutant: Mutant[Seeds], *, seeds_max: int | None = None, play: RunSeed = run_seed) -> Finding[SeedResult]:
    """Play seeds 0, 1, 2, … with the bug until one breaks a rule, at most `seeds_max` (None: as its row says)."""

    def attempt(seed: int) -> Shown[SeedResult]:
        result = play(seed, faults=mutant.limits.faults, mutant=mutant.id)
        if result.ok:
            return Shown()
        if not result.breaks_invariant:
            raise MutantDoesNotApply(f"{mutant.id}: {result.violations[0]}")
        return Shown(result.rule, result.violations[0], evidence=result)

    seeds = range(mutant.limits.most if seeds_max is None else seeds_max)
    return hunt(mutant.id, seeds, attempt, clock=time.perf_counter)


def consensus_mutants() -> Mapping[str, Mutant[Seeds]]:
    return MUTANTS


def hunt_all(
    names: Iterable[str],
    *,
    seeds_max: int | None = None,
    processes: int = 1,
    play: RunSeed = run_seed,
    load: Load = consensus_mutants,
) -> Iterator[Finding[SeedResult]]:
    """Hunt each of the bugs, in this process or several; findings come in the order of the names. `load` gives the table."""
    return done_by(processes, partial(_hunt_named, seeds_max=seeds_max, play=play, load=load), names)


def _hunt_named(name: str, seeds_max: int | None, play: RunSeed, load: Load) -> Finding[SeedResult]:
    """Look the bug up by its name, since functions do not travel to another process."""
    return hunt_seeds(load()[name], seeds_max=seeds_max, play=play)
