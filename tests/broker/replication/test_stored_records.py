"""Records on their way from a log's file to a peer, while the log changes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.broker.log.disks import Disks
from kraftlab.broker.log.errors import UnexpectedOffset
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.log_view import BatchPlaces
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.replication import stored_records
from kraftlab.broker.replication.stored_records import StoredRecords
from kraftlab.records.record_batch import Record, build_batch
from kraftlab.wire.parts import PartLost

BATCH = build_batch([Record(None, bytes(1000), 1)])


class SlowWire:
    """Takes 2,500 bytes at a time, and then none before `wait_writable` returns. `between` is called in there."""

    def __init__(self, between: Any = None, *, takes_files: bool = True) -> None:
        self.takes_files = takes_files
        self.taken = bytearray()
        self._room = 2500
        self._between = between

    def send_from(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        if not self._room:
            raise BlockingIOError
        data = os.pread(descriptor, min(size_bytes, self._room), position)
        self._room -= len(data)
        self.taken += data
        return len(data)

    def send(self, data: memoryview, /) -> int:
        if not self._room:
            raise BlockingIOError
        taken = data[: self._room]
        self._room -= len(taken)
        self.taken += taken
        return len(taken)

    async def wait_writable(self) -> None:
        if self._between is not None:
            await trio.to_thread.run_sync(self._between)
        self._room = 2500


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Forty batches in several segments."""
    directory = tmp_path / "dir" / "orders-0"
    directory.mkdir(parents=True)
    log = PartitionLog.open(
        directory, topic="orders", partition=0, topic_id=b"t" * 16, directory_id=b"d" * 16, config=LogConfig(segment_bytes=15_000)
    )
    for _ in range(40):
        log.append_as_leader(BATCH, 1)
    return log


def stored(log: PartitionLog) -> StoredRecords:
    placed = log.read_or_place(3, 30_000, read_bytes_max=1000)
    assert isinstance(placed, BatchPlaces)
    assert len(placed.slices) > 1
    return StoredRecords(log, placed, Disks(lambda error: None))


async def test_a_slow_peer_gets_the_bytes_that_a_read_returns(log: PartitionLog) -> None:
    wire, records = SlowWire(), stored(log)
    await records.send(wire)  # type: ignore[arg-type]
    assert bytes(wire.taken) == log.read(3, 30_000)
    assert len(wire.taken) == records.size_bytes


async def test_a_wire_that_encrypts_gets_the_same_bytes_from_memory(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_records, "PIECE_BYTES_MAX", 7_000)
    wire, records = SlowWire(takes_files=False), stored(log)
    await records.send(wire)  # type: ignore[arg-type]
    assert bytes(wire.taken) == log.read(3, 30_000)


async def test_appends_meanwhile_change_nothing(log: PartitionLog) -> None:
    before = log.read(3, 30_000)
    wire = SlowWire(lambda: log.append_as_leader(BATCH, 2))
    await stored(log).send(wire)  # type: ignore[arg-type]
    assert bytes(wire.taken) == before


def truncate_and_append_as_another_leader(log: PartitionLog) -> None:
    log.truncate_to(5)
    for _ in range(40):
        log.append_as_leader(BATCH, 2)


@pytest.mark.parametrize(
    "change",
    [
        truncate_and_append_as_another_leader,
        lambda log: log.truncate_fully_and_start_at(0),
        lambda log: log.advance_log_start(35),
        lambda log: log.close(),
    ],
)
async def test_a_slow_peer_holds_no_change_up_and_gets_nothing_after_it(log: PartitionLog, change: Any) -> None:
    before, changed = log.read(3, 30_000), threading.Event()

    def once() -> None:
        if not changed.is_set():
            change(log)
            changed.set()

    wire = SlowWire(once)
    with trio.fail_after(10), pytest.raises(PartLost):
        await stored(log).send(wire)  # type: ignore[arg-type]
    assert changed.is_set()
    assert bytes(wire.taken) == before[:2500]


def test_a_follower_refuses_records_of_a_later_epoch_than_their_leaders(log: PartitionLog) -> None:
    end = log.log_end_offset
    with pytest.raises(UnexpectedOffset, match="later epoch than 2"):
        log.append_as_follower(build_batch([Record(None, b"x", 1)], base_offset=end, leader_epoch=3), 2)
    assert log.append_as_follower(build_batch([Record(None, b"x", 1)], base_offset=end, leader_epoch=2), 2) == end + 1
