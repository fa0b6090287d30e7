"""The page of the quorum, live in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .conftest import BrowserPages, Pages, assert_accessible

pytestmark = pytest.mark.cluster


def test_the_quorum_is_live_and_a_leadership_is_transferred_after_it_was_shown(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}quorum")
    row = page.get_by_role("row").filter(has_text="follows").filter(has=page.get_by_role("button", name="Let it lead")).first
    new_leader = row.get_by_role("rowheader").inner_text()
    row.get_by_role("button", name="Let it lead").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"kraftlab metadata-quorum transfer-leadership --to {new_leader}")).to_be_visible()
    dialog.get_by_role("button", name="Transfer").click()
    expect(page.locator("#live")).to_have_text(re.compile(rf"leader {new_leader} · epoch \d+ · offset"))
    expect(page.get_by_role("img", name=re.compile(f"controller {new_leader} leads in epoch"))).to_be_visible()
    assert_accessible(page)
