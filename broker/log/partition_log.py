"""The log of one replica: locks, offsets, leader epochs, and the rules of appending, reading and truncating. `log_segments.py`
changes the segments.

One lock per log; properties and `end_offset_for` answer without it. Appends hold it while they write to the page cache. A read
holds it only to note the segments and their sizes; then it pins the log and reads beside appends. Truncation, closing and
renaming wait until no pin is left (`exclusive`). Durability is replication plus recovery, as in Kafka: an append is not fsynced.
`flush` fsyncs and raises the recovery point, below which a start after a crash trusts the files. Before a truncation lowers it,
the checkpoint on disk is lowered (`before_truncation`), so that bytes written later are never mistaken for those that had been
fsynced.

Offsets: log start <= high watermark <= log end, and log start <= recovery point <= log end: records below the log start count as
durable, since nobody reads them again. A recovery point may rest on the log start alone, so the log starts are always on the disk
before the recovery points, and a start removes the segments below the log start without looking into them. The log end is the end
of the last batch: offsets that compaction has left empty count as present only if a batch follows them. Truncation never splits a
batch: one that reaches over the wanted offset is removed.

A failed append leaves the log as it was, or, if even the rollback fails, takes the directory offline. After a failed fsync the
state of the disk is unknown, so the directory goes offline too (LogDirFailed), and the log answers every call with that error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.uuids import Uuid
from kraftlab.records.errors import CorruptBatch, LogError
from kraftlab.records.record_batch import BatchHeader

from . import producer_snapshots
from .compaction import Cleanable, cleanable
from .digest import LogDigest, digest_of
from .errors import (
    CorruptLog,
    LogClosed,
    LogDirFailed,
    OffsetOutOfRange,
    ReplicaConflict,
    UnexpectedOffset,
    disk_errors,
    translate,
)
from .file_ranges import FileRange
from .files import make_rename_durable, rename_new
from .leader_epochs import EpochEntry, LeaderEpochs
from .log_config import LogConfig
from .log_segments import Before, LogSegments
from .log_view import BatchPlaces, LogView, Removal, Slice, ages_of, bytes_of
from .pins import Pins
from .producer_state import ProducerState
from .record_checks import check_copied, prepare, stamp_places
from .recovery import OpenedLog, RecoveryReport, open_segments
from .segment import Segment
from .segment_rules import expired_count

Exchange = Callable[[Callable[[Segment], None]], bool]


class AppendInfo(NamedTuple):
    """Place of batches in the log. `log_append_time_ms`: the leader's timestamp on them, -1 if they keep their own.

    A duplicate has the place of the stored batch, and its largest timestamp, as in Kafka. `records`, `size_bytes`: what was
    written, without duplicates.
    """

    base_offset: int
    end_offset: int
    log_append_time_ms: int = -1
    records: int = 0
    size_bytes: int = 0


Extent = tuple[int, int, int, int, tuple[Segment, ...]]
"""Log end, log start, number of cuts, of idempotent producers, and the segments. Equal extents have segments of equal sizes."""


class PartitionLog:
    """Every method may raise LogClosed and LogDirFailed; `directory` changes when a move ends."""

    def __init__(
        self,
        directory: Path,
        opened: OpenedLog,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid,
        directory_id: Uuid,
        config: LogConfig,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        recovery_point: int = 0,
        cleaned_to: int = 0,
        before_truncation: Callable[[], None] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log_dir = directory.parent
        """The log directory that holds the replica's directory, under all its names."""
        self.directory_id = directory_id
        self.recovery: RecoveryReport = opened.report
        self._segments = LogSegments(directory, opened.segments, config)
        self._epochs: LeaderEpochs = opened.epochs
        self._producers: ProducerState = opened.producers
        self._before_truncation = before_truncation
        self._pins = Pins()
        self._lock = self._pins.lock
        self._marks_lock = threading.Lock()
        self._cuts = 0
        self._refusal: LogError | None = None
        self.flushed_at_ms = wall_clock_ms()
        """Time of the last flush."""
        self._log_end_offset = self._segments.active.end_offset
        self._log_start_offset = max(log_start_offset, self._segments.all[0].base_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        self._recovery_point = max(min(recovery_point, self.log_end_offset), self._log_start_offset)
        self._high_watermark = min(max(high_watermark, self._log_start_offset), self.log_end_offset)
        self._cleaned_to = min(cleaned_to, self.log_end_offset)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid,
        directory_id: Uuid,
        config: LogConfig | None = None,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        recovery_point: int = 0,
        cleaned_to: int = 0,
        clean: bool = False,
        before_truncation: Callable[[], None] | None = None,
    ) -> PartitionLog:
        """Open or create the log in `directory`, which exists. The offsets are those of the directory's checkpoints (0 if
        unknown).

        `clean`: the last process closed it properly; otherwise everything from the recovery point on is checked (see `recovery`).
        """
        with disk_errors(directory.parent):
            opened = open_segments(directory, recovery_point=recovery_point, clean=clean, start_offset=log_start_offset)
        log = cls(
            directory,
            opened,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            directory_id=directory_id,
            config=config or LogConfig(),
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            recovery_point=recovery_point,
            cleaned_to=cleaned_to,
            before_truncation=before_truncation,
        )
        if clean and not opened.report.reason:
            log._recovery_point = log.log_end_offset
        return log

    # Properties

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def directory(self) -> Path:
        return self._segments.directory

    @property
    def config(self) -> LogConfig:
        return self._segments.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._segments.config = config

    @property
    def is_open(self) -> bool:
        """Return False once the log was closed or its directory failed."""
        return self._refusal is None

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log_end_offset

    @property
    def recovery_point(self) -> int:
        """All records from the log start to here are durable. Never below the log start, nor above the log end."""
        return self._recovery_point

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Set by the owner of the partition's state, bounded here by log start and log end. Never waits for the disk."""
        with self._marks_lock:
            self._high_watermark = min(max(offset, self._log_start_offset), self.log_end_offset)

    @property
    def cleaned_to(self) -> int:
        """End of the part that is compacted: no key occurs twice below. 0 if there is none."""
        return self._cleaned_to

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last batch (or of a leader that has not written yet); -1 for an empty log."""
        return self._epochs.latest_epoch

    @property
    def cuts(self) -> int:
        """Number of times that records were removed from the log's end, or segments were replaced."""
        return self._cuts

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        return self._epochs.entries

    @property
    def size_bytes(self) -> int:
        """Sum of the segment files' sizes, indexes not counted."""
        return self._segments.size_bytes

    @property
    def extent(self) -> Extent:
        """The log's extent now. For any thread, and without waiting."""
        # The end comes first: an append that the segments show already changes the end of the next call.
        return self._log_end_offset, self._log_start_offset, self._cuts, len(self._producers), self._segments.all

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end offset); (-1, start of the known epochs) if there is none."""
        return self._epochs.end_offset_for(epoch, log_start_offset=self._log_start_offset, log_end_offset=self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, -1 if unknown."""
        return self._epochs.epoch_at(offset)

    # Locks

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the log's lock with no reader inside. Re-entrant; a thread that reads must not ask for it."""
        return self._pins.exclusive()

    @contextmanager
    def pinned(self) -> Iterator[LogView]:
        """Yield the segments and marks of this moment. Inside the block nothing is truncated, renamed or deleted.

        Appends go on.
        """
        with self._pins.added():
            self._check_open()
            view = LogView(self._segments.all, self._segments.active.size_bytes, self._log_start_offset, self.log_end_offset)
        try:
            yield view
        finally:
            self._pins.remove()

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _translate(self, error: OSError) -> LogError:
        failure = translate(self.log_dir, error)
        return self._refused_with(failure) if isinstance(failure, LogDirFailed) else failure

    def _fail(self, error: OSError) -> LogDirFailed:
        """Take the directory offline, for operations that cannot be undone."""
        return self._refused_with(LogDirFailed(self.log_dir, error))

    def _refused_with(self, failure: LogDirFailed) -> LogDirFailed:
        """Answer every later call with the first failure of the directory; it may have come back since."""
        self._refusal = self._refusal or failure
        return self._refusal if isinstance(self._refusal, LogDirFailed) else failure

    # Appending

    def start_epoch(self, epoch: int) -> None:
        """Begin `epoch` at the log's end, as its leader."""
        with self._lock:
            self._check_open()
            self._epochs.assign(epoch, self.log_end_offset)

    def try_start_epoch(self, epoch: int) -> bool:
        """As `start_epoch`, without blocking; False if another thread holds the log."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.start_epoch(epoch)
        finally:
            self._lock.release()
        return True

    def append_as_leader(
        self, batches: bytes | memoryview, leader_epoch: int, *, keep_offsets: bool = False, may_be_stored: bool = True
    ) -> AppendInfo:
        """Append whole batches stamped with the next offsets and `leader_epoch`.

        Errors of `record_checks` and `producer_state`, UnexpectedOffset, NoSpace: nothing was appended. Batches of an idempotent
        producer that are stored already are not appended again. `may_be_stored` False: the producer has never sent them, so
        stored ones with their sequences belong to another producer (an import): ProducerIdInUse.

        A writable memoryview is stamped in place.

        `keep_offsets` (import): the batches keep their own offsets, which must rise and begin at or after the log end; gaps are
        allowed, and sequences are not checked.
        """
        now_ms = wall_clock_ms()
        data, headers, append_time_ms = prepare(batches, self.config, now_ms, keep_offsets=keep_offsets)
        with self._lock:
            self._check_open()
            if leader_epoch < self._epochs.latest_epoch:
                raise UnexpectedOffset(
                    f"{self.name} has records of epoch {self._epochs.latest_epoch}; epoch {leader_epoch} may not append"
                )
            stored = [] if keep_offsets or not headers else self._producers.stored_before(headers, may_be_stored, self.name)
            if len(stored) == len(headers) and stored:
                return AppendInfo(stored[0].base_offset, stored[-1].last_offset + 1, stored[-1].timestamp_ms)
            if stored:
                data = memoryview(data)[sum(header.size_bytes for header in headers[: len(stored)]) :]
                headers = headers[len(stored) :]
            next_offset = None if keep_offsets else self.log_end_offset
            stamped = stamp_places(data, headers, next_offset, leader_epoch, self.name)
            self._append(data, stamped, now_ms)
            records = headers[0].record_count if len(headers) == 1 else sum(header.record_count for header in headers)
            appended = AppendInfo((stored or stamped)[0].base_offset, self.log_end_offset, append_time_ms, records, len(data))
        self._flush_if_due()
        return appended

    def append_as_follower(self, batches: bytes | memoryview, leader_epoch: int | None = None) -> int:
        """Append whole batches as the leader stored them, with offsets and epochs; return the log end offset.

        `leader_epoch`: the epoch in which they were fetched. The leader of that epoch has none of a later one: UnexpectedOffset.

        They must continue the log (a gap, left by compaction, is allowed). An empty log may begin within the first batch: records
        were deleted up to there, and batches are copied whole. CorruptBatch, UnexpectedOffset, NoSpace: nothing was appended.
        """
        headers = check_copied(batches)
        if leader_epoch is not None and any(header.leader_epoch > leader_epoch for header in headers):
            raise UnexpectedOffset(f"{self.name} got records of a later epoch than {leader_epoch}, from a leader of that epoch")
        return self.append_checked(batches, headers)

    def append_checked(self, batches: bytes | memoryview | FileRange, headers: Sequence[BatchHeader]) -> int:
        """As `append_as_follower`, for batches whose headers and CRCs the caller has checked."""
        now_ms = wall_clock_ms()
        with self._lock:
            self._check_open()
            begins_within = bool(headers) and self._begins_within(headers[0])
            if begins_within:
                self._begin_segments_at(headers[0].base_offset)
            self._append(batches, headers, now_ms)
            if begins_within:
                self._epochs.truncate_from_start(self._log_start_offset)
            end_offset = self.log_end_offset
        self._flush_if_due()
        return end_offset

    def _begins_within(self, header: BatchHeader) -> bool:
        return not self.size_bytes and header.base_offset < self._log_start_offset == self.log_end_offset < header.end_offset

    def _begin_segments_at(self, offset: int) -> None:
        """Let the empty log's segments begin before its first record. Log start and log end stay the same."""
        with self.exclusive():
            self._recreate_at(offset)

    def _append(self, data: bytes | bytearray | memoryview | FileRange, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Write all batches or none, whatever the error, and roll as needed. The lock is held."""
        if not headers:
            raise CorruptBatch(0, "there is no batch to append")
        next_offset = self._segments.active.end_offset
        for header in headers:
            if header.base_offset < next_offset:
                raise UnexpectedOffset(f"batch {header!r} does not continue {self.name}, which reaches {next_offset}")
            next_offset = header.end_offset
        before, epochs, producers = self._segments.before_append(), self._epochs.entries, self._producers.noted(headers)
        first, position = 0, 0
        try:
            while first < len(headers):
                if not self._segments.takes(headers[first], self.name):
                    self._roll(headers[first].last_offset, headers[first].base_offset)
                count, run_bytes = self._segments.run(headers[first:], self.name)
                run = headers[first : first + count]
                self._segments.active.append(_part(data, position, run_bytes), run, self.config.index_interval_bytes)
                for header in run:
                    self._epochs.assign(header.leader_epoch, header.base_offset)
                    self._producers.update(header, now_ms)
                first, position = first + count, position + run_bytes
            self._pass_gaps(self._segments.all[len(before.segments) - 1 :])
        except Exception as error:
            self._roll_back(before)
            self._epochs.restore(epochs)
            self._producers.restore(producers)
            self._recovery_point = max(min(self._recovery_point, before.end_offset), self._log_start_offset)
            if isinstance(error, OSError):
                raise self._translate(error) from error
            raise
        self._log_end_offset = next_offset

    def _roll(self, last_offset: int, first_offset: int) -> None:
        """Begin the segment that takes a batch with these offsets. The lock is held. OSError."""
        base_offset = self._segments.end_active(last_offset, first_offset)
        if base_offset != self._segments.active.end_offset:
            self._flush_segments(self._segments.all, self._segments.active.end_offset)
        producer_snapshots.write(self.directory, base_offset, self._producers)
        self._segments.begin(base_offset)

    def _pass_gaps(self, segments: Sequence[Segment]) -> None:
        """Raise the recovery point above the last gap that is too large for relative offsets: otherwise a start after a crash
        takes it for lost records. All records below are durable since the roll.
        """
        begun = [after.base_offset for before, after in pairwise(segments) if after.base_offset > before.end_offset]
        if begun:
            self._recovery_point = begun[-1]
            if self._before_truncation is not None:
                self._before_truncation()

    def _roll_back(self, before: Before) -> None:
        try:
            self._segments.roll_back(before)
        except OSError as error:
            raise self._fail(error) from error

    # Reading

    def read(self, offset: int, max_bytes: int, *, upto: int | None = None, min_one_batch: bool = True) -> bytes:
        """Return the bytes of `slices`, with the same arguments and errors."""
        with self.slices(offset, max_bytes, upto=upto, min_one_batch=min_one_batch) as found, self.reading():
            return bytes_of(found)

    def read_or_place(
        self, offset: int, max_bytes: int, *, read_bytes_max: int, upto: int | None = None, min_one_batch: bool = True
    ) -> bytes | BatchPlaces:
        """As `read`, but return only the places of the batches if they have more than `read_bytes_max` bytes."""
        with self.slices(offset, max_bytes, upto=upto, min_one_batch=min_one_batch) as found, self.reading():
            placed = BatchPlaces(found, self._cuts)
            return placed if placed.size_bytes > read_bytes_max else bytes_of(found)

    @contextmanager
    def pin_again(self, placed: BatchPlaces) -> Iterator[None]:
        """Pin the log while bytes at these places are used; LogClosed if they may be other bytes by now.

        The block's OSErrors are those of the log's disk.
        """
        with self.pinned() as view:
            if self._cuts != placed.cuts or not all(each.segment in view.segments for each in placed.slices):
                raise LogClosed(f"records of {self.name} were removed while they were sent")
            with self.reading():
                yield

    @contextmanager
    def slices(
        self, offset: int, max_bytes: int, *, upto: int | None = None, min_one_batch: bool = True
    ) -> Iterator[tuple[Slice, ...]]:
        """Pin the log, and yield the places of whole batches: from the one that holds `offset` (or the first after it), all below
        offset `upto` (None: the log's end).

        At most `max_bytes`, but one batch at least if `min_one_batch`. Empty at the log's end. OffsetOutOfRange outside [start,
        end]. Inside the block no truncation and no deletion changes these places, so it must be short and must not wait for a
        peer. The log's own errors are raised before the block; the block's OSErrors are those of its caller.
        """
        with self.pinned() as view:
            if not view.log_start_offset <= offset <= view.log_end_offset:
                raise OffsetOutOfRange(self.name, offset, view.log_start_offset, view.log_end_offset)
            with self.reading():
                found = tuple(view.slices(offset, max_bytes, upto, min_one_batch))
            yield found

    def bytes_from(self, offset: int) -> int:
        """Bytes of the batches from the one that holds `offset` to the log's end: those that a copy up to `offset` lacks."""
        with self.pinned() as view, self.reading():
            return view.bytes_from(offset)

    def digest(self, end_offset: int | None = None) -> LogDigest:
        """Digest of the whole batches from the log start to `end_offset` (None: log end), as they were at one time."""
        return digest_of(self, end_offset)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Translate errors met while reading."""
        try:
            yield
        except OSError as error:
            raise self._translate(error) from error
        except CorruptBatch as error:
            raise CorruptLog(
                f"{self.directory} is damaged: {error}; the records before and after it can be read, kraftlab dump-log shows them"
            ) from error

    # Truncating

    def truncate_to(self, offset: int) -> int:
        """Remove every batch that reaches to or over `offset`; return the log end offset, which may be lower than `offset`.

        An epoch without a record, at the log's end, is removed in any case.
        """
        with self.exclusive():
            self._check_open()
            if offset >= self.log_end_offset:
                self._epochs.truncate_from_end(self.log_end_offset)
                return self.log_end_offset
            if offset < self._log_start_offset:
                self.truncate_fully_and_start_at(offset)
                return offset
            self._cuts += 1
            try:
                self._lower_marks(min(offset, self._segments.end_after_truncation(offset)), self._log_start_offset)
                self._segments.truncate(offset)
                reached = self._segments.active.end_offset
                self._producers, has_removed = producer_snapshots.truncated(
                    self.directory, self._producers, self._segments.all, reached
                )
                self._segments.names_are_durable = self._segments.names_are_durable and not has_removed
            except OSError as error:
                raise self._fail(error) from error
            self._set_marks(self._log_start_offset, self._segments.active.end_offset)
            if self.log_end_offset < self._log_start_offset:
                self.truncate_fully_and_start_at(self._log_start_offset)
            self._epochs.truncate_from_end(self.log_end_offset)
            return self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`."""
        with self.exclusive():
            self._check_open()
            self._cuts += 1
            start_offset = min(offset, self._log_start_offset)
            self._lower_marks(start_offset, start_offset)
            self._recreate_at(offset)
            self._epochs.clear()
            self._producers.clear()
            self._set_marks(offset, offset)
            self._recovery_point = offset

    def _recreate_at(self, offset: int) -> None:
        """Replace all segments by an empty one. The log is held exclusively."""
        try:
            self._segments.recreate_at(offset)
        except OSError as error:
            raise self._fail(error) from error

    def _set_marks(self, log_start_offset: int, log_end_offset: int) -> None:
        """Set start and end together, and keep the high watermark between them."""
        with self._marks_lock:
            self._log_start_offset, self._log_end_offset = log_start_offset, log_end_offset
            self._high_watermark = max(min(self._high_watermark, log_end_offset), log_start_offset)

    def _lower_marks(self, offset: int, log_start_offset: int) -> None:
        """Lower the recovery point and the end of the compacted part to `offset`, and the log start, on the disk too, before
        records are removed: records that are appended there later must not be mistaken for durable ones, nor for deleted ones.
        """
        before = self._recovery_point, self._cleaned_to, self._log_start_offset
        offset = max(offset, log_start_offset)
        lowered = min(self._recovery_point, offset), min(self._cleaned_to, offset), log_start_offset
        self._recovery_point, self._cleaned_to, self._log_start_offset = lowered
        if before != lowered and self._before_truncation is not None:
            try:
                self._before_truncation()
            except LogError:
                # Nothing is truncated: the next attempt has to write the checkpoint again.
                self._recovery_point, self._cleaned_to, self._log_start_offset = before
                raise

    def advance_log_start(self, offset: int) -> None:
        """Remove records below `offset` for readers; delete segments wholly below it. OffsetOutOfRange beyond the log's end."""
        with self.exclusive():
            self._check_open()
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(self.name, offset, self._log_start_offset, self.log_end_offset)
            if offset > self._log_start_offset:
                self._set_marks(offset, self.log_end_offset)
                self._recovery_point = max(self._recovery_point, offset)
                self._epochs.truncate_from_start(offset)
            try:
                self._segments.remove_below(self._log_start_offset)
            except OSError as error:
                raise self._fail(error) from error

    def delete_old_segments(self, now_ms: int | None = None) -> int:
        """Delete the oldest segments that the retention limits no longer cover, below the high watermark, or that lie below the
        log start; return their number.

        Their timestamps are those that `expiry.has_expired` has found. If all segments go, an empty one begins at the log's end.
        """
        with self.exclusive(), self.reading():
            self._check_open()
            before = len(self._segments.all)
            self.advance_log_start(self._log_start_offset)
            below_start = before - len(self._segments.all)
            ages = ages_of(self._segments.all, self.log_end_offset)
            now_ms = wall_clock_ms() if now_ms is None else now_ms
            count = expired_count(ages, self.size_bytes, self._high_watermark, self.config, now_ms)
            if count == len(self._segments.all):
                try:
                    self._roll(self.log_end_offset, self.log_end_offset)
                except OSError as error:
                    raise self._translate(error) from error
            if count:
                self.advance_log_start(self._segments.all[count].base_offset)
            return below_start + count

    @property
    def removals(self) -> tuple[Removal, ...]:
        """Files of deleted segments, the oldest first."""
        return self._segments.removals

    @removals.setter
    def removals(self, left: tuple[Removal, ...]) -> None:
        self._segments.removals = left

    # Compaction

    def cleanable(self, now_ms: int) -> Cleanable:
        """Return the part of the log that can be compacted now."""
        with self.pinned() as view, self.reading():
            return cleanable(
                view.segments,
                cleaned_to=max(self._cleaned_to, view.log_start_offset),
                high_watermark=self._high_watermark,
                config=self.config,
                now_ms=now_ms,
            )

    @property
    def has_dirty_segments(self) -> bool:
        """Return False if there is surely nothing to compact. Does not wait."""
        return self._segments.active.base_offset > max(self._cleaned_to, self._log_start_offset)

    @contextmanager
    def staying_in(self, directory: Path) -> Iterator[None]:
        """Pin the log, so that its directory is not renamed inside the block. LogClosed if it has left `directory`."""
        with self.pinned():
            if self.directory != directory:
                raise LogClosed(f"{self.name} has left {directory}")
            yield

    def segments_below(self, offset: int) -> tuple[int, tuple[Segment, ...]]:
        """Return the segments that begin below `offset`, without the active one, and the count that `replace_segments` wants."""
        with self.pinned() as view:
            return self._cuts, tuple(segment for segment in view.segments[:-1] if segment.base_offset < offset)

    def replace_segments(self, count: int, old: Sequence[Segment], new: Segment, exchange: Exchange) -> int | None:
        """Take `new` in the place of `old`, once `exchange` has exchanged their files. Return the next `count`. `exchange` gets
        the function that sets a segment's files aside.

        None, and nothing has changed: records were removed since `count` was returned, or `exchange` refused. LogDirFailed.
        """
        with self.exclusive():
            self._check_open()
            place = self._segments.find(old)
            if self._cuts != count or place is None:
                return None
            try:
                if not exchange(self._segments.set_aside):
                    return None
            except OSError as error:
                raise self._fail(error) from error
            self._segments.replace(place, new)
            self._cuts += 1
            return self._cuts

    def set_cleaned_to(self, offset: int, count: int | None = None) -> None:
        """Set the end of the compacted part, unless records were removed since `count` was returned."""
        with self._lock:
            if count in (None, self._cuts):
                self._cleaned_to = min(offset, self.log_end_offset)

    # Durability and closing

    def flush(self, *, with_index: bool = False) -> None:
        """Make all appended records durable and raise the recovery point to the log end. `with_index`: also the active segment's
        indexes, which only a start after a clean shutdown reads; nothing may be appended meanwhile.

        An I/O error takes the directory offline. On a full disk (NoSpace), or without free file descriptors, the recovery point
        stays and the flush may be tried again.
        """
        if with_index:
            with self._lock:
                if not self._segments.active.are_indexes_durable:
                    self._segments.sealed = (*self._segments.sealed, self._segments.active)
        self._flush(through_active=True)

    def _flush_if_due(self) -> None:
        """Flush after every `flush.messages` records."""
        if self._log_end_offset - self._recovery_point >= self.config.flush_messages:
            self.flush()

    def flush_rolled(self) -> None:
        """As `flush`, for the segments that are no longer written to."""
        self._flush(through_active=False)

    def _flush(self, *, through_active: bool) -> None:
        with self.pinned() as view:
            segments = view.segments if through_active else view.segments[:-1]
            reached = view.log_end_offset if through_active else view.segments[-1].base_offset
            self._flush_segments(segments, reached)

    def _flush_segments(self, segments: Sequence[Segment], reached: int) -> None:
        """Make `segments` durable, which end at `reached`. They are pinned, or the lock is held."""
        if reached <= self._recovery_point and not self._epochs.is_dirty_below(reached) and not self._segments.sealed:
            return
        try:
            self._segments.sync(segments, reached, self._recovery_point)
        except OSError as error:
            raise self._fail(error) from error
        try:
            self._segments.flush_beside(reached, self._epochs, self._lock)
        except OSError as error:
            raise self._translate(error) from error
        with self._lock:
            self._recovery_point = max(self._recovery_point, reached)
            self.flushed_at_ms = wall_clock_ms()

    # Producers

    @property
    def producers(self) -> ProducerState:
        """A copy of the idempotent producers."""
        with self._lock:
            return self._producers.copy()

    def adopt_producers(self, other: PartitionLog) -> None:
        """Take over the producers of a log with the same records, which may know some whose records are deleted."""
        producers = other.producers
        with self._lock:
            self._producers = producers

    def expire_producers(self, before_ms: int) -> int:
        """Forget producers that have not appended since that time; return their number. Does not wait for the disk."""
        if not self._producers or not self._lock.acquire(blocking=False):
            return 0
        try:
            return self._producers.expire(before_ms)
        finally:
            self._lock.release()

    def write_producers(self) -> bool:
        """Write a snapshot of the producers at the log's end, before the log is closed; False if there is nothing to write.

        Not durable before `sync_new_directories`. LogError.
        """
        with self._lock:
            self._check_open()
            try:
                return producer_snapshots.write_last(self.directory, self.log_end_offset, self._producers)
            except OSError as error:
                raise self._translate(error) from error

    def rename(self, directory: Path, *, may_wait: bool = False) -> None:
        """Rename the replica's directory; open files stay open. LogDirFailed.

        `may_wait`: NoSpace if a full disk has no room for the name. Nothing has changed then, and the call may be repeated later.
        """
        with self.exclusive():
            try:
                rename_new(self.directory, directory)
            except OSError as error:
                raise (self._translate if may_wait else self._fail)(error) from error
            try:
                make_rename_durable(self.directory, directory)
            except OSError as error:
                raise self._fail(error) from error
            self._segments.lies_in(directory)

    def name_new(self, directory: Path) -> None:
        """As `rename`, for a log that is not in use yet; the maker of the directory makes the name durable.

        ReplicaConflict if the name is in use: the disk is not at fault.
        """
        with self.exclusive(), disk_errors(self.log_dir):
            try:
                rename_new(self.directory, directory)
            except FileExistsError as error:
                raise ReplicaConflict(f"{directory} exists already and was not made by this broker; move it away") from error
            self._segments.lies_in(directory)

    def close(self, reason: LogError | None = None) -> None:
        """Close the files. Later calls raise `reason` (LogClosed by default). Does not flush."""
        with self.exclusive():
            self._refusal = self._refusal or reason or LogClosed(f"{self.name} in {self.log_dir} is closed")
            self._segments.close()

    def abandon(self, reason: LogError) -> None:
        """As `close`, for a directory that failed, without waiting. Files in use are closed after that use."""
        self._refusal = self._refusal or reason
        self._segments.close()

    def __repr__(self) -> str:
        return f"{self.name} {self._log_start_offset}..{self._high_watermark}..{self.log_end_offset}@{self.latest_epoch}"


def _part(data: bytes | bytearray | memoryview | FileRange, start: int, size_bytes: int) -> memoryview | FileRange:
    return data.part(start, size_bytes) if isinstance(data, FileRange) else memoryview(data)[start : start + size_bytes]
