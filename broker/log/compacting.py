"""One compaction of one log: reads, writes, and the exchange of files.

Theory of operation. `steps` does the work in pieces of about a MiB, so that the caller can throttle or end it between two. First
the keys of the dirty part are read, then each group of segments is written into one new segment, `.cleaned`, beside readers,
followers and appends, which go on: nothing that is read here changes, unless the log is truncated, deleted from, or moved. Then
the exchange is refused, the new files are removed, and a later compaction begins again.

What replaces a record must be as durable as the record was: the full segments are flushed first. Otherwise a power cut could take
the new record, and the old one would be gone already.

The exchange, with the log locked, passes these states, each made durable before the next:

1. `.cleaned`: the new segment is complete and fsynced. A start removes it.
2. `.swap`: the new segment counts. A start removes all segments that begin within its offsets, then gives it its name.
3. `.swap`, and the old segments are `.deleted`.
4. The new segment has its name. The `.deleted` files are removed after file.delete.delay.ms.

A start after a crash between any two finds the old segments or the new one (`recovery.tidy`). Since the end of the compacted part
is raised after the last group, a compaction that a crash has cut short is repeated, which changes nothing in groups that were
finished.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kraftlab.records.codecs import CodecError
from kraftlab.records.errors import CorruptBatch, LogError
from kraftlab.records.record_batch import BatchHeader, check_crc, iterate, read_header

from .compaction import Cleanable, groups
from .compaction_filter import BatchFilter, LatestOffsets, without_records
from .errors import CorruptLog, OffsetOutOfRange, disk_errors
from .files import fsync_directory
from .partition_log import PartitionLog
from .segment import CHUNK_BYTES, CLEANED_SUFFIX, SWAP_SUFFIX, Batches, Segment


class CompactionSuperseded(LogError):
    """The log has changed in a way that the compaction cannot follow. Nothing was lost; begin again later."""


class Compaction:
    """Made for one log and used once. `may_replace` is asked, with the log locked, before segments are exchanged. The other
    attributes are results: bytes of the segments that were written again, and records in them.
    """

    def __init__(
        self,
        log: PartitionLog,
        *,
        now_ms: int,
        map_bytes: int,
        chunk_bytes: int = CHUNK_BYTES,
        may_replace: Callable[[], bool] = lambda: True,
    ) -> None:
        self.log = log
        self.bytes_before = 0
        self.bytes_after = 0
        self.part: Cleanable | None = None
        self.latest = LatestOffsets(0, map_bytes)
        self.filter: BatchFilter | None = None
        self._now_ms = now_ms
        self._map_bytes = map_bytes
        self._chunk_bytes = chunk_bytes
        self._may_replace = may_replace
        self._directory = log.directory
        self._count = 0

    def steps(self) -> Generator[int]:
        """Compact the log; yield the bytes that each piece of the work has read and written. Blocks on the disk in each.

        CompactionSuperseded, LogClosed: begin again later. CorruptLog: the log cannot be compacted as it is. NoSpace,
        LogDirFailed, TooManyOpenFiles: as for appends. The files of a segment that was not finished are removed, also when
        the caller closes the iterator.
        """
        try:
            with disk_errors(self.log.log_dir):
                yield from self._steps()
        except OffsetOutOfRange as error:
            raise CompactionSuperseded(f"records of {self.log.name} were deleted meanwhile: {error}") from error

    def _steps(self) -> Iterator[int]:
        log = self.log
        log.flush_rolled()
        self.part = part = log.cleanable(self._now_ms)
        self._count, segments = log.segments_below(part.end_offset)
        self.latest = latest = LatestOffsets(part.start_offset, self._map_bytes)
        with log.staying_in(self._directory):
            _remove_leftovers(self._directory)
        while latest.end_offset < part.end_offset and not latest.is_full:
            data, batches = self._read(latest.end_offset, part.end_offset)
            if not data:
                latest.end_offset = part.end_offset
                break
            with self._readable(latest.end_offset):
                for position, header in batches:
                    check_crc(data, position, header)
                    latest.take(header, data, position)
                    if latest.is_full:
                        break
            yield len(data)
        self.filter = BatchFilter(
            latest,
            now_ms=self._now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            last_of_producers=log.producers.last_ends(),
        )
        for group in groups((s for s in segments if s.base_offset < latest.end_offset), log.config):
            yield from self._rewrite(group)
        log.set_cleaned_to(latest.end_offset, self._count)

    def _read(self, offset: int, end_offset: int) -> tuple[bytes, Batches]:
        data = self.log.read(offset, self._chunk_bytes, upto=end_offset)
        with self._readable(offset):
            return data, list(iterate(data))

    @contextmanager
    def _readable(self, offset: int) -> Iterator[None]:
        """Translate errors of batches from `offset` on."""
        try:
            yield
        except (CorruptBatch, CodecError, ValueError, struct.error) as error:
            raise CorruptLog(f"{self.log.name} has a batch from offset {offset} on that cannot be compacted: {error}") from error

    def _rewrite(self, group: Sequence[Segment]) -> Iterator[int]:
        """Write one segment in the place of a group, unless all its records stay."""
        with self.log.staying_in(self._directory):
            new = Segment.create(self._directory, group[0].base_offset, CLEANED_SUFFIX)
        try:
            is_changed = len(group) > 1
            for read_bytes, written_bytes, has_changed in self._copy(group, new):
                is_changed = is_changed or has_changed
                yield read_bytes + written_bytes
            if is_changed and new.size_bytes:
                self._exchange(group, new)
        finally:
            if new.suffix == CLEANED_SUFFIX:
                _remove(new)

    def _copy(self, group: Sequence[Segment], new: Segment) -> Iterator[tuple[int, int, bool]]:
        """Copy what stays: (bytes read, bytes written, something was dropped) of each piece."""
        assert self.filter is not None
        offset, end_offset = max(group[0].base_offset, self.log.log_start_offset), group[-1].end_offset
        while offset < end_offset:
            data, batches = self._read(offset, end_offset)
            if not data:
                return
            with self._readable(offset):
                written, headers = self._filtered(data, batches, end_offset)
            offset = batches[-1][1].end_offset
            with self.log.staying_in(self._directory):
                new.append(written, headers)
            yield len(data), len(written), len(written) < len(data) or written != data

    def _filtered(self, data: bytes, batches: Batches, end_offset: int) -> tuple[bytes, list[BatchHeader]]:
        """Return what stays of `batches`, and the headers of that. The batch that reaches to `end_offset` leaves its header."""
        assert self.filter is not None
        kept: list[bytes] = []
        headers: list[BatchHeader] = []
        begun = 0
        """Position from which on the batches stay as they are."""
        for position, header in batches:
            if not self.latest.start_offset < header.end_offset <= self.latest.end_offset:
                check_crc(data, position, header)  # The others were checked when their keys were read.
            stays = self.filter(header, data, position)
            if stays == b"" and header.end_offset >= end_offset:
                stays = without_records(header)
            if stays is None:
                headers.append(header)
                continue
            kept.append(data[begun:position])
            begun = position + header.size_bytes
            if stays:
                kept.append(stays)
                headers.append(read_header(stays))
        kept.append(data[begun:])
        return b"".join(kept), headers

    def _exchange(self, group: Sequence[Segment], new: Segment) -> None:
        with self.log.staying_in(self._directory):
            new.seal()
            new.sync()
            new.flush_index(durably=True)

        def exchange(set_aside: Callable[[Segment], None]) -> bool:
            if not self._may_replace():
                return False
            new.rename_files(SWAP_SUFFIX)
            fsync_directory(self._directory)
            for segment in reversed(group):
                set_aside(segment)
            fsync_directory(self._directory)
            new.rename_files("")
            fsync_directory(self._directory)
            return True

        count = self.log.replace_segments(self._count, group, new, exchange)
        if count is None:
            raise CompactionSuperseded(f"{self.log.name} was truncated, deleted from or moved while it was compacted")
        self._count = count
        self.bytes_before += sum(segment.size_bytes for segment in group)
        self.bytes_after += new.size_bytes


def _remove(segment: Segment) -> None:
    """Remove the files of a segment that nobody uses. The next start removes those that cannot be removed now."""
    segment.close()
    for path in segment.paths:
        with suppress(OSError):
            os.unlink(path)


def _remove_leftovers(directory: Path) -> None:
    """Remove new segments of a compaction that has failed: a start would take them for the ones before the next exchange."""
    for path in directory.glob(f"*{CLEANED_SUFFIX}"):
        path.unlink()
