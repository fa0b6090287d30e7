"""Pages through faults: of the cluster, of the console, of a login; with odd names, many tabs, https, and the Kafka protocol."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.certificates.folder import throw_away
from kraftlab.lab import LocalCluster

from .conftest import BrowserPages, Pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = [pytest.mark.cluster, pytest.mark.console]
CLUSTER = (3, 2, 1)
GONE = r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE"
HOSTILE = "<img src=x onerror=alert(1)>"
ODD_NAMES = ("__proto__", "constructor", "toString", "...", "-", "_a.b-c", "a" * 249)
SLOW_MS = 60_000
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
RECORD_LEADERS = """() => {
  const cell = [...document.querySelectorAll("#main dt")].find((each) => each.textContent === "leader").nextElementSibling;
  window.leaders = [cell.textContent];
  new MutationObserver(() => window.leaders.push(cell.textContent))
    .observe(cell, { childList: true, characterData: true, subtree: true });
}"""


class Console(NamedTuple):
    """A console's process, and its URL with a slash at the end."""

    process: subprocess.Popen[bytes]
    url: str


@contextmanager
def console(*options: str, at: str = "127.0.0.1:0") -> Iterator[Console]:
    """Serve a console inside the `with` block, in a process that the test may kill."""
    command = [sys.executable, "-m", "kraftlab.cli.main", "console", "--listen", at, "--until-eof", "--json", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Console(process, json.loads(process.stdout.readline())["url"])
        finally:
            process.stdin.close()


def data_of(pages: Pages) -> tuple[str, str]:
    return "--data", str(pages.cluster.directory)


def at(url: str) -> str:
    return url.split("/")[2]


def transfer_leadership(cluster: LocalCluster) -> int:
    """Let another controller lead; return its id."""
    with cluster.admin() as admin:
        quorum = admin.describe_quorum()
        other = next(each.replica_id for each in quorum.current_voters if each.replica_id != quorum.leader_id)
        admin.transfer_leadership(other)
    return other


def leader_of(cluster: LocalCluster) -> int | None:
    with cluster.admin() as admin:
        return admin.describe_quorum().leader_id


def is_live(page: Page) -> None:
    expect(page.locator("#live")).to_have_text(re.compile("^live, as of"), timeout=SLOW_MS)
    expect(page.locator("#banner")).to_be_hidden(timeout=SLOW_MS)


def test_a_page_outlives_its_console_and_shows_nothing_that_never_was(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    browser_page.expect_console(GONE)
    with console(*data_of(pages)) as first:
        page.goto(f"{first.url}quorum")
        is_live(page)
        before = str(leader_of(pages.cluster))
        expect(page.locator("#main dd").first).to_have_text(before)
        page.evaluate(RECORD_LEADERS)
        rows = page.locator("#main tbody tr").count()
        first.process.kill()
        expect(page.locator("#banner")).to_have_text(
            re.compile(r"Not connected to the console since [\d:]+; shown as of [\d:]+, offset [\d\u202f]+")
        )
        assert page.locator("#main tbody tr").count() == rows
    after = str(transfer_leadership(pages.cluster))
    with console(*data_of(pages), at=at(first.url)):
        is_live(page)
        expect(page.locator("#main dd").first).to_have_text(after)
        leaders = page.evaluate("() => window.leaders")
    assert leaders == [before, after]


def test_a_number_of_very_many_digits_is_refused(pages: Pages) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(f"{pages.url}api/v1/partitions/t/{'9' * 5000}/history")
    assert refusal.value.code == 400


@pytest.mark.parametrize("end", ["SIGTERM", "the parent"])
def test_a_console_with_open_streams_ends_soon_and_well(pages: Pages, end: str) -> None:
    with (
        console(*data_of(pages)) as served,
        socket.create_connection(("127.0.0.1", int(served.url.split(":")[2][:-1]))) as stream,
    ):
        stream.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert stream.recv(1 << 16).startswith(b"HTTP/1.1 200")
        if end == "SIGTERM":
            served.process.send_signal(signal.SIGTERM)
        elif served.process.stdin is not None:
            served.process.stdin.close()
        assert served.process.wait(20) == 0


def test_a_killed_leader_and_a_killed_broker_are_seen(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    page.goto(f"{pages.url}quorum")
    is_live(page)
    old = leader_of(pages.cluster)
    assert old is not None
    expect(page.locator("#main dd").first).to_have_text(str(old))
    page.evaluate(RECORD_LEADERS)
    pages.cluster.kill_node(old)
    expect(page.locator("#main dd").first).not_to_have_text(re.compile(f"^({old}|none)$"), timeout=SLOW_MS)
    new = leader_of(pages.cluster)
    assert {*page.evaluate("() => window.leaders")} - {"none"} == {str(old), str(new)}
    pages.cluster.start_node(old)
    pages.cluster.kill_node(1)
    expect(page.get_by_text("broker 1 is fenced")).to_be_visible(timeout=SLOW_MS)
    pages.cluster.start_node(1)
    expect(page.get_by_text("broker 1 is fenced")).to_be_hidden(timeout=SLOW_MS)


def test_a_hidden_page_ends_its_stream_and_asks_nothing(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    ended: list[str] = []
    asked: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    page.goto(f"{pages.url}quorum")
    is_live(page)
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(HIDE, True)
    page.wait_for_timeout(3000)
    assert (asked, [url for url in ended if url.endswith("/events")]) == ([], [f"{pages.url}api/v1/events"])
    page.evaluate(HIDE, False)
    is_live(page)
    assert f"{pages.url}api/v1/events" in asked


def test_seven_tabs_work_while_the_others_are_hidden(pages: Pages, browser_page: BrowserPages) -> None:
    """A browser has six connections for each host, and each visible page holds one."""
    first = browser_page()
    tabs = [first, *(first.context.new_page() for _ in range(6))]
    for tab in tabs:
        tab.goto(f"{pages.url}quorum")
        is_live(tab)
        tab.evaluate(HIDE, True)
    for tab in (tabs[0], tabs[-1]):
        tab.evaluate(HIDE, False)
        expect(tab.locator("#live")).to_contain_text("live, as of")


def test_names_are_text_on_every_page(pages: Pages, browser_page: BrowserPages) -> None:
    """Kafka refuses such a name, so the answers to the browser are changed on their way."""
    marker = "marked-topic"
    with pages.cluster.admin() as admin:
        admin.create_topics([pb.CreatableTopic(name=marker, num_partitions=1, replication_factor=1)])
    page = browser_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))

    def answer(route: Route) -> None:
        if route.request.url.endswith("/api/v1/events"):
            route.continue_()
            return
        found = route.fetch()
        route.fulfill(response=found, body=found.text().replace(marker, HOSTILE))

    page.route(re.compile("/api/v1/"), answer)
    shown = {}
    for name in ("topics", f"topics/{marker}", f"topics/{marker}/0", "brokers", "moves", "events", "time", "groups", "faults"):
        page.goto(f"{pages.url}{name}", wait_until="load")
        is_live(page)
        page.wait_for_timeout(500)
        assert page.locator("#main img").count() == 0, name
        shown[name] = page.locator("#main").inner_text()
    assert HOSTILE in shown["topics"]
    assert dialogs == []


def test_the_oddest_names_that_kafka_allows_have_pages(pages: Pages, browser_page: BrowserPages) -> None:
    with pages.cluster.admin() as admin:
        for name in ODD_NAMES:
            admin.create_topics([pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    page = browser_page()
    page.goto(f"{pages.url}topics?internal=1")
    for name in ODD_NAMES:
        expect(page.locator("#main").get_by_text(name, exact=True).first).to_be_attached(timeout=SLOW_MS)
    for name in ODD_NAMES:
        page.goto(f"{pages.url}topics/{name}")
        expect(page.locator("#main").get_by_text(name).first).to_be_visible(timeout=SLOW_MS)
        expect(page.get_by_text("This page failed")).to_have_count(0)


def test_a_console_that_is_read_only_shows_a_change_and_does_not_make_it(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    with console(*data_of(pages), "--read-only") as served:
        page.goto(f"{served.url}quorum")
        page.get_by_role("button", name="Snapshot").first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("started with --read-only")).to_be_visible()
        expect(dialog.get_by_role("button", name="Write it")).to_be_disabled()
        refused = page.evaluate(
            """() => fetch("/api/v1/actions/snapshot", { method: "POST", body: '{"request":{},"node":3000}',
            headers: { "content-type": "application/json", "x-kraftlab": "1" } }).then((answer) => answer.status)"""
        )
        page.close()
    browser_page.expect_console("403")
    assert refused == 403


def test_https_with_a_certificate_of_the_own_authority(pages: Pages, browser: Browser, tmp_path: Path) -> None:
    paths = throw_away(tmp_path, ["broker-0"], hosts=["127.0.0.1"])
    pem = str(paths["broker-0"])
    with console(*data_of(pages), "--certificate", pem, "--key", pem) as served:
        context = browser.new_context(ignore_https_errors=True)
        tabs = [context.new_page() for _ in range(7)]  # HTTP/2 has one connection for all
        for tab in tabs:
            tab.goto(f"{served.url}quorum")
            is_live(tab)
        context.close()
    assert served.url.startswith("https://")


def test_a_cluster_that_speaks_the_kafka_protocol_shows_what_it_can_tell(pages: Pages, browser_page: BrowserPages) -> None:
    page = browser_page()
    kafka = pages.cluster.node(0).kafka
    with console("--bootstrap-server", f"kafka://{kafka}") as served:
        for name in ("quorum", "brokers", "topics", "moves", "groups"):
            page.goto(f"{served.url}{name}")
            is_live(page)
            expect(page.get_by_text("This page failed")).to_have_count(0)
        expect(page.locator("#untold")).to_contain_text("the metadata log")
        sections = page.get_by_role("navigation", name="Pages").inner_text()
        page.close()
    assert "Time travel" not in sections
    assert "Events" not in sections


def test_a_login_that_has_ended_leads_to_the_login_and_back(
    starts_clusters: None, browser_page: BrowserPages, tmp_path: Path
) -> None:
    """A console keeps sessions in memory, so that a new process knows none."""
    page = browser_page()
    browser_page.expect_console(f"401|{GONE}")

    def log_in() -> None:
        page.get_by_label("User").fill(str(user))
        page.get_by_label("Password").fill(password)
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"/quorum\?last=60$"), timeout=SLOW_MS)
        is_live(page)

    with LocalCluster(tmp_path / "lab", 1, 1, 1, secure=True) as cluster:
        security = cluster.security
        user, password = security.user, security.password
        with console("--data", str(cluster.directory)) as first:
            page.goto(f"{first.url}quorum?last=60")
            expect(page).to_have_url(re.compile("/login"))
            log_in()
            first.process.kill()
            expect(page.locator("#banner")).to_contain_text("Not connected")
        with console("--data", str(cluster.directory), at=at(first.url)):
            expect(page).to_have_url(re.compile(r"/login\?to=%2Fquorum%3Flast%3D60"), timeout=SLOW_MS)
            log_in()
    assert user


def test_ten_thousand_partitions_are_a_window_of_rows(pages: Pages, browser_page: BrowserPages) -> None:
    with pages.cluster.admin(timeout_ms=120_000) as admin:
        for number in range(10):
            admin.create_topics([pb.CreatableTopic(name=f"large-{number}", num_partitions=1000, replication_factor=1)])
    page = browser_page()
    page.goto(f"{pages.url}topics/large-7")
    is_live(page)
    expect(page.locator("#main").get_by_text("large-7").first).to_be_visible(timeout=SLOW_MS)
    assert page.locator("#main *").count() < 5000
