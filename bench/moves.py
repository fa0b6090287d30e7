"""A replica moves between two log directories of a broker: time beside `cp` and sync, throttles, and the producer's p99.

One controller and one broker with two log directories run as processes on loopback. All directories are on one disk; the page
cache is warm and is not dropped. `cp -r` of the replica's directory and `sync` of the copied files alternate with moves there and
back; before each, everything is synced and former copies are gone. The time of a move is from the request until DescribeLogDirs
shows the replica in its new directory, and no copy.

Throttle: N replicas move at once under one limit; bytes per second over ten seconds, from the sizes of the copies, and the
smallest and largest share of a mover. Producer: one batch of 64 KiB every few milliseconds with acks=all, to the partition
that moves; the time until each is acknowledged.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from kraftlab.client import AdminClient, DataClient
from kraftlab.client.config_parts import config_changes
from kraftlab.client.results import LogDir, LogDirReplica
from kraftlab.config.resources import ResourceType
from kraftlab.config.throttled_replicas import MOVE_RATE
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

from .measure import NoResult, Report, measurement, percentile, table

MIB = 1 << 20
BROKER = 0
BIG = "big"
BATCH_BYTES = 256 * 1024
RECORD_BYTES = 64 * 1024
PRODUCED_EVERY_S = 0.004
POLLED_EVERY_S = 0.02
DELETE_DELAY_MS = 200
TIMEOUT_S = 120.0
SETTINGS = {
    "log.segment.delete.delay.ms": str(DELETE_DELAY_MS),
    "num.replica.alter.log.dirs.threads": "16",
}


class CopyTimes(msgspec.Struct, frozen=True):
    """Seconds of each run, in order."""

    size_mib: int
    cp_s: list[float]
    move_s: list[float]


class ThrottledRate(msgspec.Struct, frozen=True):
    """Rate of all movers together over `seconds`. Shares: bytes of the slowest and the fastest mover, relative to equal ones."""

    movers: int
    limit_mib_s: float
    seconds: float
    measured_mib_s: float
    least_share: float
    largest_share: float


class ProducerTimes(msgspec.Struct, frozen=True):
    """Acknowledgement times in milliseconds. `moves`: moves that were going on meanwhile."""

    meanwhile: str
    batches: int
    p50_ms: float
    p99_ms: float
    longest_ms: float


class MovesResult(msgspec.Struct, frozen=True):
    copies: CopyTimes
    throttles: list[ThrottledRate]
    producers: list[ProducerTimes]


class Bench:
    """A cluster with the calls of this measurement."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, data: DataClient, spare: Path) -> None:
        self.cluster, self.admin, self.data = cluster, admin, data
        self.spare = spare
        self.dirs = [Path(directory.log_dir) for directory in admin.describe_log_dirs(BROKER)]
        self._batch = make_batch(BATCH_BYTES)

    def make_topic(self, name: str, partitions: int, mib_each: int) -> None:
        self.admin.create_topic(name, partitions=partitions, replication_factor=1)
        for number in range(partitions):
            for _ in range(mib_each * MIB // BATCH_BYTES):
                self.data.produce(name, number, self._batch)

    def set_rate(self, mib_s: float | None) -> None:
        value = None if mib_s is None else str(int(mib_s * MIB))
        resource = config_changes(ResourceType.BROKER, str(BROKER), {MOVE_RATE: value})
        self.admin.incremental_alter_configs([resource])

    def replicas(self, topic: str, numbers: range) -> Iterator[tuple[LogDir, LogDirReplica]]:
        for directory in self.admin.describe_log_dirs(BROKER, [(topic, number) for number in numbers]):
            for replica in directory.replicas:
                yield directory, replica

    def other_dir(self, topic: str, number: int) -> Path:
        """The directory in which the replica is not."""
        only = range(number, number + 1)
        [lies_in] = [where.log_dir for where, replica in self.replicas(topic, only) if not replica.is_future_key]
        return next(path for path in self.dirs if str(path) != lies_in)

    def request(self, topic: str, numbers: range, target: str | None = None) -> None:
        moves = {(topic, number): target or str(self.other_dir(topic, number)) for number in numbers}
        self.admin.alter_replica_log_dirs(BROKER, moves)

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline:
                raise NoResult(f"not within {TIMEOUT_S:g} s: {what}")
            time.sleep(POLLED_EVERY_S)

    def moves(self, topic: str, numbers: range) -> bool:
        return any(replica.is_future_key for _, replica in self.replicas(topic, numbers))

    def settle(self) -> None:
        """Wait until former copies are gone, then write everything to the disk."""
        self.wait_for(lambda: not any(path for log_dir in self.dirs for path in log_dir.glob("*-delete")), "deletions")
        os.sync()

    # -- the three parts --------------------------------------------------------------------------------------------------------

    def time_of_cp(self) -> float:
        source = self.other_dir(BIG, 0)
        source = next(path for path in self.dirs if path != source) / f"{BIG}-0"
        self.settle()
        started = time.perf_counter()
        subprocess.run(["cp", "-r", source, self.spare], check=True)
        subprocess.run(["sync", *sorted(self.spare.iterdir()), self.spare], check=True)
        seconds = time.perf_counter() - started
        shutil.rmtree(self.spare)
        return seconds

    def time_of_move(self) -> float:
        target = str(self.other_dir(BIG, 0))
        self.settle()
        started = time.perf_counter()
        self.request(BIG, range(1), target)
        self.wait_for(lambda: not self.moves(BIG, range(1)), "the move")
        return time.perf_counter() - started

    def throttled(self, topic: str, movers: int, mib_s: float, seconds: float) -> ThrottledRate:
        """Let replicas move under a limit, measure, and take the moves back."""
        self.settle()
        self.set_rate(mib_s)
        self.request(topic, range(movers))

        def copied() -> tuple[float, dict[int, int]]:
            before = time.perf_counter()
            futures = [replica for _, replica in self.replicas(topic, range(movers)) if replica.is_future_key]
            return (before + time.perf_counter()) / 2, {replica.partition_index: replica.partition_size for replica in futures}

        self.wait_for(lambda: sum(copied()[1].values()) > 0, "the first bytes")
        began_at, first = copied()
        time.sleep(seconds)
        ended_at, last = copied()
        self.request(topic, range(movers), "any")
        self.set_rate(None)
        if len(last) < movers:
            raise NoResult(f"{movers - len(last)} of {movers} moves were over before the measurement was")
        each = [(last[number] - first.get(number, 0)) / (ended_at - began_at) for number in last]
        share = sum(each) / movers
        return ThrottledRate(movers, mib_s, ended_at - began_at, sum(each) / MIB, min(each) / share, max(each) / share)

    def produce_for(self, meanwhile: str, seconds: float) -> ProducerTimes:
        """Produce to the big topic for some time; with a move going on, until that has ended if it does sooner."""
        batch = make_batch(RECORD_BYTES)
        times: list[float] = []
        ends_at = time.perf_counter() + seconds
        due = time.perf_counter()
        while due < ends_at:
            started = time.perf_counter()
            self.data.produce(BIG, 0, batch)
            times.append((time.perf_counter() - started) * 1000)
            due = max(due + PRODUCED_EVERY_S, time.perf_counter())
            time.sleep(max(due - time.perf_counter(), 0))
        return ProducerTimes(meanwhile, len(times), *(percentile(times, percent) for percent in (50, 99, 100)))


def make_batch(size_bytes: int) -> bytes:
    """A batch of incompressible records of at most 64 KiB, together of about that size."""
    now_ms = int(time.time() * 1000)
    return build_batch([Record(None, os.urandom(RECORD_BYTES - 16), now_ms) for _ in range(max(size_bytes // RECORD_BYTES, 1))])


@contextmanager
def running(directory: Path) -> Iterator[Bench]:
    spare = directory / "spare"
    with (
        LocalCluster(directory / "cluster", 1, 1, 2, overrides=SETTINGS) as cluster,
        cluster.admin() as admin,
        DataClient(admin) as data,
    ):
        yield Bench(cluster, admin, data, spare)


def measure(parent: str | None, size_mib: int, runs: int, seconds: float, mib_s: float, movers: tuple[int, ...]) -> MovesResult:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-", dir=parent) as directory, running(Path(directory)) as bench:
        bench.make_topic(BIG, 1, size_mib)
        cp_s, move_s = [], []
        for _ in range(runs):
            cp_s.append(bench.time_of_cp())
            move_s.append(bench.time_of_move())
        throttles = []
        for count in movers:
            topic = f"throttled-{count}"
            bench.make_topic(topic, count, int(mib_s * (seconds + 3) / count))
            throttles.append(bench.throttled(topic, count, mib_s, seconds))
        return MovesResult(CopyTimes(size_mib, cp_s, move_s), throttles, produced(bench, seconds, mib_s))


def produced(bench: Bench, seconds: float, mib_s: float) -> list[ProducerTimes]:
    """The producer's times without a move, while moves follow each other without a throttle, and with one."""
    bench.settle()
    found = [bench.produce_for("no move", seconds)]
    bench.request(BIG, range(1))
    found.append(bench.produce_for("a move, no throttle", min(seconds, 2.0)))
    bench.wait_for(lambda: not bench.moves(BIG, range(1)), "the move")
    bench.settle()
    bench.set_rate(mib_s)
    bench.request(BIG, range(1))
    found.append(bench.produce_for(f"a move at {mib_s:g} MiB/s", seconds))
    bench.request(BIG, range(1), "any")
    return found


def render(result: MovesResult) -> str:
    copies = result.copies

    def row(name: str, values: list[float]) -> list[str]:
        median = percentile(values, 50)
        times = (f"{value:.2f} s" for value in (min(values), median, max(values)))
        return [name, str(len(values)), *times, f"{median / percentile(copies.cp_s, 50):.2f}"]

    first = table(
        [
            [f"{copies.size_mib} MiB, one disk, warm cache", "runs", "min", "p50", "max", "x cp"],
            row("cp -r and sync", copies.cp_s),
            row("move between log directories", copies.move_s),
        ]
    )
    second = table(
        [
            ["movers", "seconds", "limit", "measured", "of the limit", "shares"],
            *(
                [
                    str(each.movers),
                    f"{each.seconds:.1f}",
                    f"{each.limit_mib_s:.1f} MiB/s",
                    f"{each.measured_mib_s:.1f} MiB/s",
                    f"{100 * each.measured_mib_s / each.limit_mib_s:.1f} %",
                    f"{each.least_share:.2f} to {each.largest_share:.2f}",
                ]
                for each in result.throttles
            ),
        ]
    )
    third = [["64 KiB batches, acks=all, meanwhile", "batches", "p50", "p99", "longest", "p99 x"]]
    for each in result.producers:
        times = (f"{ms:.2f} ms" for ms in (each.p50_ms, each.p99_ms, each.longest_ms))
        third.append([each.meanwhile, str(each.batches), *times, f"{each.p99_ms / result.producers[0].p99_ms:.1f}"])
    return f"{first}\n\n{second}\n\n{table(third)}"


@measurement("moves", __doc__, quick="64 MiB, one run, two seconds.")
@click.option("--size-mib", type=int, help="Size of the replica (default 2048).")
@click.option("--runs", type=int, help="Number of copies and moves (default 5).")
@click.option("--seconds", type=float, help="Duration of each throttled measurement (default 10).")
@click.option("--rate-mib", type=float, default=50.0, help="Limit of the throttled moves, in MiB/s (default 50).")
@click.option("--dir", "parent", help="Directory on the disk to measure (default: the temporary directory).")
def main(
    quick: bool, size_mib: int | None, runs: int | None, seconds: float | None, rate_mib: float, parent: str | None
) -> Report:
    size, count, length = (64, 1, 2.0) if quick else (2048, 5, 10.0)
    movers = (1, 4) if quick else (1, 4, 16)
    result = measure(parent, size_mib or size, runs or count, seconds or length, rate_mib, movers)
    return Report([{"moves": result}], render(result))
