"""Compactions recorded from Apache Kafka 4.3, beside ours of the same segments.

`recorded/compaction/before` holds the segments of a topic before its first compaction: batches of its console producer, in every
codec, with tombstones. `after` is what Kafka's cleaner left of them, and `later` what it left after two more records, of which
one deletes a key, and another compaction.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlab.broker.log.compacting import Compaction
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.records.record_batch import BatchHeader, StoredRecord, validate

from .conftest import DIRECTORY_ID, TOPIC_ID
from .test_compaction_filter import stored

RECORDED = Path(__file__).parent / "recorded" / "compaction"
HORIZON_MS = 1795477126385
"""The delete horizon that Kafka set. delete.retention.ms was one hour."""
RETENTION_MS = 3_600_000
CONFIG = LogConfig(is_compacted=True, is_deleted=False, delete_retention_ms=RETENTION_MS)


def batches(data: bytes) -> Iterator[tuple[BatchHeader, list[StoredRecord]]]:
    for at, header in validate(data):
        yield header, stored(data[at : at + header.size_bytes])


def recorded(name: str) -> list[tuple[BatchHeader, list[StoredRecord]]]:
    return [item for path in sorted((RECORDED / name).iterdir()) for item in batches(path.read_bytes())]


def compacted(name: str, directory: Path, now_ms: int) -> list[tuple[BatchHeader, list[StoredRecord]]]:
    """The records that compaction keeps of recorded segments."""
    shutil.copytree(RECORDED / name, directory)
    log = PartitionLog.open(directory, topic="t", partition=0, topic_id=TOPIC_ID, directory_id=DIRECTORY_ID, config=CONFIG)
    log.high_watermark = log.log_end_offset
    for _ in Compaction(log, now_ms=now_ms, map_bytes=1 << 20).steps():
        pass
    left = list(batches(log.read(0, 1 << 20)))
    log.close()
    return left


def meaning(header: BatchHeader) -> dict[str, Any]:
    """All of a header but its size, its CRC, and the time from which the deltas count, unless that is the delete horizon."""
    fields = header._replace(size_bytes=0, crc=0)._asdict()
    return fields | {"base_timestamp_ms": header.delete_horizon_ms}


def test_the_same_records_and_headers_stay_as_in_kafka(tmp_path: Path) -> None:
    ours, theirs = compacted("before", tmp_path / "t-0", HORIZON_MS - RETENTION_MS), recorded("after")
    assert [records for _, records in ours if records] == [records for _, records in theirs]
    assert [meaning(header) for header, records in ours if records] == [meaning(header) for header, _ in theirs]


@pytest.mark.parametrize(("now_ms", "gone"), [(HORIZON_MS - 20_000_000, set()), (HORIZON_MS, {b"k5", b"k0", b"k2"})])
def test_tombstones_that_kafka_has_kept_go_at_their_delete_horizon(tmp_path: Path, now_ms: int, gone: set[bytes]) -> None:
    before = [record for _, records in recorded("later") for record in records]
    left = [record for _, records in compacted("later", tmp_path / "t-0", now_ms) for record in records]
    assert left == [record for record in before if record.key not in gone]
