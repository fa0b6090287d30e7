"""The simulator finds the field's classic bugs when they are planted, and says which rule they break.

All of them are hunted by `make mutants`; here those that are found quickly.
"""

from __future__ import annotations

import pytest

from kraftlab.quorum.core.outbox import Outbox
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.mutants import MUTANTS, Mutant, MutantDoesNotApply, planted
from kraftlab.simulation.consensus.mutation import hunt

QUICK = sorted(name for name, mutant in MUTANTS.items() if mutant.is_quick)


@pytest.mark.parametrize("name", QUICK)
def test_planted_bug_is_found(name: str) -> None:
    finding = hunt(MUTANTS[name])
    assert finding.found, f"{finding.about}: not found in {finding.seeds} seeds"
    assert finding.invariant in MUTANTS[name].rules
    assert finding.result is not None
    assert finding.result.tail


def test_there_are_many_and_each_says_what_it_is() -> None:
    assert len(MUTANTS) >= 30
    for mutant in MUTANTS.values():
        assert mutant.about
        assert mutant.rules, mutant.name
        assert set(mutant.faults or ()) <= FAULTS.keys()


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_every_mutant_applies_and_is_gone_afterwards(name: str) -> None:
    mutant = MUTANTS[name]
    original = vars(mutant.owner)[mutant.attribute]
    with planted(mutant):
        assert vars(mutant.owner)[mutant.attribute] is not original
    assert vars(mutant.owner)[mutant.attribute] is original


def test_a_mutant_whose_target_is_gone_says_so() -> None:
    with (
        pytest.raises(MutantDoesNotApply, match="has no nonsense of its own"),
        planted(Mutant("x", "nothing", Outbox, "nonsense", lambda original: original)),
    ):
        pass


def test_a_mutant_that_merely_crashes_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Mutant("broken", "raises", Outbox, "put", lambda original: lambda *arguments: 1 // 0)
    monkeypatch.setitem(MUTANTS, "broken", broken)
    with pytest.raises(MutantDoesNotApply, match="ZeroDivisionError"):
        hunt(broken)
