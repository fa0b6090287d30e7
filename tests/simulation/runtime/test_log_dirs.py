"""Log directories of brokers after a kill, a full disk and a power cut."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from kraftlab.records.record_batch import Record, build_batch
from kraftlab.simulation.consensus.simulated_file_system import PowerCut
from kraftlab.simulation.crash_images.watched_disks import NotRecorded
from kraftlab.simulation.runtime import replica_damage
from kraftlab.simulation.runtime.log_dirs import LogDirDisk, LogDirDisks

SYNCED, LATER = b"synced" * 300, b"later." * 300


@contextmanager
def a_disk(path: Path, seed: int = 1) -> Iterator[tuple[Path, LogDirDisk]]:
    """Make the directory of broker 0, with an empty log directory."""
    home = path / f"broker-{seed}"
    (home / "d0").mkdir(parents=True)
    disks = LogDirDisks({0: home}, lambda name: Random(f"{seed}/{name}"))
    with disks.watching():
        yield home / "d0", disks.by_broker[0]


def appended(file: Path, data: bytes, *, synced: bool) -> None:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, data, os.fstat(descriptor).st_size)
        if synced:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def synced_name(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def left_by_a_loss_of_power(tmp_path: Path, write: Callable[[Path], None]) -> set[bytes | None]:
    """Return the contents of the file "x", over many draws; None: it does not exist."""
    found: set[bytes | None] = set()
    for seed in range(40):
        with a_disk(tmp_path, seed) as (directory, disk):
            write(directory)
            disk.crash(power_cut=True)
            file = directory / "x"
            found.add(file.read_bytes() if file.exists() else None)
    return found


def test_what_was_synced_with_its_name_is_there_after_a_loss_of_power_and_the_rest_in_any_part(tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        appended(directory / "x", SYNCED, synced=True)
        synced_name(directory)
        appended(directory / "x", LATER, synced=False)

    left = left_by_a_loss_of_power(tmp_path, write)
    assert {SYNCED, SYNCED + LATER} < left
    assert all(content is not None and content.startswith(SYNCED) for content in left)
    assert any(content is not None and b"\0" in content for content in left)


def test_a_file_whose_directory_was_not_synced_may_be_gone(tmp_path: Path) -> None:
    left = left_by_a_loss_of_power(tmp_path, lambda directory: appended(directory / "x", SYNCED, synced=True))
    assert left == {SYNCED, None}


def test_a_death_loses_only_unwritten_data(tmp_path: Path) -> None:
    written: set[bytes] = set()
    for seed in range(20):
        with a_disk(tmp_path, seed) as (directory, disk):
            appended(directory / "x", SYNCED, synced=False)
            disk.operations_left = 0
            with pytest.raises(PowerCut):
                appended(directory / "x", LATER, synced=False)
            disk.is_dead = True
            with pytest.raises(PowerCut):
                (directory / "x").unlink()
            disk.crash(power_cut=False)
            written.add((directory / "x").read_bytes())
    assert all(content.startswith(SYNCED) and content != SYNCED + LATER for content in written)
    assert len(written) > 3, "the last call is half done"


def test_a_dead_node_releases_its_files_and_locks(tmp_path: Path) -> None:
    with a_disk(tmp_path) as (directory, disk):
        locked = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        disk.crash(power_cut=False)
        again = os.open(directory / ".lock", os.O_RDWR)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert again == locked, "the number is free"
        os.close(again)


def test_a_full_disk_takes_nothing_and_gives_space_back(tmp_path: Path) -> None:
    with a_disk(tmp_path) as (directory, disk):
        appended(directory / "x", SYNCED, synced=True)
        disk.full = True
        with pytest.raises(OSError, match="No space") as refused:
            appended(directory / "x", LATER, synced=False)
        os.truncate(directory / "x", 1)
        disk.full = False
        disk.fsync_fails = True
        with pytest.raises(OSError, match="Input/output error") as failed:
            appended(directory / "x", b"y", synced=True)
    assert (refused.value.errno, failed.value.errno) == (errno.ENOSPC, errno.EIO)


def test_directories_are_listed_by_name(tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(20)]
    with a_disk(tmp_path) as (directory, _):
        for name in reversed(names):
            appended(directory / name, b"", synced=False)
        with os.scandir(directory) as entries:
            assert [entry.name for entry in entries] == os.listdir(directory) == names


def test_a_way_to_the_disk_that_is_not_watched_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match="d0/unseen"), a_disk(tmp_path) as (directory, _):
        (directory / "unseen").write_bytes(b"")


BATCHES = [build_batch([Record(None, f"record {number}".encode(), 1)]) for number in range(3)]


def a_log(tmp_path: Path) -> Path:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"")
    newest = directory / "00000000000000000003.log"
    newest.write_bytes(b"".join(BATCHES))
    (tmp_path / "topic-1.0123-delete").mkdir()
    (tmp_path / "meta.properties").touch()
    return newest


def test_rot_is_where_a_checksum_shows_it_and_a_torn_batch_at_the_end_of_a_log(tmp_path: Path) -> None:
    newest = a_log(tmp_path)
    segments = replica_damage.newest_segments([tmp_path])
    assert list(segments) == [newest]
    begins = {0, len(BATCHES[0]), len(BATCHES[0]) + len(BATCHES[1])}
    for seed in range(30):
        rotten, torn = (choose(segments, Random(seed)) for choose in (replica_damage.rot, replica_damage.torn))
        assert rotten is not None and rotten.position in begins and rotten.before in BATCHES
        assert rotten.after[: replica_damage.CHECKED_FROM] == rotten.before[: replica_damage.CHECKED_FROM]
        assert rotten.after != rotten.before
        assert torn is not None and torn.position == sum(map(len, BATCHES))
        assert BATCHES[-1].startswith(torn.after) and 0 < len(torn.after) < len(BATCHES[-1])
    assert replica_damage.rot({newest: b""}, Random(1)) is None
