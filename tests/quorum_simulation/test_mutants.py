"""The simulator finds the field's classic bugs when they are planted, and says which rule they break."""

from __future__ import annotations

import pytest

from kraftlab.quorum.core.outbox import Outbox
from kraftlab.quorum.simulation.mutants import MUTANTS, planted
from kraftlab.quorum.simulation.runner import run_seed

SEEDS_MAX = 150
EXPECTED: dict[str, tuple[str, ...]] = {
    "vote-before-store": ("S17",),
    "fetch-before-flush": ("S17",),
    "older-epochs-by-counting": ("S6",),
    "unsynced-counts": ("S8",),
    "no-divergence": ("L2", "S8", "S9"),
    "cut-forgotten": ("LogCorrupt", "D1"),
    "pre-votes-count": ("S1", "S4"),
    "vote-forgotten": ("S2", "S3"),
    "any-log-is-good-enough": ("S6",),
    "own-end-is-committed": ("S11",),
    "epoch-led-again": ("S4", "S10"),
    "no-fsync": ("LogCorrupt", "D1", "S2"),
    "half-flush": ("LogCorrupt", "D1"),
    "arrival-is-an-echo": ("S16",),
    "read-before-own-commit": ("S16",),
    "round-shared-too-long": ("S16",),
}

NEEDED_FAULTS = {"arrival-is-an-echo": ("clog",), "round-shared-too-long": ("clog",)}
"""Rare in a swarm of everything: a fetch has to outlive an election, and to come before its leader notices."""


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_planted_bug_is_found(name):
    for seed in range(SEEDS_MAX):
        result = run_seed(seed, mutant=name, faults=NEEDED_FAULTS.get(name))
        if not result.ok:
            assert result.violations[0].startswith(EXPECTED[name])
            assert result.tail
            return
    raise AssertionError(f"{MUTANTS[name].about}: not found in {SEEDS_MAX} seeds")


def test_every_mutant_says_what_breaks_it():
    assert set(EXPECTED) == set(MUTANTS)


def test_a_planted_bug_is_gone_afterwards():
    original = Outbox.put
    with planted(MUTANTS["vote-before-store"]):
        assert Outbox.put is not original
    assert Outbox.put is original
