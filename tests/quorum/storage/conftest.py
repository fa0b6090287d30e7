"""Builds chained batches and opens small logs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from kraftlab.quorum.core import OffsetAndEpoch, batch
from kraftlab.quorum.core.batch import ControlRecord, KRaftVersion, SnapshotHeader
from kraftlab.quorum.storage import LogIdentity, MetadataLog, MetadataStore
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFileSystem

IDENTITY = LogIdentity("test-cluster", bytes(range(16)), 0)


class Written(NamedTuple):
    """One batch of the naive twin."""

    base_offset: int
    end_offset: int
    crc: int
    data: bytes
    epoch: int = 1

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.epoch)


class Builder:
    """Makes the batch that follows a list of batches."""

    def next(
        self,
        log: list[Written],
        *,
        epoch: int = 1,
        records: int = 1,
        body_bytes: int = 20,
        stamp: int = 0,
        body: bytes | None = None,
        attributes: int = 0,
    ) -> Written:
        base = log[-1].end_offset if log else 0
        previous = log[-1].crc if log else batch.NO_PREVIOUS_CRC
        data, crc = batch.encode(
            body if body is not None else bytes((base + i) % 251 for i in range(body_bytes)),
            base_offset=base,
            epoch=epoch,
            record_count=records,
            append_time_ms=base,
            high_watermark=stamp,
            previous_crc=previous,
            attributes=attributes,
        )
        return Written(base, base + records, crc, data, epoch)

    def append(self, log: MetadataLog, written: list[Written]) -> None:
        """Append the batches to `log`, one after the other."""
        for made in written:
            log.append(made.base_offset, made.end_offset, made.data)

    def log(self, count: int, *, stamp_behind: int | None = None) -> list[Written]:
        """`count` batches; each stamped with its base offset minus `stamp_behind` (None: never stamped)."""
        written: list[Written] = []
        for _ in range(count):
            base = written[-1].end_offset if written else 0
            written.append(self.next(written, stamp=0 if stamp_behind is None else max(0, base - stamp_behind)))
        return written

    def control(self, made: Written) -> list[ControlRecord]:
        """The control records of a snapshot that ends with `made`."""
        return [SnapshotHeader(0, IDENTITY.cluster_id, 0, made.crc, made.base_offset), KRaftVersion(0, 1)]

    def snapshot(self, store: MetadataStore, made: Written, bodies: int = 3) -> None:
        """Take a snapshot of the state behind `made`."""
        writer = store.snapshots.writer(made.end, self.control(made))
        for number in range(bodies):
            writer.append(b"%d" % made.end_offset * (number + 1) * 20, number + 1)
        assert writer.finish()

    def copy(self, store: MetadataStore, made: Written, chunk_bytes: int = 150) -> int:
        """Copy a leader's snapshot of the state behind `made` and verify it: the `last_crc` to install it with."""
        leader_disk = SimulatedFileSystem(Random(0))
        leader = MetadataStore.open(leader_disk, "/leader", IDENTITY.cluster_id, bytes(16))
        self.snapshot(leader, made)
        position = store.snapshots.open_part(made.end)
        while True:
            size, data = leader.snapshots.read(made.end, position, chunk_bytes) or (0, b"")
            if position == size:
                return store.snapshots.verify_part(made.end).last_crc
            position = store.snapshots.store_part(made.end, position, data)


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
    """Opens the log of an only voter, which can not repair."""

    def open_small(disk: SimulatedFileSystem, **options: int) -> MetadataLog:
        settings = {"segment_bytes": 4096 + 600, "preallocate_bytes": 8192, "cache_bytes": 200} | options
        identity = (IDENTITY.cluster_id, IDENTITY.directory_id)
        return MetadataStore.open(disk, "/data", *identity, sole_voter=True, **settings).log

    return open_small


@pytest.fixture
def open_store() -> Callable[..., MetadataStore]:
    def open_small(disk: SimulatedFileSystem, **options: int) -> MetadataStore:
        settings = {"segment_bytes": 4096 + 600, "preallocate_bytes": 8192, "cache_bytes": 200} | options
        return MetadataStore.open(disk, "/data", IDENTITY.cluster_id, IDENTITY.directory_id, **settings)

    return open_small
