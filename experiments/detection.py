"""Hunts for a planted bug of consensus with one method alone (planted_bugs.py)."""

from __future__ import annotations

import time
from typing import NamedTuple

from kraftlab.checking.mutant import planted
from kraftlab.quorum.spec import mutations, traces
from kraftlab.quorum.spec.actions import Line
from kraftlab.simulation.consensus.clients import Clients
from kraftlab.simulation.consensus.invariants import CommitsAreOneHistory
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.operators import Operators
from kraftlab.simulation.consensus.options import SimulationOptions
from kraftlab.simulation.consensus.runner import options_for, play
from kraftlab.simulation.consensus.traced import known_faults, traced_options
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.consensus.world import World

LINES = 8_000
TOGETHER = 4
"""Seeds with traces that share a run of TLC."""
CLIENTS_RULES = ("S15", "S16")


class Hunt(NamedTuple):
    """The outcome. `runs` are seeds, `steps` those of the core, lines of traces, or states of TLC."""

    applies: bool
    found: bool
    runs: int
    steps: int
    rule: str
    seconds: float


def hunt(method: str, bug: str, seeds: int, seconds: float) -> Hunt:
    """Play seeds 0, 1, 2, … until the method finds the bug, until there are no more, or until the time is over."""
    if method == "exhaustive":
        return _exhaustively(bug, seconds)
    return _by_traces(bug, seeds, seconds) if method == "traces" else _by_seeds(method, bug, seeds, seconds)


def _exhaustively(bug: str, seconds: float) -> Hunt:
    if bug not in mutations.MUTATIONS:
        return Hunt(False, False, 0, 0, "", 0.0)
    began = time.perf_counter()
    run = mutations.check(bug, timeout_s=seconds)
    return Hunt(True, bool(run.violated), 1, run.distinct, run.violated, time.perf_counter() - began)


def _by_seeds(method: str, bug: str, seeds: int, seconds: float) -> Hunt:
    began, steps = time.process_time(), 0
    for seed in range(seeds):
        options = options_for(MUTANTS[bug], seed, MUTANTS[bug].limits.faults)
        with planted(MUTANTS[bug]):
            result = play(options, make_world=None if method == "rules" else _PlainWorld, with_tail=False)
        steps, spent = steps + result.steps, time.process_time() - began
        if result.rule and (method == "rules" or result.rule in CLIENTS_RULES):
            return Hunt(True, True, seed + 1, steps, result.rule, spent)
        if spent > seconds:
            break
    return Hunt(True, False, seed + 1, steps, "", spent)


def _by_traces(bug: str, seeds: int, seconds: float) -> Hunt:
    began, steps, first = time.perf_counter(), 0, 0
    while first < seeds and time.perf_counter() - began < seconds:
        chosen = range(first, min(first + TOGETHER, seeds))
        for seed, verdict in zip(chosen, traces.check([_recorded(bug, seed) for seed in chosen], explain=False), strict=True):
            steps += verdict.explained
            if not verdict.accepted:
                rule = verdict.broken or verdict.action
                return Hunt(True, True, seed + 1, steps, rule, time.perf_counter() - began)
        first += TOGETHER
    return Hunt(True, False, first, steps, "", time.perf_counter() - began)


def _recorded(bug: str, seed: int) -> list[Line]:
    """Return the trace of a seed with the bug."""
    options = options_for(MUTANTS[bug], seed, known_faults(MUTANTS[bug].limits.faults))
    return traced_options(options, LINES, bug, _PlainWorld)


class _PlainWorld(World):
    """A world without the simulator's rules about nodes."""

    def __init__(self, options: SimulationOptions, transcript: Transcript) -> None:
        super().__init__(options, transcript)
        self.checkers.keep((Clients, Operators, CommitsAreOneHistory))
