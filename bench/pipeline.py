"""The pipeline on one machine: records per second of each step, cold and warm, beside the same steps in plain Python.

A generated log of reassignments with known results (`reassignment_log`) is written in the format of our controllers. Spark, in
one session with a small heap, then ingests it (bronze), decodes it (silver) and builds the life cycles with their replicas and
the partitions' states (gold), with the functions of the commands, each twice: the first run pays for compiling, the second does
not. Plain Python does the same in this process, on one core, and stores nothing. All results must equal the known counts.

Wall time is printed beside the processor time of all processes together. On a busy machine, only processor times are comparable.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.metadata import records as r
from kraftlab.metadata.codec import decode, encode
from kraftlab.pipeline.audits.life_cycles import Change, PartitionKey, all_life_cycles
from kraftlab.quorum.core import batch
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES, SegmentHeader, segment_name

from .large_metadata import stat_of
from .measure import Report, measurement, table
from .reassignment_log import RECORDS_PER_LOG_BATCH, ReassignmentLog, Row, Truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP = "1g"
SEGMENT_BYTES = 64 << 20
EPOCH = 1


class Step(msgspec.Struct, frozen=True):
    """One step done one way: wall and processor seconds, and records per second of either."""

    step: str
    way: str
    seconds: float
    processor_seconds: float
    records_per_second: float
    records_per_processor_second: float
    right: bool


class Result(msgspec.Struct, frozen=True):
    """The document of `--json`. `log_bytes` is the length of all segments."""

    records: int
    log_bytes: int
    heap: str
    session_seconds: float
    steps: list[Step]


def write_log(directory: Path, changes: int) -> tuple[int, int, Truth]:
    """Write the segments of one controller, first topics, then the changes; return (records, bytes, known counts)."""
    made = ReassignmentLog(changes)
    rows = made.rows()
    first = next(rows)
    topics = (made.truth.partitions + 2) // 3
    segment, written, offset, crc = bytearray(), 0, 0, 0

    def flush() -> None:
        nonlocal written
        path = directory / segment_name(start)
        path.write_bytes(segment)
        written += len(segment)
        segment.clear()

    start = 0
    for records, append_ms in _batches(_records(topics, first, rows)):
        if not segment:
            start = offset
            segment += SegmentHeader(LogIdentity("bench", bytes(15) + b"\1", 0), offset, EPOCH if offset else 0, crc).encode()
        body, count = encode(records)
        data, crc = batch.encode(
            body,
            base_offset=offset,
            epoch=EPOCH,
            record_count=count,
            append_time_ms=append_ms,
            high_watermark=offset,
            previous_crc=crc,
        )
        segment += data
        offset += count
        if len(segment) >= SEGMENT_BYTES:
            flush()
    if segment:
        flush()
    return offset, written, made.truth


def _topic_id(topic: int) -> bytes:
    return b"bench-00" + topic.to_bytes(8, "big")


def _records(topics: int, first: Row, rows: Iterator[Row]) -> Iterator[tuple[Any, int]]:
    """Yield records and their append times."""
    for topic in range(topics):
        yield r.Topic(0, f"topic-{topic:07d}", _topic_id(topic)), first[1]
    yield _record(first), first[1]
    for row in rows:
        yield _record(row), row[1]


def _record(row: Row) -> Any:
    _, _, kind, topic, partition, isr, leader, replicas, adding, removing = row
    if kind == "create":
        return r.Partition(0, partition, _topic_id(topic), replicas, isr, leader=leader)
    return r.PartitionChange(
        0,
        partition,
        _topic_id(topic),
        isr=isr,
        leader=leader,
        replicas=replicas,
        removing_replicas=removing,
        adding_replicas=adding,
    )


def _batches(records: Iterator[tuple[Any, int]]) -> Iterator[tuple[list[Any], int]]:
    found: list[Any] = []
    append_ms = 0
    for record, append_ms in records:
        found.append(record)
        if len(found) == RECORDS_PER_LOG_BATCH:
            yield found, append_ms
            found = []
    if found:
        yield found, append_ms


class Way:
    """One way to do the steps, and its results."""

    def __init__(self, name: str, directory: Path, truth: Truth, records: int) -> None:
        self.name = name
        self.directory = directory
        self.truth = truth
        self.records = records
        self.steps: list[Step] = []

    def measure(self, step: str, way: str, run: Callable[[], object], expected: object) -> None:
        began, used = time.monotonic(), processor_seconds()
        found = run()
        seconds, processors = time.monotonic() - began, processor_seconds() - used
        rates = (self.records / seconds, self.records / max(processors, 1e-9))
        self.steps.append(Step(step, f"{self.name}, {way}", seconds, processors, *rates, found == expected))
        print(f"  {step}, {self.name}, {way}: {seconds:.1f} s", file=sys.stderr, flush=True)

    @property
    def statuses(self) -> dict[str, int]:
        truth = self.truth
        named = {"completed": truth.completed, "cancelled": truth.cancelled, "superseded": truth.superseded, "open": truth.open}
        return {name: count for name, count in named.items() if count}


def plain(log: Path, way: Way) -> None:
    """Measure plain Python on one core, without writing: check batches, decode records, step life cycles, all histories in
    memory.
    """
    gc.disable()
    try:
        way.measure("bronze", "one core", lambda: sum(each.header.record_count for each in _stored(log)), way.records)
        changes = way.records - (way.truth.partitions + 2) // 3
        way.measure("silver", "one core", lambda: sum(1 for _ in _changes(log)), changes)
        way.measure("life cycles", "one core, decoding too", lambda: dict(_stepped(log)), way.statuses)
    finally:
        gc.enable()


def _stored(log: Path) -> Iterator[batch.Batch]:
    for path in sorted(log.iterdir()):
        yield from batch.decode_all(path.read_bytes()[HEADER_PAGE_BYTES:])


def _changes(log: Path) -> Iterator[tuple[PartitionKey, Change]]:
    for stored in _stored(log):
        header = stored.header
        for index, record in enumerate(decode(stored.body)):
            offset, at_ms = header.base_offset + index, header.append_time_ms
            if isinstance(record, r.PartitionChange):
                fields = (record.isr, record.leader, record.replicas, record.adding_replicas, record.removing_replicas)
                yield PartitionKey(record.topic_id.hex(), None, record.partition_id), Change(offset, at_ms, "change", *fields)
            elif isinstance(record, r.Partition):
                sets = (record.isr, record.leader, record.replicas, record.adding_replicas, record.removing_replicas)
                yield PartitionKey(record.topic_id.hex(), None, record.partition_id), Change(offset, at_ms, "create", *sets)


def _stepped(log: Path) -> Counter[str]:
    return Counter(cycle.status for cycle in all_life_cycles(_changes(log)))


def on_spark(spark: SparkSession, log: Path, way: Way, warm_runs: int) -> None:
    """Measure the commands' own functions, each run with a new lake."""
    from kraftlab.pipeline.lake.commits import Lake
    from kraftlab.pipeline.runs import gold
    from kraftlab.pipeline.runs.build import CHANGES, build
    from kraftlab.pipeline.runs.gold_in_process import STATE
    from kraftlab.pipeline.runs.ingest import ingest

    def ingested(lake: Lake) -> int:
        return ingest(spark, lake, [str(log)], hi=way.records).records

    def built(lake: Lake) -> int:
        return build(spark, lake).rows[CHANGES]

    def statuses(lake: Lake) -> dict[str, int]:
        gold.build(spark, lake, (gold.REASSIGNMENTS, gold.REPLICAS, STATE))
        return dict(Counter(lake.arrow(gold.REASSIGNMENTS, ["status"])["status"].to_pylist()))

    changes = way.records - (way.truth.partitions + 2) // 3
    for number in range(1 + warm_runs):
        how = "warm" if number else "cold"
        lake = Lake(str(way.directory / f"lake-{number}"))
        way.measure("bronze", how, partial(ingested, lake), way.records)
        way.measure("silver", how, partial(built, lake), changes)
        way.measure("life cycles", how, partial(statuses, lake), way.statuses)


def processor_seconds() -> float:
    """Return the processor time of this process and all its descendants, ended ones included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat_of(pid := int(entry.parent.name))
        except OSError:
            continue
        parents[pid] = int(fields[1])
        used[pid] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= below
    return sum(used.get(pid, 0) for pid in mine) / os.sysconf("SC_CLK_TCK")


def measure(changes: int, warm_runs: int) -> Result:
    from kraftlab.pipeline.session import factory

    scratch = Path(tempfile.mkdtemp(prefix="kraftlab-bench-"))
    try:
        log = scratch / "log"
        log.mkdir()
        records, log_bytes, truth = write_log(log, changes)
        print(f"  a log of {records:,} records, {log_bytes / 1e6:.0f} MB", file=sys.stderr, flush=True)
        python = Way("plain Python", scratch, truth, records)
        plain(log, python)
        began = time.monotonic()
        with factory.session(conf={"spark.driver.memory": HEAP}) as spark:
            spark.range(1).count()
            session_seconds = time.monotonic() - began
            way = Way("Spark", scratch, truth, records)
            on_spark(spark, log, way, warm_runs)
        steps = sorted(python.steps + way.steps, key=lambda step: ("bronze", "silver", "life cycles").index(step.step))
        return Result(records, log_bytes, HEAP, session_seconds, steps)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@measurement("pipeline", __doc__, quick="100,000 changes.")
@click.option("--changes", default=1_000_000, help="Changes of partitions in the log (default 1000000).")
@click.option("--warm", default=1, help="Runs after the cold one (default 1).")
def main(quick: bool, changes: int, warm: int) -> Report:
    result = measure(100_000 if quick else changes, warm)
    rows = [["step", "way", "s", "processor s", "records/s", "per processor s", "right"]]
    rows += [
        [
            step.step,
            step.way,
            f"{step.seconds:.1f}",
            f"{step.processor_seconds:.1f}",
            f"{step.records_per_second:,.0f}",
            f"{step.records_per_processor_second:,.0f}",
            "yes" if step.right else "NO",
        ]
        for step in result.steps
    ]
    text = f"{result.records:,} records, {result.log_bytes / 1e6:.0f} MB of log; heap {result.heap}\n"
    text += f"Spark's first query after {result.session_seconds:.1f} s\n\n{table(rows)}"
    return Report([result], text, DONE if all(step.right for step in result.steps) else FAILED)
