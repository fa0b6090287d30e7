"""How long each planted bug stays hidden: the seeds until an invariant breaks, and which one sees it.

A checker is worth what it finds. `hunt` plays seed after seed with one bug planted; the number of seeds it takes is the measure
of the simulator (and of luck: compare it over versions, not between bugs).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from kraftlab.checking.workers import done_by

from .mutants import MUTANTS, Mutant, MutantDoesNotApply
from .runner import SeedResult, run_seed


class Finding(NamedTuple):
    """`seeds` were played, the last of them broke `rule`; if not `found`, none did. `expected`: the rules that may see it."""

    id: str
    about: str
    found: bool
    seeds: int
    invariant: str
    violation: str
    real_s: float
    seeds_max: int
    result: SeedResult | None


class RunSeed(Protocol):
    """As `run_seed`."""

    def __call__(self, seed: int, *, faults: Iterable[str] | None, mutant: str | None) -> SeedResult: ...


def hunt(mutant: Mutant, *, seeds_max: int | None = None, play: RunSeed = run_seed) -> Finding:
    """Play seeds 0, 1, 2, … with the bug until one breaks a rule, at most `seeds_max` (None: what the mutant says)."""
    limit = mutant.seeds_max if seeds_max is None else seeds_max
    started = time.perf_counter()
    for seed in range(limit):
        result = play(seed, faults=mutant.faults, mutant=mutant.name)
        if not result.ok:
            if not result.breaks_invariant:
                raise MutantDoesNotApply(f"{mutant.name}: {result.violations[0]}")
            real_s = time.perf_counter() - started
            return Finding(mutant.name, mutant.about, True, seed + 1, result.rule, result.violations[0], real_s, limit, result)
    return Finding(mutant.name, mutant.about, False, limit, "", "", time.perf_counter() - started, limit, None)


def _hunt_named(name: str, seeds_max: int | None, play: RunSeed, load: Callable[[], Mapping[str, Mutant]]) -> Finding:
    """In another process: functions do not travel, so the bug is looked up by its name."""
    return hunt(load()[name], seeds_max=seeds_max, play=play)


def consensus_mutants() -> Mapping[str, Mutant]:
    return MUTANTS


def hunt_all(
    names: Iterable[str],
    *,
    seeds_max: int | None = None,
    processes: int = 1,
    play: RunSeed = run_seed,
    load: Callable[[], Mapping[str, Mutant]] = consensus_mutants,
) -> Iterator[Finding]:
    """Hunt each of the bugs, in this process or several; findings come in the order of the names. `load` gives the registry."""
    run = partial(_hunt_named, seeds_max=seeds_max, play=play, load=load)
    return done_by(processes, run, names)
