"""Plans that once broke a rule, played again. `kraftlab sim --shrink` makes them. The plan of a planted bug must find that bug,
and no violation without it. A plan without a mutant is of a bug that was fixed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.simulation.consensus.plan import decode
from kraftlab.simulation.consensus.runner import run_plan

FOLDER = Path(__file__).parent / "regressions"
PLANS = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_no_rule_is_broken_any_more(path: Path) -> None:
    result = run_plan(decode(path.read_bytes(), str(path)), with_mutant=False)
    assert result.ok, "\n".join([*result.violations, *result.tail])


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_planted_bug_is_found_again(path: Path) -> None:
    plan = decode(path.read_bytes(), str(path))
    if plan.mutant is None:
        return
    assert run_plan(plan).rule == plan.rule, (
        f"the world has changed under this plan, make it anew from a seed of `kraftlab mutants --only {plan.mutant}`: "
        f"kraftlab sim --seed S --mutant {plan.mutant} --shrink --write-plan {path}"
    )


def test_there_are_some() -> None:
    assert len(PLANS) >= 10
