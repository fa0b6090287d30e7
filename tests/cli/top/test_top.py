"""`kraftlab top`: its numbers by hand-made looks, its page on terminals of all sizes, and the live page in a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from io import StringIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kraftlab.cli import main
from kraftlab.cli.top.look import BrokerRow, Look, MoveRow, Overview, overview
from kraftlab.cli.top.page import Page, shares
from kraftlab.client.results import AllLogDirs, BrokerLogDirs, Cluster, LogDir, LogDirReplica, Partition, Topic
from kraftlab.lab import LocalCluster


def partition(index: int, leader: int, replicas: tuple[int, ...]) -> Partition:
    none: tuple[int, ...] = ()
    return Partition(index, leader, 0, replicas, replicas, none, none, none, none, none, none, none, 0, ())


def replica(topic: str, index: int, size: int, end_offset: int) -> LogDirReplica:
    return LogDirReplica(topic, index, size, 0, False, None, None, None, "", end_offset, "")


def seen(at_s: float, *replicas: LogDirReplica, second: tuple[LogDirReplica, ...] = ()) -> Look:
    """A look at two brokers with a log directory each."""

    def broker(broker_id: int, found: tuple[LogDirReplica, ...]) -> BrokerLogDirs:
        directory = LogDir(f"/data/broker-{broker_id}/d0", "x", 0, False, 100, 40, (), "", (), found)
        return BrokerLogDirs(broker_id, (directory,), None)

    topics = (Topic("t", "id", False, (partition(0, 0, (0, 1)),), ()),)
    dirs = AllLogDirs({0: broker(0, replicas), 1: broker(1, second)}, {})
    return Look(at_s, 0, Cluster("c", 3000, (), (), 1), None, topics, dirs)


def test_rates_are_those_of_the_logs_without_replicas() -> None:
    before = seen(10.0, replica("t", 0, 1000, 5), second=(replica("t", 0, 900, 4),))
    now = seen(12.0, replica("t", 0, 3000, 25), second=(replica("t", 0, 3000, 25),))
    [row] = overview(now, before).topics
    assert (row.size_bytes, row.bytes_per_second, row.records_per_second) == (3000, 1000.0, 10.0)
    [row] = overview(now, None).topics
    assert (row.bytes_per_second, row.records_per_second) == (None, None)


def test_what_retention_takes_away_is_no_negative_rate_and_a_new_partition_no_growth() -> None:
    before = seen(10.0, replica("t", 0, 1000, 5))
    now = seen(11.0, replica("t", 0, 10, 5), replica("t", 1, 5000, 7))
    [row] = overview(now, before).topics
    assert (row.bytes_per_second, row.records_per_second) == (0.0, 0.0)


def test_a_cluster_that_does_not_answer_is_a_page_too() -> None:
    found = overview(Look(1.0, 0, faults=("no controller answers",)), None)
    assert "no answer" in drawn(found, 80, 24)
    assert "no controller answers" in drawn(found, 80, 24)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), st.integers(-5, 100))
def test_lines_are_divided_among_parts(wanted: list[int], lines: int) -> None:
    given_ = shares(wanted, lines)
    assert all(0 <= has <= want for has, want in zip(given_, wanted, strict=True))
    assert all(has >= min(want, 2) for has, want in zip(given_, wanted, strict=True))
    if sum(wanted) <= lines:
        assert given_ == wanted
    else:
        assert sum(given_) <= max(lines, sum(min(want, 2) for want in wanted))


def drawn(found: Overview, width: int, height: int, sort: str = "rate") -> str:
    out = StringIO()
    Console(file=out, width=width, height=height, highlight=False).print(Page(found, height, sort, 2.0).render())
    return out.getvalue()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 24)])
def test_any_cluster_fits_a_terminal(width: int, height: int) -> None:
    base = overview(seen(1.0, replica("t", 0, 1, 1)), None)
    topic, broker_row = base.topics[0], {"broker_id": 1, "state": "active", "silent_ms": 5, "leads": 1, "replicas": 2}
    directory = {"log_dir": "/a/" + "x" * 300, "state": "online", "used_bytes": 2**62, "usable_bytes": 1, "total_bytes": 9}
    broker = msgspec.convert(broker_row | {"log_dirs": [directory] * 3}, BrokerRow)
    many = msgspec.structs.replace(
        base,
        topics=tuple(msgspec.structs.replace(topic, name=f"{index}-" + "n" * 240) for index in range(500)),
        brokers=(broker,) * 60,
        moves=(MoveRow("t-0", "1,2 → 3,4", 1, 2**60, 3.0, 10**9, "why " * 50),) * 100,
        faults=("a fault " * 40,) * 30,
    )
    text = drawn(many, width, height)
    assert len(text.splitlines()) <= height
    assert max(map(len, text.splitlines())) <= width
    assert "more" in text


def test_names_make_room_for_numbers_which_are_never_cut() -> None:
    base = overview(seen(1.0), None)
    move = MoveRow("orders-0", "1,2,3 → 4,5,6", 1023 * 2**10, 1022 * 2**10, 1021.0, 59_000, "a reason " * 9)
    topic = msgspec.structs.replace(base.topics[0], name="n" * 249, size_bytes=1020 * 2**10, bytes_per_second=1019.0)
    text = drawn(msgspec.structs.replace(base, moves=(move,), topics=(topic,)), 80, 24)
    for number in ("1023.0 KiB", "1022.0 KiB", "1021 B/s", "59s", "1020.0 KiB", "1019 B/s", "partitions"):
        assert f" {number}" in text
    assert "\norders-0 " in text and "1,2,3 → 4,5,6 " in text
    assert "  a reason " in text and "nnn… " in text


def test_every_sort_orders_topics() -> None:
    base = overview(seen(1.0), None)
    [topic] = base.topics
    rows = [("b", 5, 1.0), ("a", 1, 9.0), ("c", 9, 0.0)]
    topics = tuple(msgspec.structs.replace(topic, name=name, size_bytes=size, bytes_per_second=rate) for name, size, rate in rows)
    found = msgspec.structs.replace(base, topics=topics)
    for sort, order in (("rate", "abc"), ("size", "cba"), ("name", "abc")):
        lines = drawn(found, 80, 40, sort).splitlines()
        assert "".join(line[0] for line in lines if re.match(r"[abc] +1 ", line)) == order


# --- a real cluster ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("top"), 1, 2, 2) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("orders", partitions=3, replication_factor=2)
        yield cluster


@pytest.mark.cluster
def test_once_prints_one_page_or_one_document(small: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["top", "--once", "--data", str(small.directory)]) == 0
    text = capsys.readouterr().out
    assert small.cluster_id in text and "orders" in text and "broker-1/d1" in text
    assert main.run(["top", "--once", "--json", "--data", str(small.directory)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["leader_id"] == 3000
    assert [broker["state"] for broker in found["brokers"]] == ["active", "active"]
    assert sum(broker["leads"] for broker in found["brokers"]) == 3
    assert found["topics"][0]["bytes_per_second"] == 0.0


@pytest.mark.parametrize("arguments", [["--json"], [], ["--once", "--sort", "colour"], ["--interval", "0"]])
def test_wrong_use_says_what_to_do(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["top", *arguments]) == 64
    captured = capsys.readouterr()
    assert re.search(r"--once|is not one of|not in the range", captured.out + captured.err)


@pytest.mark.cluster
def test_the_live_page_draws_obeys_keys_and_leaves_the_terminal_as_it_was(small: LocalCluster) -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(terminal)
    command = [sys.executable, "-m", "kraftlab.cli.main", "top", "--interval", "0.5", "--data", str(small.directory)]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=os.environ | {"TERM": "xterm"})
    screen = ""

    def until(wanted: str) -> None:
        nonlocal screen
        deadline = time.monotonic() + 30
        while wanted not in screen:
            assert time.monotonic() < deadline, screen[-2000:]
            if select.select([controller], [], [], 0.2)[0]:
                screen += os.read(controller, 65536).decode(errors="replace")

    try:
        until("orders")
        until("q quit")
        for key, wanted in ((b"s", "topic (by size)"), (b"p", "paused"), (b"+", "every 1 s")):
            screen = ""
            os.write(controller, key)
            until(wanted)
        os.write(controller, b"q")
        until("\x1b[?1049l")
        assert process.wait(30) == 0
        assert termios.tcgetattr(terminal) == before
    finally:
        process.kill()
        process.wait()
        os.close(controller)
        os.close(terminal)
