"""Compaction of a log with a million records, 10 % of them live, against one read and one write of its files.

The records have random keys and values of random sizes, in batches of 16 KiB, which is the default of Java's producers. The
reference reads all segments of the log, writes them once into a new directory and fsyncs them. The compaction is the one that a
broker runs, with the broker's defaults, in this process: it reads all keys, writes what stays, fsyncs it and exchanges the files.
Both find the files in the page cache. Runs alternate.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import click
import msgspec

from kraftlab.broker.log.compacting import Compaction
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.records.codecs import compress
from kraftlab.records.record_batch import CODECS, HEADER_BYTES, Record, build_batch, encode_batch, read_header

from .measure import Report, measurement, percentile, table

RECORDS, KEYS = 1_000_000, 100_000
BATCH_BYTES = 16_384
SEGMENT_BYTES = 64 * 1024 * 1024
MAP_BYTES = 128 * 1024 * 1024 * 9 // 10
CHUNK_BYTES = 512 * 1024
COPY_BYTES = 1024 * 1024
NOW_MS = 1_700_000_000_000
AIM = 3.0


class Shape(msgspec.Struct, frozen=True):
    """Kind of the records. Values have from half to one and a half times `value_bytes`."""

    value_bytes: int
    codec: str = "none"


SHAPES = (Shape(1000), Shape(100), Shape(100, "lz4"))


class CompactionResult(msgspec.Struct, frozen=True):
    """Medians. `ratio`: compaction to reference."""

    shape: Shape
    records: int
    kept: int
    log_bytes: int
    reference_s: float
    compaction_s: float
    compaction_processor_s: float
    ratio: float


def measure(shape: Shape, records: int, runs: int) -> CompactionResult:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as root:
        original = Path(root, "original")
        _fill(original, shape, records)
        reference, compacted, processor, kept = [], [], [], 0
        for _ in range(runs):
            reference.append(_read_and_write(original, Path(root, "copy")))
            directory = Path(root, "dir", "t-0")
            shutil.copytree(original, directory)
            os.sync()
            log = _open(directory)
            log.high_watermark = log.log_end_offset
            started, worked = time.perf_counter(), time.process_time()
            compaction = Compaction(log, now_ms=NOW_MS, map_bytes=MAP_BYTES, chunk_bytes=CHUNK_BYTES)
            for _ in compaction.steps():
                pass
            compacted.append(time.perf_counter() - started)
            processor.append(time.process_time() - worked)
            assert compaction.filter is not None
            kept = compaction.filter.records_kept
            log.close()
            shutil.rmtree(directory)
        log_bytes = sum(path.stat().st_size for path in original.glob("*.log"))
    medians = [percentile(values, 50) for values in (reference, compacted, processor)]
    return CompactionResult(shape, records, kept, log_bytes, *medians, medians[1] / medians[0])


def _open(directory: Path) -> PartitionLog:
    config = LogConfig(segment_bytes=SEGMENT_BYTES, is_compacted=True)
    return PartitionLog.open(
        directory, topic="t", partition=0, topic_id=bytes(16), directory_id=bytes(16), config=config, clean=True
    )


def _fill(directory: Path, shape: Shape, records: int) -> None:
    """Write the log. Its last segment is nearly empty."""
    directory.mkdir()
    log, chance, content = _open(directory), random.Random(1), random.Random(2).randbytes(1 << 20)
    per_batch = max(BATCH_BYTES // (shape.value_bytes + 30), 1)
    keys = records * KEYS // RECORDS
    for first in range(0, records, per_batch):
        found = []
        for number in range(first, min(first + per_batch, records)):
            at, size = chance.randrange(1 << 19), chance.randrange(shape.value_bytes // 2, shape.value_bytes * 3 // 2)
            value = content[at : at + size // 2] * 2
            found.append(Record(b"user-%07d" % chance.randrange(keys), value, NOW_MS + number // 100))
        log.append_as_leader(_compressed(build_batch(found), shape.codec), 0)
    log.config = LogConfig(segment_bytes=1)
    log.append_as_leader(build_batch([Record(b"end", b"", NOW_MS)]), 0)
    log.flush()
    log.close()


def _compressed(batch: bytes, codec: str) -> bytes:
    header = read_header(batch)
    attributes = header.attributes | CODECS.index(codec)
    return encode_batch(header._replace(attributes=attributes), compress(codec, batch[HEADER_BYTES:]))


def _read_and_write(source: Path, target: Path) -> float:
    """Return the seconds of one read and one write of the segments, with fsync."""
    target.mkdir()
    started = time.perf_counter()
    for path in sorted(source.glob("*.log")):
        with open(path, "rb", buffering=0) as reading, open(target / path.name, "wb", buffering=0) as writing:
            while data := reading.read(COPY_BYTES):
                writing.write(data)
            os.fdatasync(writing.fileno())
    taken = time.perf_counter() - started
    shutil.rmtree(target)
    return taken


def render(results: list[CompactionResult]) -> str:
    rows = [["records", "kept", "mean value", "codec", "log", "one read and write", "compaction", "of which processor", "ratio"]]
    rows += [
        [
            f"{result.records:,}",
            f"{result.kept:,}",
            f"{result.shape.value_bytes} B",
            result.shape.codec,
            f"{result.log_bytes / 1e6:.0f} MB",
            f"{result.reference_s:.2f} s",
            f"{result.compaction_s:.2f} s",
            f"{result.compaction_processor_s:.2f} s",
            f"{result.ratio:.1f} (aim: {AIM:g})",
        ]
        for result in results
    ]
    return table(rows)


@measurement("compaction", __doc__, quick="A tenth of the records, one run.")
@click.option("--runs", type=int, help="Compactions of each kind (default 3).")
def main(quick: bool, runs: int | None) -> Report:
    records = RECORDS // 10 if quick else RECORDS
    results = [measure(shape, records, runs or (1 if quick else 3)) for shape in SHAPES]
    return Report([{"compaction": result} for result in results], render(results))
