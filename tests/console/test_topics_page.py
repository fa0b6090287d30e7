"""The pages of topics and partitions, live in a browser."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from kraftlab.client import MoveOptions

from .conftest import BrowserPages, Pages, assert_accessible

pytestmark = [pytest.mark.cluster, pytest.mark.console]

SLOW_MS = 60_000


def create(pages: Pages, name: str, partitions: int = 3, replicas: int = 3) -> None:
    with pages.cluster.admin() as admin:
        admin.create_topic(name, partitions=partitions, replication_factor=replicas)


def opened(page: Page, pages: Pages, path: str) -> Page:
    page.set_default_timeout(SLOW_MS)
    expect.set_options(timeout=SLOW_MS)
    page.goto(f"{pages.url}{path}")
    return page


def row(page: Page, name: str) -> Locator:
    return page.locator("[data-row]").filter(has=page.get_by_role("link", name=name, exact=True))


def confirm(page: Page, title: str, button: str, typed: str = "") -> None:
    """Confirm the dialog of an action, which names what it does first."""
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog.get_by_role("heading", name="As a command")).to_be_visible()
    if typed:
        expect(dialog.get_by_role("button", name=button)).to_be_disabled()
        dialog.get_by_label("Type").fill(typed)
    dialog.get_by_role("button", name=button).click()
    expect(dialog).to_be_hidden()


def go_on(page: Page, **values: str) -> None:
    for label, value in values.items():
        page.get_by_role("dialog").get_by_label(re.compile(f"^{label.replace('_', ' ')}")).fill(value)
    page.get_by_role("button", name="Go on").click()


def test_a_topic_is_created_and_found_by_a_filter_that_survives_a_reload(pages: Pages, browser_page: BrowserPages) -> None:
    create(pages, "payments.v2")
    page = opened(browser_page(), pages, "topics")
    page.get_by_role("button", name="Create a topic").click()
    go_on(page, Name="orders", Partitions="4", Replicas="2", Configs="retention.ms=60000")
    confirm(page, "Create topic orders", "Create")
    expect(page.get_by_role("status").filter(has_text="Create topic orders: done")).to_be_in_viewport()
    expect(row(page, "orders").get_by_role("cell")).to_contain_text(["orders", "4", "2", "–", "–", "–", "–", "–"])
    expect(row(page, "payments.v2")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("ord")
    expect(row(page, "payments.v2")).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Filter by name")).to_have_value("ord")
    expect(page.get_by_role("table", name="Topics")).to_have_attribute("aria-rowcount", "2")
    assert_accessible(page)


def test_every_action_of_a_topic(pages: Pages, browser_page: BrowserPages) -> None:
    create(pages, "acts", 2, 2)
    page = opened(browser_page(), pages, "topics/acts")
    expect(page.locator("[data-row]")).to_have_count(2)
    page.get_by_role("button", name="Add partitions").click()
    go_on(page, Partitions_in_all="3")
    confirm(page, "Add partitions to acts", "Add")
    expect(row(page, "acts-2")).to_be_visible()
    page.get_by_role("button", name="Replication factor").click()
    go_on(page, Replicas_of_each_partition="3")
    confirm(page, "Replication factor of acts", "Change")
    expect(row(page, "acts-0").get_by_role("cell").nth(4)).to_have_text(re.compile(r"^\d, \d, \d$"))
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    go_on(page, Value="120000")
    confirm(page, "Change retention.ms of acts", "Change")
    config = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="retention.ms", exact=True))
    expect(config.get_by_role("cell")).to_contain_text(["120000", "topic"])
    page.get_by_role("button", name="Delete", exact=True).click()
    confirm(page, "Delete topic acts", "Delete", typed="acts")
    expect(page).to_have_url(f"{pages.url}topics")
    expect(page.get_by_role("table", name="Topics")).to_be_visible()
    expect(row(page, "acts")).to_have_count(0)


def test_leaders_return_to_the_preferred_replica_and_the_page_shows_it(pages: Pages, browser_page: BrowserPages) -> None:
    create(pages, "led", 2)
    page = opened(browser_page(), pages, "topics/led")
    leader = int(row(page, "led-0").get_by_role("cell").nth(2).inner_text())
    pages.cluster.stop_node(leader)
    expect(row(page, "led-0")).to_contain_text("▲ URP")
    expect(row(page, "led-0").get_by_title("under-replicated")).to_be_visible()
    pages.cluster.start_node(leader)
    expect(row(page, "led-0")).to_contain_text("◇ skew")
    expect(row(page, "led-0")).not_to_contain_text("▲ URP")
    page.get_by_role("button", name="Elect preferred leaders").click()
    confirm(page, "Elect preferred leaders of led", "Elect")
    expect(row(page, "led-0").get_by_role("cell").nth(2)).to_have_text(str(leader))


def test_a_partition_tells_its_history_of_leaders_and_moves(pages: Pages, browser_page: BrowserPages) -> None:
    create(pages, "told", 1, 2)
    page = opened(browser_page(), pages, "topics/told/0")
    replicas = page.get_by_role("region", name="Replicas of told-0")
    history = page.get_by_role("table", name="History of told-0")
    expect(history).to_contain_text("is created: replicas")
    with pages.cluster.admin() as admin:
        partition = admin.describe_topics(["told"])["told"].partitions[0]
        first, second = partition.replica_nodes
        (third,) = {0, 1, 2} - {first, second}
        options = MoveOptions(reason="make room", plan_id="friday")
        admin.alter_partition_reassignments({("told", 0): [third, second]}, options=options)
    expect(replicas.get_by_role("rowheader")).to_have_text([str(third), str(second)])
    expect(history).to_contain_text("reassignment is complete")
    expect(history).to_contain_text("plan friday, make room")
    expect(page.get_by_role("img", name=re.compile("^Leader and replicas in sync"))).to_have_attribute(
        "aria-label", re.compile(rf"Now {third} leads")
    )
    newest = history.get_by_role("row").nth(1).get_by_role("link")
    offset = re.sub(r"\D", "", newest.inner_text())
    expect(newest).to_have_attribute("href", f"/time?at={offset}")
    page.get_by_role("button", name="Move …").click()
    expect(page).to_have_url(f"{pages.url}moves?start=told-0")


def test_a_replica_moves_to_another_directory_and_an_unclean_election_is_typed(pages: Pages, browser_page: BrowserPages) -> None:
    create(pages, "dirs", 1, 1)
    page = opened(browser_page(), pages, "topics/dirs/0")
    cell = page.get_by_role("region", name="Replicas of dirs-0").get_by_role("row").nth(1).get_by_role("cell").nth(1)
    expect(cell).to_contain_text(re.compile(r"d[01]$"))
    present = cell.inner_text()
    other = present[:-1] + ("1" if present.endswith("0") else "0")
    page.get_by_role("button", name=re.compile("^Move to another directory")).click()
    expect(page.get_by_label("To log directory")).to_have_value(other)
    go_on(page)
    confirm(page, "Move dirs-0 of broker", "Move")
    expect(cell).to_have_text(other)
    page.get_by_role("button", name="Unclean election").click()
    dialog = page.get_by_role("dialog", name="Unclean election of dirs-0")
    expect(dialog).to_contain_text("Records that only the lost replicas have are lost")
    expect(dialog.get_by_label("Type unclean to confirm")).to_be_focused()
    expect(dialog.get_by_role("button", name="Elect")).to_be_disabled()


@pytest.mark.parametrize(
    ("path", "said", "list_"),
    [
        ("topics/nope", "There is no topic nope", "/topics"),
        ("topics/few/9", "There is no partition few-9", "/topics"),
        ("brokers/99", "There is no broker 99 now", "/brokers"),
    ],
)
def test_names_that_do_not_exist_have_a_link_to_the_list_and_no_buttons(
    pages: Pages, browser_page: BrowserPages, path: str, said: str, list_: str
) -> None:
    if path == "topics/few/9":
        create(pages, "few")
    else:
        browser_page.expect_console("status of ")
    page = opened(browser_page(), pages, path)
    expect(page.get_by_role("heading", name=said)).to_be_visible()
    expect(page.locator("#main").get_by_role("link")).to_have_attribute("href", list_)
    expect(page.locator("#main").get_by_role("button")).to_have_count(0)


def test_thousands_of_partitions_are_a_window_that_keys_walk_and_changes_reach(pages: Pages, browser_page: BrowserPages) -> None:
    create(pages, "wide", 2000, 1)
    page = opened(browser_page(), pages, "topics/wide")
    table = page.get_by_role("table", name="Partitions of wide")
    expect(table).to_have_attribute("aria-rowcount", "2001")
    table.focus()
    for key, place in (("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("End", 1999), ("k", 1998)):
        page.keyboard.press(key)
        expect(row(page, f"wide-{place}")).to_be_focused()
    assert page.locator("[data-row]").count() < 100
    page.keyboard.press("Home")
    page.keyboard.press("PageDown")
    there = page.locator("[data-row]:focus")
    name, top = there.get_by_role("link").inner_text(), there.bounding_box()
    leader = int(there.get_by_role("cell").nth(2).inner_text())
    to = (leader + 1) % 3
    with pages.cluster.admin() as admin:
        admin.alter_partition_reassignments({("wide", int(name.removeprefix("wide-"))): [to]})
    expect(row(page, name).get_by_role("cell").nth(2)).to_have_text(str(to))
    expect(row(page, name)).to_be_focused()
    assert row(page, name).bounding_box() == top
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{pages.url}topics/wide/{name.removeprefix('wide-')}")


def test_a_count_leads_to_its_partitions_and_an_order_is_in_the_url(pages: Pages, browser_page: BrowserPages) -> None:
    create(pages, "sorted", 3, 1)
    page = opened(browser_page(), pages, "topics")
    page.locator(".counted").get_by_role("link").nth(1).click()
    page.get_by_label("Filter by name").fill("sorted")
    page.get_by_role("button", name="partition", exact=True).click()
    page.get_by_role("button", name="leader", exact=True).click()
    page.get_by_role("button", name="leader", exact=True).click()
    expect(page).to_have_url(re.compile(r"view=partitions.*q=sorted.*sort=-leader_id"))
    page.reload()
    leaders = page.locator("[data-row] [data-of=leader]")
    expect(leaders).to_have_text(["2", "1", "0"])
    expect(page.get_by_role("columnheader", name="leader")).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Broker").select_option("1")
    expect(leaders).to_have_text(["1"])


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_are_accessible(
    pages: Pages, browser_page: BrowserPages, color_scheme: Literal["light", "dark"]
) -> None:
    create(pages, f"fits.{color_scheme}", 30, 2)
    narrow = browser_page(color_scheme=color_scheme, width=360)
    wide = browser_page(color_scheme=color_scheme, width=1280)
    for path in ("topics", "topics?view=partitions", f"topics/fits.{color_scheme}", f"topics/fits.{color_scheme}/0"):
        for page in (narrow, wide):
            opened(page, pages, path)
            expect(page.locator("[data-row]").first).to_be_visible()
            expect(page.get_by_text(re.compile(r"^[\d\u202f]+ (topic|partition|record)s?$"))).to_be_visible()
            assert_accessible(page)
