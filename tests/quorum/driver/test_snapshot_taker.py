"""The time of the next snapshot, by a node's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from kraftlab.quorum.core.batch import SnapshotHeader
from kraftlab.quorum.core.effects import RewriteSnapshot
from kraftlab.quorum.core.snapshots import SnapshotContext
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver.disk_threads import DiskThreads
from kraftlab.quorum.driver.snapshot_taker import SnapshotTaker
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.quorum.storage.snapshot_store import SnapshotStore

HOUR_S = 3_600.0


class Machine:
    def freeze(self) -> Machine:
        return self

    def batches(self) -> Iterator[tuple[bytes, int]]:
        yield b"\x91\x01", 1


class Threads(DiskThreads):
    """One at a time, so that others can wait until it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work = trio.Lock()

    async def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        async with self.at_work:
            return await super().run(function, *arguments, **options)


class Taking:
    """A taker whose node applies one batch per call, which waits for the snapshot if there is one; `taken` are the end offsets
    of its snapshots."""

    def __init__(self, directory: Any, interval_ms: int, wall_s: Callable[[], float] = time.time) -> None:
        store = SnapshotStore(RealFileSystem(), str(directory), LogIdentity("c", bytes(16)))
        self.taken: list[int] = []
        self.offset = 0
        self._threads = Threads()
        machine: Any = Machine()
        self.taker = SnapshotTaker(
            store,
            self._threads,
            machine,
            1 << 40,
            interval_ms,
            self._context,
            lambda taken: self.taken.append(taken.offset),
            lambda: None,
            lambda reason: None,
            wall_s,
        )

    def _context(self, offset: int, append_time_ms: int) -> SnapshotContext:
        return SnapshotContext(OffsetAndEpoch(offset, 1), (SnapshotHeader(0, "c", 0, 0, append_time_ms),))

    async def apply(self, append_time_ms: int) -> None:
        self.taker.applied([CommittedBatch(self.offset, self.offset + 1, 1, append_time_ms, b"\x91\x01")])
        self.offset += 1
        self.taker.consider(self.offset)
        await self.written()

    async def written(self) -> None:
        """Waits for the snapshot, if one is being written."""
        await trio.testing.wait_all_tasks_blocked()
        async with self._threads.at_work:
            pass
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("lag_s", [2 * HOUR_S, 0.0, -2 * HOUR_S], ids=["behind", "equal", "ahead"])
async def test_a_leader_whose_clock_is_wrong_does_not_make_snapshots_more_frequent_or_rare(
    tmp_path: Any, mock_clock: trio.testing.MockClock, lag_s: float
) -> None:
    """Or whose machine has slept: its clock does not, and what it appends bears times long past."""

    def wall_s() -> float:
        return 1e9 + trio.current_time()

    taking = Taking(tmp_path, int(HOUR_S * 1000), wall_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.taker.run)
        taking.taker.loaded(OffsetAndEpoch(0, 1), int((wall_s() - lag_s) * 1000))
        for _ in range(50):
            await taking.apply(int((wall_s() - lag_s) * 1000))
            mock_clock.jump(HOUR_S / 10)
        nursery.cancel_scope.cancel()
    assert 4 <= len(taking.taken) <= 6


async def test_a_snapshot_that_was_old_already_at_the_start_is_replaced_at_once(
    tmp_path: Any, mock_clock: trio.testing.MockClock
) -> None:
    taking = Taking(tmp_path, int(HOUR_S * 1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.taker.run)
        taking.taker.loaded(OffsetAndEpoch(0, 1), 1_000)
        await taking.apply(2_000)
        assert taking.taken == [1]
        nursery.cancel_scope.cancel()


async def test_a_snapshot_that_can_not_be_read_is_due_at_once_without_anything_new_and_only_once(tmp_path: Any) -> None:
    taking = Taking(tmp_path, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.taker.run)
        await taking.apply(1_000)
        assert taking.taken == []
        taking.taker.rewrite(RewriteSnapshot(OffsetAndEpoch(1, 1)))
        for _ in range(3):
            taking.taker.rewrite(RewriteSnapshot(OffsetAndEpoch(1, 1)))
            taking.taker.consider(taking.offset)
        await taking.written()
        assert taking.taken == [1]
        taking.taker.consider(taking.offset)
        await taking.written()
        assert taking.taken == [1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("loaded", "taken"), [(9, []), (8, [8])])
async def test_a_damaged_snapshot_is_replaced_unless_a_newer_one_was_loaded(tmp_path: Any, loaded: int, taken: list[int]) -> None:
    taking = Taking(tmp_path, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.taker.run)
        taking.taker.rewrite(RewriteSnapshot(OffsetAndEpoch(8, 1)))
        taking.taker.loaded(OffsetAndEpoch(loaded, 1), 1_000)
        taking.taker.consider(loaded)
        await taking.written()
        assert taking.taken == taken
        nursery.cancel_scope.cancel()
