"""Events appear live and are filtered, time travel shows what was, and an election is shown in place."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.console.elections import TRACE
from tests.helpers.waiting import wait_until

from .conftest import BrowserPages, Pages, assert_accessible, open_alone

pytestmark = [pytest.mark.cluster, pytest.mark.console]
PROPERTIES = {TRACE: "DIRECTORY/logs/{node}.ndjson"}

_numbers = count()


def new_topic(pages: Pages) -> tuple[str, int]:
    """Create a topic with one partition on brokers 0 and 1, and return its name and the offset before it."""
    name = f"topic.{next(_numbers)}"
    with pages.cluster.admin() as admin:
        before = admin.describe_quorum().high_watermark
        place = pb.CreatableReplicaAssignment(partition_index=0, broker_ids=[0, 1])
        admin.create_topics([pb.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[place])])
    return name, before


def newest(pages: Pages) -> int:
    with pages.cluster.admin() as admin:
        return admin.describe_quorum().high_watermark


def rows(page: Page, words: str | re.Pattern[str]) -> Any:
    return page.locator("tbody tr").filter(has_text=words)


def test_an_event_appears_by_itself_and_leads_to_the_moment_before_it(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}events")
    expect(rows(page, "▲ controller")).not_to_have_count(0)
    name, _ = new_topic(pages)
    created = rows(page, f"topic {name} is created")
    expect(created).to_have_count(1)
    created.locator("td").first.get_by_role("link").click()
    expect(page.get_by_role("heading", name=re.compile(r"At offset \d+"))).to_be_visible()
    for directory in ("topics", "byName"):
        page.locator(".tree summary").filter(has_text=directory).first.click()
    expect(page.locator(".tree")).to_contain_text("byId")
    expect(page.locator(".tree")).not_to_contain_text(name)


def test_filters_survive_a_reload_and_an_object_leads_to_its_page(pages: Pages, browser_page: BrowserPages) -> None:
    name, _ = new_topic(pages)
    page = browser_page()
    page.goto(f"{pages.url}events")
    page.get_by_role("button", name="topic", exact=True).click()
    page.get_by_label("Object").fill(f"{name}-0")
    expect(rows(page, "is created")).to_have_count(1)
    expect(page).to_have_url(re.compile(rf"kind=topic&about={re.escape(name)}-0$"))
    page.reload()
    expect(rows(page, "is created")).to_have_count(1)
    expect(page.get_by_role("button", name="topic", exact=True)).to_have_attribute("aria-pressed", "true")
    assert page.get_by_role("link", name=f"{name}-0").first.get_attribute("href") == f"/topics/{name}/0"


def test_events_of_internal_topics_have_a_box(pages: Pages, browser_page: BrowserPages) -> None:
    with pages.cluster.admin() as admin:
        admin.create_topic("__consumer_offsets", partitions=1, replication_factor=1)
    name, _ = new_topic(pages)
    page = browser_page()
    page.goto(f"{pages.url}events")
    expect(rows(page, f"topic {name} is created")).to_have_count(1)
    expect(rows(page, "__consumer_offsets")).to_have_count(0)
    page.get_by_label("internal topics").check()
    expect(rows(page, "topic __consumer_offsets is created")).to_have_count(1)
    assert page.url.endswith("/events?internal=1")
    page.goto(f"{pages.url}events?about=__consumer_offsets")
    expect(rows(page, "topic __consumer_offsets is created")).to_have_count(1)


def test_a_reader_who_has_scrolled_down_is_not_disturbed(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page(height=300)
    page.goto(f"{pages.url}events")
    expect(rows(page, "▲ controller")).not_to_have_count(0)
    page.evaluate("() => scrollTo(0, 400)")
    name, _ = new_topic(pages)
    button = page.get_by_role("button", name=re.compile(r"^\d+ new$"))
    expect(button).to_be_visible()
    assert page.evaluate("() => scrollY") == 400
    expect(rows(page, f"topic {name} is created")).to_have_count(0)
    button.click()
    expect(rows(page, f"topic {name} is created")).to_have_count(1)


def test_a_topic_is_there_after_its_creation_and_not_before(pages: Pages, browser_page: BrowserPages) -> None:
    name, before = new_topic(pages)
    page = browser_page()
    page.goto(f"{pages.url}time?at={before}&path=topics/byName")
    tree = page.locator(".tree")
    expect(page.get_by_role("heading", name=f"At offset {before}")).to_be_visible()
    expect(tree).not_to_contain_text(name)
    page.get_by_role("button", name="Now", exact=True).click()
    expect(tree).to_contain_text(name)
    field = page.get_by_label("Moment: an offset or a time")
    field.fill(str(before))
    field.press("Enter")
    expect(tree).not_to_contain_text(name)
    slider = page.get_by_role("slider")
    slider.press("PageUp")
    expect(tree).to_contain_text(name)
    slider.press("ArrowLeft")
    expect(tree).not_to_contain_text(name)
    field.fill(str(before + 1))
    field.press("Enter")
    expect(
        page.get_by_text(f"Offset {before + 1} is inside a batch; the state before it, at offset {before}, is shown.")
    ).to_be_visible()
    expect(tree).not_to_contain_text(name)
    field.fill("once upon a time")
    field.press("Enter")
    wrong = page.get_by_role("alert").filter(has_text="does not name a moment")
    expect(wrong).to_be_visible()
    for _ in range(2):  # the second one is asked for after the first was drawn
        with page.expect_response(re.compile("/image")):
            new_topic(pages)
    expect(wrong).to_be_visible()
    field.fill(str(before))
    expect(wrong).not_to_be_visible()


def test_a_moment_is_typed_as_the_page_prints_it(browser_page: BrowserPages) -> None:
    page = browser_page()
    open_alone(page, "import { momentOf } from './time.js'; window.momentOf = momentOf;")
    typed = ["1\u202f127", "1\u00a0127", "1 127", "1,127", "12,345,678", "now", "7"]
    page.wait_for_function("() => window.momentOf !== undefined")
    assert page.evaluate("all => all.map(each => momentOf(each, 0))", typed) == [*["1127"] * 4, "12345678", "", "7"]
    for wrong in ("yesterday", "1,12", "1,1127"):
        assert page.evaluate("each => { try { momentOf(each, 0); } catch { return true; } }", wrong)


def test_the_difference_of_two_moments_shows_a_moved_partition(pages: Pages, browser_page: BrowserPages) -> None:
    name, _ = new_topic(pages)
    before = newest(pages)
    page = browser_page()
    page.goto(f"{pages.url}time?at={before}")
    page.get_by_role("button", name="Compare with now").click()
    expect(page.get_by_role("heading", name="What differs between offsets")).to_be_visible()
    with pages.cluster.admin() as admin:
        admin.alter_partition_reassignments({(name, 0): [1, 2]})
        wait_until(lambda: not admin.list_partition_reassignments().running, "the move has ended")
    changed = page.locator(".diff > li").filter(has_text=f"topics/byName/{name}/0")
    expect(changed).to_contain_text("~ changed")
    expect(changed).to_contain_text("replicas: [0,1] → [1,2]")
    expect(rows(page, "reassignment is complete")).to_have_count(1)
    expect(page.get_by_text(re.compile(rf"kraftlab metadata diff --from {before} --to \d+ --records"))).to_be_visible()


def test_an_election_is_shown_after_the_leader_was_killed(pages: Pages, browser_page: BrowserPages) -> None:
    with pages.cluster.admin() as admin:
        leader = admin.describe_quorum().leader_id
        assert leader is not None
        page = browser_page()
        page.goto(f"{pages.url}quorum")
        pages.cluster.kill_node(leader)
        wait_until(lambda: admin.describe_quorum().leader_id not in (None, leader), "another controller leads")
        epoch = admin.describe_quorum().leader_epoch  # a split vote takes more than one
    button = page.get_by_role("button", name=re.compile(rf"▲ epoch {epoch}: controller")).first
    button.press("Enter")
    panel = page.locator("#election")
    expect(panel.get_by_role("heading", name=f"The election of epoch {epoch}")).to_be_visible()
    expect(panel).to_contain_text("granted by")
    expect(panel.locator("dd").filter(has_text=str(leader)).first).to_be_visible()
    for node in pages.cluster.controller_ids:
        expect(panel.locator(".lane-name").filter(has_text=f"controller-{node}")).to_be_visible()
    expect(panel.locator("g.sent .note").filter(has_text=re.compile(r"^Vote\(e\d+ log=")).first).to_be_visible()
    panel.get_by_text("The same as a table").click()
    expect(rows(page, re.compile(r"VoteReply\(yes e\d+.*in transit")).first).to_be_visible()
    expect(page).to_have_url(re.compile(rf"election={epoch}"))
    pages.cluster.start_node(leader)
    page.reload()
    expect(panel.get_by_role("heading", name=f"The election of epoch {epoch}")).to_be_visible()


@pytest.mark.parametrize("path", ["events", "time", "time?at=5&to=now", "quorum?election=1"])
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_the_pages_are_accessible_and_fit(
    pages: Pages, browser_page: BrowserPages, path: str, scheme: Literal["light", "dark"], width: int
) -> None:
    page = browser_page(color_scheme=scheme, width=width)
    page.goto(f"{pages.url}{path}")
    shown: dict[str, Callable[[], Any]] = {
        "events": lambda: rows(page, "▲ controller").first,
        "time": lambda: page.locator(".tree summary").first,
        "time?at=5&to=now": lambda: page.locator(".diff > li").first,
        "quorum?election=1": lambda: page.locator("#election h3").first,
    }
    expect(shown[path]()).to_be_visible()
    assert_accessible(page)
