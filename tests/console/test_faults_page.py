"""The page of faults: what a click breaks, everybody sees, in words and in lanes, until it is healed."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from kraftlab.cli import main
from kraftlab.cli.web.child import pages_of
from kraftlab.lab import LocalCluster
from kraftlab.lab.faults.caller import give
from kraftlab.lab.faults.orders import Order, Status

from .conftest import BrowserPages, Pages, assert_accessible

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.cluster, pytest.mark.console]
CLUSTER = (3, 2, 2)


def status_of(pages: Pages) -> Status:
    status = give(pages.cluster.directory, Order("status")).status
    assert status is not None
    return status


@pytest.fixture(autouse=True)
def whole(pages: Pages) -> Iterator[None]:
    """The cluster is whole before and after each test."""
    yield
    give(pages.cluster.directory, Order("heal"))
    pages.cluster.wait_ready()


def leader_on(page: Page) -> str:
    """Name of the controller that the page marks as the leader."""
    row = page.get_by_role("row").filter(has_text="★ leads")
    return row.get_by_role("rowheader").inner_text()


def post(pages: Pages, body: bytes) -> tuple[int, str]:
    """Return the status and the message of an order that a script gives."""
    headers = {"content-type": "application/json", "x-kraftlab": "1", "Origin": pages.url.rstrip("/")}
    request = urllib.request.Request(f"{pages.url}api/v1/faults", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)["text"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]


def test_a_click_isolates_the_leader_and_another_leads_and_the_fault_is_a_lane(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}faults?for=3000")
    old = leader_on(page)
    page.get_by_role("button", name=f"isolate {old}", exact=True).click()
    expect(page.get_by_role("button", name=re.compile(f"isolate {old}: isolate .* s; heal"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(f"isolate cut {old} ↔ all others"))).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="★ leads").get_by_role("rowheader")).not_to_have_text(old)
    expect(page.get_by_text("Nothing is broken.")).to_be_visible()
    assert leader_on(page) != old


def test_every_cell_breaks_what_it_names_and_heals_it_by_a_second_click(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}faults?for=healed")
    node_faults = ["kill", "pause", "isolate", "slow 200 ms", "lossy 20 %", "clock 3× fast", "fill disk", "fail d1"]
    given = []
    for heading in node_faults:
        name = f"{heading} broker-1"
        page.get_by_role("button", name=name, exact=True).click()
        held = page.get_by_role("button", name=f"{name}: ")
        expect(held).to_have_attribute("aria-pressed", "true")
        expect(held).to_contain_text("until healed")
        given += [order.order for order in status_of(pages).orders]
        held.click()
        expect(page.get_by_text("Nothing is broken.")).to_be_visible()
    for kind in ("cut", "slow", "lossy"):
        page.get_by_label("Fault of a link").select_option(kind)
        page.get_by_role("button", name="controller-3000 to broker-0", exact=True).click()
        held = page.get_by_role("button", name="controller-3000 to broker-0: ")
        expect(held).to_contain_text(kind)
        given += [order.order for order in status_of(pages).orders]
        assert [(link.source, link.target) for link in status_of(pages).links if link.cut or link.delay_ms or link.loss] == [
            ("controller-3000", "broker-0")
        ]
        held.click()
        expect(page.get_by_text("Nothing is broken.")).to_be_visible()
    assert given == [
        *("kill", "pause", "isolate", "slow", "lossy", "clock", "fill-disk", "fail-disk"),
        *("cut", "slow", "lossy"),
    ]
    expect(page.get_by_text(re.compile("then broker-1 keeps the directory offline until: kraftlab log-dirs"))).to_be_visible()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("keeps the directory offline")).not_to_be_visible()
    assert main.run(["cluster", "restart", "broker-1", "--data", str(pages.cluster.directory)]) == 0


def test_the_keyboard_alone_breaks_and_escape_heals_after_a_question(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}faults?for=healed")
    page.get_by_role("button", name="kill controller-3000", exact=True).focus()
    expect(page.get_by_role("button", name="Heal everything")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="pause controller-3001", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("row").filter(has_text="‖ paused").get_by_role("rowheader")).to_have_text("controller-3001")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_contain_text("1 fault is in force")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [order.order for order in status_of(pages).orders] == ["pause"]
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Heal everything").last).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing is broken.")).to_be_visible()
    assert status_of(pages).orders == ()


def test_a_killed_node_is_started_again_by_its_button(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}faults?for=healed")
    page.get_by_role("button", name="kill broker-0", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="✕ down").get_by_role("rowheader")).to_have_text("broker-0")
    page.get_by_role("button", name="Restart broker-0").click()
    expect(page.get_by_role("row").filter(has_text="✕ down")).to_have_count(0)
    expect(page.get_by_text("Nothing is broken.")).to_be_visible()
    assert pages.cluster.pid(0) is not None


def test_the_form_shows_the_command_that_does_what_its_button_does(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}faults")
    page.get_by_role("button", name="A slow link to one follower").click()
    form = page.locator("form")
    expect(form.locator("code")).to_have_text(
        re.compile(r"kraftlab cluster slow leader controller-\d+ --delay 500ms --jitter 100ms")
    )
    command = form.locator("code").inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("listitem").filter(has_text="slow controller")).to_be_visible()
    [by_page] = status_of(pages).orders
    give(pages.cluster.directory, Order("heal"))
    assert main.run(command.split()[1:]) == 0
    [by_command] = status_of(pages).orders
    assert (by_command.order, by_command.text, by_command.groups) == (by_page.order, by_page.text, by_page.groups)


def test_two_browsers_see_the_same_and_a_reload_keeps_the_lane(pages: Pages, browser_page: BrowserPages) -> None:
    first, second = browser_page(), browser_page()
    first.goto(f"{pages.url}faults?for=healed")
    second.goto(f"{pages.url}faults")
    first.get_by_role("button", name="lossy 20 % broker-0", exact=True).click()
    second.get_by_role("button", name="lossy 20 % broker-0: ").click()
    expect(first.get_by_text("Nothing is broken.")).to_be_visible()
    first.goto(f"{pages.url}quorum")
    expect(first.get_by_role("img", name=re.compile("Faults shown: .*lossy 0")).first).to_be_visible()
    assert [order.order for order in status_of(pages).past][-1] == "lossy"


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_the_page_is_accessible_and_fits(pages: Pages, browser_page: BrowserPages, color_scheme: str, width: int) -> None:
    page = browser_page(color_scheme=color_scheme, width=width)  # type: ignore[arg-type]
    page.goto(f"{pages.url}faults")
    page.get_by_role("button", name="slow 200 ms broker-0", exact=True).click()
    expect(page.get_by_role("button", name="slow 200 ms broker-0: ")).to_be_visible()
    assert_accessible(page)


def test_forged_orders_are_refused_in_words_and_do_nothing(pages: Pages) -> None:
    answers = [
        post(pages, body)
        for body in (
            b'{"order":"kill","names":[["broker-9"]]}',
            b'{"order":"kill","names":[["broker-1"]],"for_ms":1e300}',
            b'{"order":"kill","names":[["broker-1"]],"rate":3}',
            b'{"order":"rm -rf"}',
            b'{"order":"heal","number":77}',
            b'{"order":"slow","names":[["broker-1"]],"delay_ms":-1}',
            b'{"order":"kill","names":"all"}',
            b'{"order":"kill","surprise":1}',
            b"[" * 100_000,
            json.dumps({"order": "kill", "names": [["x" * 70_000]]}).encode(),
        )
    ]
    assert [code for code, _ in answers] == [409, 409, 409, 409, 409, 409, 400, 400, 400, 409]
    assert "names are controller-3000" in answers[0][1]
    assert "at most a day" in answers[1][1]
    assert "rate does not apply to kill" in answers[2][1]
    assert "at most 65536 bytes" in answers[-1][1]
    assert status_of(pages).orders == ()


def test_a_console_without_the_right_says_why(pages: Pages, browser_page: BrowserPages) -> None:
    for options, why in (
        ((False, ()), "start it with kraftlab up --allow-chaos"),
        ((True, ("--read-only",)), "--read-only; use kraftlab cluster"),
    ):
        with pages_of(pages.cluster.directory, 0, allow_chaos=options[0], more=options[1]) as url:
            code, message = post(Pages(pages.cluster, url), b'{"order":"heal"}')
            page = browser_page()
            page.goto(f"{url}faults")
            expect(page.get_by_text(why)).to_be_visible()
            page.goto("about:blank")
            assert (code, why in message) == (403, True)


def test_a_stopped_cluster_is_named_as_such(starts_clusters: None, tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, 1, 1) as cluster, pages_of(cluster.directory, 0, allow_chaos=True) as url:
        code, message = post(Pages(cluster, url), b'{"order":"heal"}')
    assert (code, "takes no orders; stop it, and start it with kraftlab up --allow-chaos" in message) == (503, True)
