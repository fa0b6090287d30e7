"""The example of docs/research/another-core.md: another core under the simulator's rules."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kraftlab.simulation.consensus.runner import run_seed
from kraftlab.simulation.consensus.world import World

PAGE = Path(__file__).parents[3] / "docs" / "research" / "another-core.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the page's code, which plays five seeds, and return its names."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(code, names)
    return names


def test_another_core_keeps_all_rules(page) -> None:
    assert page["result"].ok and page["seed"] == 4


def test_its_leaders_have_the_lowest_id(page) -> None:
    assert _commits(page["Lowest"])[0] > _commits(World)[0]


def _commits(world: type[World]) -> Counter[int]:
    """Return the number of commits of each leader in three seeds without faults."""
    lines: list[str] = []
    for seed in (0, 4, 8):
        run_seed(seed, faults=(), make_world=world, trace=lines.append)
    return Counter(line["node"] for line in map(json.loads, lines) if line["event"] == "commit" and line["state"] == "leader")
