"""docs/simulator-reference.md has every rule, every planted bug of consensus and storage, and every fault."""

from __future__ import annotations

import re
from pathlib import Path

from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.metadata.mutants import MUTANTS as OF_CONTROLLERS
from kraftlab.simulation.rules import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "simulator-reference.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_rules_are_those_that_violations_are_explained_with() -> None:
    assert dict(re.findall(r"^\| ([A-Z]\d+) \| (.+) \|$", section("Rules"), re.MULTILINE)) == RULES


def test_the_faults_are_those_of_the_option() -> None:
    rows = re.findall(r"^\| (`.+?) \| ", section("Faults"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == {*FAULTS}


def test_the_planted_bugs_are_those_of_the_command() -> None:
    listed = dict(re.findall(r"^\| `([\w-]+)` \| (.+?) \| ", section("Planted bugs"), re.MULTILINE))
    assert listed == {name: mutant.why for name, mutant in MUTANTS.items()}
    assert f"{len(MUTANTS)} deliberate bugs" in PAGE and f"{len(OF_CONTROLLERS)} bugs of its own" in PAGE
