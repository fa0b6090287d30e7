"""The simulator's page: a seed step by step, forwards and backwards, without a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from kraftlab.cli.web.child import serving

from .conftest import BrowserPages, assert_accessible

SPLIT_VOTE = "seed=228&faults=kill,partition"
TWO_LEADERS = "seed=70&faults=none&mutant=pre-votes-count"
PARTS = (".sim-ring", ".sim-logs", ".sim-space", ".overview")
DRAWN = """names => names.map((name) => [...document.querySelectorAll(`${name} *`)]
    .map((each) => each.cloneNode(false).outerHTML + (each.children.length ? "" : each.textContent)).sort().join("\\n"))"""


@pytest.fixture(scope="module")
def url(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console without a cluster."""
    with serving(0, "--runs", str(tmp_path_factory.mktemp("runs"))) as url:
        yield url


def opened(page: Page, url: str, query: str) -> None:
    page.goto(f"{url}sim?{query}")
    expect(page.locator(".player")).to_be_visible()


def test_a_seed_is_stepped_through_by_keys_and_its_moment_is_in_the_address(url: str, browser_page: BrowserPages) -> None:
    page = browser_page(reduced_motion="reduce")
    opened(page, url, f"{SPLIT_VOTE}&step=174")
    place = page.locator(".place")
    expect(place).to_contain_text("step 174 of")
    page.keyboard.press("ArrowRight")
    expect(place).to_contain_text("step 175 of")
    expect(page).to_have_url(re.compile(r"step=175"))
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowRight")
    expect(place).not_to_contain_text("step 174 of")
    page.keyboard.press("End")
    expect(page.locator(".sentence")).to_contain_text(re.compile("rule", re.IGNORECASE))
    page.locator("[data-node='2']").first.click()
    expect(page).to_have_url(re.compile(r"node=2"))


@pytest.mark.console
def test_a_moment_looks_the_same_from_both_sides(url: str, browser_page: BrowserPages) -> None:
    page = browser_page(reduced_motion="reduce")
    for query, step in ((SPLIT_VOTE, 200), ("seed=195&faults=kill,power-cut", 1000)):
        opened(page, url, f"{query}&step={step}")
        expect(page.locator(".place")).to_contain_text(re.compile("step [12]"))
        before = page.evaluate(DRAWN, PARTS)
        for key, times in (("ArrowRight", 40), ("ArrowLeft", 60), ("ArrowRight", 20)):
            for _ in range(times):
                page.keyboard.press(key)
        assert page.evaluate(DRAWN, PARTS) == before


@pytest.mark.console
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300, 2560])
def test_a_planted_bug_is_shown_to_everybody(url: str, browser_page: BrowserPages, scheme: str, width: int) -> None:
    page = browser_page(color_scheme=scheme, width=width, reduced_motion="reduce")  # type: ignore[arg-type]
    opened(page, url, f"{TWO_LEADERS}&step=139")
    page.get_by_role("button", name="Go there").click()
    expect(page.locator(".sentence")).to_be_visible()
    assert_accessible(page)


@pytest.mark.console
def test_a_wrong_name_is_explained(url: str, browser_page: BrowserPages) -> None:
    page = browser_page()
    browser_page.expect_console("400")
    page.goto(f"{url}sim?seed=1&faults=nonsense")
    expect(page.get_by_text("there is no fault 'nonsense'")).to_be_visible()
