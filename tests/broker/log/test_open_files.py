"""The table of open segment files: which files it closes, and what it must never do to unsynced writes."""

from __future__ import annotations

import errno
import itertools
import os
import random
import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraftlab.broker.log import open_files
from kraftlab.broker.log import segment as segment_module
from kraftlab.broker.log.errors import LogClosed, LogDirFailed
from kraftlab.broker.log.open_files import LogFile, OpenFiles, default_capacity

from .conftest import batch


class Disk:
    """A directory of files, and the syncs that were made, by file name."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.synced: list[str] = []
        self.error: OSError | None = None
        self._numbers = itertools.count()
        monkeypatch.setattr(os, "fdatasync", self._fdatasync)

    def _fdatasync(self, descriptor: int) -> None:
        if self.error is not None:
            raise self.error
        self.synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    def files(self, table: OpenFiles, count: int, volume: str = "d0") -> list[LogFile]:
        made = [LogFile(str(self.root / f"{volume}-{next(self._numbers)}"), volume) for _ in range(count)]
        for file in made:
            table.create(file)
        return made


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def write(table: OpenFiles, file: LogFile, data: bytes = b"data") -> None:
    with table.pinned(file) as descriptor:
        os.pwrite(descriptor, data, 0)
        file.is_dirty = True


def content(table: OpenFiles, file: LogFile) -> bytes:
    with table.pinned(file) as descriptor:
        return os.pread(descriptor, 100, 0)


def is_open(files: list[LogFile]) -> list[bool]:
    return [file.descriptor >= 0 for file in files]


def test_the_least_recently_used_file_is_closed_beyond_the_capacity(disk: Disk) -> None:
    table = OpenFiles(2)
    files = disk.files(table, 3)
    assert is_open(files) == [False, True, True]
    content(table, files[1])
    content(table, files[0])
    assert (is_open(files), table.open_count) == ([True, True, False], 2)


def test_a_pinned_descriptor_stays_valid_and_may_exceed_the_capacity(disk: Disk) -> None:
    table = OpenFiles(1)
    files = disk.files(table, 3)
    with ExitStack() as pins:
        descriptors = [pins.enter_context(table.pinned(file)) for file in files]
        assert [os.fstat(descriptor).st_size for descriptor in descriptors] == [0, 0, 0]
        with table.pinned(files[0]) as again:
            assert again == descriptors[0]
        assert table.open_count == 3
    content(table, files[0])
    disk.files(table, 1, "d1")
    assert table.open_count == 1


def test_unsynced_writes_are_synced_by_the_descriptor_that_made_them_before_it_is_closed(disk: Disk) -> None:
    table = OpenFiles(2)
    clean, *dirty = disk.files(table, 3)
    for file in dirty:
        write(table, file)
    with table.pinned(clean):
        assert (is_open([clean, *dirty]), disk.synced, dirty[0].is_dirty) == ([True, False, True], ["d0-1"], False)
    table.sync(dirty[0])
    assert disk.synced == ["d0-1"]
    table.sync(dirty[1])
    assert disk.synced == ["d0-1", "d0-2"]


def test_clean_files_are_closed_before_dirty_ones(disk: Disk) -> None:
    table = OpenFiles(2)
    files = disk.files(table, 2)
    write(table, files[0])
    content(table, files[1])
    disk.files(table, 1)
    assert (is_open(files), disk.synced) == ([True, False], [])


def test_a_failed_sync_is_raised_by_every_later_use(disk: Disk) -> None:
    table = OpenFiles(1)
    file, other = disk.files(table, 2)
    write(table, file)
    disk.error = OSError(errno.ENOSPC, "full")
    write(table, other)
    disk.error = None
    for use in (lambda: content(table, file), lambda: table.sync(file)):
        with pytest.raises(OSError, match="full") as raised:
            use()
        assert raised.value.errno == errno.EIO
    assert is_open([file, other]) == [False, True]


def test_nobody_waits_for_the_sync_of_another_volume(disk: Disk) -> None:
    table = OpenFiles(2)
    for file in disk.files(table, 2, "d0"):
        write(table, file)
    other = disk.files(table, 2, "d1")
    assert (disk.synced, is_open(other), table.open_count) == ([], [False, False], 2)
    with table.pinned(other[0]):
        assert (disk.synced, table.open_count) == ([], 3)


def test_a_file_that_is_written_during_its_sync_is_synced_again(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = OpenFiles(1)
    file, other = disk.files(table, 2)
    write(table, file)
    seen: list[bool] = []

    def sync(_: int) -> None:
        seen.append(file.is_dirty)
        if len(seen) == 1:
            write(table, file)

    monkeypatch.setattr(os, "fdatasync", sync)
    with table.pinned(other):
        assert (seen, file.is_dirty, is_open([file, other])) == ([False, False], False, [False, True])


def test_a_file_is_found_again_under_its_new_name_and_a_deleted_one_is_read_as_long_as_it_is_pinned(disk: Disk) -> None:
    table = OpenFiles(1)
    files = disk.files(table, 2)
    renamed = str(disk.root / "renamed")
    os.rename(files[0].path, renamed)
    files[0].path = renamed
    write(table, files[0])
    with table.pinned(files[0]) as descriptor:
        table.close(files[0])
        os.unlink(renamed)
        assert os.pread(descriptor, 4, 0) == b"data"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(LogClosed):
        content(table, files[0])
    assert disk.synced == []


def test_unused_files_are_closed_when_the_process_has_too_many_open(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = OpenFiles(100)
    files = disk.files(table, 3)
    write(table, files[0])
    real = os.open

    def opens(path: str, flags: int, mode: int = 0o777) -> int:
        if table.open_count > 1:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", opens)
    os.close(table.open(str(disk.root / "another"), os.O_CREAT | os.O_WRONLY))
    assert is_open(files) == [True, False, False]
    with table.pinned(files[1]), pytest.raises(OSError, match="Too many open files"):
        table.open(str(disk.root / "one more"), os.O_CREAT | os.O_WRONLY)


@pytest.mark.parametrize(
    ("limit", "capacity"), [(20, 8), (1024, 256), (20_000, 4000), (10**9, 4000), (resource.RLIM_INFINITY, 4000)]
)
def test_the_capacity_leaves_most_of_the_limit_to_sockets(limit: int, capacity: int) -> None:
    assert default_capacity(limit) == capacity


def test_threads_always_read_the_file_that_they_asked_for(disk: Disk) -> None:
    table = OpenFiles(3)
    files = disk.files(table, 8)
    for number, file in enumerate(files):
        write(table, file, b"%d" % number)
    faults: list[object] = []

    def read(seed: int) -> None:
        choices = random.Random(seed)
        for _ in range(400):
            number = choices.randrange(len(files))
            with table.pinned(files[number]) as descriptor:
                if choices.random() < 0.2:
                    os.pwrite(descriptor, b"%d" % number, 0)
                    files[number].is_dirty = True
                found = os.pread(descriptor, 10, 0)
            if found != b"%d" % number:
                faults.append((number, found))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content(table, files[0])
    assert (faults, table.open_count <= 3, {file.pins for file in files}) == ([], True, {0})


@pytest.fixture
def only_one_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenFiles]:
    """Segments share a table that holds one file open."""
    table = OpenFiles(1)
    monkeypatch.setattr(segment_module, "OPEN_FILES", table)
    yield table


def test_a_log_of_many_segments_needs_one_descriptor(open_log, only_one_file: OpenFiles) -> None:
    log = open_log(segment_bytes=300)
    for epoch in range(20):
        log.append_as_leader(batch(2, value_bytes=100), epoch)
    before = log.digest()
    log.rename(log.log_dir / "orders-0.x-future")
    assert (log.digest(), only_one_file.open_count) == (before, 1)
    log.truncate_to(21)
    log.append_as_leader(batch(2, value_bytes=100), 30)
    log.flush()
    assert (log.log_end_offset, log.recovery_point, only_one_file.open_count) == (22, 22, 1)
    log.close()
    assert only_one_file.open_count == 0


def test_a_sync_that_fails_while_room_is_made_takes_the_directory_offline_at_the_next_use(
    open_log, only_one_file: OpenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(segment_bytes=300)
    log.append_as_leader(batch(2, value_bytes=100), 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        log.append_as_leader(batch(2, value_bytes=100), 0)
    assert log.recovery_point == 0
    with pytest.raises(LogDirFailed):
        log.flush()


def test_the_process_has_one_table() -> None:
    assert segment_module.OPEN_FILES is open_files.OPEN_FILES


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "write-back failed")])
def test_a_sync_waits_for_one_that_is_under_way_and_shares_its_failure(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    table = OpenFiles(4)
    [file] = disk.files(table, 1)
    write(table, file)
    started, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    def fdatasync(_: int) -> None:
        started.set()
        assert may_end.wait(10)
        ended.append("sync")
        if error is not None:
            raise error

    def sync(name: str) -> None:
        try:
            table.sync(file)
        except OSError:
            name += " failed"
        ended.append(name)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    first = threading.Thread(target=sync, args=("first",))
    first.start()
    assert started.wait(10)
    second = threading.Thread(target=sync, args=("second",))
    second.start()
    second.join(0.05)
    assert ended == []
    may_end.set()
    first.join(10)
    second.join(10)
    assert ended[0] == "sync"
    assert sorted(ended[1:]) == (["first", "second"] if error is None else ["first failed", "second failed"])
