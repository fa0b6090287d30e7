"""/metrics of one broker with many partitions: time and size of a scrape, the wait of other clients, the price of the listener.

One controller and one broker, as processes of their own. A client on a connection of its own asks for the versions of the API, a
request that only needs a turn of the event loop, once a millisecond: without scrapes, and while one follows the other. *start* is
the time from no process to a broker that is ready, with all those partitions.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.lab import LocalCluster

from .large_metadata import memory_mib, stat_of
from .measure import NoResult, Report, measurement, percentile, table

PARTITIONS, PARTITIONS_PER_TOPIC, TOPICS_AT_ONCE = 10_000, 1000, 5
BROKER = 0
READY_WITHIN_S = 120.0
SCRAPE_INTERVAL_S = 15.0
PING_INTERVAL_S = 0.001
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READY = " ready: "
Milliseconds = list[float]


class MetricsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms of each scrape and each answer. `share`: of one processor that the broker uses. Memory is MiB."""

    partitions: int
    text_bytes: int
    first_scrape_ms: float
    scrape_ms: Milliseconds
    scrape_processor_ms: float
    """Processor time of the broker for one scrape, the first one not counted."""
    gzip_scrape_ms: Milliseconds
    answer_ms: Milliseconds
    """Answers to the other client, without scrapes; `scraped_answer_ms`: with them."""
    scraped_answer_ms: Milliseconds
    share: float
    scraped_share: float
    memory_mib: float
    scraped_memory_mib: float
    start_s: list[float]
    """With the METRICS listener; `bare_start_s`: without."""
    bare_start_s: list[float]


def measure(partitions: int, scrapes: int, seconds: float, starts: int) -> MetricsResult:
    # This process's own threads must not wait for each other.
    sys.setswitchinterval(0.0005)
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory, LocalCluster(directory, 1, 1, 1) as cluster:
        with cluster.admin(timeout_ms=120_000) as admin:
            create(admin, partitions)
        node = cluster.node(BROKER)
        url, pid = f"http://{node.metrics}/metrics", cluster.pid(BROKER)
        assert node.kafka is not None and pid is not None
        wait_for(f"http://{node.metrics}/readyz")
        time.sleep(2)
        memory = memory_mib("VmRSS", pid)
        first_ms, text = scrape(url)
        if text.count(b"\nkafka_log_log_size{") <= partitions:
            raise NoResult(f"the first scrape has {text.count(b'kafka_log_log_size{')} logs instead of {partitions}")
        answers = Answers(node.kafka.port)
        answers.collect(lambda: time.sleep(scrapes * 0.1))
        alone_ms = answers.times_ms
        times: list[Milliseconds] = [[], []]
        answers = Answers(node.kafka.port)
        answers.collect(lambda: times[0].extend(scrape(url)[0] for _ in range(scrapes)))
        before = _ticks(pid)
        began = time.monotonic()
        for _ in range(scrapes):
            scrape(url)
        scrape_s = (_ticks(pid) - before) / TICKS_PER_S, time.monotonic() - began
        times[1].extend(scrape(url, gzip=True)[0] for _ in range(scrapes))
        share = processor_share(pid, seconds)
        scraped_share = processor_share(pid, seconds, url)
        scraped_memory = memory_mib("VmRSS", pid)
        cluster.stop_node(BROKER)
        with_listener, bare = start_times(cluster, Path(directory), starts)
        return MetricsResult(
            partitions=partitions,
            text_bytes=len(text),
            first_scrape_ms=first_ms,
            scrape_ms=times[0],
            scrape_processor_ms=(scrape_s[0] - share * scrape_s[1]) / scrapes * 1000,
            gzip_scrape_ms=times[1],
            answer_ms=alone_ms,
            scraped_answer_ms=answers.times_ms,
            share=share,
            scraped_share=scraped_share,
            memory_mib=memory,
            scraped_memory_mib=scraped_memory,
            start_s=with_listener,
            bare_start_s=bare,
        )


def create(admin: AdminClient, partitions: int) -> None:
    sizes = [PARTITIONS_PER_TOPIC] * (partitions // PARTITIONS_PER_TOPIC) + [partitions % PARTITIONS_PER_TOPIC]
    topics = [
        pb.CreatableTopic(name=f"t{at}", num_partitions=size, replication_factor=1) for at, size in enumerate(sizes) if size
    ]
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        admin.create_topics(topics[first : first + TOPICS_AT_ONCE])


def scrape(url: str, *, gzip: bool = False) -> tuple[float, bytes]:
    """Return the milliseconds of one scrape, and its bytes."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"} if gzip else {})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = answer.read()
    return (time.perf_counter() - began) * 1000, body


def wait_for(url: str) -> None:
    """Wait until a page answers with 200. NoResult."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=60).close()
            return
        except OSError:
            time.sleep(0.1)
    raise NoResult(f"{url} is not ready after {READY_WITHIN_S:g} s")


class Answers:
    """Times of the answers to a client that asks all the time."""

    def __init__(self, port: int) -> None:
        self.times_ms: Milliseconds = []
        self._client = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ended = threading.Event()

    def collect(self, meanwhile: Callable[[], None]) -> None:
        """Ask while `meanwhile` runs."""
        asking = threading.Thread(target=self._ask)
        asking.start()
        try:
            meanwhile()
        finally:
            self._ended.set()
            asking.join()
            self._client.close()

    def _ask(self) -> None:
        while not self._ended.is_set():
            began = time.perf_counter()
            self._client.sendall(API_VERSIONS)
            (left,) = struct.unpack(">i", self._client.recv(4, socket.MSG_WAITALL))
            self._client.recv(left, socket.MSG_WAITALL)
            self.times_ms.append((time.perf_counter() - began) * 1000)
            time.sleep(PING_INTERVAL_S)


def processor_share(pid: int, seconds: float, url: str | None = None) -> float:
    """Return the share of a processor that a process uses for so long, with a scrape each SCRAPE_INTERVAL_S if there is a URL."""
    before, began = _ticks(pid), time.monotonic()
    for _ in range(max(1, math.ceil(seconds / SCRAPE_INTERVAL_S))):
        if url is not None:
            scrape(url)
        time.sleep(min(seconds, SCRAPE_INTERVAL_S))
    return (_ticks(pid) - before) / TICKS_PER_S / (time.monotonic() - began)


def _ticks(pid: int) -> int:
    return sum(int(ticks) for ticks in stat_of(pid)[11:13])


def start_times(cluster: LocalCluster, directory: Path, starts: int) -> tuple[list[float], list[float]]:
    """Start the broker with and without its METRICS listener, in turn; return the seconds of both."""
    home = directory / cluster.node(BROKER).name
    original = (home / "server.properties").read_text()
    listener = f",METRICS\\://{str(cluster.node(BROKER).metrics).replace(':', chr(92) + ':')}"
    if listener not in original:
        raise NoResult(f"{home} has no {listener} to leave out")
    found: tuple[list[float], list[float]] = [], []
    for _ in range(starts):
        for text, seconds in ((original, found[0]), (original.replace(listener, ""), found[1])):
            (home / "bench.properties").write_text(text)
            seconds.append(_start(home / "bench.properties"))
    return found


def _start(properties: Path) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "kraftlab.cli.main", "broker", "--config", str(properties)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        for line in broker.stderr:
            if READY in line:
                seconds = time.perf_counter() - began
                broker.send_signal(signal.SIGTERM)
                broker.stderr.read()
                return seconds
    raise NoResult(f"the broker of {properties} ended before it was ready")


def render(result: MetricsResult) -> str:
    rows = [
        [f"{result.partitions:,} partitions, {result.text_bytes / 1e6:.1f} MB of text", "times", "min", "median", "p99", "max"]
    ]
    for name, values, unit in (
        ("first scrape", [result.first_scrape_ms], "ms"),
        ("scrape", result.scrape_ms, "ms"),
        ("scrape with gzip", result.gzip_scrape_ms, "ms"),
        ("answer to another client, without scrapes", result.answer_ms, "ms"),
        ("answer to another client, during scrapes", result.scraped_answer_ms, "ms"),
        ("start of the broker", result.start_s, "s"),
        ("start of the broker, without the listener", result.bare_start_s, "s"),
    ):
        rows.append([name, str(len(values)), *(f"{percentile(values, at):.2f} {unit}" for at in (0, 50, 99, 100))])
    share = f"idle: {result.share:.1%} of a processor, {result.memory_mib:.0f} MiB"
    scraped = f"with a scrape each {SCRAPE_INTERVAL_S:g} s: {result.scraped_share:.1%}, {result.scraped_memory_mib:.0f} MiB"
    processor = f"processor time of a scrape: {result.scrape_processor_ms:.0f} ms"
    return f"{table(rows)}\n{processor}; {share}; {scraped}"


@measurement("metrics", __doc__, quick="1,000 partitions, few of each.")
@click.option("--partitions", type=int, help=f"Number of partitions (default {PARTITIONS:,}).")
def main(quick: bool, partitions: int | None) -> Report:
    scrapes, seconds, starts = (5, 2.0, 1) if quick else (50, 30.0, 3)
    result = measure(partitions or (1000 if quick else PARTITIONS), scrapes, seconds, starts)
    return Report([{"metrics": result}], render(result))
