"""Hunts planted bugs: seed after seed until something breaks or the budget is used up.

The results are how long a bug stays hidden, in seeds and in seconds of one core, and the oracle that saw it: a rule of the
simulator by its name, or checkers of the clients' history. A budget is processor time, so a busy machine changes nothing. With
shrinking, a failing seed is also made smaller (smallest_example.py), within as much time again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from kraftlab.checking.mutant import Finding, MutantDoesNotApply, Shown, hunt, planted
from kraftlab.checking.workers import done_by
from kraftlab.simulation.consensus import runner
from kraftlab.simulation.consensus.runner import SeedResult
from kraftlab.simulation.crash_images.mutants import hunt as hunt_images

from ..workload import Options
from ..workloads import workload_named
from ..worlds.simulated import SimulatedRun, run_simulated
from . import canary, hash_seeds
from . import smallest_example as least
from .smallest_example import Least
from .table import CONSENSUS, CONTROLLERS, HASH_SEEDS, LOG_DIRS, MUTATIONS, PROCESSES, TABLES, Mutation, game_of

KILLED, SURVIVED, NOT_HERE = "killed", "survived", "not here"
ASKING = Options(time_s=5, timeout_ms=1_000, rate=200)
"""The options of runs of workloads."""
_FAULTS_OF_THE_PATCH = ("TypeError", "AttributeError", "NameError", "ImportError")
"""A run that ends with one of these errors has found nothing: the bug no longer fits the code."""


class HuntResult(NamedTuple):
    """A mutation after the hunt. `status`: killed (all its bugs were found), survived, or not here (the machine lacks something).

    The rule of a finding is the oracle: a rule of the simulator, checkers, or an image. Its evidence is the smallest run that
    shows the bug, if that was requested and the bug's game has fault plans.
    """

    id: str
    about: str
    status: str
    why: str
    findings: tuple[Finding[Least], ...]

    @property
    def seeds(self) -> int:
        return sum(finding.attempts for finding in self.findings)

    @property
    def seconds(self) -> float:
        return sum(finding.seconds for finding in self.findings)

    @property
    def oracles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(finding.rule for finding in self.findings if finding.found))


def play(bug: str, seed: int) -> Shown[SeedResult | SimulatedRun]:
    """Play one seed with the planted bug. MutantDoesNotApply."""
    game = game_of(bug)
    if game == CONTROLLERS:
        options = runner.options_for(None, seed, None, runner.game_of(runner.METADATA).fault_phase_ms)
        return _of_world(bug, runner.play(options, world=runner.METADATA, with_tail=False))
    if game == CONSENSUS:
        mutant = TABLES[CONSENSUS][bug]
        return _of_world(bug, runner.play(runner.options_for(mutant, seed, mutant.limits.faults), refine=True, with_tail=False))
    return _of_clients(bug, run_simulated(workload_named(game), seed, ASKING))


def _of_world(bug: str, result: SeedResult) -> Shown[SeedResult | SimulatedRun]:
    if result.ok:
        return Shown()
    if result.rule in _FAULTS_OF_THE_PATCH:
        raise MutantDoesNotApply(f"{bug}: {result.violations[0]}")
    return Shown(result.rule, result.violations[0], evidence=result)


def _of_clients(bug: str, played: SimulatedRun) -> Shown[SeedResult | SimulatedRun]:
    wrong = [verdict for verdict in played.verdicts if verdict.valid is False]
    if not wrong:
        return Shown()
    if played.violation.partition(":")[0] in _FAULTS_OF_THE_PATCH:
        raise MutantDoesNotApply(f"{bug}: {played.violation}")
    rule = played.violation.partition(" ")[0].rstrip(":")
    names = [verdict.checker for verdict in wrong if not (rule and verdict.reason.startswith(rule))]
    return Shown("+".join([*([rule] if rule else []), *names]), wrong[0].reason, evidence=played)


def shrunk(bug: str, evidence: SeedResult | SimulatedRun, budget_s: float) -> Least:
    """Shrink a run that shows the planted bug."""
    if isinstance(evidence, SeedResult):
        return least.of_seed(evidence, budget_s)
    return least.of_run(evidence, partial(least.replayed, workload_named(game_of(bug))), budget_s)


def hunt_bug(bug: str, budget_s: float, *, shrinks: bool = False) -> Finding[Least]:
    """Play seeds 0, 1, 2, … with the bug, or judge crash images if it is a bug of the mover.

    MutantDoesNotApply.
    """
    game = game_of(bug)
    if game == PROCESSES:
        return hunt(bug, (canary.means().library,), _on_processes)
    if game == HASH_SEEDS:
        first_seeds = itertools.count(step=hash_seeds.SEEDS_AT_ONCE)
        return hunt(bug, first_seeds, partial(hash_seeds.compared, bug), budget_s=budget_s)
    if game == LOG_DIRS:
        images = hunt_images(bug)
        return images._replace(rule=f"image: {images.rule}" if images.found else "").with_evidence(None)
    with planted(TABLES[game][bug]):
        found = hunt(bug, itertools.count(), partial(play, bug), budget_s=budget_s)
        smaller = shrunk(bug, found.evidence, budget_s) if shrinks and found.evidence is not None else None
    return found.with_evidence(smaller)


def _on_processes(library: str) -> Shown[Least]:
    """Run the canary. A node that notices by itself does not count: clients must have got wrong answers."""
    unsafe = [verdict for verdict in canary.run_canary(library).wrong if verdict.kind == "safety"]
    return Shown("+".join(verdict.checker for verdict in unsafe), unsafe[0].reason if unsafe else "")


def hunt_mutation(mutation: Mutation, budget_s: float, *, shrinks: bool = False) -> HuntResult:
    """Hunt all bugs of a mutation, each within the budget, and shrink within as much time again if `shrinks`.

    MutantDoesNotApply.
    """
    if any(game_of(bug) == PROCESSES for bug in mutation.bugs) and (why := canary.means().why):
        return HuntResult(mutation.id, mutation.about, NOT_HERE, why, ())
    findings = tuple(hunt_bug(bug, budget_s, shrinks=shrinks) for bug in mutation.bugs)
    status = KILLED if all(finding.found for finding in findings) else SURVIVED
    return HuntResult(mutation.id, mutation.about, status, "", findings)


def hunt_all(ids: Iterable[str], *, budget_s: float, jobs: int = 1, shrinks: bool = False) -> Iterator[HuntResult]:
    """Hunt each mutation, in this process or in several; results come in the order of the ids. MutantDoesNotApply."""
    return done_by(jobs, partial(_hunt_by_id, budget_s=budget_s, shrinks=shrinks), ids)


def _hunt_by_id(mutation_id: str, budget_s: float, shrinks: bool) -> HuntResult:
    return hunt_mutation(MUTATIONS[mutation_id], budget_s, shrinks=shrinks)
