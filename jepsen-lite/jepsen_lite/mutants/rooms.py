"""The rooms with planted bugs, and the hunt for each bug.

Theory of operation. A room is a part of the code under test and the worlds that play it: seeds of a simulator, crash images of
disks, or real processes. Its planted bugs stand beside its worlds, each with the limits of its hunt. This module only says which
attempts are made for a bug and how one is played; `checking/mutant.py` plants the bug and makes the attempts, the same way for
all rooms. The result is the effort until the bug shows, in attempts and in seconds of one core, and the rule that it broke: a
rule of the simulator by its name, checkers of the clients' history, or the crash that left a bad image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from kraftlab.checking.mutant import Finding, Mutant, MutantDoesNotApply, Shown, hunt, planted
from kraftlab.checking.workers import done_by
from kraftlab.simulation.consensus import runner
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.mutants.seeds import Seeds
from kraftlab.simulation.crash_images import compaction
from kraftlab.simulation.crash_images import mutants as moves
from kraftlab.simulation.metadata import mutants as of_controllers

from ..workload import Options
from ..workloads import workload_named
from ..worlds.simulated import run_simulated
from . import canary, hash_seeds
from .hash_seeds import ADMINISTERING

ASKING = Options(time_s=5, timeout_ms=1_000, rate=200)
"""The options of runs of the workload `registers`."""
_FAULTS_OF_THE_PATCH = ("TypeError", "AttributeError", "NameError", "ImportError")
"""A run that ends with one of these errors has found nothing: the bug no longer fits the code."""


class Bug(NamedTuple):
    """A planted bug and its hunt. Several `mutants` are planted together. `attempts` takes a number of seeds, None for the bug's
    own. `lacks` names what this machine does not have for the hunt, "" if nothing.
    """

    id: str
    why: str
    mutants: tuple[Mutant[Any], ...]
    attempts: Callable[[int | None], Iterable[Any]]
    play: Callable[[Any], Shown]
    lacks: Callable[[], str] = str


def _of_seeds(mutants: Iterable[Mutant[Seeds]], play: Callable[[Mutant[Seeds], int], Shown]) -> Iterator[Bug]:
    for mutant in mutants:
        yield Bug(mutant.id, mutant.why, (mutant,), partial(_seeds, mutant), partial(play, mutant))


def _seeds(mutant: Mutant[Seeds], count: int | None) -> range:
    return range(mutant.limits.most if count is None else count)


def _consensus() -> Iterator[Bug]:
    """Bugs of consensus and storage, in the simulator."""
    return _of_seeds(MUTANTS.values(), play_seed)


def _metadata() -> Iterator[Bug]:
    """Bugs of the controller, in the workload `admin`, and in two processes with other hash seeds."""
    yield from _of_seeds(of_controllers.MUTANTS.values(), partial(play_workload, "admin", ADMINISTERING))
    for mutant in of_controllers.FOR_TWO_PROCESSES.values():
        yield Bug(mutant.id, mutant.why, (), partial(_first_seeds, mutant), partial(hash_seeds.compared, mutant.id))


def _first_seeds(mutant: Mutant[Seeds], count: int | None) -> range:
    return _seeds(mutant, count)[:: hash_seeds.SEEDS_AT_ONCE]


def play_seed(mutant: Mutant[Seeds], seed: int) -> Shown:
    """Play a seed of `kraftlab sim`. MutantDoesNotApply if it ends without a broken rule."""
    limits = mutant.limits
    options = runner.options_for(mutant, seed, limits.faults)
    result = runner.play(options, mutant=mutant.id, with_tail=False)
    if not result.ok and not result.breaks_invariant:
        raise MutantDoesNotApply(result.violations[0])
    return Shown(result.rule, "" if result.ok else result.violations[0], steps=result.steps)


def _clients() -> Iterator[Bug]:
    """Bugs that only clients see: in a workload in the simulated world, and on a real node."""
    yield from _of_seeds(of_controllers.FOR_CLIENTS.values(), partial(play_workload, "registers", ASKING))
    yield Bug(
        canary.IGNORED,
        "a real node's fsyncs do nothing, and its disk loses power",
        (),
        lambda _: (canary.means().library,),
        _play_canary,
        lambda: canary.means().why,
    )


def play_workload(name: str, options: Options, mutant: Mutant[Seeds], seed: int) -> Shown:
    """Play a seed of a workload in the simulated world."""
    played = run_simulated(workload_named(name), seed, options)
    wrong = [verdict for verdict in played.verdicts if verdict.valid is False]
    if not wrong:
        return Shown(steps=played.steps)
    if played.violation.partition(":")[0] in _FAULTS_OF_THE_PATCH:
        raise MutantDoesNotApply(played.violation)
    rule = played.violation.partition(" ")[0].rstrip(":")
    names = [verdict.checker for verdict in wrong if not (rule and rule in verdict.reason)]
    return Shown("+".join([*([rule] if rule else []), *names]), wrong[0].reason, steps=played.steps)


def _play_canary(library: str) -> Shown:
    """Run the canary. A node that notices by itself does not count: clients must have got wrong answers."""
    unsafe = [verdict for verdict in canary.run_canary(library).wrong if verdict.kind == "safety"]
    return Shown("+".join(verdict.checker for verdict in unsafe), unsafe[0].reason if unsafe else "")


def _disks() -> Iterator[Bug]:
    """Bugs of moves between log directories and of compaction, in the images that crashes leave."""
    for name in moves.HUNTED:
        bugs = moves.bugs_of(name)
        yield Bug(name, "; ".join(bug.why for bug in bugs), bugs, partial(_always, moves.scripts_of(name)), moves.judged)
    for bug in compaction.BUGS.values():
        yield Bug(bug.id, bug.why, (bug,), partial(_always, compaction.EVERY_CRASH), compaction.judged)


def _always(attempts: tuple[str, ...], _: int | None) -> tuple[str, ...]:
    return attempts


ROOMS: dict[str, dict[str, Bug]] = {
    name: {bug.id: bug for bug in bugs()}
    for name, bugs in (("consensus", _consensus), ("metadata", _metadata), ("clients", _clients), ("disks", _disks))
}
"""The planted bugs of each room by id, in the order in which they are written. No two rooms share an id."""


def room_of(id: str) -> str:
    """Return the room of a planted bug. MutantDoesNotApply if there is none of that id."""
    for name, bugs in ROOMS.items():
        if id in bugs:
            return name
    raise MutantDoesNotApply(f"{id}: unknown bug")


def hunt_bug(id: str, *, seeds: int | None = None, budget_s: float = math.inf) -> Finding:
    """Plant the bug and make attempts until it shows, at most `seeds` if the attempts are seeds, and within the budget.

    A bug that no longer fits the code is not found. MutantDoesNotApply if there is none of that id.
    """
    bug = ROOMS[room_of(id)][id]
    if lacks := bug.lacks():
        return Finding(id, None, words=lacks)
    try:
        with planted(*bug.mutants):
            return hunt(id, bug.attempts(seeds), bug.play, budget_s=budget_s)
    except MutantDoesNotApply as error:
        return Finding(id, False, words=f"it no longer fits the code: {error}")


def hunt_all(
    ids: Iterable[str], *, seeds: int | None = None, budget_s: float = math.inf, processes: int = 1
) -> Iterator[Finding]:
    """Hunt each of the bugs, in this process or in several; findings come in the order of the ids."""
    return done_by(processes, partial(hunt_bug, seeds=seeds, budget_s=budget_s), ids)
