"""Segments are Kafka's: readers that are not ours read what our logs write, and we read what Kafka wrote.

kafka-python is an independent implementation. The outputs of kafka-dump-log were recorded from Apache Kafka 4.3.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from kraftlab.broker.log.compacting import Compaction
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.cli import main
from kraftlab.cli.stored_batches import stored_records
from kraftlab.records.record_batch import NO_EPOCH, Record, build_batch, iterate, stamp

RECORDED = Path(__file__).parent / "recorded"
SEGMENTS = Path(__file__).resolve().parents[3] / "examples" / "capture" / "segments"
SEGMENT = "00000000000000000000.log"
KAFKAS = ("orders-0", "payments-0", "clicks-0", "sessions-0", "audit-log-0")
"""Recorded partitions: one per codec; payments has transactions, audit-log has tombstones."""
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIME_MS = 1_795_255_427_200


class Read(NamedTuple):
    """A record as any reader sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def by_kafka_python(data: bytes) -> Iterator[Read]:
    """Read every batch but transaction markers, and check its checksum."""
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        for record in () if batch.is_control_batch else batch:
            yield Read(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
    assert batches.valid_bytes() == len(data)


def by_kraftlab(data: bytes) -> Iterator[Read]:
    for position, header in iterate(data):
        for record in stored_records(header, data[position : position + header.size_bytes]):
            yield Read(record.offset, record.timestamp_ms, record.key, record.value, record.headers)


def records_of(first: int, count: int) -> list[Record]:
    """Records with and without keys and headers, tombstones, and timestamps that go back."""
    return [
        Record(
            None if number % 3 == 0 else b"key-%d" % number,
            None if number % 5 == 4 else b"value-%d " % number * (1 + number % 4),
            TIME_MS + 3 * number - 7 * (number % 2),
            () if number % 2 else (("trace", b"%d" % number), ("trace", b"again"), ("none", None)),
        )
        for number in range(first, first + count)
    ]


def batch_of_kafka_python(records: list[Record], codec: str) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_from_our_segments_what_producers_sent(open_log: Callable[..., PartitionLog], codec: str) -> None:
    log, sent = open_log(), list[Record]()
    for epoch in (0, 2):
        log.start_epoch(epoch)
        for _ in range(3):
            theirs, own = records_of(len(sent), 7), records_of(len(sent) + 7, 4)
            log.append_as_leader(batch_of_kafka_python(theirs, codec), epoch)
            log.append_as_leader(build_batch(own), epoch)
            sent += theirs + own
    log.flush()
    stored = (log.directory / SEGMENT).read_bytes()
    expected = [Read(offset, each.timestamp_ms, each.key, each.value, each.headers) for offset, each in enumerate(sent)]
    assert list(by_kafka_python(stored)) == expected
    assert list(by_kraftlab(stored)) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_compacted_segments(open_log: Callable[..., PartitionLog], codec: str) -> None:
    log = open_log(config=LogConfig(segment_bytes=2000, is_compacted=True, is_deleted=False))
    for first in range(0, 200, 10):
        records = [Record(b"key-%d" % (number % 7), b"value-%d" % number, TIME_MS) for number in range(first, first + 10)]
        log.append_as_leader(batch_of_kafka_python(records, codec), 1)
    log.high_watermark = log.log_end_offset
    before = log.size_bytes
    compaction = Compaction(log, now_ms=TIME_MS, map_bytes=1 << 20)
    for _ in compaction.steps():
        pass
    log.flush()
    assert log.size_bytes < before
    read = [each for path in sorted(log.directory.glob("*.log")) for each in by_kafka_python(path.read_bytes())]
    assert {each.offset: each.value for each in read}.items() >= {
        number: b"value-%d" % number for number in range(193, 200)
    }.items()
    assert all(each.value == b"value-%d" % each.offset and each.key == b"key-%d" % (each.offset % 7) for each in read)


@pytest.mark.parametrize("partition", KAFKAS)
def test_we_read_from_kafkas_segments_what_kafka_python_reads(partition: str) -> None:
    data = (SEGMENTS / partition / SEGMENT).read_bytes()
    markers = {header.base_offset for _, header in iterate(data) if header.is_control}
    assert bool(markers) == (partition == "payments-0")
    assert [read for read in by_kraftlab(data) if read.offset not in markers] == list(by_kafka_python(data))


@pytest.mark.parametrize("partition", [*KAFKAS, "ours-0"])
def test_dump_log_prints_what_kafkas_tool_printed(partition: str, capsys: pytest.CaptureFixture[str]) -> None:
    directory = RECORDED if partition == "ours-0" else SEGMENTS
    assert main.run(["dump-log", "--files", str(directory / partition / SEGMENT), "--print-data-log"]) == 0
    _, _, printed = capsys.readouterr().out.partition("\n")
    recorded = lzma.decompress((RECORDED / f"{partition}.txt.xz").read_bytes()).decode()
    assert printed.splitlines() == recorded.splitlines()


def test_a_log_stores_the_batches_that_kafkas_tool_has_read(open_log: Callable[..., PartitionLog]) -> None:
    """The recorded output of Kafka's tool stays true: the same requests make the same bytes today."""
    recorded = (RECORDED / "ours-0" / SEGMENT).read_bytes()
    log = open_log()
    for position, header in iterate(recorded):
        sent = bytearray(recorded[position : position + header.size_bytes])
        stamp(sent, 0, base_offset=header.base_offset, leader_epoch=NO_EPOCH)
        if header.leader_epoch > log.latest_epoch:
            log.start_epoch(header.leader_epoch)
        log.append_as_leader(bytes(sent), header.leader_epoch, keep_offsets=True)
    log.flush()
    assert (log.directory / SEGMENT).read_bytes() == recorded
