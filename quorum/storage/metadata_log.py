"""The metadata log on disk: one stream of batches over segment files, appended and truncated by one writer.

**Two sides.** The event loop calls `append`, `truncate` and `read`. They change the in-memory index and the tail cache at once,
and stage the changes for the disk. A worker thread calls `flush`: it takes everything staged so far, writes it, and ends with one
fdatasync, so appends that gathered during a flush form the next one (group commit without a timer). Staged truncations and
appends are folded into at most one cut followed by one run of bytes, which leaves the disk in the same final state as doing them
in order.

**Durability.** When `flush` returns, everything staged before it began is durable, cuts included. Inside a flush the cut comes
first: later segments are removed, the cut range is zeroed and fsynced before new bytes go there, so cut batches cannot come back
to life before a later crash. A new segment's header page and name are fsynced before its first batch. Batches whose high
watermark stamp is beyond the durable end here are written unsealed first (recovery.py has the reason), which costs a second
fdatasync and happens only while catching up.

**Snapshots.** The log starts where its oldest snapshot ends, or at 0. `clean` moves that start up at once. The flush then removes
older snapshots and, when they are durably gone, the segments that lie wholly below. `install` replaces the whole log by a
verified snapshot: in memory at once, on disk in the next flush, which first gives the snapshot its name, then removes everything
else. A crash in between leaves the snapshot beside parts of a log that it does not belong to, and recovery finishes the removal.
The disk never holds anything without its beginning.

**Errors.** StorageFull puts everything back as staged: a later flush tries again. FsyncFailed and DiskFailed are final.

Not checked here: the meaning of the records, and truncations beyond the rule that they stay above every stamp.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from kraftlab.common.errors import InvariantViolation

from ..core import batch
from ..core.batch import BatchHeader
from ..core.errors import CorruptBatch
from ..core.types import OffsetAndEpoch
from .batch_index import BatchIndex
from .errors import DiskFailed, LogCorrupt, StorageError, StorageFull
from .file_system import FileSystem
from .identity import LogIdentity
from .recovery import UNSEALED, RecoveredLog, parse
from .segment import HEADER_PAGE_BYTES, Segment, SegmentHeader, segment_name
from .snapshot_store import SnapshotStore
from .tail_cache import TailCache

SEGMENT_BYTES = 64 * 1024 * 1024
PREALLOCATE_BYTES = 4 * 1024 * 1024
CACHE_BYTES = 32 * 1024 * 1024


class FlushWork(msgspec.Struct, frozen=True, gc=False):
    """The work of one flush: cut the log's bytes at `cut_position` (None: no cut), then add `data` at the end.

    `batches` are the added batches: first byte within `data`, base offset, high watermark stamp, epoch, crc.
    """

    cut_position: int | None
    cut_offset: int
    start_position: int
    data: bytes
    batches: list[tuple[int, int, int, int, int]]
    end_offset: int
    previous_epoch: int
    previous_crc: int
    install: OffsetAndEpoch | None
    """Before everything else, this snapshot replaces the log."""
    clean: tuple[OffsetAndEpoch, int] | None
    """After everything else, snapshots below this one and segments below this position may go."""


def _start_position(segment: Segment) -> int:
    return segment.start_position


class MetadataLog:
    """See the module's docstring. `append`, `truncate`: one thread; `flush`: one worker thread; `read`: any thread."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        identity: LogIdentity,
        snapshots: SnapshotStore,
        recovered: RecoveredLog,
        *,
        segment_bytes: int,
        preallocate_bytes: int,
        cache_bytes: int,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._identity = identity
        self._snapshots = snapshots
        self._segment_bytes = segment_bytes
        self._preallocate_bytes = preallocate_bytes
        self.recovery_notes = recovered.notes
        """One line for each repair of recovery; empty after a clean stop."""
        self._lock = threading.Lock()
        self._index: BatchIndex = recovered.batches
        self.start = OffsetAndEpoch(self._index.start_offset, self._index.start_epoch)
        """The log's start and the epoch before it: the end of its oldest snapshot, 0@0 without one."""
        self.start_crc = self._index.start_crc
        """The previous crc of the first batch."""
        self._segments: list[Segment] = recovered.segments
        self._retired: list[Segment] = []
        """Removed segments that may still be read."""
        self._readers = 0
        self._unwanted: list[str] = []
        """Files that must be gone before anything else is written: the next start would take them for part of the log."""
        self._surplus: list[str] = []
        """Files below the log's start, which can go at any time."""
        self._cache = TailCache(cache_bytes, self._index.end_position)
        self._changes = 0
        """Count of changes that can move or remove bytes that a reader has looked up."""
        self._staged_install: OffsetAndEpoch | None = None
        self._staged_cut: int | None = None
        self._staged_clean: tuple[OffsetAndEpoch, int] | None = None
        self._clean_position = self._index.end_position
        self._written_position = self._index.end_position
        self._failure: StorageError | None = None
        self.durable_end_offset = self._index.end_offset
        self._stamp = max(max(self._index.high_watermarks, default=0), self.start.offset)

    @property
    def start_offset(self) -> int:
        return self.start.offset

    @property
    def end_offset(self) -> int:
        return self._index.end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        positions = self._index.positions
        return self._index.end_position - positions[0] if positions else 0

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def high_watermark_stamp(self) -> int:
        """The largest high watermark stamped into any batch ever seen here: that much is certainly committed."""
        return self._stamp

    def batches(self, start_offset: int = 0) -> Iterator[BatchHeader]:
        """Return the headers of all batches from `start_offset` on, in order, from memory."""
        with self._lock:
            return self._index.headers(self._index.number_at(max(start_offset, self.start.offset)))

    def append(self, base_offset: int, end_offset: int, data: bytes) -> None:
        """Stage whole batches `[base_offset, end_offset)` at the log's end. InvariantViolation if they do not belong there."""
        index = self._index
        headers = batch.headers_of(data)
        offset, epoch, crc, stamp = index.end_offset, index.last_epoch, index.last_crc, self._stamp
        for header in headers:
            if header.base_offset != offset or header.previous_crc != crc or header.epoch < epoch:
                raise InvariantViolation(f"append of {header!r} to a log that ends at {offset}@{epoch} crc={crc:08x}")
            offset, epoch, crc = offset + header.record_count, header.epoch, header.crc
            if header.high_watermark > stamp:
                stamp = header.high_watermark
        if not headers or index.end_offset != base_offset or offset != end_offset:
            raise InvariantViolation(
                f"append of [{base_offset}, {end_offset}) holds [{self.end_offset}, {offset}) in {len(data)} bytes"
            )
        with self._lock:
            index.extend(headers)
            self._stamp = stamp
            self._cache.append(data)

    def truncate(self, to_offset: int) -> None:
        """Stage the removal of everything at or above `to_offset`, a batch boundary. InvariantViolation below a stamp."""
        if to_offset >= self.end_offset:
            return
        with self._lock:
            number = self._index.number_at(to_offset)
            if to_offset < self._stamp or self._index.base_offsets[number] != to_offset:
                raise InvariantViolation(
                    f"truncation to {to_offset}: not a batch boundary, or below the committed offset {self._stamp}"
                )
            self._index.truncate(number)
            position = self._index.end_position
            self._cache.truncate(position)
            self._changes += 1
            self._clean_position = min(self._clean_position, position)
            if position < self._written_position:
                self._staged_cut = position if self._staged_cut is None else min(position, self._staged_cut)

    def install(self, position: OffsetAndEpoch, last_crc: int) -> None:
        """Stage the replacement of the log by the verified copy of snapshot `position`.

        The log is empty and starts there at once. `last_crc` comes from `SnapshotStore.verify_part`. In order with appends and
        truncations; everything staged before is dropped. The flush durably names the snapshot and removes older ones and every
        segment.
        """
        if position.offset < self._stamp:
            raise InvariantViolation(f"install of snapshot {position}, below the committed offset {self._stamp}")
        self._snapshots.promise(position)
        with self._lock:
            # after everything that a running flush may still write
            stream_position = max(self._index.end_position, self._written_position)
            self._index = BatchIndex(position.offset, position.epoch, last_crc, stream_position)
            self._cache.reset(stream_position)
            self._start_at(position, last_crc)
            self._staged_install, self._staged_cut, self._staged_clean = position, None, None
            self._written_position = self._clean_position = stream_position

    def clean(self, start: OffsetAndEpoch) -> None:
        """Stage a new start of the log, the end of a finished snapshot: everything below is no longer read.

        In the next flush, the snapshots below it are removed first, then the segments that lie wholly below. If the log starts
        there already, only a snapshot that was overtaken while it was written is removed. If it starts later, nothing happens.
        """
        with self._lock:
            index = self._index
            if start.offset <= self.start.offset:
                if start == self.start and self._staged_clean is None:
                    self._staged_clean = (start, 0)
                return
            number = index.number_at(start.offset)
            is_boundary = start.offset == index.end_offset or (number < len(index) and index.base_offsets[number] == start.offset)
            if not is_boundary or index.epoch(number - 1) != start.epoch:
                raise InvariantViolation(f"clean to {start}: no position of the log that ends at {index.end_offset}")
            self._start_at(start, index.crc(number - 1))
            self._staged_clean = (start, index.end_of(number - 1))

    def _start_at(self, start: OffsetAndEpoch, crc: int) -> None:
        self.start, self.start_crc = start, crc
        self._stamp = max(self._stamp, start.offset)
        self._changes += 1

    def cached(self, start_offset: int) -> bool:
        """Return True if `read` from there needs no disk."""
        with self._lock:
            if start_offset < self.start.offset:
                return True
            number = self._index.number_at(start_offset)
            return number >= len(self._index) or self._index.positions[number] >= self._cache.start_position

    def read(self, start_offset: int, max_bytes: int, *, end_offset: int | None = None) -> bytes:
        """Return whole batches from `start_offset` on, flushed or not, that fit into `max_bytes`, at least one, up to
        `end_offset`.

        b"" at the log's end, or below its start. LogCorrupt if the disk no longer holds the written bytes.
        """
        while True:
            with self._lock:
                if start_offset < self.start.offset:
                    return b""
                first, last = self._index.range(start_offset, max_bytes, end_offset)
                if first >= last:
                    return b""
                start, end = self._index.positions[first], self._index.end_of(last - 1)
                if start >= self._cache.start_position:
                    return self._cache.read(start, end)
                middle = min(self._cache.start_position, end)
                cached = self._cache.parts(middle, end)
                places = self._places(start, middle)
                changes = self._changes
                self._readers += 1
            try:
                parts = [segment.file.pread(size, segment.file_position(position)) for segment, position, size in places]
            finally:
                self._reader_done()
            with self._lock:
                if changes != self._changes:
                    continue
                data = b"".join(parts)
                self._verify(data, first, places)
            return data + b"".join(cached)

    def _reader_done(self) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers:
                return
            retired, self._retired = self._retired, []
        for segment in retired:
            segment.file.close()

    def _retire(self, segments: list[Segment]) -> None:
        """Close the segments, at the latest when the last reader that may have looked them up is done."""
        with self._lock:
            self._retired += segments
            self._readers += 1
        self._reader_done()

    def _places(self, start: int, end: int) -> list[tuple[Segment, int, int]]:
        """Return the pieces of segments that hold bytes `[start, end)` of the stream: segment, position, size."""
        places: list[tuple[Segment, int, int]] = []
        while start < end:
            number = bisect_right(self._segments, start, key=_start_position) - 1
            last = number + 1 == len(self._segments)
            limit = end if last else min(end, self._segments[number + 1].start_position)
            places.append((self._segments[number], start, limit - start))
            start = limit
        return places

    def _verify(self, data: bytes, first: int, places: list[tuple[Segment, int, int]]) -> None:
        index = self._index
        position, number, origin = 0, first, index.positions[first]
        while position < len(data):
            end = index.end_of(number) - origin
            if batch.is_intact(data, position, end, index.crc(number)):
                position, number = end, number + 1
                continue
            try:
                header, _ = parse(data, position)
                if header.crc != self._index.crc(number):
                    raise CorruptBatch(f"crc {header.crc:08x} where {self._index.crc(number):08x} was written")
            except CorruptBatch as error:
                offset = self._index.base_offsets[number]
                raise LogCorrupt(
                    f"{places[0][0].file.path}: the batch at offset {offset} has changed since it was written ({error}). "
                    "Stop this node and check its disk; the other controllers hold the data."
                ) from error
            position += header.size_bytes
            number += 1

    def flush(self) -> None:
        """Make everything staged so far durable. Worker thread. StorageFull may be tried again; other errors are final."""
        self.finish_flush(self.begin_flush())

    def begin_flush(self) -> FlushWork:
        """Take the staged changes. The simulator lets virtual time pass between this and `finish_flush`."""
        with self._lock:
            index = self._index
            cut, install, clean = self._staged_cut, self._staged_install, self._staged_clean
            start = self._written_position if cut is None else cut
            first = index.number_at_position(start)
            data = self._cache.read(start, index.end_position)
            batches = index.columns_from(first, start)
            self._staged_cut = self._staged_install = self._staged_clean = None
            self._written_position = index.end_position
            cut_offset = batches[0][1] if batches else index.end_offset
            epoch, crc = (index.epoch(first - 1), index.crc(first - 1)) if first else (index.start_epoch, index.start_crc)
            return FlushWork(cut, cut_offset, start, data, batches, index.end_offset, epoch, crc, install, clean)

    def finish_flush(self, taken: FlushWork) -> None:
        """Write the changes that `begin_flush` took."""
        if self._failure is not None:
            raise self._failure
        try:
            if self._unwanted:
                self._remove_unwanted()
            if taken.install is not None:
                self._install(taken.install)
            if taken.cut_position is not None:
                self._cut(taken.cut_position, taken.cut_offset)
            self._write(taken)
        except StorageFull:
            self._put_back(taken)
            raise
        except DiskFailed as error:
            self._failure = error
            raise
        with self._lock:
            end = taken.start_position + len(taken.data)
            self._clean_position = end if self._staged_cut is None else min(end, self._staged_cut)
            self._cache.evict(self._clean_position)
        self.durable_end_offset = taken.end_offset
        if taken.clean is not None:
            self._clean(*taken.clean)

    def _put_back(self, taken: FlushWork) -> None:
        """Stage the changes again. Changes staged since then take precedence."""
        with self._lock:
            if self._staged_install is not None:
                return
            self._staged_install = taken.install
            self._staged_clean = self._staged_clean or taken.clean
            if taken.cut_position is not None or taken.data:
                cuts = [p for p in (taken.start_position, self._staged_cut) if p is not None]
                self._staged_cut = min(cuts)

    def _install(self, position: OffsetAndEpoch) -> None:
        """Name the snapshot, then remove all other snapshots and the old log, each step durable before the next."""
        self._snapshots.adopt(position)
        with self._lock:
            removed, self._segments = self._segments, []
        self._unwanted += [*self._surplus, *(segment.file.path for segment in removed)]
        self._surplus.clear()
        self._retire(removed)
        self._remove_unwanted()
        self.durable_end_offset = position.offset

    def _clean(self, start: OffsetAndEpoch, position: int) -> None:
        """Remove snapshots below `start` and segments below `position`; everything below is durable and in a snapshot."""
        try:
            self._snapshots.remove_below(start)
            with self._lock:
                self._index.drop(self._index.number_at_position(position))
                count = bisect_right(self._segments, position, key=_start_position) - 1
                removed, self._segments = self._segments[: max(0, count)], self._segments[max(0, count) :]
                self._changes += 1
            self._retire(removed)
            self._surplus += [segment.file.path for segment in removed]
            self._remove_surplus()
        except StorageFull:
            with self._lock:
                if self._staged_install is None:
                    self._staged_clean = self._staged_clean or (start, position)
            raise
        except DiskFailed as error:
            self._failure = error
            raise

    def _remove_surplus(self) -> None:
        """Remove the files durably, oldest first. Files that the disk refuses to remove now stay on the list."""
        if not self._surplus:
            return
        while self._surplus:
            self._file_system.remove(self._surplus[0])
            del self._surplus[0]
        self._file_system.sync_directory(self._directory)

    def _cut(self, position: int, offset: int) -> None:
        """Remove segments that start after `position`, and zero the last one from there on."""
        if not self._segments:
            return
        removed: list[Segment] = []
        with self._lock:
            while len(self._segments) > 1 and self._segments[-1].start_position > position:
                removed.append(self._segments.pop())
        if removed:
            self._unwanted += [segment.file.path for segment in removed]
            self._retire(removed)
            self._remove_unwanted()
        last = self._segments[-1]
        start = last.file_position(position)
        if last.written_bytes > start:
            last.file.pwrite(bytes(last.written_bytes - start), start)
            last.file.fdatasync()
            last.written_bytes = start
        self.durable_end_offset = min(self.durable_end_offset, offset)

    def _remove_unwanted(self) -> None:
        """Remove the files durably. The next flush tries again if the disk refuses."""
        if not self._unwanted:
            return
        for path in self._unwanted:
            self._file_system.remove(path)
        self._file_system.sync_directory(self._directory)
        self._unwanted.clear()

    def _write(self, taken: FlushWork) -> None:
        """Write the batches segment by segment, each made durable before the next begins."""
        batches, count = taken.batches, len(taken.batches)
        last_segment = self._segments[-1] if self._segments else None
        if batches and last_segment is not None and self._room(last_segment, taken) >= len(taken.data):
            self._write_run(last_segment, taken, 0, count)
            self.durable_end_offset = taken.end_offset
            return
        epoch, crc = taken.previous_epoch, taken.previous_crc
        number = 0
        while number < count:
            begin, base_offset, *_ = batches[number]
            position = taken.start_position + begin
            segment = self._segment_with_room(position, self._end(taken, number) - begin)
            if segment is None:
                segment = self._new_segment(position, SegmentHeader(self._identity, base_offset, epoch, crc))
            room = self._room(segment, taken)
            last = count if len(taken.data) <= room else number + 1
            while last < count and self._end(taken, last) <= room:
                last += 1
            self._write_run(segment, taken, number, last)
            _, _, _, epoch, crc = batches[last - 1]
            self.durable_end_offset = batches[last][1] if last < count else taken.end_offset
            number = last

    def _room(self, segment: Segment, taken: FlushWork) -> int:
        """Return the number of bytes of `taken`, from its first, that fit into the segment."""
        return self._segment_bytes - segment.file_position(taken.start_position)

    @staticmethod
    def _end(taken: FlushWork, number: int) -> int:
        return taken.batches[number + 1][0] if number + 1 < len(taken.batches) else len(taken.data)

    def _segment_with_room(self, position: int, size_bytes: int) -> Segment | None:
        """Return the last segment if it takes a batch of this size at `position`; an empty one takes any."""
        if not self._segments:
            return None
        last = self._segments[-1]
        used = last.file_position(position)
        return last if used == HEADER_PAGE_BYTES or used + size_bytes <= self._segment_bytes else None

    def _new_segment(self, position: int, header: SegmentHeader) -> Segment:
        """Create a segment for a first batch at `position`."""
        path = f"{self._directory}/{segment_name(header.base_offset)}"
        file = self._file_system.open(path, create=True)
        try:
            file.preallocate(self._preallocate_bytes)
            file.pwrite(header.encode(), 0)
            file.fdatasync()
            self._file_system.sync_directory(self._directory)
        except StorageFull:
            file.close()
            self._unwanted.append(path)
            self._remove_unwanted()
            raise
        allocated = max(self._preallocate_bytes, HEADER_PAGE_BYTES)
        segment = Segment(file, header.base_offset, position, HEADER_PAGE_BYTES, allocated)
        with self._lock:
            self._segments.append(segment)
        return segment

    def _write_run(self, segment: Segment, taken: FlushWork, first: int, last: int) -> None:
        """Write batches `[first, last)` of `taken` to one segment and make them durable."""
        begin, end = taken.batches[first][0], self._end(taken, last - 1)
        data = taken.data if (begin, end) == (0, len(taken.data)) else taken.data[begin:end]
        at = segment.file_position(taken.start_position + begin)
        needed = at + len(data)
        file = segment.file
        if needed > segment.allocated_bytes:
            chunks = -(-needed // self._preallocate_bytes)
            file.preallocate(chunks * self._preallocate_bytes)
            segment.allocated_bytes = chunks * self._preallocate_bytes
        segment.written_bytes = needed
        durable = self.durable_end_offset
        ahead = [start - begin for start, _, stamp, _, _ in taken.batches[first:last] if stamp > durable]
        if ahead:
            unsealed = bytearray(data)
            for start in ahead:
                unsealed[start : start + len(UNSEALED)] = UNSEALED
            file.pwrite(bytes(unsealed), at)
            file.fdatasync()
        file.pwrite(data, at)
        file.fdatasync()

    def close(self) -> None:
        """Close the files. Flush first to keep staged changes. Readers must have ended."""
        for segment in (*self._segments, *self._retired):
            segment.file.close()
        self._segments, self._retired = [], []
