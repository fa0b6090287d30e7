"""Builds chained batches and opens small logs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from kraftlab.quorum.core import batch
from kraftlab.quorum.simulation.simulated_file_system import SimulatedFileSystem
from kraftlab.quorum.storage import LogIdentity, MetadataLog

IDENTITY = LogIdentity("test-cluster", bytes(range(16)), 0)


class Written(NamedTuple):
    """One batch of the naive twin."""

    base_offset: int
    end_offset: int
    crc: int
    data: bytes


class Builder:
    """Makes the batch that follows a list of batches."""

    def next(self, log: list[Written], *, epoch: int = 1, records: int = 1, body_bytes: int = 20, stamp: int = 0) -> Written:
        base = log[-1].end_offset if log else 0
        previous = log[-1].crc if log else batch.NO_PREVIOUS_CRC
        data, crc = batch.encode(
            bytes((base + i) % 251 for i in range(body_bytes)),
            base_offset=base,
            epoch=epoch,
            record_count=records,
            append_time_ms=base,
            high_watermark=stamp,
            previous_crc=previous,
        )
        return Written(base, base + records, crc, data)

    def log(self, count: int, *, stamp_behind: int | None = None) -> list[Written]:
        """`count` batches; each stamped with its base offset minus `stamp_behind` (None: never stamped)."""
        written: list[Written] = []
        for _ in range(count):
            base = written[-1].end_offset if written else 0
            written.append(self.next(written, stamp=0 if stamp_behind is None else max(0, base - stamp_behind)))
        return written


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def identity() -> LogIdentity:
    return IDENTITY


@pytest.fixture
def disk() -> SimulatedFileSystem:
    return SimulatedFileSystem(Random(1))


@pytest.fixture
def open_log() -> Callable[..., MetadataLog]:
    def open_small(disk: SimulatedFileSystem, **options: int) -> MetadataLog:
        settings = {"segment_bytes": 4096 + 600, "preallocate_bytes": 8192, "cache_bytes": 200} | options
        return MetadataLog.open(disk, "/data", IDENTITY, **settings)

    return open_small
