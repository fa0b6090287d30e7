"""Work of a disk under the mock clock: done as one piece, or undone, half done or done after a kill."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from kraftlab.quorum.storage.errors import FsyncFailed, StorageFull
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFileSystem
from kraftlab.simulation.runtime.disks import MemoryPower, MemoryTampering
from kraftlab.simulation.runtime.inline_disk import InlineDisk

PATH = "/d/file"


def a_disk(seed: int) -> tuple[InlineDisk, SimulatedFileSystem]:
    files = SimulatedFileSystem(random.Random(seed))
    files.make_directory("/d")
    return InlineDisk(random.Random(seed), files), files


def two_writes(files: SimulatedFileSystem) -> None:
    file = files.open(PATH, create=True)
    for piece in (b"one", b"two"):
        file.pwrite(piece, file.size())
        file.fdatasync()
    files.sync_directory("/d")


async def left_by_a_death(seed: int, *, power_cut: bool) -> bytes:
    disk, files = a_disk(seed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.run, two_writes, files)
        await trio.testing.wait_all_tasks_blocked()
        disk.die()
        nursery.cancel_scope.cancel()
    files.crash(power_cut=power_cut)
    return files.snapshot().get(PATH, b"")


async def test_work_that_is_waited_for_is_done_and_takes_time(autojump_clock: trio.testing.MockClock) -> None:
    disk, files = a_disk(1)
    await disk.run(two_writes, files)
    assert files.durable_bytes(PATH) == b"onetwo"
    assert 0 < trio.current_time() < 0.2
    disk.slower_ms = 5_000
    await disk.run(files.names, "/d")
    assert trio.current_time() > 5


async def test_a_cancelled_caller_waits_only_for_work_that_runs_to_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    heard: list[str] = []

    async def asks(run: Callable[..., Awaitable[str]], what: str) -> None:
        def work() -> str:
            scope.cancel()
            return what

        with trio.CancelScope() as scope:
            heard.append(await run(None, work))

    disk, _ = a_disk(1)
    await asks(disk.run_to_its_end, "to its end")
    await asks(disk.run_limited, "abandoned")
    assert heard == ["to its end"]


async def test_a_dying_node_leaves_its_work_undone_half_done_or_done(autojump_clock: trio.testing.MockClock) -> None:
    left = {await left_by_a_death(seed, power_cut=False) for seed in range(60)}
    assert left == {b"", b"one", b"onetwo"}


async def test_a_power_cut_can_lose_unsynced_data(autojump_clock: trio.testing.MockClock) -> None:
    pairs = [(await left_by_a_death(seed, power_cut=False), await left_by_a_death(seed, power_cut=True)) for seed in range(60)]
    assert any(len(kept) < len(written) for written, kept in pairs)


async def test_a_disk_that_is_made_to_fail_works_again_afterwards(autojump_clock: trio.testing.MockClock) -> None:
    disk, files = a_disk(1)
    mended: list[int] = []
    tampering = MemoryTampering(lambda node: (files,), lambda node: (disk,), mended.append)
    async with tampering.full(7), tampering.full(7):
        with pytest.raises(StorageFull):
            await disk.run(two_writes, files)
    async with tampering.slow(7, 50), tampering.slow(7, 20):
        assert disk.slower_ms == 70
    async with tampering.failing(7):
        with pytest.raises(FsyncFailed):
            await disk.run(two_writes, files)
    assert (disk.slower_ms, files.is_well, mended) == (0, True, [7])
    await disk.run(two_writes, files)
    MemoryPower(7, lambda node: (files,)).lose_power()
    assert files.snapshot() == {PATH: b"onetwo"}
