"""Logins: a cluster with users shows nothing without one, and each change is asked for as the visitor."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from kraftlab.cli import main
from kraftlab.cli.web.child import pages_of
from kraftlab.lab import LocalCluster

from .conftest import BrowserPages, Pages, assert_accessible

pytestmark = pytest.mark.cluster
READER = "marker-reader-3Xv"


@pytest.fixture(scope="module")
def secure(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with LocalCluster(tmp_path_factory.mktemp("lab"), 1, 1, 1, secure=True) as cluster:
        where = ("--data", str(cluster.directory))
        user = ("--entity-type", "users", "--entity-name", "reader", "--add-config", f"SCRAM-SHA-256=[password={READER}]")
        assert main.run(["configs", *where, "--alter", *user]) == 0
        rule = ("--allow-principal", "User:reader", "--operation", "Describe", "--cluster")
        assert main.run(["acls", *where, "--add", *rule]) == 0
        with pages_of(cluster.directory, 0, allow_chaos=False) as url:
            yield Pages(cluster, url)


def test_a_reader_sees_the_quorum_after_a_login_and_the_cluster_refuses_a_change(
    secure: Pages, browser_page: BrowserPages
) -> None:
    page = browser_page()
    browser_page.expect_console(r"401")
    browser_page.expect_console(r"409")
    page.goto(f"{secure.url}quorum?last=60")
    expect(page).to_have_url(re.compile(r"/login\?to=%2Fquorum%3Flast%3D60"))
    assert_accessible(page)
    page.get_by_label("User").fill("reader")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").filter(has_text="does not know this user")).to_be_visible()
    page.get_by_label("Password").fill(READER)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/quorum\?last=60$"))
    expect(page.locator("#live")).to_have_text(re.compile("live, as of .* leader 3000"))
    page.get_by_role("button", name="Snapshot").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Write it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("CLUSTER_AUTHORIZATION_FAILED")
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{secure.url}login")
    cookies = page.context.cookies()
    assert cookies == []
