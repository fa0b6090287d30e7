"""One segment of a partition's log: `<20-digit base offset>.log`, and its sparse indexes `.index` and `.timeindex`.

The log file holds record batches one after another and nothing else. The indexes have an entry for a batch about every
`index.interval.bytes` (`indexes.py`). A lookup takes the largest entry not above the wanted offset and walks headers from there.
When a segment is rolled, its time index gets a last entry with the largest timestamp of all. The data do not depend on the
indexes, which are written a page at a time and rebuilt from the log when they are missing or do not match.

The active segment is walked from its last entry on when it is opened. Of an older segment that is trusted, only the end is looked
up. Its indexes are checked at the first use: an entry counts only if the batch to which it points agrees. If an index is wrong,
lookups walk the log instead, slowly, and `needs_indexes` asks the owner for `build_indexes`.

`size_bytes` is the valid size: bytes beyond it belong to a failed append and are removed at once or at the next recovery. The
owner (one partition log) serialises changes; `read`, `locate` and `chunks` may run beside appends, but not beside truncation or
a rename of the directory. No descriptor is kept: `file` yields one (`open_files.py`).
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from kraftlab.records.errors import CorruptBatch, LogError
from kraftlab.records.record_batch import HEADER_BYTES, BatchHeader, check_crc, read_header

from .file_ranges import FileRange
from .files import write_all
from .indexes import LOG_SUFFIX, OFFSETS, TIMES, IndexFile
from .open_files import OPEN_FILES, LogFile
from .segment_rules import MAX_RELATIVE_OFFSET

CLEANED_SUFFIX = ".cleaned"
"""Follows the others while compaction writes a segment; see `compacting.py` for all three."""
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
"""Follows the others until the file is removed, after a delay."""
INDEX_INTERVAL_BYTES = 4096
NO_TIMESTAMP = -1
WINDOW_BYTES = 16 * 1024
CHUNK_BYTES = 1024 * 1024
BUILD_STEP_BYTES = 16 * 1024 * 1024
"""`build_indexes` pauses after this much of the log."""
_BUILDING = ".tmp"

logger = logging.getLogger(__name__)

Batches = list[tuple[int, BatchHeader]]
"""(position in the file, header) of batches in order."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The base offset in a file's name, None if there is none."""
    digits = name.partition(".")[0]
    return int(digits) if re.fullmatch("[0-9]{20}", digits) else None


class Segment:
    """A segment in use."""

    __slots__ = (
        "_bytes_since_entry",
        "_end_offset",
        "_file",
        "_first_timestamp_ms",
        "_index",
        "_indexed_timestamp_ms",
        "_latest",
        "_time_index",
        "base_offset",
        "directory",
        "needs_indexes",
        "size_bytes",
        "suffix",
    )

    def __init__(self, directory: Path, base_offset: int, size_bytes: int, suffix: str = "") -> None:
        self.directory = directory
        self.suffix = suffix
        """End of the files' names while compaction writes the segment, "" otherwise."""
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.needs_indexes = False
        """An index is missing or wrong."""
        self._file = LogFile(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{suffix}", sys.intern(str(directory.parent)))
        on_disk = -1 if size_bytes else 0
        self._index = IndexFile(OFFSETS, self._file, on_disk)
        self._time_index = IndexFile(TIMES, self._file, on_disk)
        self._bytes_since_entry = 0
        self._indexed_timestamp_ms = NO_TIMESTAMP
        """Timestamp of the last entry of the time index, of a segment that is appended to."""
        self._end_offset: int | None = None if size_bytes else base_offset
        self._latest: tuple[int, int] | None = None if size_bytes else (NO_TIMESTAMP, base_offset)
        """The largest timestamp, and the last offset of the first batch that has it. None: not looked up yet."""
        self._first_timestamp_ms: int | None = None

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

    @classmethod
    def unread(cls, directory: Path, base_offset: int, end_offset: int) -> Segment:
        """Return what stands for the segments of a log that is not opened. It has no file."""
        segment = cls(directory, base_offset, 0)
        segment._end_offset = end_offset
        return segment

    def file(self) -> AbstractContextManager[int]:
        """Yield a descriptor of the log file, valid inside the block.

        The caller holds the log's lock or has pinned the log. OSError if the file cannot be opened.
        """
        return OPEN_FILES.pinned(self._file)

    def lies_in(self, directory: Path) -> None:
        """Note that the directory was renamed."""
        self.directory = directory
        self._file.path = f"{directory}/{file_name(self.base_offset, LOG_SUFFIX)}{self.suffix}"

    def rename_files(self, suffix: str) -> None:
        """Give the files another `suffix`, the log file last. The names are not durable yet. Nobody may use the segment."""
        before = self.paths
        self.suffix = suffix
        self._file.path = f"{self.directory}/{file_name(self.base_offset, LOG_SUFFIX)}{suffix}"
        for source, target in zip(before, self.paths, strict=True):
            with nullcontext() if target == self._file.path else suppress(FileNotFoundError):
                os.rename(source, target)

    @property
    def paths(self) -> tuple[str, str, str]:
        """Paths of the indexes, which need not exist, and of the log file."""
        return self._index.path, self._time_index.path, self._file.path

    @property
    def log_path(self) -> Path:
        return Path(self._file.path)

    @property
    def end_offset(self) -> int:
        """The offset after the last batch, or the base offset of an empty segment. The first call may read. CorruptBatch."""
        if self._end_offset is None:
            end_offset = self.base_offset
            for _, header in self.headers(self._indexed(len(self._index))):
                end_offset = header.end_offset
            self._end_offset = end_offset
        return self._end_offset

    # Opening

    def load(self) -> None:
        """Open the active segment: trust the log file, take the indexes if they match, and walk the headers of the tail.

        CorruptBatch if the tail does not hold whole batches: then the segment needs `recover`.
        """
        if not self._take_indexes():
            self._clear_indexes()
        self._walk_tail()
        self.flush_index()

    def _take_indexes(self) -> bool:
        """Return True if both indexes end with entries that match the log."""
        entry, time_entry = self._index.last(), self._time_index.last()
        if entry is None or time_entry is None or not self._is_batch(entry):
            return False
        self._latest = self._checked(time_entry)
        self._indexed_timestamp_ms = time_entry[0]
        return self._latest is not None

    def _walk_tail(self) -> None:
        """Account the batches after the last index entry, at which the latest timestamp is known."""
        entry = self._index.last()
        position, size_bytes = entry[1] if entry is not None else 0, self.size_bytes
        self._bytes_since_entry = 0
        self._end_offset = self.base_offset
        try:
            for at, header in self.headers(position, size_bytes):
                self._account(at, header, INDEX_INTERVAL_BYTES)
                self._write_pages()
        finally:
            self.size_bytes = size_bytes

    def recover(self, take: Callable[[BatchHeader], str | None]) -> CorruptBatch | None:
        """Check every batch by its CRC, rebuild the indexes, and truncate the file at the first bad byte.

        `take` is called for each valid batch, and returns a reason to truncate there all the same, or None. Return the fault
        after the last batch that stays, None if the whole file is valid.
        """
        size_bytes = self.size_bytes
        self._clear_indexes()
        self.size_bytes = 0
        fault: CorruptBatch | None = None
        try:
            for origin, data, batches in self.chunks(0, size_bytes):
                for position, header in batches:
                    check_crc(data, position - origin, header, origin=origin)
                    if refusal := take(header):
                        raise CorruptBatch(position, refusal)
                    self._account(position, header, INDEX_INTERVAL_BYTES)
                self._write_pages()
        except CorruptBatch as error:
            fault = error
        if size_bytes:
            with self.file() as descriptor:
                if fault is not None:
                    os.ftruncate(descriptor, self.size_bytes)
                self._file.is_dirty = True  # The process before may have left writes that were not synced.
        self.flush_index()
        return fault

    def _check_follows(self, header: BatchHeader, position: int, end_offset: int) -> None:
        """CorruptBatch if a batch does not begin at or after `end_offset`, where the one before ends. No CRC covers its offset. A
        reader that goes on at the end of what it has read would read the same batches again and again.
        """
        if header.base_offset < end_offset:
            raise CorruptBatch(
                position, f"it begins at offset {header.base_offset}, below {end_offset} where the one before ends"
            )
        if header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise CorruptBatch(position, f"it ends at offset {header.last_offset}, which this segment cannot reach")

    def _account(self, position: int, header: BatchHeader, index_interval_bytes: int) -> None:
        """Add a batch at `position` to indexes, size and end."""
        if not position:
            self._first_timestamp_ms = header.max_timestamp_ms
        if self._latest is None or header.max_timestamp_ms > self._latest[0]:
            self._latest = (header.max_timestamp_ms, header.last_offset)
        if self._bytes_since_entry > index_interval_bytes:
            self._index.append(header.last_offset - self.base_offset, position)
            self._index_latest()
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes
        self.size_bytes = position + header.size_bytes
        self._end_offset = header.end_offset

    def _index_latest(self) -> None:
        if self._latest is not None and self._latest[0] > self._indexed_timestamp_ms:
            self._time_index.append(self._latest[0], self._latest[1] - self.base_offset)
            self._indexed_timestamp_ms = self._latest[0]

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
        """Yield (position, header) of the batches from `position` to `end`, reading little more than headers. CorruptBatch."""
        end = self.size_bytes if end is None else end
        window, origin, end_offset = b"", position, self.base_offset
        while position < end:
            if position + HEADER_BYTES > origin + len(window):
                window, origin = self.read(position, min(WINDOW_BYTES, end - position)), position
            header = read_header(window, position - origin, origin=origin)
            if position + header.size_bytes > end:
                raise CorruptBatch(position, f"cut short: {end - position} of {header.size_bytes} bytes")
            self._check_follows(header, position, end_offset)
            yield position, header
            position += header.size_bytes
            end_offset = header.end_offset

    def chunks(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes, Batches]]:
        """Yield (position, bytes, batches with their positions in the file): whole batches, about a MiB each. CorruptBatch."""
        end = self.size_bytes if end is None else end
        end_offset = self.base_offset
        while position < end:
            data = self.read(position, min(CHUNK_BYTES, end - position))
            batches: Batches = []
            used = 0
            while len(data) - used >= HEADER_BYTES:
                try:
                    header = read_header(data, used, origin=position)
                    self._check_follows(header, position + used, end_offset)
                except CorruptBatch:
                    break  # raised by the next read, after the valid batches before it
                if used + header.size_bytes > len(data):
                    break
                batches.append((position + used, header))
                used += header.size_bytes
                end_offset = header.end_offset
            if not batches:
                header = read_header(data, origin=position)
                self._check_follows(header, position, end_offset)
                if position + header.size_bytes > end:
                    raise CorruptBatch(position, f"cut short: {end - position} of {header.size_bytes} bytes")
                data, used = self.read(position, header.size_bytes), header.size_bytes
                batches.append((position, header))
                end_offset = header.end_offset
            yield position, data[:used], batches
            position += used

    def locate(self, offset: int, end: int | None = None) -> tuple[int, BatchHeader] | None:
        """Return (position, header) of the first batch, below position `end`, whose last offset is `offset` or later."""
        start = self._indexed(self._index.count_upto(0, offset - self.base_offset))
        for position, header in self.headers(start, end):
            if header.last_offset >= offset:
                return position, header
        return None

    def end_of_batches(self, position: int, limit: int, upto: int, end: int) -> int:
        """Return the end of the last whole batch that begins at or after `position` and ends at or before position `limit` and
        below offset `upto`; `position` if there is no such batch. Damage ends the batches, too; CorruptBatch if it comes first.

        `end` is the size of the segment when the read began.
        """
        with suppress(CorruptBatch):
            if limit >= end and upto >= self.end_offset:
                return end
        count = min(self._index.count_upto(1, limit), self._index.count_upto(0, upto - 1 - self.base_offset))
        reached = max(self._indexed(count), position)
        try:
            for at, header in self.headers(reached, end):
                if at + header.size_bytes > limit or header.end_offset > upto:
                    break
                reached = at + header.size_bytes
        except CorruptBatch:
            if reached == position:
                raise
        return reached

    def end_offset_at(self, position: int) -> int:
        """Return the end offset of the batch that ends at `position`; the base offset at position 0."""
        end_offset = self.base_offset
        for _, header in self.headers(self._indexed(self._index.count_upto(1, position - 1)), position):
            end_offset = header.end_offset
        return end_offset

    def batches_since(self, timestamp_ms: int, offset: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches, below position `end`, that hold records from `offset` on and have a timestamp
        of `timestamp_ms` or later.
        """
        entry = self._time_index.entry(self._time_index.count_upto(0, timestamp_ms) - 1)
        latest = self._checked(entry) if entry is not None else None
        start = max(offset, latest[1]) if latest is not None else offset
        for position, header in self.headers(self._indexed(self._index.count_upto(0, start - self.base_offset)), end):
            if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= offset:
                yield position, header

    @property
    def latest(self) -> tuple[int, int] | None:
        """The largest timestamp, and the last offset of the first batch that has it; (-1, base offset) if there is none.

        None if the time index is missing or wrong; see `needs_indexes`. The first call may read.
        """
        if self._latest is None:
            entry = self._time_index.last()
            self._latest = self._checked(entry) if entry is not None else None
            # The offset index has about as many entries; without it the file is missing or cut within an entry.
            self.needs_indexes |= self._latest is None or (len(self._time_index) > 1 and not len(self._index))
        return self._latest

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, -1 for an empty segment. The first call may read."""
        if self._first_timestamp_ms is None:
            first = next(self.headers(), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp_ms = first[1].max_timestamp_ms
        return self._first_timestamp_ms

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp, -1 if there is none. Reads all headers if the time index is missing or wrong."""
        latest = self.latest
        if latest is not None:
            return latest[0]
        return max((header.max_timestamp_ms for _, header in self.headers()), default=NO_TIMESTAMP)

    def modified_ms(self) -> int:
        """Time of the last change of the log file, for segments without timestamps. OSError."""
        return int(os.stat(self._file.path).st_mtime * 1000)

    # Index entries

    def _indexed(self, count: int) -> int:
        """Return the position to which the last of the first `count` entries points; 0 if there is none, or if it is wrong."""
        entry = self._index.entry(count - 1)
        if entry is None:
            return 0
        if self._index.is_in_memory(count - 1) or self._is_batch(entry):
            return entry[1]
        self._distrust()
        return 0

    def _is_batch(self, entry: tuple[int, int]) -> bool:
        """Return True if a batch with that last offset begins at that position."""
        relative, position = entry
        if not 0 <= position <= self.size_bytes - HEADER_BYTES:
            return False
        try:
            return read_header(self.read(position, HEADER_BYTES)).last_offset == self.base_offset + relative
        except CorruptBatch:
            return False

    def _checked(self, time_entry: tuple[int, int]) -> tuple[int, int] | None:
        """Return timestamp and offset of an entry of the time index, None if the batch does not agree."""
        timestamp_ms, offset = time_entry[0], self.base_offset + time_entry[1]
        found = self.locate(offset)
        if found is not None and (found[1].max_timestamp_ms, found[1].last_offset) == (timestamp_ms, offset):
            return timestamp_ms, offset
        self._distrust()
        return None

    def _distrust(self) -> None:
        if not self.needs_indexes:
            logger.warning("the indexes of %s do not match it; they will be rebuilt", self._file.path)
            self.needs_indexes = True

    def build_indexes(self) -> Iterator[None]:
        """Build both indexes of a full segment from its headers, and put them in place. Pauses now and then: the caller may let
        readers and writers of the log go on, but ends if this segment is truncated. OSError, CorruptBatch.
        """
        built = Segment(self.directory, self.base_offset, 0)
        built._index = IndexFile(OFFSETS, self._file, 0, _BUILDING)
        built._time_index = IndexFile(TIMES, self._file, 0, _BUILDING)
        pause_at = BUILD_STEP_BYTES
        for position, header in self.headers(0, self.size_bytes):
            built._account(position, header, INDEX_INTERVAL_BYTES)
            built._write_pages()
            if position >= pause_at:
                pause_at = position + BUILD_STEP_BYTES
                yield
        built._index_latest()
        self._index.take_over(built._index)
        self._time_index.take_over(built._time_index)
        self._latest, self._end_offset = built._latest, built._end_offset
        self.needs_indexes = False

    # Changing

    def append(
        self,
        data: bytes | memoryview | FileRange,
        headers: Sequence[BatchHeader],
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    ) -> None:
        """Write whole batches at the end. On OSError, and on LogError from the source of a range, the file is as before, unless
        the rollback fails with OSError, or an index cannot be written: then the caller truncates.
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
            self._account(position, header, index_interval_bytes)
            position += header.size_bytes
        self._write_pages()

    def truncate(self, position: int, end_offset: int) -> None:
        """Truncate the file at `position`, where the end offset is `end_offset`; first the indexes, which never point beyond.

        The segment is appended to afterwards.
        """
        self._index.truncate(self._index.count_upto(1, position - 1))
        self._time_index.truncate(self._time_index.count_upto(1, end_offset - 1 - self.base_offset))
        with self.file() as descriptor:
            os.ftruncate(descriptor, position)
            self._file.is_dirty = True
        self.size_bytes = position
        self._first_timestamp_ms = None
        self.load()

    def is_full(self, index_bytes: int) -> bool:
        """Return True if an index has no room for another entry; the last place of the time index is kept for the roll."""
        offsets_max, times_max = index_bytes // OFFSETS.entry.size, index_bytes // TIMES.entry.size
        return len(self._index) >= offsets_max or len(self._time_index) >= times_max - 1

    def seal(self) -> None:
        """Note the latest timestamp in the time index once nothing more is appended. OSError."""
        self._index_latest()
        self.flush_index()

    def sync(self) -> None:
        """Make the batches durable. An OSError is final: the content of the disk is unknown then."""
        OPEN_FILES.sync(self._file)

    def flush_index(self, *, durably: bool = False) -> None:
        """Write new index entries to the index files. OSError."""
        self._index.write(durably=durably)
        self._time_index.write(durably=durably)

    @property
    def are_indexes_durable(self) -> bool:
        return self._index.is_durable and self._time_index.is_durable

    def _write_pages(self) -> None:
        self._index.write_pages()
        self._time_index.write_pages()

    def _clear_indexes(self) -> None:
        self._index.clear()
        self._time_index.clear()
        self._bytes_since_entry = 0
        self._indexed_timestamp_ms = NO_TIMESTAMP
        self._end_offset = self.base_offset
        self._latest = (NO_TIMESTAMP, self.base_offset)
        self.needs_indexes = False

    def close(self) -> None:
        """Close the file for good, without a sync."""
        OPEN_FILES.close(self._file)

    def set_aside(self) -> tuple[str, ...]:
        """Close the file, and rename the files so that they are no longer part of the log; return their new names. OSError."""
        self.close()
        self.rename_files(DELETED_SUFFIX)
        return tuple(os.path.basename(path) for path in self.paths)

    def delete(self) -> None:
        """Close and remove the files, indexes first: an index without a log is junk, a log without an index is whole."""
        self.close()
        for path in self.paths:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def __repr__(self) -> str:
        return f"segment {self.base_offset}..{self._end_offset} {self.size_bytes} B"
