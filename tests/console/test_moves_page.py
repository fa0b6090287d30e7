"""The page of moves in a browser, on a cluster with records and throttles, so that moves last."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pytest
from kafka import KafkaProducer
from playwright.sync_api import expect

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, MoveOptions

from ..helpers.waiting import wait_until
from .conftest import BrowserPages, Pages, assert_accessible

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.cluster, pytest.mark.console]
SLOW = MoveOptions(throttle=20_000)
"""Two megabytes take more than a minute."""


@pytest.fixture(scope="module")
def admin(pages: Pages) -> Iterator[AdminClient]:
    with pages.cluster.admin() as client:
        yield client


@pytest.fixture(autouse=True)
def ends_moves(admin: AdminClient) -> Iterator[None]:
    yield
    admin.cancel_reassignments()
    wait_until(lambda: not admin.list_partition_reassignments().running, "no move runs")
    plans = [each.plan_id for each in admin.list_partition_reassignments().plans]
    if plans:
        admin.forget_plans(plans)


def filled(pages: Pages, admin: AdminClient, name: str, *placed: list[int], count: int = 200) -> None:
    """Create a topic with these replicas, and records of 10 kB in each partition."""
    topic = pb.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    for index, brokers in enumerate(placed):
        topic.assignments.add(partition_index=index, broker_ids=brokers)
    admin.create_topics([topic])
    with KafkaProducer(bootstrap_servers=pages.cluster.kafka_bootstrap_servers.split(","), acks="all") as producer:
        sent = [producer.send(name, b"x" * 10_000, partition=index) for index in range(len(placed)) for _ in range(count)]
        for each in sent:
            each.get(30)


def opened(pages: Pages, browser_page: BrowserPages, path: str, width: int = 1300) -> Page:
    page = browser_page(width=width)
    page.goto(f"{pages.url}{path}")
    return page


def row_of(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def confirm(page: Page, button: str, shows: str) -> None:
    """Confirm the open dialog, once it shows this text."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(shows)
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()


def test_a_throttled_move_starts_from_the_form_shows_its_progress_and_is_cancelled(
    pages: Pages, admin: AdminClient, browser_page: BrowserPages
) -> None:
    filled(pages, admin, "orders", [0, 1])
    page = opened(pages, browser_page, "moves?start=orders-0")
    replicas = page.get_by_role("group", name=re.compile("orders-0, now .0, 1., epoch"))
    replicas.get_by_role("checkbox", name="broker 1").uncheck()
    replicas.get_by_role("checkbox", name="broker 2").check()
    page.get_by_label("throttle into each broker").fill("20 kB")
    page.get_by_role("button", name="Show before and after").click()
    expect(page.get_by_text("It would do this: orders-0 moves to replicas [0, 2]")).to_be_visible()
    expect(page.get_by_role("region", name="Brokers and directories")).to_contain_text("broker 2")
    page.get_by_role("button", name="Start", exact=True).click()
    confirm(page, "Start", "--throttle 20000")
    row = row_of(page, "orders-0")
    expect(row.get_by_role("progressbar", name="orders-0", exact=True)).to_have_attribute("aria-valuetext", re.compile(r"\d+ %"))
    expect(row).to_contain_text(re.compile(r"adding 2; removing 1.*limit 19\.5.KiB/s.*\d+.(s|min)"))
    row.get_by_role("button", name="Cancel").click()
    confirm(page, "Cancel the move", "--cancel")
    expect(row).to_contain_text("not moved, replicas [0, 1]")
    expect(page.locator("#said")).to_have_text("The move of orders-0 has ended")
    assert not admin.list_partition_reassignments().running


def test_queued_moves_wait_in_order_and_their_plan_is_rolled_back(
    pages: Pages, admin: AdminClient, browser_page: BrowserPages
) -> None:
    filled(pages, admin, "queued", [0, 1], [0, 1], [0, 1])
    admin.incremental_alter_configs(
        [
            pb.AlterConfigsResource(
                resource_type=4, configs=[pb.AlterableConfig(name="reassignment.max.moves.per.broker", value="1")]
            )
        ]
    )
    plan = {"partitions": [{"topic": "queued", "partition": each, "replicas": [0, 2]} for each in range(3)]}
    page = opened(pages, browser_page, "moves?start=?")
    page.get_by_label("Partitions, or a plan").fill(json.dumps(plan))
    page.get_by_role("button", name="Choose replicas").click()
    page.get_by_label("throttle into each broker").fill("20 kB")
    page.get_by_label("wait in the queue").check()
    page.get_by_label("plan name, for a rollback").fill("friday")
    page.get_by_role("button", name="Start", exact=True).click()
    confirm(page, "Start", "--queue --plan-id friday")
    expect(page).to_have_url(re.compile("/moves/friday$"))
    queue = page.get_by_role("region", name="Queue").get_by_role("row")
    expect(queue).to_have_text([re.compile("place"), re.compile("1.*queued-1.*keeps? broker"), re.compile("2.*queued-2")])
    plan_row = row_of(page, "friday")
    expect(plan_row.get_by_role("cell")).to_contain_text([":", "User", "3", "1", "2", "Roll back"])
    plan_row.get_by_role("button", name="Roll back").click()
    confirm(page, "Roll back", "reassign-partitions --rollback friday")
    expect(row_of(page, "queued-0")).to_contain_text("not moved, replicas [0, 1]")
    expect(page.get_by_role("region", name="Queue")).to_be_hidden()
    expect(plan_row).to_contain_text("nothing of it moves now")
    plan_row.get_by_role("button", name="Forget").click()
    confirm(page, "Forget", "--forget friday")
    expect(plan_row).to_be_hidden()
    assert admin.list_partition_reassignments().plans == ()


def test_a_throttle_is_changed_while_the_move_runs(pages: Pages, admin: AdminClient, browser_page: BrowserPages) -> None:
    filled(pages, admin, "throttled", [0, 1])
    admin.alter_partition_reassignments({("throttled", 0): [0, 2]}, options=SLOW)
    page = opened(pages, browser_page, "moves")
    row_of(page, "throttled-0").get_by_role("button", name="Throttle").click()
    page.get_by_label("Bytes per second into each broker").fill("a lot")
    page.get_by_role("button", name="See what this does").click()
    expect(page.get_by_role("alert").filter(has_text="for example 10 MiB")).to_be_visible()
    page.get_by_label("Bytes per second into each broker").fill("30 kB/s")
    page.get_by_role("button", name="See what this does").click()
    confirm(page, "Throttle", "--throttle 30000")
    expect(row_of(page, "throttled-0")).to_contain_text(re.compile("limit 29.3.KiB/s"))
    assert admin.list_partition_reassignments().running[0].throttle == 30_000


def test_a_stale_page_overwrites_nothing(pages: Pages, admin: AdminClient, browser_page: BrowserPages) -> None:
    filled(pages, admin, "stale", [0, 1], count=1)
    browser_page.expect_console("status of 409")
    page = opened(pages, browser_page, "moves?start=stale-0")
    replicas = page.get_by_label("Replicas of stale-0, the preferred leader first")
    expect(replicas).to_have_value("0, 1")
    admin.alter_partition_reassignments({("stale", 0): [1, 0]})
    replicas.fill("2")
    page.get_by_role("button", name="Show before and after").click()
    expect(page.get_by_text(re.compile("has the partition epoch .*, not .* as expected; nothing was changed"))).to_be_visible()
    page.get_by_role("button", name="Read the partitions again").click()
    expect(replicas).to_have_value("1, 0")
    assert admin.describe_topics(["stale"])["stale"].partitions[0].replica_nodes == (1, 0)


def test_300_moves_are_cut_at_200_and_accessible_at_every_width(
    pages: Pages, admin: AdminClient, browser_page: BrowserPages
) -> None:
    filled(pages, admin, "many", *([[0]] * 300), count=1)
    admin.alter_partition_reassignments({("many", each): [1] for each in range(300)}, options=MoveOptions(throttle=1))
    page = opened(pages, browser_page, "moves?topic=many&sort=-partition")
    rows = page.get_by_role("region", name="Running moves").locator("tbody tr")
    expect(rows).to_have_count(200)
    expect(rows.first).to_contain_text("many-299")
    page.get_by_role("button", name="Show more: 100 of 300 are not shown").click()
    expect(rows).to_have_count(300)
    page.get_by_role("combobox", name="broker").select_option("2")
    expect(page.get_by_text("No running move matches the filters.")).to_be_visible()
    assert "broker=2" in page.url
    looks: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1300), ("dark", 1300), ("light", 360))
    for scheme, width in looks:
        page = browser_page(color_scheme=scheme, width=width)
        page.goto(f"{pages.url}moves?start=many-7")
        expect(page.get_by_role("progressbar").first).to_be_visible()
        page.get_by_role("button", name="Show before and after").click()
        expect(page.get_by_text("It would do this")).to_be_visible()
        assert_accessible(page)


def test_a_killed_target_is_named_as_what_holds_the_move_up(pages: Pages, admin: AdminClient, browser_page: BrowserPages) -> None:
    filled(pages, admin, "blocked", [0, 1])
    admin.alter_partition_reassignments({("blocked", 0): [0, 2]}, options=SLOW)
    page = opened(pages, browser_page, "moves")
    expect(row_of(page, "blocked-0")).to_contain_text("throttled")
    pages.cluster.kill_node(2)
    row = row_of(page, "blocked-0")
    expect(row).to_contain_text(re.compile("fenced.*Bring the broker back, or choose another target"), timeout=60_000)
    expect(row.get_by_role("link", name="broker 2").first).to_have_attribute("href", "/brokers/2")
    pages.cluster.start_node(2)
    expect(row).to_contain_text(re.compile("throttled|copying|starting"), timeout=60_000)
