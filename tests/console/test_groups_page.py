"""The pages of consumer groups, live in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from kafka import KafkaConsumer, KafkaProducer
from playwright.sync_api import expect

from kraftlab.lab import LocalCluster
from kraftlab.lab.faults.caller import give
from kraftlab.lab.faults.orders import Order

from .conftest import BrowserPages, Pages, open_accessible

pytestmark = [pytest.mark.cluster, pytest.mark.console]
CLUSTER = (1, 3, 1)
PROPERTIES = {"broker.session.timeout.ms": "120000"}  # so that a broker that hangs still leads
PARTITIONS, RECORDS, READ = 3, 300, 10


def reader(cluster: LocalCluster, group_id: str, topic: str) -> KafkaConsumer:
    """Return a member of a group that has read some records and committed."""
    consumer = KafkaConsumer(
        topic,
        group_id=group_id,
        client_id=f"client-of-{group_id}",
        bootstrap_servers=cluster.kafka_bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=READ,
    )
    read = 0
    while read < READ:
        read += sum(map(len, consumer.poll(1000, max_records=READ - read).values()))
    consumer.commit()
    return consumer


@pytest.fixture(scope="module")
def cluster(pages: Pages) -> Iterator[LocalCluster]:
    """A cluster with a group of one member, a group without one, and a group that is hidden."""
    with pages.cluster.admin() as admin:
        for topic in ("orders", "clicks"):
            admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    producer = KafkaProducer(bootstrap_servers=pages.cluster.kafka_bootstrap_servers)
    for topic in ("orders", "clicks"):
        for number in range(RECORDS):
            producer.send(topic, b"x", partition=number % PARTITIONS)
    producer.close()
    member = reader(pages.cluster, "billing", "orders")
    for group_id in ("mail/er", "__own"):
        reader(pages.cluster, group_id, "clicks").close()
    yield pages.cluster
    member.close(autocommit=False)


def test_groups_have_their_lag_and_a_group_its_members(cluster: LocalCluster, pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}groups")
    rows = page.get_by_role("row").filter(has=page.get_by_role("rowheader"))
    expect(rows.get_by_role("rowheader")).to_have_text(["billing", "mail/er"])
    expect(rows.first).to_contain_text(re.compile(r"✓ Stable\s*classic\s*1\s*\d\s*290 records"))
    page.get_by_label("Reads the topic").fill("clicks")
    expect(rows.get_by_role("rowheader")).to_have_text(["mail/er"])
    expect(page.get_by_text("1 group with offsets in clicks")).to_be_visible()
    page.get_by_role("link", name="mail/er").click()
    expect(page.get_by_text("No member: nobody reads with this group now.")).to_be_visible()
    page.goto(f"{pages.url}groups/billing")
    expect(page.get_by_role("table", name="Members")).to_contain_text("client-of-billing")
    expect(page.get_by_role("table", name="Members")).to_contain_text("orders: 0, 1, 2")
    lags = page.get_by_role("table", name="Committed offsets and lag").get_by_role("row").filter(has_text="orders-")
    expect(lags).to_have_count(PARTITIONS)
    assert page.url.endswith("/groups/billing")


def test_groups_are_filtered_and_sorted_by_the_url(cluster: LocalCluster, pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}groups?internal=1&sort=-members")
    names = page.get_by_role("rowheader")
    expect(names).to_have_text(["billing", "__own", "mail/er"])
    page.get_by_label("Name contains").fill("no such")
    expect(page.get_by_text("No group matches.")).to_be_visible()
    assert page.url.endswith("groups?internal=1&sort=-members&q=no+such")


def test_a_broker_that_hangs_is_named_and_its_lag_is_unknown(
    cluster: LocalCluster, pages: Pages, browser_page: BrowserPages
) -> None:
    page = browser_page()
    page.goto(f"{pages.url}groups/billing")
    coordinator = page.locator("dd").filter(has_text=re.compile(r"^broker \d$"))
    expect(coordinator).to_be_visible()
    own = int(coordinator.inner_text().removeprefix("broker "))
    other = next(each for each in cluster.broker_ids if each != own)
    give(cluster.directory, Order("pause", ((f"broker-{other}",),)))
    try:
        expect(page.get_by_role("alert").filter(has_text=f"broker {other} does not answer")).to_be_visible(timeout=60_000)
        reasons = page.get_by_role("cell", name=re.compile(f"broker {other} leads and does not answer"))
        expect(reasons).to_have_count(1)
    finally:
        give(cluster.directory, Order("heal"))
    expect(page.get_by_role("alert").filter(has_text="does not answer")).to_have_count(0)


def test_a_group_that_nobody_has_is_said(cluster: LocalCluster, pages: Pages, browser_page: BrowserPages) -> None:
    browser_page.expect_console("status of 404")
    page = browser_page()
    page.goto(f"{pages.url}groups/nobody")
    expect(page.get_by_role("heading", name="There is no group nobody")).to_be_visible()
    expect(page.get_by_role("heading", level=2)).to_have_count(1)
    page.get_by_role("link", name="All groups").click()
    expect(page.get_by_role("region", name="Consumer groups")).to_be_visible()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["groups", "groups/billing"])
def test_the_pages_are_accessible_and_fit_a_phone(
    cluster: LocalCluster, pages: Pages, browser_page: BrowserPages, color_scheme: Literal["light", "dark"], path: str
) -> None:
    open_accessible(browser_page, f"{pages.url}{path}", color_scheme, "records")
