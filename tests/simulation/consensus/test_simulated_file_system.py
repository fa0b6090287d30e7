"""The simulated disk keeps synced data and names, and can lose all others, sector by sector and name by name."""

from __future__ import annotations

from random import Random

import pytest

from kraftlab.quorum.storage import FsyncFailed, StorageFull
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem


def disk_with_file(seed: int, *, synced: bytes, written: bytes) -> SimulatedFileSystem:
    disk = SimulatedFileSystem(Random(seed))
    disk.make_directory("/d")
    file = disk.open("/d/f", create=True)
    file.pwrite(synced, 0)
    file.fdatasync()
    disk.sync_directory("/d")
    file.pwrite(written, 0)
    return disk


def test_synced_bytes_survive_a_power_cut_and_unsynced_ones_may():
    left = set()
    for seed in range(20):
        disk = disk_with_file(seed, synced=b"old", written=b"new")
        disk.crash(power_cut=True)
        left.add(disk.snapshot()["/d/f"])
    assert left == {b"old", b"new"}


def test_a_killed_process_loses_nothing_but_its_handles():
    disk = disk_with_file(1, synced=b"a", written=b"b")
    file = disk.open("/d/f")
    disk.crash(power_cut=False)
    assert disk.snapshot()["/d/f"] == b"b"
    with pytest.raises(AssertionError, match="after the crash"):
        file.pwrite(b"c", 0)


def test_an_unsynced_name_may_be_lost_and_an_unsynced_removal_undone():
    names = set()
    for seed in range(60):
        disk = disk_with_file(seed, synced=b"a", written=b"a")
        disk.remove("/d/f")
        disk.open("/d/g", create=True).fdatasync()
        disk.crash(power_cut=True)
        names.add(tuple(disk.names("/d")))
    assert names == {(), ("f",), ("g",), ("f", "g")}


def test_a_file_whose_rename_was_not_synced_has_its_old_name_or_its_new_one():
    names = set()
    for seed in range(60):
        disk = disk_with_file(seed, synced=b"a", written=b"a")
        disk.rename("/d/f", "/d/g")
        disk.crash(power_cut=True)
        names.add(tuple(disk.names("/d")))
    assert names == {("f",), ("g",), ("f", "g")}


def test_power_goes_at_the_chosen_operation():
    disk = disk_with_file(1, synced=b"a", written=b"a")
    disk.operations_left = 1
    file = disk.open("/d/f")
    file.pwrite(b"b", 0)
    with pytest.raises(PowerCut):
        file.fdatasync()


def test_a_full_disk_refuses_to_grow_but_lets_allocated_space_be_written():
    disk = disk_with_file(1, synced=b"aa", written=b"aa")
    disk.full = True
    file = disk.open("/d/f")
    file.pwrite(b"b", 1)
    with pytest.raises(StorageFull):
        file.pwrite(b"b", 2)


def test_a_failed_fsync_takes_the_dirty_pages_with_it():
    disk = disk_with_file(1, synced=b"a", written=b"b")
    disk.fsync_fails = True
    file = disk.open("/d/f")
    with pytest.raises(FsyncFailed):
        file.fdatasync()
    assert file.pread(1, 0) == b"a"
