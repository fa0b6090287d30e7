"""The pages of brokers, live in a browser: states, directories, and what is done to a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from kraftlab.lab import LocalCluster
from kraftlab.lab.faults.caller import give
from kraftlab.lab.faults.orders import Order

from .conftest import BrowserPages, Pages, assert_accessible, open_accessible

pytestmark = [pytest.mark.cluster, pytest.mark.console]
CLUSTER = (1, 4, 2)


@pytest.fixture(scope="module")
def cluster(pages: Pages) -> LocalCluster:
    with pages.cluster.admin() as admin:
        admin.create_topic("orders", partitions=8, replication_factor=3)
        admin.create_topic("single", partitions=3, replication_factor=1)
    return pages.cluster


@pytest.fixture
def page(cluster: LocalCluster, browser_page: BrowserPages) -> Page:
    return browser_page()


@pytest.fixture
def broken(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster, which is healed after the test."""
    yield cluster
    give(cluster.directory, Order("heal"))


def confirm(page: Page, name: str, *, command: str) -> None:
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(command)).to_be_visible()
    dialog.get_by_role("button", name=name).click()
    expect(dialog).to_have_count(0)


def replicas_on(cluster: LocalCluster, broker: int) -> int:
    with cluster.admin() as admin:
        return sum(broker in each.replica_nodes for topic in admin.describe_topics().values() for each in topic.partitions)


def test_a_directory_is_cordoned_and_the_broker_is_found_by_that(cluster: LocalCluster, pages: Pages, page: Page) -> None:
    page.goto(f"{pages.url}brokers")
    expect(page.get_by_text("✓ active", exact=True)).to_have_count(4)
    page.get_by_role("link", name="Broker 2", exact=True).click()
    row = page.get_by_role("listitem").filter(has_text="broker-2/d1")
    row.get_by_role("button", name="Cordon").click()
    confirm(page, "Cordon", command="kraftlab configs --alter --broker 2 --add-config")
    expect(row).to_contain_text("⊘ cordoned, takes no new replicas")
    page.goto(f"{pages.url}brokers?state=cordoned")
    expect(page.get_by_role("heading", level=2)).to_have_text(["Broker 2"])
    page.get_by_role("link", name="Broker 2", exact=True).click()
    row.get_by_role("button", name="Uncordon").click()
    confirm(page, "Uncordon", command="--delete-config cordoned.log.dirs")
    expect(row).not_to_contain_text("cordoned")
    with cluster.admin() as admin:
        brokers = {each.broker_id: each.cordoned_log_dirs for each in admin.describe_cluster().brokers}
    assert brokers[2] == ()


def test_a_killed_broker_becomes_fenced_and_its_directories_are_not_asked_for(
    broken: LocalCluster, pages: Pages, page: Page
) -> None:
    page.goto(f"{pages.url}brokers?sort=leaders")
    card = page.locator("section").filter(has=page.get_by_role("heading", name="Broker 3"))
    expect(card.get_by_text("✓ active")).to_be_visible()
    give(broken.directory, Order("kill", (("broker-3",),)))
    expect(card.get_by_text("✕ fenced")).to_be_visible()
    expect(card).to_contain_text("not asked for while it is fenced")
    page.get_by_label("State").select_option("fenced")
    expect(page.get_by_role("heading", level=2)).to_have_text(["Broker 3"])
    assert page.url.endswith("/brokers?sort=leaders&state=fenced")
    give(broken.directory, Order("heal"))
    expect(page.get_by_text("0 of 4 brokers")).to_be_visible()


def test_a_failed_directory_is_brought_online(broken: LocalCluster, pages: Pages, page: Page) -> None:
    path = str(broken.log_dirs(1)[1])
    page.goto(f"{pages.url}brokers/1")
    row = page.get_by_role("listitem").filter(has_text="broker-1/d1")
    expect(row).to_contain_text(re.compile("used, .* free of"))
    give(broken.directory, Order("fail-disk", (("broker-1",),), directory="d1"))
    expect(page.get_by_text("✕ 1 of 2 directories offline")).to_be_visible()
    expect(row).to_contain_text("✕ offline: log directory")
    give(broken.directory, Order("heal"))
    row.get_by_role("button", name="Bring online").click()
    confirm(page, "Bring online", command=f"kraftlab log-dirs --online {path} --broker 1")
    expect(row).to_contain_text(re.compile("used, .* free of"))
    expect(page.get_by_text("directories offline")).to_have_count(0)
    with broken.admin() as admin:
        assert [each.error_code for each in admin.describe_log_dirs(1, [])] == [0, 0]


def test_a_replica_moves_to_another_directory(cluster: LocalCluster, pages: Pages, page: Page) -> None:
    page.goto(f"{pages.url}brokers/2")
    row = page.get_by_role("row").filter(has_text=re.compile(r"orders-\d")).first
    name, before = row.get_by_role("rowheader").inner_text(), row.get_by_role("cell").first.inner_text()
    after = {"broker-2/d0": "broker-2/d1", "broker-2/d1": "broker-2/d0"}[before]
    row.get_by_role("combobox").select_option(label=after)
    confirm(page, "Move", command=f"kraftlab reassign-partitions --move {name} --broker 2 --to")
    moved = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
    expect(moved.get_by_role("cell").first).to_have_text(after)
    expect(moved).to_have_count(1)
    with cluster.admin() as admin:
        found = {dirs.log_dir: dirs.replicas for dirs in admin.describe_log_dirs(2)}
    assert [
        path for path, replicas in found.items() if any(f"{each.topic}-{each.partition_index}" == name for each in replicas)
    ] == [str(cluster.log_dirs(2)[int(after[-1])])]


def test_a_drained_broker_ends_without_replicas(cluster: LocalCluster, pages: Pages, page: Page) -> None:
    page.goto(f"{pages.url}brokers/0")
    page.get_by_role("button", name="Cordon all directories").click()
    confirm(page, "Cordon", command="cordoned.log.dirs=[*]")
    page.get_by_role("button", name="Preview the plan").click()
    plan = page.get_by_role("table", name="Replicas of each broker before and after")
    has = replicas_on(cluster, 0)
    assert has > 0
    expect(plan.get_by_role("row").filter(has=page.get_by_role("rowheader", name="0"))).to_contain_text(
        re.compile(rf"rack-0\s*{has}\s*0\s*0")
    )
    page.get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The cluster has checked this change and would accept it.")
    expect(dialog).to_contain_text("--queue --plan-id drain-0-")
    dialog.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("link", name="Watch or cancel them")).to_be_visible()
    expect(page.locator("dd").filter(has_text=re.compile(r"^0 \(fair share −"))).to_have_count(2)
    assert replicas_on(cluster, 0) == 0
    page.get_by_role("button", name="Preview the plan").click()
    expect(page.get_by_text("has no replicas, and none is on its way")).to_be_visible()
    with cluster.admin() as admin:
        assert [each.plan_id[:8] for each in admin.list_partition_reassignments().plans] == ["drain-0-"]
    page.get_by_role("button", name="Uncordon all").click()
    confirm(page, "Uncordon", command="--delete-config cordoned.log.dirs")


def test_a_broker_is_unregistered_by_typing_its_name(cluster: LocalCluster, pages: Pages, page: Page) -> None:
    page.goto(f"{pages.url}brokers/3")
    page.get_by_role("button", name="Unregister").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("kraftlab cluster unregister --id 3 --expected-epoch")
    expect(dialog.get_by_role("button", name="Unregister")).to_be_disabled()
    dialog.get_by_role("textbox").fill("broker 3")
    expect(dialog.get_by_role("button", name="Unregister")).to_be_enabled()
    assert re.search(r"--expected-epoch \d+", dialog.inner_text())
    dialog.get_by_role("button", name="Cancel").click()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["brokers", "brokers/2"])
def test_the_pages_are_accessible_and_fit_a_phone(
    cluster: LocalCluster, pages: Pages, browser_page: BrowserPages, color_scheme: Literal["light", "dark"], path: str
) -> None:
    page = open_accessible(browser_page, f"{pages.url}{path}", color_scheme, "free of")
    if path == "brokers/2":
        page.get_by_role("button", name="Preview the plan").click()
        expect(page.get_by_role("button", name="Drain", exact=True)).to_be_visible()
        assert_accessible(page)
