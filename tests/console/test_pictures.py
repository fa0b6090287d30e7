"""The pictures of docs/console.md and README: one story on a real cluster. `make console ARGS=--pictures` writes them anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kraftlab.cli import main
from kraftlab.console.elections import TRACE
from kraftlab.lab.faults.caller import give
from kraftlab.lab.faults.orders import Order

from .conftest import BrowserPages, Pages

pytestmark = [pytest.mark.cluster, pytest.mark.console]
ROOT = Path(__file__).parents[2]
CLUSTER = (3, 4, 2)
PROPERTIES = {TRACE: "DIRECTORY/logs/{node}.ndjson"}
BYTES_MAX = 250_000


@pytest.fixture(scope="module")
def story(pages: Pages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Topics with records, a throttled plan that moves some, a transferred leadership, and an isolated leader."""
    where = ("--data", str(pages.cluster.directory))
    with pages.cluster.admin() as admin:
        for name, partitions in (("clicks", 8), ("orders", 6), ("payments", 6)):
            admin.create_topic(name, partitions=partitions, replication_factor=2, configs={"retention.ms": "-1"})
    assert main.run(["import", *where, "--directory", str(ROOT / "examples/capture/segments"), "--topic", "clicks"]) == 0
    plan = tmp_path_factory.mktemp("plan") / "plan.json"
    moves = [{"topic": "clicks", "partition": number, "replicas": [number % 2, 1 - number % 2]} for number in range(8)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    start = ("--execute", "--reassignment-json-file", str(plan), "--throttle", "2000", "--throttle-ends-with-move")
    assert main.run(["reassign-partitions", *where, *start, "--plan-id", "friday", "--reason", "two brokers retire"]) == 0
    yield pages
    assert main.run(["reassign-partitions", *where, "--cancel", "--all"]) == 0


def take(page: Page, name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Take a picture of what a reader sees without scrolling."""
    folder = ROOT / "docs" / "console" if request.config.getoption("--pictures") else tmp_path
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.png"
    page.screenshot(path=path)
    assert 20_000 < path.stat().st_size < BYTES_MAX
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_an_election_in_lanes(story: Pages, browser_page: BrowserPages, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    page = browser_page(width=1280, height=860, color_scheme="dark")
    page.goto(f"{story.url}quorum?last=60")
    lanes = page.get_by_role("img", name=re.compile("^Now: "))
    expect(lanes).to_have_attribute("aria-label", re.compile("leads in epoch"))
    page.wait_for_timeout(8000)  # some of the past, for the picture alone
    give(story.cluster.directory, Order("isolate", (("leader",),), for_ms=5000, drop=True))
    expect(lanes).to_have_attribute("aria-label", re.compile("isolate"))
    expect(lanes).not_to_have_attribute("aria-label", re.compile("isolate"))
    page.wait_for_timeout(4000)
    take(page, "quorum", request, tmp_path)


def test_its_messages(story: Pages, browser_page: BrowserPages, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with story.cluster.admin() as admin:
        epoch = admin.describe_quorum().leader_epoch
    page = browser_page(width=1280, height=860, color_scheme="light")
    page.goto(f"{story.url}quorum?election={epoch}")
    expect(page.locator("#election").get_by_role("img")).to_be_visible()
    page.locator("#election").evaluate("each => scrollTo(0, each.getBoundingClientRect().top + scrollY - 110)")
    take(page, "election", request, tmp_path)


@pytest.mark.parametrize(
    ("name", "path", "text", "scheme"),
    [
        ("moves", "moves", "two brokers retire", "light"),
        ("brokers", "brokers", "Broker 3", "light"),
        ("partition", "topics/clicks/3", "topic clicks is created", "light"),
        ("time", "time?at=30&to=now", "topics", "light"),
        ("events", "events", "plan friday", "dark"),
        ("faults", "faults", "controller-3000", "dark"),
        ("sim", "sim?seed=195&faults=partition,isolate,broken-link&step=633", "Space and time", "light"),
    ],
)
def test_a_page(
    name: str,
    path: str,
    text: str,
    scheme: str,
    story: Pages,
    browser_page: BrowserPages,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    page = browser_page(width=1280, height=1560 if name == "sim" else 860, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{story.url}{path}")
    expect(page.locator("#main").get_by_text(text).first).to_be_visible()
    page.wait_for_timeout(2500)  # numbers that come a moment later, for the picture alone
    take(page, name, request, tmp_path)
