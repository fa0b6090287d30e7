"""The simulator finds planted bugs that are classics of the field, and names the broken rule. `make mutants` hunts all of them;
these tests hunt the ones that are found quickly, and the slower ones of these at night.
"""

from __future__ import annotations

import pytest

from kraftlab.checking.mutant import Mutant, MutantDoesNotApply
from kraftlab.quorum.core.outbox import Outbox
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.mutants.seeds import Seeds
from kraftlab.simulation.consensus.mutation import hunt_seeds

QUICK = sorted(name for name, mutant in MUTANTS.items() if mutant.limits.is_quick)
SLOWER = {
    "epoch-outlives-its-records",
    "higher-epoch-ignored",
    "snapshot-named-by-the-last-epoch",
    "snapshot-voters-ignored",
    "voters-effective-on-commit",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in SLOWER)) for name in QUICK])
def test_planted_bug_is_found(name: str) -> None:
    finding = hunt_seeds(name)
    assert finding.found, f"{MUTANTS[name].why}: not found in {finding.attempts} seeds"
    assert finding.rule in MUTANTS[name].limits.rules
    assert finding.evidence is not None
    assert finding.evidence.tail


def test_there_are_many_mutants_and_each_has_rules_that_find_it() -> None:
    assert len(MUTANTS) >= 80
    for mutant in MUTANTS.values():
        assert mutant.limits.rules, mutant.id
        assert set(mutant.limits.faults or ()) <= FAULTS.keys()


def test_a_mutant_that_merely_crashes_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Mutant("broken", (Outbox,), "put", lambda original: lambda *arguments: 1 // 0, "raises", Seeds("S17"))
    monkeypatch.setitem(MUTANTS, "broken", broken)
    with pytest.raises(MutantDoesNotApply, match="ZeroDivisionError"):
        hunt_seeds("broken")
