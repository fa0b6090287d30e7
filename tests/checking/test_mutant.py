"""A bug is in the code only while it is planted, and a hunt ends when the bug shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from jepsen_lite.mutants.rooms import ROOMS
from kraftlab.checking.mutant import Mutant, MutantDoesNotApply, Shown, Table, hunt, planted
from kraftlab.simulation.metadata.mutants import FOR_TWO_PROCESSES


class Light:
    LIMIT = 3

    def __init__(self) -> None:
        self.level = 1

    def raise_by(self, step: int, *, twice: bool = False) -> int:
        self.level += step * (1 + twice)
        return self.level

    @property
    def is_on(self) -> bool:
        return self.level > 0


MUTANTS: Table[int] = Table()


@MUTANTS.row(Light, "raise_by", 40)
def too_bright(raise_by: Callable[..., int], self: Light, step: int, *, twice: bool = False) -> int:
    """Light is raised by one more."""
    return raise_by(self, step + 1, twice=twice)


@MUTANTS.row(Light, "is_on", 40)
def inverted(is_on: Callable[[Light], bool], self: Light) -> bool:
    """Light is on when it is off."""
    return not is_on(self)


@MUTANTS.row(Light, "LIMIT", 40)
def no_limit(limit: int) -> int:
    """Light has a hundred times the limit."""
    return limit * 100


def test_a_row_has_the_functions_name_and_its_docstring() -> None:
    assert list(MUTANTS) == ["too-bright", "inverted", "no-limit"]
    assert (MUTANTS["inverted"].id, MUTANTS["inverted"].why) == ("inverted", "light is on when it is off")
    assert MUTANTS["inverted"].limits == 40


def test_functions_properties_and_values_are_replaced_together() -> None:
    with planted(*MUTANTS.values()):
        light = Light()
        assert light.raise_by(1, twice=True) == 5
        assert not light.is_on
        assert light.LIMIT == 300
    assert light.raise_by(1) == 6
    assert light.is_on
    assert light.LIMIT == 3


def test_no_mutant_is_planted_for_none() -> None:
    with planted(None):
        assert Light().is_on


def test_a_bug_is_gone_though_another_one_does_not_fit() -> None:
    gone = Mutant("gone", (Light,), "nonsense", lambda original: original, "nothing", 40)
    with pytest.raises(MutantDoesNotApply, match=r"gone: .* has no nonsense of its own"), planted(MUTANTS["inverted"], gone):
        pass
    assert Light().is_on


PLANTED = dict.fromkeys(mutant for room in ROOMS.values() for bug in room.values() for mutant in bug.mutants)


@pytest.mark.parametrize("mutant", (*PLANTED, *FOR_TWO_PROCESSES.values()), ids=lambda mutant: mutant.id)
def test_every_bug_of_every_room_can_be_planted_and_is_gone_afterwards(mutant: Mutant[object]) -> None:
    before = [vars(owner)[mutant.attribute] for owner in mutant.owners]
    with planted(mutant):
        for owner, original in zip(mutant.owners, before, strict=True):
            assert vars(owner)[mutant.attribute] is not original
    assert [vars(owner)[mutant.attribute] for owner in mutant.owners] == before


def test_a_hunt_ends_with_the_attempt_that_shows_the_bug() -> None:
    found = hunt("x", count(), lambda seed: Shown("S1", f"seed {seed}", steps=9) if seed == 4 else Shown(steps=1))
    assert found[1:6] == (True, 5, 13, "S1", "seed 4")


def test_a_hunt_ends_when_its_attempts_or_its_budget_are_spent() -> None:
    seconds = count()
    missed = hunt("x", range(7), lambda seed: Shown(attempts=10))
    assert (missed.found, missed.attempts, missed.rule) == (False, 70, "")
    assert hunt("x", count(), lambda seed: Shown(), budget_s=3, clock=lambda: next(seconds)).attempts == 3
    assert hunt("x", (), lambda seed: Shown()).attempts == 0
