"""The driver's parts alone: the worker thread, and the task that feeds the state machine."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.common.errors import InvariantViolation
from kraftlab.quorum.core import batch
from kraftlab.quorum.core.effects import Append, Apply, BecameLeader, LeaderChanged, Resigned
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver import apply_task
from kraftlab.quorum.driver.apply_task import ApplyTask
from kraftlab.quorum.driver.disk_threads import DiskThreads
from kraftlab.quorum.driver.figures import QuorumFigures
from kraftlab.quorum.driver.snapshot_taker import SnapshotTaker
from kraftlab.quorum.driver.storage_tasks import LogFlusher
from kraftlab.quorum.driver.worker_thread import WorkerThread
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.quorum.storage.metadata_log import MetadataLog
from kraftlab.quorum.storage.metadata_store import MetadataStore
from kraftlab.quorum.storage.snapshot_store import SnapshotStore

Eventually = Callable[..., Awaitable[None]]


async def test_the_worker_works_in_a_thread_of_its_own_one_thing_after_the_other() -> None:
    names: list[str] = []
    with WorkerThread("disk") as worker:
        for _ in range(3):
            worker.start(lambda: names.append(threading.current_thread().name))
            await worker.finished()
    assert names == ["disk"] * 3
    assert "disk" not in {thread.name for thread in threading.enumerate()}


async def test_an_exception_in_the_worker_reaches_the_waiting_task_and_the_worker_continues() -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("disk gone")

    with WorkerThread("disk") as worker:
        worker.start(fail)
        with pytest.raises(OSError, match="disk gone"):
            await worker.finished()
        worker.start(lambda: done.append(1))
        await worker.finished()
    assert done == [1]


async def test_settling_waits_for_work_under_way_even_when_cancelled() -> None:
    done: list[int] = []
    go = threading.Event()

    def work() -> None:
        go.wait(10)
        done.append(1)

    with WorkerThread("disk") as worker:
        worker.start(work)
        with trio.CancelScope() as scope:
            scope.cancel()
            go.set()
            await worker.settle(10.0)
        assert done == [1]
        assert not worker.is_working


async def test_nothing_is_flushed_for_peers_after_the_writer_has_ended(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    flushed: list[int] = []
    with LogFlusher(log, DiskThreads(), QuorumFigures(), flushed.append, lambda reason: None) as writer:
        with trio.CancelScope() as scope:
            scope.cancel()
            await writer.run()
        data, _ = batch.encode(
            b"\x90",
            base_offset=0,
            epoch=1,
            record_count=1,
            append_time_ms=0,
            high_watermark=0,
            previous_crc=batch.NO_PREVIOUS_CRC,
            attributes=batch.CONTROL,
        )
        writer.append(Append(1, 0, 1, data))
        writer.kick()
        assert not writer.is_stuck
    assert flushed == []
    log.close()


async def test_a_thread_that_begins_after_its_work_was_cancelled_does_not_touch_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, written, late = DiskThreads(), list[int](), list[Callable[[], object]]()

    async def start_much_later(work: Callable[[], object], **options: object) -> None:
        late.append(work)
        await trio.sleep_forever()

    monkeypatch.setattr(trio.to_thread, "run_sync", start_much_later)
    with trio.CancelScope() as scope:
        scope.cancel()
        await threads.run(written.append, 1)
    with pytest.raises(Exception):  # noqa: B017 - nobody is there to hear it
        late[0]()
    assert written == []
    assert not threads.is_stuck


class Listener:
    """A state machine that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        self.heard += [(b.base_offset, b.body) for b in batches]

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: Any) -> None:
        self.heard.append(f"leader {leader_id}")

    async def became_leader(self, epoch: int) -> None:
        self.heard.append("lead")

    async def resigned(self, epoch: int, reason: str) -> None:
        self.heard.append("resigned")

    def freeze(self) -> None:
        return None

    def read_snapshot(self, bodies: Iterable[bytes]) -> list[bytes]:
        return list(bodies)

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: list[bytes]) -> None:
        self.heard.append((position, state))


def open_log(directory: Path) -> MetadataLog:
    return MetadataStore.open(RealFileSystem(), str(directory), "tasks-test", bytes(16)).log


def applying(log: MetadataLog, listener: Listener) -> ApplyTask:
    """The task of a node without snapshots."""
    store = SnapshotStore(RealFileSystem(), "nowhere", LogIdentity("tasks-test", bytes(16)))
    threads = DiskThreads()
    taker = SnapshotTaker(
        store,
        threads,
        listener,
        1 << 40,
        0,
        lambda offset, time_ms: "never",
        lambda snapshot: None,
        lambda: None,
        lambda reason: None,
    )
    return ApplyTask(log, store, threads, lambda: None, listener, taker)


def fill(log: MetadataLog, count: int) -> None:
    """One control batch at offset 0, then data batches of one record each."""
    crc = batch.NO_PREVIOUS_CRC
    for offset in range(count):
        data, crc = batch.encode(
            bytes([0x91, offset % 128]) if offset else b"\x90",
            base_offset=offset,
            epoch=1,
            record_count=1,
            append_time_ms=0,
            high_watermark=0,
            previous_crc=crc,
            attributes=0 if offset else batch.CONTROL,
        )
        log.append(offset, offset + 1, data)


@pytest.mark.parametrize("cold", [False, True], ids=["from memory", "from disk"])
async def test_committed_batches_come_in_order_and_control_batches_without_a_body(
    tmp_path: Path, cold: bool, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_task, "CHUNK_BYTES", 150)
    log = open_log(tmp_path)
    fill(log, 20)
    if cold:
        log.flush()
        log.close()
        log = open_log(tmp_path)
        assert not log.cached(0)
    listener = Listener()
    task = applying(log, listener)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        task.advance(Apply(7))
        await eventually(lambda: task.applied_offset == 7, "seven are applied")
        task.advance(Apply(20))
        await eventually(lambda: task.applied_offset == 20, "all are applied")
        nursery.cancel_scope.cancel()
    assert listener.heard == [(0, b"")] + [(offset, bytes([0x91, offset])) for offset in range(1, 20)]
    log.close()


async def test_notices_come_between_the_batches_where_they_belong(tmp_path: Path, eventually: Eventually) -> None:
    log = open_log(tmp_path)
    fill(log, 6)
    listener = Listener()
    task = applying(log, listener)
    task.leader_changed(LeaderChanged(1, 3, {}))
    task.advance(Apply(4))
    task.became_leader(BecameLeader(2, 3))
    task.resigned(Resigned(2, "test"))
    task.advance(Apply(6))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        await eventually(lambda: task.applied_offset == 6, "all are applied")
        nursery.cancel_scope.cancel()
    heard = [what if isinstance(what, str) else what[0] for what in listener.heard]
    assert heard == ["leader 3", 0, 1, 2, 3, "lead", "resigned", 4, 5]
    log.close()


async def test_a_falling_high_watermark_is_a_broken_invariant(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 6)
    task = applying(log, Listener())
    task.advance(Apply(4))
    with pytest.raises(InvariantViolation, match="falls from 4 to 3"):
        task.advance(Apply(3))
    log.close()
