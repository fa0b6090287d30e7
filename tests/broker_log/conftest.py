"""Helpers for the broker's storage: batches to append, logs to open, and the recorded segments of a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.broker.log.partition_log import LogConfig, PartitionLog
from kraftlab.broker.log.record_batch import Record, build_batch

CAPTURE = Path(__file__).resolve().parents[2] / "examples" / "capture"
TOPIC_ID = b"topic-id-16bytes"
DIRECTORY_ID = b"directory-id-16b"


def make_batch(
    count: int = 1, base_offset: int = 0, leader_epoch: int = 0, value_bytes: int = 10, timestamp_ms: int = 1000
) -> bytes:
    records = [Record(b"key", bytes([65 + i % 26]) * value_bytes, timestamp_ms + i) for i in range(count)]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


@pytest.fixture
def batch() -> Callable[..., bytes]:
    return make_batch


@pytest.fixture
def open_log(tmp_path: Path) -> Callable[..., PartitionLog]:
    """Opens (again) the log of partition `orders-0` in one directory."""
    directory = tmp_path / "dir" / "orders-0"

    def open_one(**options: Any) -> PartitionLog:
        directory.mkdir(parents=True, exist_ok=True)
        options.setdefault("config", LogConfig(segment_bytes=options.pop("segment_bytes", 1 << 30)))
        return PartitionLog.open(directory, topic="orders", partition=0, topic_id=TOPIC_ID, directory_id=DIRECTORY_ID, **options)

    return open_one


@pytest.fixture(scope="session")
def manifest() -> list[dict[str, Any]]:
    """One entry per partition of the recording."""
    partitions: list[dict[str, Any]] = json.loads((CAPTURE / "manifest.json").read_text())["partitions"]
    return partitions


@pytest.fixture(scope="session")
def segment_bytes_of() -> Callable[[dict[str, Any], dict[str, Any]], bytes]:
    """The recorded bytes of one file of one partition of the manifest."""

    def read(partition: dict[str, Any], file: dict[str, Any]) -> bytes:
        return (CAPTURE / "segments" / f"{partition['topic']}-{partition['partition']}" / file["file"]).read_bytes()

    return read
