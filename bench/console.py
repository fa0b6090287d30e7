"""The console beside a cluster with many partitions: first paint in Chromium, changes on a page, and what watching costs.

Three controllers, four brokers and the console are processes of their own; the browser is the machine's Chromium.

- paint: from the start of the navigation until a page shows rows of the cluster, with an empty cache.
- change: from the answer to a write until an open page got it, and until the page shows its offset, under load.
- processor: of the console, with open streams and without, with that load and without. *Sent* is what the console sends to the
  cluster without pages, once its last long poll has ended.
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

from .large_metadata import stat_of
from .measure import NoResult, Report, measurement, percentile, table

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PARTITIONS, TOPICS = 10_000, 10
STREAMS, WRITERS, PER_SECOND = 50, 4, 100.0
REST_S = 20.0
SHOWN = "#main [data-row], #main tbody tr"
PAGES = ("quorum", "brokers", "topics")
PAINTED = """selector => new Promise((done) => {
  const look = () => requestAnimationFrame(document.querySelector(selector) ? () => done(performance.now()) : look);
  look();
})"""
WATCH = """async () => {
  const { app } = await import(document.querySelector("script[type=module]").src);
  const live = document.getElementById("live");
  window.seen = [[], []];
  app.onChange = (change) => window.seen[0].push([Date.now(), change.offset ?? 0]);
  new MutationObserver(() => {
    const found = live.textContent.replaceAll("\\u202f", "").match(/offset (\\d+)/);
    if (found) window.seen[1].push([Date.now(), Number(found[1])]);
  }).observe(live, { childList: true, characterData: true, subtree: true });
}"""
Milliseconds = list[float]
Offsets = list[tuple[float, int]]  # times in ms since 1970, and the offset that was seen then


class ConsoleResult(msgspec.Struct, frozen=True):
    """Times in ms. `shares`: of one processor, by the number of streams and "loaded" or "idle"."""

    partitions: int
    paint_ms: dict[str, Milliseconds]
    changes_per_second: float
    arrived_ms: Milliseconds
    shown_ms: Milliseconds
    sent_bytes: int
    shares: dict[str, float]
    assets_bytes: int


class Writers:
    """Clients that change metadata inside the `with` block. `answered`: when, and the offset."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        self.answered: Offsets = []

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        with self._cluster.admin() as admin:
            name = f"load-{number}-{time.time_ns()}"
            admin.create_topics([pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
            for turn in itertools.count():
                change = pb.AlterableConfig(name="retention.ms", value=str(1000 + turn))
                resource = pb.AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configs=[change])
                began = time.monotonic()
                offset = admin.incremental_alter_configs([resource]).header.metadata_offset
                self.answered.append((time.time() * 1000, offset))
                if self._stopping.wait(max(0.0, began + WRITERS / PER_SECOND - time.monotonic())):
                    return


@contextmanager
def open_streams(url: str, count: int) -> Iterator[None]:
    """Read streams of events inside the `with` block, as pages do."""
    at = urlsplit(url)

    def read(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((at.hostname or "", at.port or 80)))
            connection.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode())
            thread = threading.Thread(target=read, args=(connection,), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(connection.shutdown, socket.SHUT_RDWR)
        yield


def console_of_this_process() -> int:
    """Return the process id of the console that this process has started."""
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return next(int(pid) for pid in children if b"--until-eof" in Path(f"/proc/{pid}/cmdline").read_bytes())


def share(pid: int, seconds: float) -> float:
    """Return the share of a processor that a process uses in the next seconds."""
    ticks, began = sum(map(int, stat_of(pid)[11:13])), time.monotonic()
    time.sleep(seconds)
    return (sum(map(int, stat_of(pid)[11:13])) - ticks) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


def sent_by(pid: int) -> int:
    """Return the bytes that the open connections of a process have sent."""
    text = subprocess.run(["ss", "-tinpHO"], capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(rf"pid={pid},.*bytes_sent:(\d+)", text)))


def paint(browser: Browser, url: str) -> float:
    """Return the time of a first paint, in a browser context of its own, so that nothing is cached."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(url, wait_until="commit")
        return float(page.evaluate(PAINTED, SHOWN))


def changes(browser: Browser, url: str, writers: Writers, seconds: float) -> tuple[Milliseconds, Milliseconds]:
    """Return the times from the answers to writes until a page got them, and until the page shows them."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{url}quorum")
        page.locator("#main tbody tr").first.wait_for()
        page.evaluate(WATCH)
        with writers:
            page.wait_for_timeout(1000 * seconds)
        page.wait_for_timeout(3000)
        arrived, shown = page.evaluate("() => window.seen")
    return since(writers.answered, arrived), since(writers.answered, shown)


def since(answered: Offsets, seen: Offsets) -> Milliseconds:
    """Return, for each answer, the time until its offset or a later one was seen."""
    whens = [next((time_ms - at for time_ms, end in seen if end >= offset), None) for at, offset in answered]
    if None in whens:
        raise NoResult("some changes were never seen on the page")
    return [max(0.0, when) for when in whens if when is not None]


def measure(partitions: int, runs: int, seconds: float) -> ConsoleResult:
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftlab-bench-")))
        cluster = stack.enter_context(LocalCluster(directory / "lab", 3, 4, 2))
        with cluster.admin(timeout_ms=120_000) as admin:
            for name in map(str, range(TOPICS)):
                admin.create_topics([pb.CreatableTopic(name=name, num_partitions=partitions // TOPICS, replication_factor=1)])
        url = stack.enter_context(pages_of(cluster.directory, 0, allow_chaos=False))
        pid = console_of_this_process()
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = stack.enter_context(sync_playwright()).chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        stack.callback(browser.close)
        painted = {name: [paint(browser, f"{url}{name}") for _ in range(runs)] for name in PAGES}
        writers = Writers(cluster)
        arrived, shown = changes(browser, url, writers, seconds)
        time.sleep(REST_S)
        sent = sent_by(pid)
        shares = {"0 idle": share(pid, seconds)}
        sent = sent_by(pid) - sent
        for count, load in itertools.product((1, STREAMS), ("idle", "loaded")):
            with ExitStack() as block:
                block.enter_context(open_streams(url, count))
                if load == "loaded":
                    block.enter_context(Writers(cluster))
                shares[f"{count} {load}"] = share(pid, seconds)
    size = sum(map(len, Assets().compressed.values()))
    return ConsoleResult(partitions, painted, len(writers.answered) / seconds, arrived, shown, sent, shares, size)


def render(result: ConsoleResult) -> str:
    rows = [["", "", f"{result.partitions:,} partitions", "aim"]]
    rows += [[f"first paint of /{name}", "", f"{percentile(found, 50):.0f} ms", "1 s"] for name, found in result.paint_ms.items()]
    for what, found in ((f"{result.changes_per_second:.0f} changes/s: got", result.arrived_ms), ("… shown", result.shown_ms)):
        rows.append([what, "", f"{percentile(found, 50):.0f} ms, p99 {percentile(found, 99):.0f} ms", "300 ms"])
    aims = {"0 idle": "1 %", f"{STREAMS} idle": "5 %"}
    rows += [[f"processor, streams: {name}", "", f"{part:.1%}", aims.get(name, "")] for name, part in result.shares.items()]
    rows.append(["sent to the cluster without pages", "", f"{result.sent_bytes} bytes", "0"])
    rows.append(["scripts and styles", "", f"{result.assets_bytes / 1000:.1f} kB", "120 kB"])
    return f"{table(rows)}\n\nload of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


@measurement("console", __doc__, quick="1,000 partitions, and seconds instead of minutes.")
@click.option("--partitions", type=int, help=f"Number of partitions (default {PARTITIONS:,}).")
def main(quick: bool, partitions: int | None) -> Report:
    count, runs, seconds = (1000, 2, 4.0) if quick else (PARTITIONS, 5, 20.0)
    result = measure(partitions or count, runs, seconds)
    return Report([{"console": result}], render(result))
