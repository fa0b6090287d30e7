"""Sparse index of a segment, in a file of fixed-size entries: `.index` and `.timeindex`, in Kafka's formats.

============  =============================  =====================================================================================
`.index`      int32 offset, int32 position   the last offset of a batch, and the position of the batch
`.timeindex`  int64 timestamp, int32 offset  the largest timestamp so far, and the last offset of the first batch that has it
============  =============================  =====================================================================================

Offsets are relative to the segment's base. Both columns of both rise. An index never lies in memory as a whole: the newest
entries wait there until they fill a page, or until the segment is rolled or closed; older ones are looked up in the file, by a
few small reads. No descriptor is kept.

An index only says where to begin a search. Its file is not durable before the segment's records are, it may be missing, cut short
or damaged; so the reader compares the entry that it found with the batch to which the entry points (`segment.py`).

One thread changes an index at a time. Lookups run beside appends and beside `write`: they take the number of entries in the file
and the entries in memory at one time, and entries in the file only grow in number. They do not run beside `truncate`.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from contextlib import suppress
from typing import NamedTuple

from .files import write_all
from .open_files import OPEN_FILES, LogFile

LOG_SUFFIX = ".log"

PAGE_ENTRIES = 512
"""Entries that are kept in memory at most, or read at once."""

Entry = tuple[int, int]


class IndexKind(NamedTuple):
    suffix: str
    entry: struct.Struct


OFFSETS = IndexKind(".index", struct.Struct(">ii"))
TIMES = IndexKind(".timeindex", struct.Struct(">qi"))


class IndexFile:
    """Entries of one index. Its file lies beside the log file. A missing file has no entries.

    `entries_on_disk` -1: as many as the file has, to be seen at the first use. `passing`: a suffix of the file's name while the
    index is built, until `take_over`.
    """

    __slots__ = ("_entry", "_is_dirty", "_log", "_passing", "_state", "_suffix")

    def __init__(self, kind: IndexKind, log: LogFile, entries_on_disk: int, passing: str = "") -> None:
        self._entry = kind.entry
        self._suffix = kind.suffix
        self._passing = passing
        self._log = log
        self._state = (entries_on_disk, bytearray())
        """Number of entries in the file, and the entries after those. Replaced as a whole, or the second one appended to."""
        self._is_dirty = False

    @property
    def path(self) -> str:
        before, _, after = self._log.path.rpartition(LOG_SUFFIX)
        return before + self._suffix + after + self._passing

    def __len__(self) -> int:
        on_disk, pending = self._known()
        return on_disk + len(pending) // self._entry.size

    def _known(self) -> tuple[int, bytearray]:
        """Return the state, with the number of entries in the file."""
        on_disk, pending = self._state
        if on_disk < 0:
            try:
                size_bytes = os.stat(self.path).st_size
            except FileNotFoundError:
                size_bytes = 0
            # A file with a part of an entry is not trusted.
            on_disk = 0 if size_bytes % self._entry.size else size_bytes // self._entry.size
            self._state = (on_disk, pending)
        return on_disk, pending

    # Lookups

    def last(self) -> Entry | None:
        """Return the last entry, None if there is none."""
        return self.entry(len(self) - 1)

    def entry(self, number: int) -> Entry | None:
        """Return one entry, None outside the index."""
        on_disk, pending = self._known()
        size = self._entry.size
        if number >= on_disk:
            at = (number - on_disk) * size
            return self._unpack(pending, at) if at < len(pending) else None
        if number < 0:
            return None
        with suppress(FileNotFoundError), _reading(self.path) as descriptor:
            data = os.pread(descriptor, size, number * size)
            return self._unpack(data, 0) if len(data) == size else None
        return None

    def count_upto(self, column: int, wanted: int) -> int:
        """Return the number of entries whose value in that column is at most `wanted`."""
        on_disk, pending = self._known()
        size = self._entry.size
        if pending and self._entry.unpack_from(pending, 0)[column] <= wanted:
            return on_disk + self._bisect(pending, column, wanted)
        if not on_disk:
            return 0
        with suppress(FileNotFoundError), _reading(self.path) as descriptor:
            low, high = 0, on_disk
            while high - low > PAGE_ENTRIES:
                middle = (low + high) // 2
                data = os.pread(descriptor, size, middle * size)
                if len(data) < size or self._entry.unpack(data)[column] > wanted:
                    high = middle
                else:
                    low = middle
            return low + self._bisect(os.pread(descriptor, (high - low) * size, low * size), column, wanted)
        return 0

    def _bisect(self, entries: bytes | bytearray, column: int, wanted: int) -> int:
        size = self._entry.size
        return bisect_right(range(len(entries) // size), wanted, key=lambda number: self._unpack(entries, number * size)[column])

    def _unpack(self, entries: bytes | bytearray, at: int) -> Entry:
        first, second = self._entry.unpack_from(entries, at)
        return first, second

    def is_in_memory(self, number: int) -> bool:
        """Return True if the entry was not written yet, so that it needs no check."""
        return number >= self._known()[0]

    @property
    def is_durable(self) -> bool:
        """False if this process has added entries since `write` was last called with `durably`."""
        return not self._state[1] and not self._is_dirty

    # Changes

    def append(self, first: int, second: int) -> None:
        """Add an entry, in memory. The owner calls `write_pages` soon."""
        self._known()[1].extend(self._entry.pack(first, second))

    def write_pages(self) -> None:
        """Write the entries to the file if they fill a page. OSError."""
        if len(self._state[1]) >= PAGE_ENTRIES * self._entry.size:
            self.write()

    def write(self, *, durably: bool = False) -> None:
        """Write all entries to the file, which is made for the first one. OSError: they stay in memory."""
        on_disk, pending = self._known()
        if not pending and not (durably and self._is_dirty):
            return
        descriptor = OPEN_FILES.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            if pending:
                self._is_dirty = True
                write_all(descriptor, bytes(pending), on_disk * self._entry.size)
                if not on_disk:
                    os.ftruncate(descriptor, len(pending))  # There may be an old file, which was not trusted.
            if durably:
                os.fdatasync(descriptor)
                self._is_dirty = False
        finally:
            os.close(descriptor)
        self._state = (on_disk + len(pending) // self._entry.size, bytearray())

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries. OSError."""
        on_disk, pending = self._known()
        if count < on_disk:
            with suppress(FileNotFoundError):
                os.truncate(self.path, count * self._entry.size)
            self._state = (count, bytearray())
            self._is_dirty = True
        else:
            self._state = (on_disk, pending[: (count - on_disk) * self._entry.size])

    def clear(self) -> None:
        """Remove all entries and the file. OSError."""
        self._state = (0, bytearray())
        self._is_dirty = False
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def take_over(self, other: IndexFile) -> None:
        """Become the index that was built under another name. OSError."""
        other.write(durably=True)
        if len(other):
            os.replace(other.path, self.path)
            self._state = other._state
            self._is_dirty = False
        else:
            self.clear()


class _reading:
    """A descriptor of an index file, for reading."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = OPEN_FILES.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
