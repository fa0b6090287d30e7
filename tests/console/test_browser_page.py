"""The fixture `browser_page` fails a test whose pages complain, and axe-core finds what is not accessible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .conftest import BrowserPages, assert_accessible, open_alone

pytestmark = pytest.mark.console

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("console.log('lost count');", r"console log: lost count"),
        ("setTimeout(() => { throw new Error('broken'); });", r"page error: broken"),
        ("document.body.innerHTML = '<b>topic</b>';", r"page error: .*TrustedHTML"),
        ("fetch('https://elsewhere.test/').catch(() => 0);", r"console error: .*connect-src"),
        ("fetch('nothing').catch(() => 0);", r"failed request: GET https://console.test/nothing"),
    ],
)
def test_a_page_that_complains_fails_its_test(browser: Browser, script: str, complaint: str) -> None:
    pages = BrowserPages(browser)
    page = pages()
    open_alone(page, script)
    page.wait_for_load_state("networkidle")
    with pytest.raises(AssertionError, match=complaint):
        pages.close()


def test_an_expected_complaint_fails_nothing_and_is_missed_otherwise(browser: Browser) -> None:
    provoked, silent = BrowserPages(browser), BrowserPages(browser)
    for pages in (provoked, silent):
        pages.expect_console(r"console warning: slow \d+")
    open_alone(provoked(), "console.warn('slow 12'); console.warn('slow 13');")
    open_alone(silent(), "")
    provoked.close()
    with pytest.raises(AssertionError, match=r"did not complain of:\s+console warning: slow"):
        silent.close()


def test_options_reach_the_page(browser_page: BrowserPages) -> None:
    page = browser_page(color_scheme="dark", width=360, reduced_motion="reduce")
    open_alone(page, "")
    held = "() => ['color-scheme: dark', 'reduced-motion: reduce'].map((each) => matchMedia(`(prefers-${each})`).matches)"
    assert (page.evaluate("() => innerWidth"), page.evaluate(held)) == (360, [True, True])


def test_axe_names_what_is_not_accessible(browser_page: BrowserPages) -> None:
    page = browser_page()
    open_alone(page, "document.querySelector('main').append(document.createElement('input'));")
    with pytest.raises(AssertionError, match="Form elements must have labels"):
        assert_accessible(page)
    page.evaluate("() => document.querySelector('input').setAttribute('aria-label', 'topic')")
    assert_accessible(page)
