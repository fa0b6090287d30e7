"""TLS beside plaintext: commits of a quorum, a replica copied to another broker, and records of a Kafka client.

The two take turns in one run, so that a busy machine slows both; the ratios are of the medians. All certificates are P-256. Not
measured here: handshakes (`python -m bench handshakes`).

- commits: three controllers that commit small records (`commit_quorum.py`), one at a time and 64 and 512 in flight.
- copy: a replica moves from one broker to another and back, from the request until no move is listed. In plaintext the kernel
  sends the file; under TLS the broker reads and encrypts it.
- produce, consume: confluent-kafka, records of 1 KiB, three partitions with one replica, acks=all, at the KAFKA listener.

Processor time is that of the brokers.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.certificates.folder import throw_away
from kraftlab.lab import LocalCluster

from . import commit_quorum
from .certificates import secure
from .kafka_clients import PARTITIONS, consume, produce
from .large_metadata import stat_of
from .measure import CommitParameters, NoResult, Report, measurement, percentile, table

MIB = 1 << 20
BROKERS = 2
LARGE_RECORD = bytes(64 * 1024)
DONE_WITHIN_S = 300.0
POLL_S = 0.02


class TlsResult(msgspec.Struct, frozen=True):
    """Times of one kind of work, or its rates if the unit ends with "/s", in the order of the runs."""

    work: str
    unit: str
    plaintext: list[float]
    tls: list[float]

    @property
    def ratio(self) -> float:
        """Slowness of TLS: 1.3 is 30 % slower."""
        plaintext, tls = percentile(self.plaintext, 50), percentile(self.tls, 50)
        return plaintext / tls if self.unit.endswith("/s") else tls / plaintext


# --- commits -----------------------------------------------------------------------------------------------------------------


def measure_commits(rounds: int, parameters: CommitParameters) -> list[TlsResult]:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
        throw_away(Path(directory), [f"controller-{number}" for number in range(commit_quorum.VOTERS)])
        over_tls = msgspec.structs.replace(parameters, certificates=directory)
        pairs = [(commit_quorum.measure(parameters), commit_quorum.measure(over_tls)) for _ in range(rounds)]
    plaintext, tls = zip(*pairs, strict=True)
    found = [
        TlsResult(
            "commit, one at a time, p50", "ms", [each.serial_p50_ms for each in plaintext], [each.serial_p50_ms for each in tls]
        ),
        TlsResult(
            "commit, one at a time, p99", "ms", [each.serial_p99_ms for each in plaintext], [each.serial_p99_ms for each in tls]
        ),
    ]
    for count in parameters.in_flight:
        rates = [[each.commits_per_second[count] for each in side] for side in (plaintext, tls)]
        found.append(TlsResult(f"commits, {count} in flight", "commits/s", *rates))
    found.append(
        TlsResult(
            f"commit of {parameters.bulk_records:,} records",
            "ms",
            *([each.bulk_ms for each in side] for side in (plaintext, tls)),
        )
    )
    return found


# --- data --------------------------------------------------------------------------------------------------------------------


class Side:
    """A cluster of one controller and BROKERS brokers, with TLS or without."""

    def __init__(self, directory: Path, *, has_tls: bool) -> None:
        self.cluster = LocalCluster(directory, 1, BROKERS, 1)
        self.options = {"bootstrap.servers": self.cluster.kafka_bootstrap_servers}
        if has_tls:
            folder = secure(self.cluster)
            self.options |= {"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.pem")}

    def create(self, topic: str, leaders: list[int]) -> None:
        """Create a topic with one replica of each partition, on these brokers."""
        wanted = pb.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)
        for index, leader in enumerate(leaders):
            wanted.assignments.append(pb.CreatableReplicaAssignment(partition_index=index, broker_ids=[leader]))
        with self.cluster.admin() as admin:
            admin.create_topics([wanted])

    def processor_s(self) -> float:
        pids = [self.cluster.pid(broker_id) or 0 for broker_id in self.cluster.broker_ids]
        return sum(int(ticks) for pid in pids for ticks in stat_of(pid)[11:13]) / os.sysconf("SC_CLK_TCK")

    def move(self, topic: str, target: int) -> float:
        """Move the topic's only replica; return the seconds."""
        with self.cluster.admin() as admin:
            began = time.perf_counter()
            admin.alter_partition_reassignments({(topic, 0): [target]})
            while admin.list_partition_reassignments().running:
                if time.perf_counter() - began > DONE_WITHIN_S:
                    raise NoResult(f"the move has not ended after {DONE_WITHIN_S:g} s")
                time.sleep(POLL_S)
            return time.perf_counter() - began


@contextmanager
def both_sides() -> Iterator[list[Side]]:
    """Run two clusters, the first in plaintext."""
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory, ExitStack() as stack:
        sides = [Side(Path(directory) / name, has_tls=name == "tls") for name in ("plaintext", "tls")]
        for side in sides:
            stack.enter_context(side.cluster)
        yield sides


def in_turn(work: str, rounds: int, sides: list[Side], run: Callable[[Side, int], float], mib: float) -> list[TlsResult]:
    """Run the work, which returns its seconds, on each side in turn; return its rates and its processor times."""
    rates: list[list[float]] = [[], []]
    processor: list[list[float]] = [[], []]
    for number in range(rounds):
        for index, side in enumerate(sides):
            os.sync()
            before = side.processor_s()
            rates[index].append(mib / run(side, number))
            processor[index].append(side.processor_s() - before)
    return [TlsResult(work, "MiB/s", *rates), TlsResult("… processor time", "s", *processor)]


def measure_copies(rounds: int, size_mib: int) -> list[TlsResult]:
    with both_sides() as sides:
        first, second = sides[0].cluster.broker_ids
        for side in sides:
            side.create("replica", [first])
            produce(side.options, "replica", size_mib * MIB // len(LARGE_RECORD), LARGE_RECORD, 1)
            side.move("replica", second)
        targets = (first, second)
        return in_turn(
            f"copy of {size_mib} MiB", rounds, sides, lambda side, number: side.move("replica", targets[number % 2]), size_mib
        )


def measure_clients(rounds: int, records: int) -> list[TlsResult]:
    with both_sides() as sides:
        leaders = [sides[0].cluster.broker_ids[index % BROKERS] for index in range(PARTITIONS)]
        for side in sides:
            side.create("warm-up", leaders)
            produce(side.options, "warm-up", records // 10)
            for number in range(rounds):
                side.create(f"records-{number}", leaders)
        mib = records / 1024
        produced = in_turn(
            "produce", rounds, sides, lambda side, number: produce(side.options, f"records-{number}", records), mib
        )
        consumed = in_turn(
            "consume", rounds, sides, lambda side, number: consume(side.options, f"records-{number}", records), mib
        )
        return produced + consumed


def render(results: list[TlsResult]) -> str:
    rows = [["work", "runs", "plaintext", "TLS", "TLS is slower by"]]
    for each in results:
        sides = [_shown(values, each.unit) for values in (each.plaintext, each.tls)]
        rows += [[each.work, str(len(each.tls)), *sides, f"{each.ratio:.2f}×"]]
    return table(rows)


def _shown(values: list[float], unit: str) -> str:
    low, middle, high = (f"{percentile(values, percent):,.{0 if unit.endswith('/s') else 2}f}" for percent in (0, 50, 100))
    return f"{middle} {unit} ({low} to {high})"


PARTS = ("commits", "copy", "clients")


@measurement("tls", __doc__, quick="One round of a tenth.")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="Parts to measure.")
@click.option("--rounds", type=int, help="Runs of each side (default 5).")
@click.option("--size-mib", type=int, help="Size of the replica (default 2048).")
@click.option("--records", type=int, help="Records of a client (default 300,000).")
def main(quick: bool, parts: str, rounds: int | None, size_mib: int | None, records: int | None) -> Report:
    wanted = parts.split(",")
    if unknown := set(wanted) - set(PARTS):
        raise click.UsageError(f"unknown parts {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    count = rounds or (1 if quick else 5)
    measured: dict[str, Callable[[], list[TlsResult]]] = {
        "commits": lambda: measure_commits(count, CommitParameters(seconds=0.5 if quick else 2.0)),
        "copy": lambda: measure_copies(count, size_mib or (128 if quick else 2048)),
        "clients": lambda: measure_clients(count, records or (20_000 if quick else 300_000)),
    }
    results = [result for name in wanted for result in measured[name]()]
    return Report([{"tls": results}], render(results))
