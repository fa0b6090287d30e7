"""docs/console.md names everything that a script can ask the console for."""

from pathlib import Path

import pytest

from kraftlab.console.actions import ACTIONS
from kraftlab.console.app import PAGES

DOCUMENT = Path(__file__).parents[2].joinpath("docs", "console.md").read_text()


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_is_named(name: str) -> None:
    assert f"`{name}`" in DOCUMENT


@pytest.mark.parametrize("page", sorted({*PAGES} - {"login"}))
def test_every_page_is_named(page: str) -> None:
    assert f"`/{page}`" in DOCUMENT
