"""Small durable file operations. A name is durable once the directory that holds it has been fsynced.

Many new directories are made durable together: one `syncfs` writes all dirty data of their file system in one transaction of its
journal, where an fsync of each file and of each directory would be two transactions each. Since it also writes the dirty data of
other programs, a few directories are fsynced one by one. All directories are where there is no `syncfs` that reports errors (it
does from Linux 5.8 on).
"""

from __future__ import annotations

import functools
import mmap
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from kraftlab.config.regular_files import OddFile, clear_place, read_regular, remove_file

from .errors import CorruptFile

SMALL_MAX_BYTES = 1 << 20
TABLE_MAX_BYTES = 64 << 20
"""Largest file with an entry for each partition, leader epoch or producer; other files that are read whole are smaller."""
SYNCED_TOGETHER_MIN = 8
"""The file system is synced as a whole for at least this number of new directories."""


def read_small(path: Path, bytes_max: int = SMALL_MAX_BYTES) -> bytes:
    """Return the content of a file. CorruptFile if it is not regular or too large; OSError if it is missing or unreadable."""
    try:
        return read_regular(path, bytes_max)
    except OddFile as error:
        raise CorruptFile(path, str(error)) from error


def fsync_directory(path: Path) -> None:
    """Make the names in `path` durable."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_cached(paths: Iterable[Path]) -> None:
    """Drop the files' pages that the system takes for written, so that they are read from the disk again.

    After a write that failed, the system keeps the page in its cache as if it had been written. OSError.
    """
    for path in filter(Path.is_file, paths):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def write_durably(path: Path, text: str) -> None:
    """Replace `path` by `text`, atomically: write beside it, fsync, rename, fsync the directory."""
    temporary = path.with_name(path.name + ".tmp")
    clear_place(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, text.encode(), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if path.is_dir():
        remove_file(path)
    os.replace(temporary, path)
    fsync_directory(path.parent)


def write_first(path: Path, text: str) -> None:
    """Write a file into a new directory that is not read before it gets its final name, so the write need not be atomic. Not
    durable before `sync_new_directories`.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(descriptor, text.encode(), 0)
    finally:
        os.close(descriptor)


def sync_new_directories(directories: Sequence[Path]) -> None:
    """Make new directories of one parent durable, and the files in them. Their own names need another fsync of the parent."""
    if not directories:
        return
    sync = syncfs()
    if len(directories) < SYNCED_TOGETHER_MIN or sync is None:
        for directory in directories:
            for file in filter(Path.is_file, directory.iterdir()):
                _fsync(file, os.O_RDONLY)
            fsync_directory(directory)
        return
    descriptor = os.open(directories[0].parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


@functools.cache
def syncfs() -> Callable[[int], None] | None:
    """Return syncfs(2), None where it is missing or may hide errors."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if platform.system() != "Linux" or release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        return None

    def sync(descriptor: int) -> None:
        if library.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return sync


def start_write_back(descriptor: int, position: int, size_bytes: int) -> None:
    """Ask the kernel to write a range of a file to the disk, without waiting for it. Errors show at the next fsync.

    A page at the end that is not full stays: more bytes may follow, and it would be written twice.
    """
    start = _sync_file_range()
    first, last = position // _PAGE_BYTES * _PAGE_BYTES, (position + size_bytes) // _PAGE_BYTES * _PAGE_BYTES
    if start is not None and first < last:
        start(descriptor, first, last - first, _SYNC_FILE_RANGE_WRITE)


_PAGE_BYTES = mmap.PAGESIZE
_SYNC_FILE_RANGE_WRITE = 2


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return sync_file_range(2), which only Linux has."""
    import ctypes

    library = ctypes.CDLL(None)
    if platform.system() != "Linux" or not hasattr(library, "sync_file_range"):
        return None
    call: Callable[[int, int, int, int], int] = library.sync_file_range
    library.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


def rename_new(source: Path, target: Path) -> None:
    """Rename a directory; the names are not durable yet. OSError if `target` exists."""
    if os.path.exists(target):
        raise FileExistsError(f"{target} exists already; {source} is not renamed over it")
    os.rename(source, target)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a directory and make both parents' names durable. OSError if `target` exists, and as `make_rename_durable`."""
    rename_new(source, target)
    make_rename_durable(source, target)


def make_rename_durable(source: Path, target: Path) -> None:
    """Make the names durable after a rename. OSError if an fsync fails: then the directory gets its old name back, as far as the
    disk still works.
    """
    try:
        fsync_directory(target.parent)
        if source.parent != target.parent:
            fsync_directory(source.parent)
    except OSError:
        with suppress(OSError):
            os.rename(target, source)
        raise


def write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write the whole of `data` at `position`; a short write is continued."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view = view[written:]
        position += written
