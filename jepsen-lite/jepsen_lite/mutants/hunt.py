"""Hunts planted bugs: seed after seed until something breaks, or the time is over.

What is measured is how long a bug stays hidden, in seeds and in seconds of one core; and which oracle saw it: a rule of the
simulator by its name, or checkers of what clients saw. A budget is of processor time, so that a busy machine changes nothing.
With shrinking, a failing seed is made smaller as well (smallest_example.py), within as much time again.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from kraftlab.broker.crash_images.mutants import hunt as hunt_images
from kraftlab.checking.workers import worker_pool
from kraftlab.simulation.consensus import runner
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.mutants import MUTANTS as OF_CONSENSUS
from kraftlab.simulation.consensus.mutants import Mutant, MutantDoesNotApply, planted
from kraftlab.simulation.consensus.options import draw_options
from kraftlab.simulation.consensus.runner import SeedResult
from kraftlab.simulation.metadata import mutants as of_controllers
from kraftlab.simulation.metadata.runner import FAULT_PHASE_MS
from kraftlab.simulation.metadata.world import MetadataWorld

from ..fault_plan import FaultPlan
from ..faults.shrink import Case
from ..workload import Options
from ..workloads import workload_named
from ..worlds.simulated import SimulatedRun, run_simulated
from . import canary, hash_seeds
from . import smallest_example as least
from .mutation import CONSENSUS, CONTROLLERS, HASH_SEEDS, LOG_DIRS, PROCESSES, Mutation, Plant
from .smallest_example import Least
from .table import MUTATIONS

KILLED, SURVIVED, NOT_HERE = "killed", "survived", "not here"
ASKING = Options(time_s=5, timeout_ms=1_000, rate=200)
"""Of the runs of workloads."""
_FAULTS_OF_THE_PATCH = ("TypeError", "AttributeError", "NameError", "ImportError")
"""What breaks so has not been found: the bug does not fit the code any more."""


class Seen(NamedTuple):
    """What one seed showed: which oracle, and its words. Both "" if all was well."""

    oracle: str
    words: str


class Found(NamedTuple):
    """One planted bug after the hunt. `seconds` of one core; `seeds` were played, the last one showed it if it was `found`."""

    plant: Plant
    found: bool
    oracle: str
    words: str
    seeds: int
    seconds: float
    least: Least | None = None
    """The smallest run that shows it, if it was to be looked for and faults have a plan."""


class Hunted(NamedTuple):
    """One mutation after the hunt. `status`: killed (all its bugs were found), survived, or not here: the machine lacks
    what it takes."""

    id: str
    about: str
    status: str
    why: str
    found: tuple[Found, ...]

    @property
    def seeds(self) -> int:
        return sum(found.seeds for found in self.found)

    @property
    def seconds(self) -> float:
        return sum(found.seconds for found in self.found)

    @property
    def oracles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(found.oracle for found in self.found if found.found))


def mutant_of(plant: Plant) -> Mutant:
    """MutantDoesNotApply if there is none of that name."""
    registries: Mapping[str, Mapping[str, Mutant]] = {
        CONSENSUS: OF_CONSENSUS,
        CONTROLLERS: of_controllers.MUTANTS,
        HASH_SEEDS: of_controllers.FOR_TWO_PROCESSES,
    }
    registry = registries.get(plant.game, {**of_controllers.MUTANTS, **of_controllers.FOR_CLIENTS})
    if plant.name not in registry:
        raise MutantDoesNotApply(f"{plant.name}: there is no such bug for the game {plant.game}")
    return registry[plant.name]


def play(plant: Plant, seed: int) -> Seen:
    """One seed with the bug. MutantDoesNotApply."""
    with planted(mutant_of(plant)):
        if plant.game in (CONSENSUS, CONTROLLERS):
            return _of_world(plant, _in_world(plant, seed))
        return _of_clients(plant, run_simulated(workload_named(plant.game), seed, ASKING))


def _in_world(plant: Plant, seed: int) -> SeedResult:
    if plant.game == CONTROLLERS:
        options = draw_options(seed, FAULTS, fault_phase_ms=FAULT_PHASE_MS)
        return runner.play(options, make_world=MetadataWorld, with_tail=False)
    mutant = mutant_of(plant)
    return runner.play(runner.options_for(mutant, seed, mutant.faults), refine=True, with_tail=False)


def _of_world(plant: Plant, result: SeedResult) -> Seen:
    if result.ok:
        return Seen("", "")
    if result.rule in _FAULTS_OF_THE_PATCH:
        raise MutantDoesNotApply(f"{plant.name}: {result.violations[0]}")
    return Seen(result.rule, result.violations[0])


def _of_clients(plant: Plant, played: SimulatedRun) -> Seen:
    wrong = [verdict for verdict in played.verdicts if verdict.valid is False]
    if not wrong:
        return Seen("", "")
    if played.violation.partition(":")[0] in _FAULTS_OF_THE_PATCH:
        raise MutantDoesNotApply(f"{plant.name}: {played.violation}")
    rule = played.violation.partition(" ")[0].rstrip(":")
    names = [verdict.checker for verdict in wrong if not (rule and verdict.reason.startswith(rule))]
    return Seen("+".join([*([rule] if rule else []), *names]), wrong[0].reason)


def shrunk(plant: Plant, seed: int, budget_s: float) -> Least:
    """The least of a seed that shows the bug. MutantDoesNotApply."""
    with planted(mutant_of(plant)):
        if plant.game in (CONSENSUS, CONTROLLERS):
            return least.of_seed(_in_world(plant, seed), plant.game == CONTROLLERS, budget_s)
        workload = workload_named(plant.game)

        def replay(case: Case) -> SimulatedRun:
            return run_simulated(workload, seed, case.options, FaultPlan(seed=case.options.seed, actions=case.actions))

        return least.of_run(run_simulated(workload, seed, ASKING), replay, budget_s)


def hunt_plant(plant: Plant, budget_s: float, *, shrinks: bool = False) -> Found:
    """Plays seeds 0, 1, 2, … with the bug; all images of the mover's crashes if it is one of its. MutantDoesNotApply."""
    if plant.game == PROCESSES:
        return _on_processes(plant)
    if plant.game == HASH_SEEDS:
        return _between_processes(plant, budget_s)
    if plant.game == LOG_DIRS:
        images = hunt_images(plant.name)
        oracle = f"image: {images.crash}" if images.found else ""
        return Found(plant, images.found, oracle, images.fault, images.images, images.seconds)
    begun = time.process_time()
    for seed in itertools.count():
        seen = play(plant, seed)
        seconds = time.process_time() - begun
        if seen.oracle:
            found = Found(plant, True, seen.oracle, seen.words, seed + 1, seconds)
            return found._replace(least=shrunk(plant, seed, budget_s)) if shrinks else found
        if seconds >= budget_s:
            return Found(plant, False, "", "", seed + 1, seconds)
    raise AssertionError("seeds do not end")


def _between_processes(plant: Plant, budget_s: float) -> Found:
    seeds, seconds = 0, 0.0
    while seconds < budget_s:
        differs = hash_seeds.compared(plant.name, seeds)
        seeds, seconds = seeds + differs.seeds, seconds + differs.seconds
        if differs.words:
            return Found(plant, True, "two hash seeds", differs.words, seeds, seconds)
    return Found(plant, False, "", "", seeds, seconds)


def _on_processes(plant: Plant) -> Found:
    """One run. A node that notices by itself is no find: clients must have been told what is not so."""
    before = sum(os.times()[:4])
    sung = canary.sing(canary.means().library)
    unsafe = [verdict for verdict in sung.wrong if verdict.kind == "safety"]
    seconds = sum(os.times()[:4]) - before
    oracle = "+".join(verdict.checker for verdict in unsafe)
    return Found(plant, bool(unsafe), oracle, unsafe[0].reason if unsafe else "", 1, seconds)


def hunt(mutation: Mutation, budget_s: float, *, shrinks: bool = False) -> Hunted:
    """Hunts all bugs of a mutation, each for so long at most, and as long again for the least that shows it if that is wanted.
    MutantDoesNotApply.
    """
    if any(plant.game == PROCESSES for plant in mutation.plants) and (why := canary.means().why):
        return Hunted(mutation.id, mutation.about, NOT_HERE, why, ())
    found = tuple(hunt_plant(plant, budget_s, shrinks=shrinks) for plant in mutation.plants)
    if found and all(each.found for each in found):
        return Hunted(mutation.id, mutation.about, KILLED, "", found)
    return Hunted(mutation.id, mutation.about, SURVIVED, "", found)


def _hunt_by_id(mutation_id: str, budget_s: float, shrinks: bool) -> Hunted:
    return hunt(MUTATIONS[mutation_id], budget_s, shrinks=shrinks)


def _is_short(mutation_id: str) -> bool:
    """False for those that go first, so that no processor is idle in the end: they wait for clocks."""
    return all(plant.game != PROCESSES for plant in MUTATIONS[mutation_id].plants)


def hunt_all(ids: Iterable[str], *, budget_s: float, jobs: int = 1, shrinks: bool = False) -> Iterator[Hunted]:
    """Hunts each, in this process or in several; what came of them comes in their order. MutantDoesNotApply."""
    run = partial(_hunt_by_id, budget_s=budget_s, shrinks=shrinks)
    if jobs <= 1:
        yield from map(run, ids)
        return
    wanted = list(ids)
    with worker_pool(jobs) as executor:
        hunts = {name: executor.submit(run, name) for name in sorted(wanted, key=_is_short)}
        for name in wanted:
            yield hunts[name].result()
