"""One segment of a partition's log: `<20-digit base offset>.log` and its sparse offset index `.index`.

The log file holds record batches one after another and nothing else. The index has one 8-byte entry (int32 offset relative to the
base, int32 position) for a batch about every 4096 bytes: the batch's *last* offset and its position. A lookup takes the largest
entry not above the wanted offset and walks headers from there. The data do not depend on the index: it lives in memory, is
appended to its file by `flush_index`, and is rebuilt from the log when the file is missing or does not match.

`size_bytes` is the valid size: bytes beyond it belong to a failed append and are removed at once or at the next recovery. The
owner (one partition log) serialises changes; `read`, `locate` and `chunks` may run beside appends, but not beside truncation or
a rename of the directory. No descriptor is kept: `file` yields one (`open_files.py`).
"""

from __future__ import annotations

import os
import re
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from .errors import CorruptBatch, LogError
from .file_ranges import FileRange
from .files import write_all
from .open_files import OPEN_FILES, LogFile
from .record_batch import HEADER_BYTES, BatchHeader, check_crc, read_header

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
CLEANED_SUFFIX = ".cleaned"
"""Follows the others while compaction writes a segment; see `compacting.py` for all three."""
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
INDEX_INTERVAL_BYTES = 4096
INDEX_ENTRY = struct.Struct(">ii")
MAX_RELATIVE_OFFSET = 2**31 - 1
WINDOW_BYTES = 16 * 1024
CHUNK_BYTES = 1024 * 1024

Batches = list[tuple[int, BatchHeader]]
"""(position in the file, header) of batches in order."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The base offset in a file's name, None if there is none."""
    digits = name.partition(".")[0]
    return int(digits) if re.fullmatch("[0-9]{20}", digits) else None


class Segment:
    """A segment in use. `end_offset` is the offset after its last batch, or its base offset while it is empty."""

    def __init__(self, directory: Path, base_offset: int, size_bytes: int, suffix: str = "") -> None:
        self.directory = directory
        self.suffix = suffix
        """End of the files' names while compaction writes the segment, "" otherwise."""
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.end_offset = base_offset
        self._file = LogFile(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{suffix}", sys.intern(str(directory.parent)))
        self._max_timestamp_ms: int | None = None if size_bytes else -1
        self._index_offsets = array("q")
        self._index_positions = array("q")
        self._index_entries_on_disk = 0
        self._bytes_since_entry = 0

    @classmethod
    def create(cls, directory: Path, base_offset: int, suffix: str = "") -> Segment:
        """Create an empty segment. OSError if one exists."""
        segment = cls(directory, base_offset, 0, suffix)
        OPEN_FILES.create(segment._file)
        return segment

    @classmethod
    def open_file(cls, directory: Path, base_offset: int, suffix: str = "") -> Segment:
        """Return a segment that exists, without reading it; call `load` or `recover` before anything else."""
        size_bytes = os.stat(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{suffix}").st_size
        return cls(directory, base_offset, size_bytes, suffix)

    def file(self) -> AbstractContextManager[int]:
        """Yield a descriptor of the log file, valid inside the block.

        The caller holds the log's lock or has pinned the log. OSError if the file cannot be opened.
        """
        return OPEN_FILES.pinned(self._file)

    def lies_in(self, directory: Path) -> None:
        """Note that the directory was renamed."""
        self.directory = directory
        self._file.path = str(self.log_path)

    def rename_files(self, suffix: str) -> None:
        """Give the files another `suffix`, the log file last. The names are not durable yet. Nobody may use the segment."""
        before = [self.index_path, self.log_path]
        self.suffix = suffix
        for source, target in zip(before, (self.index_path, self.log_path), strict=True):
            with nullcontext() if target == self.log_path else suppress(FileNotFoundError):
                os.rename(source, target)
        self._file.path = str(self.log_path)

    @property
    def log_path(self) -> Path:
        return self.directory / f"{file_name(self.base_offset, LOG_SUFFIX)}{self.suffix}"

    @property
    def index_path(self) -> Path:
        return self.directory / f"{file_name(self.base_offset, INDEX_SUFFIX)}{self.suffix}"

    # Opening

    def load(self) -> None:
        """Trust the log file, take the index if it matches, and find the end offset from the headers of the tail.

        CorruptBatch if the tail does not hold whole batches: then the segment needs `recover`.
        """
        if not self._read_index():
            self._rebuild_index()
            return
        position = self._index_positions[-1] if self._index_positions else 0
        self._bytes_since_entry = self.size_bytes - position
        for _, header in self.headers(position):
            self._check_follows(header)
            self.end_offset = header.end_offset

    def recover(self, take: Callable[[BatchHeader], str | None]) -> CorruptBatch | None:
        """Check every batch by its CRC, rebuild the index, and truncate the file at the first bad byte.

        `take` is called for each valid batch, and returns a reason to truncate there all the same, or None. Return the fault
        after the last batch that stays, None if the whole file is valid.
        """
        self._clear_index()
        size_bytes, self.size_bytes = self.size_bytes, 0
        self.end_offset = self.base_offset
        fault: CorruptBatch | None = None
        try:
            for origin, data, batches in self.chunks(0, size_bytes):
                for position, header in batches:
                    check_crc(data, position - origin, header, origin=origin)
                    self._check_follows(header, position)
                    if refusal := take(header):
                        raise CorruptBatch(position, refusal)
                    self._account(position, header)
        except CorruptBatch as error:
            fault = error
        if size_bytes:
            with self.file() as descriptor:
                if fault is not None:
                    os.ftruncate(descriptor, self.size_bytes)
                self._file.is_dirty = True  # The process before may have left writes that were not synced.
        self.flush_index()
        return fault

    def _rebuild_index(self) -> None:
        size_bytes, self.size_bytes = self.size_bytes, 0
        self._clear_index()
        try:
            for position, header in self.headers(0, size_bytes):
                self._check_follows(header, position)
                self._account(position, header)
        finally:
            self.size_bytes = size_bytes
        self.flush_index()

    def _check_follows(self, header: BatchHeader, position: int = 0) -> None:
        if header.base_offset < self.end_offset:
            raise CorruptBatch(
                position, f"it begins at offset {header.base_offset}, below {self.end_offset} where the one before ends"
            )
        if header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise CorruptBatch(position, f"it ends at offset {header.last_offset}, which this segment cannot reach")

    def _account(self, position: int, header: BatchHeader) -> None:
        """Add a batch at `position` to index, size and end."""
        if self._bytes_since_entry > INDEX_INTERVAL_BYTES:
            self._index_positions.append(position)  # before the offset: a reader that finds the offset reads the position
            self._index_offsets.append(header.last_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes
        self.size_bytes = position + header.size_bytes
        self.end_offset = header.end_offset
        if self._max_timestamp_ms is not None:
            self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp_ms)

    # Reading

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return exactly `size_bytes` from `position`; CorruptBatch if the file ends before."""
        with self.file() as descriptor:
            data = os.pread(descriptor, size_bytes, position)
            while len(data) < size_bytes:
                more = os.pread(descriptor, size_bytes - len(data), position + len(data))
                if not more:
                    raise CorruptBatch(position, f"{self.log_path.name} ends after {len(data)} of {size_bytes} bytes")
                data += more
        return data

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches from `position` to `end`, reading little more than the headers."""
        end = self.size_bytes if end is None else end
        window, origin = b"", position
        while position < end:
            if position + HEADER_BYTES > origin + len(window):
                window, origin = self.read(position, min(WINDOW_BYTES, end - position)), position
            header = read_header(window, position - origin, origin=origin)
            if position + header.size_bytes > end:
                raise CorruptBatch(position, f"cut short: {end - position} of {header.size_bytes} bytes")
            yield position, header
            position += header.size_bytes

    def chunks(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes, Batches]]:
        """Yield (position, bytes, batches with their positions in the file): whole batches, about a MiB at a time."""
        end = self.size_bytes if end is None else end
        while position < end:
            data = self.read(position, min(CHUNK_BYTES, end - position))
            batches: Batches = []
            used = 0
            while len(data) - used >= HEADER_BYTES:
                try:
                    header = read_header(data, used, origin=position)
                except CorruptBatch:
                    break  # raised by the next read, after the valid batches before it
                if used + header.size_bytes > len(data):
                    break
                batches.append((position + used, header))
                used += header.size_bytes
            if not batches:
                header = read_header(data, origin=position)
                if position + header.size_bytes > end:
                    raise CorruptBatch(position, f"cut short: {end - position} of {header.size_bytes} bytes")
                data, used = self.read(position, header.size_bytes), header.size_bytes
                batches.append((position, header))
            yield position, data[:used], batches
            position += used

    def locate(self, offset: int, end: int | None = None) -> tuple[int, BatchHeader] | None:
        """Return (position, header) of the first batch, below position `end`, whose last offset is `offset` or later."""
        index = bisect_right(self._index_offsets, offset)
        start = self._index_positions[index - 1] if index else 0
        for position, header in self.headers(start, end):
            if header.last_offset >= offset:
                return position, header
        return None

    def end_of_batches(self, position: int, limit: int, upto: int, end: int) -> int:
        """Return the end of the last whole batch that begins at or after `position` and ends at or before position `limit` and
        below offset `upto`; `position` if there is no such batch.

        `end` is the size of the segment when the read began.
        """
        if limit >= end and upto >= self.end_offset:
            return end
        index = min(bisect_right(self._index_positions, limit), bisect_right(self._index_offsets, upto - 1))
        start = self._index_positions[index - 1] if index else 0
        for at, header in self.headers(max(start, position), end):
            if at + header.size_bytes > limit or header.end_offset > upto:
                return at
        return end

    def indexed_position(self, position: int) -> int:
        """Return the position of a batch that begins at or before `position`, at most about 4096 bytes and a batch away."""
        index = bisect_right(self._index_positions, position)
        return self._index_positions[index - 1] if index else 0

    @property
    def max_timestamp_ms(self) -> int:
        """The largest record timestamp, -1 for an empty segment. May read all headers, once."""
        if self._max_timestamp_ms is None:
            self._max_timestamp_ms = max((header.max_timestamp_ms for _, header in self.headers()), default=-1)
        return self._max_timestamp_ms

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, -1 for an empty segment."""
        return next((header.max_timestamp_ms for _, header in self.headers()), -1)

    # Changing

    def append(self, data: bytes | memoryview | FileRange, headers: Sequence[BatchHeader]) -> None:
        """Write whole batches at the end. On OSError, and on LogError from the source of a range, the file is as before, unless
        the rollback fails with OSError.
        """
        start = self.size_bytes
        with self.file() as descriptor:
            try:
                if isinstance(data, FileRange):
                    data.write_to(descriptor, start)
                else:
                    write_all(descriptor, data, start)
            except (OSError, LogError):
                os.ftruncate(descriptor, start)
                raise
            finally:
                self._file.is_dirty = True
        position = start
        for header in headers:
            self._account(position, header)
            position += header.size_bytes

    def truncate(self, position: int, end_offset: int) -> None:
        """Truncate the file at `position`, where the end offset is `end_offset`; first the index, which never points beyond."""
        count = bisect_right(self._index_positions, position - 1)
        del self._index_offsets[count:], self._index_positions[count:]
        if self._index_entries_on_disk > count:
            with suppress(FileNotFoundError):
                os.truncate(self.index_path, count * INDEX_ENTRY.size)
            self._index_entries_on_disk = count
        with self.file() as descriptor:
            os.ftruncate(descriptor, position)
            self._file.is_dirty = True
        self.size_bytes = position
        self.end_offset = end_offset
        self._bytes_since_entry = position - (self._index_positions[-1] if count else 0)
        self._max_timestamp_ms = None

    def sync(self) -> None:
        """Make the batches durable. An OSError is final: the content of the disk is unknown then."""
        OPEN_FILES.sync(self._file)

    def flush_index(self) -> None:
        """Append new index entries to the index file. It is not fsynced: one that does not fit is rebuilt."""
        count = len(self._index_offsets)
        if self._index_entries_on_disk == count and (count or self.index_path.exists()):
            return
        first = self._index_entries_on_disk
        entries = b"".join(
            INDEX_ENTRY.pack(self._index_offsets[i] - self.base_offset, self._index_positions[i]) for i in range(first, count)
        )
        descriptor = OPEN_FILES.open(str(self.index_path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            write_all(descriptor, entries, first * INDEX_ENTRY.size)
            os.ftruncate(descriptor, count * INDEX_ENTRY.size)
        finally:
            os.close(descriptor)
        self._index_entries_on_disk = count

    def close(self) -> None:
        """Close the file for good, without a sync."""
        OPEN_FILES.close(self._file)

    def delete(self) -> None:
        """Close and remove the files, index first: an index without a log is junk, a log without an index is whole."""
        self.close()
        self.index_path.unlink(missing_ok=True)
        self.log_path.unlink(missing_ok=True)

    # The index file

    def _clear_index(self) -> None:
        self._index_offsets, self._index_positions = array("q"), array("q")
        self._index_entries_on_disk = 0
        self._bytes_since_entry = 0
        self._max_timestamp_ms = -1
        self.index_path.unlink(missing_ok=True)

    def _read_index(self) -> bool:
        """Take the index file's entries. False if it is missing or does not fit the log."""
        try:
            data = self.index_path.read_bytes()
        except FileNotFoundError:
            return False
        if len(data) % INDEX_ENTRY.size:
            return False
        offset, position = self.base_offset - 1, -1
        for relative, at in INDEX_ENTRY.iter_unpack(data):
            if self.base_offset + relative <= offset or not position < at < self.size_bytes:
                return False
            offset, position = self.base_offset + relative, at
            self._index_offsets.append(offset)
            self._index_positions.append(position)
        self._index_entries_on_disk = len(self._index_offsets)
        if position < 0:
            return self.size_bytes <= INDEX_INTERVAL_BYTES
        try:
            return read_header(self.read(position, HEADER_BYTES), origin=position).last_offset == offset
        except CorruptBatch:
            return False

    def __repr__(self) -> str:
        return f"segment {self.base_offset}..{self.end_offset} {self.size_bytes} B"
