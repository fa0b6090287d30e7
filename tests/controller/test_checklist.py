"""docs/controller-checklist.md names tests that exist, and one at least for each of its lines."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
CHECKLIST = (TESTS.parent / "docs" / "controller-checklist.md").read_text()
NAMED = re.compile(r"^  - `([\w/]+\.py)::(test_\w+)`$")


def test_every_test_that_the_checklist_names_exists() -> None:
    named = [found for line in CHECKLIST.splitlines() if (found := NAMED.match(line))]
    texts = {path: (TESTS / path).read_text() for path in {found[1] for found in named}}
    missing = [found[0] for found in named if not re.search(rf"def {found[2]}\b", texts[found[1]])]
    assert not missing
    assert len(named) > 150


def test_every_line_of_the_checklist_is_shown_by_a_test() -> None:
    lines = CHECKLIST.splitlines()
    bare = [
        line for line, following in zip(lines, [*lines[1:], ""], strict=True) if line[:2] == "- " and not NAMED.match(following)
    ]
    assert not bare
    assert not [line for line in lines if line.startswith("  - ") and not NAMED.match(line)]
