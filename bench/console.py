"""The console beside a cluster with many partitions: first paint in Chromium, changes on a page, and what watching costs.

Three controllers, four brokers and the console are processes of their own; the browser is the machine's Chromium.

- paint: from the start of the navigation until a page shows facts or rows of the cluster, with an empty cache.
- change: from the answer to a write until an open page got the offset, and until the page shows the offset, while clients alter
  configs and create topics. A page draws at its next frame.
- cost: processor time of the console without pages, and with many open streams, with the same load and without. Without pages,
  `asked_bytes` counts what the console sends to the cluster.
- assets: bytes of all scripts and styles together, as they are sent.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.web.child import pages_of
from kraftlab.config.resources import ResourceType
from kraftlab.console.app import Assets
from kraftlab.lab import LocalCluster

from .large_cluster import batched
from .large_metadata import stat_of
from .measure import NoResult, Report, measurement, percentile, table

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PARTITIONS, PER_TOPIC = 10_000, 1000
STREAMS, WRITERS = 50, 4
REST_S = 4.0
"""Time after the last page until nothing is asked any more, and more."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHOWN = {"quorum": "#main tbody tr", "brokers": "#main [data-row], #main tbody tr", "topics": "#main [data-row], #main tbody tr"}
PAINTED = """selector => new Promise((done) => {
  const look = () => requestAnimationFrame(document.querySelector(selector) ? () => done(performance.now()) : look);
  look();
})"""
WATCH = """async () => {
  const { app } = await import(document.querySelector("script[type=module]").src);
  const live = document.getElementById("live");
  window.seen = { arrived: [], shown: [] };
  app.onChange = (change) => window.seen.arrived.push([Date.now(), change.offset ?? 0]);
  new MutationObserver(() => {
    const found = live.textContent.replaceAll("\\u202f", "").match(/offset (\\d+)/);
    if (found) window.seen.shown.push([Date.now(), Number(found[1])]);
  }).observe(live, { childList: true, characterData: true, subtree: true });
}"""
Milliseconds = list[float]
Offsets = list[tuple[float, int]]
"""Times in ms since 1970, and the offset that was seen then."""


class ConsoleResult(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms, and shares of one processor that the console uses."""

    partitions: int
    paint_ms: dict[str, Milliseconds]
    writes_per_second: float
    arrived_ms: Milliseconds
    shown_ms: Milliseconds
    idle_share: float
    asked_bytes: int
    page_share: float
    """With one stream and no load."""
    streams: int
    streams_share: float
    loaded_share: float
    """With one stream under load; `loaded_streams_share`: with all streams under load."""
    loaded_streams_share: float
    assets_bytes: int


class Writers:
    """Clients that change metadata inside the `with` block, `per_second` times together. `answered`: when, and the offset."""

    def __init__(self, cluster: LocalCluster, per_second: float) -> None:
        self._cluster = cluster
        self._interval_s = WRITERS / per_second
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        self.answered: Offsets = []

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        with self._cluster.admin() as admin:
            name = ""
            due = time.monotonic()
            for turn in itertools.count():
                if turn % 20 == 0:
                    name = f"load-{number}-{time.time_ns()}"
                    wanted = pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    header = admin.create_topics([wanted]).header
                else:
                    change = pb.AlterableConfig(name="retention.ms", value=str(1000 + turn), config_operation=0)
                    resource = pb.AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configs=[change])
                    header = admin.incremental_alter_configs([resource]).header
                self.answered.append((time.time() * 1000, header.metadata_offset))
                due = max(due + self._interval_s, time.monotonic() - self._interval_s)
                if self._stopping.wait(max(0.0, due - time.monotonic())):
                    return


@contextmanager
def open_streams(url: str, count: int) -> Iterator[None]:
    """Read streams of events inside the `with` block, as pages do."""
    at = urlsplit(url)
    request = f"GET /api/v1/events HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode()

    def read(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((at.hostname or "", at.port or 80)))
            connection.sendall(request)
            thread = threading.Thread(target=read, args=(connection,), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(connection.shutdown, socket.SHUT_RDWR)
        yield


def child_of_this_process(words: bytes) -> int:
    """Return the id of the child whose command line has the words."""
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            if words in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise NoResult("the console is not a child of this process")


def share(pid: int, seconds: float) -> float:
    """Return the share of a processor that a process uses in the next seconds."""
    ticks, began = sum(map(int, stat_of(pid)[11:13])), time.monotonic()
    time.sleep(seconds)
    return (sum(map(int, stat_of(pid)[11:13])) - ticks) / TICKS_PER_S / (time.monotonic() - began)


def sent_bytes(pid: int) -> int:
    """Return the bytes that the open connections of a process have sent."""
    lines = subprocess.run(["ss", "-tinpHO"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(int(found[1]) for line in lines if f"pid={pid}," in line and (found := re.search(r"bytes_sent:(\d+)", line)))


def paint(browser: Browser, url: str, page_name: str, runs: int) -> Milliseconds:
    """Return the times of first paints, each in a browser context of its own, so that nothing is cached."""
    found = []
    for _ in range(runs):
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(f"{url}{page_name}", wait_until="commit")
            found.append(float(page.evaluate(PAINTED, SHOWN[page_name])))
    return found


def changes(browser: Browser, url: str, writers: Writers, seconds: float) -> tuple[Milliseconds, Milliseconds]:
    """Return the times from the answers to writes until a page got them, and until the page shows them."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{url}quorum")
        page.locator("#main tbody tr").first.wait_for()
        page.evaluate(WATCH)
        with writers:
            page.wait_for_timeout(1000 * seconds)
        page.wait_for_timeout(2000)
        seen: dict[str, Offsets] = page.evaluate("() => window.seen")
    answered = writers.answered[len(writers.answered) // 10 :]
    return (since(answered, seen["arrived"]), since(answered, seen["shown"]))


def since(answered: Offsets, seen: Offsets) -> Milliseconds:
    """Return, for each answer, the time until its offset or a later one was seen."""
    found = []
    for at, offset in answered:
        when = next((time_ms for time_ms, end in seen if end >= offset), None)
        if when is None:
            raise NoResult(f"offset {offset} was never seen on the page")
        found.append(max(0.0, when - at))
    return found


def measure(partitions: int, runs: int, seconds: float, per_second: float) -> ConsoleResult:
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftlab-bench-")))
        cluster = stack.enter_context(LocalCluster(directory / "lab", 3, 4, 2))
        with cluster.admin(timeout_ms=120_000) as admin:
            names = (f"topic-{number}" for number in range(-(-partitions // PER_TOPIC)))
            sizes = pb.CreatableTopic(num_partitions=min(PER_TOPIC, partitions), replication_factor=1)
            for some in batched((pb.CreatableTopic(name=name) for name in names), 5):
                for each in some:
                    each.MergeFrom(sizes)
                admin.create_topics(some)
        url = stack.enter_context(pages_of(cluster.directory, 0, allow_chaos=False))
        pid = child_of_this_process(b"--until-eof")
        browser = stack.enter_context(sync_playwright()).chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        stack.callback(browser.close)
        there = [name for name in SHOWN if f"{name}.js" in Assets().plain]
        painted = {name: paint(browser, url, name, runs) for name in there}
        writers = Writers(cluster, per_second)
        arrived, shown = changes(browser, url, writers, seconds)
        time.sleep(REST_S)
        before = sent_bytes(pid)
        idle = share(pid, seconds)
        asked = sent_bytes(pid) - before
        shares = {}
        for count, is_loaded in itertools.product((1, STREAMS), (False, True)):
            with ExitStack() as load, open_streams(url, count):
                if is_loaded:
                    load.enter_context(Writers(cluster, per_second))
                time.sleep(2)
                shares[count, is_loaded] = share(pid, seconds)
    return ConsoleResult(
        partitions=partitions,
        paint_ms=painted,
        writes_per_second=len(writers.answered) / seconds,
        arrived_ms=arrived,
        shown_ms=shown,
        idle_share=idle,
        asked_bytes=asked,
        page_share=shares[1, False],
        streams=STREAMS,
        streams_share=shares[STREAMS, False],
        loaded_share=shares[1, True],
        loaded_streams_share=shares[STREAMS, True],
        assets_bytes=sum(map(len, Assets().compressed.values())),
    )


def render(result: ConsoleResult) -> str:
    def times(values: Milliseconds) -> str:
        return f"{percentile(values, 50):.0f} ms, p99 {percentile(values, 99):.0f} ms"

    count, load = result.streams, f"{result.writes_per_second:.0f} changes/s"
    rows = [
        ("", "", f"{result.partitions:,} partitions", "aim"),
        *((f"first paint of /{name}", "", f"{percentile(found, 50):.0f} ms", "1 s") for name, found in result.paint_ms.items()),
        (f"change → page has it, {load}", "", times(result.arrived_ms), ""),
        (f"change → page shows it, {load}", "", times(result.shown_ms), "300 ms"),
        ("processor without pages", "", f"{result.idle_share:.2%}", "1 %"),
        ("sent to the cluster without pages", "", f"{result.asked_bytes} bytes", "0"),
        ("processor with 1 page", "", f"{result.page_share:.1%}", ""),
        (f"processor with {count} pages", "", f"{result.streams_share:.1%}", "5 %"),
        (f"processor with 1 page, {load}", "", f"{result.loaded_share:.1%}", ""),
        (f"processor with {count} pages, {load}", "", f"{result.loaded_streams_share:.1%}", ""),
        ("scripts and styles", "", f"{result.assets_bytes / 1000:.1f} kB", "120 kB"),
    ]
    return f"{table(rows)}\n\nload of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


@measurement("console", __doc__, quick="1,000 partitions, and seconds instead of minutes.")
@click.option("--partitions", type=int, help=f"Number of partitions (default {PARTITIONS:,}).")
@click.option("--per-second", type=float, default=100.0, show_default=True, help="Changes of metadata per second.")
def main(quick: bool, partitions: int | None, per_second: float) -> Report:
    if CHROMIUM is None:
        raise NoResult("no chromium, chromium-browser or google-chrome on the path")
    count, runs, seconds = (1000, 2, 4.0) if quick else (PARTITIONS, 5, 20.0)
    result = measure(partitions or count, runs, seconds, per_second)
    return Report([{"console": result}], render(result))
