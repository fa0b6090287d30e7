"""The simulator finds planted bugs that are classics of the field, and names the broken rule. `kraftlab mutants` hunts all of
them; these tests hunt the ones that are found quickly, and the slower ones of these at night.
"""

from __future__ import annotations

import pytest

from jepsen_lite.mutants.rooms import hunt_bug
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.mutants import MUTANTS

QUICK = sorted(name for name, mutant in MUTANTS.items() if mutant.limits.is_quick)
SLOWER = {
    "epoch-outlives-its-records",
    "snapshot-named-by-the-last-epoch",
    "snapshot-voters-ignored",
    "voters-effective-on-commit",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in SLOWER)) for name in QUICK])
def test_planted_bug_is_found(name: str) -> None:
    finding = hunt_bug(name)
    assert finding.found, f"{MUTANTS[name].why}: not found in {finding.attempts} seeds"
    assert finding.rule in MUTANTS[name].limits.rules


def test_there_are_many_mutants_and_each_has_rules_that_find_it() -> None:
    assert len(MUTANTS) >= 81
    for mutant in MUTANTS.values():
        assert mutant.limits.rules, mutant.id
        assert set(mutant.limits.faults or ()) <= FAULTS.keys()
