"""Segments of one log: how a new one begins, how an append is rolled back, and how segments are removed.

The owner, `PartitionLog`, holds its lock during each change, and translates OSErrors; `sync` and `flush_beside` run without the
lock. The tuples are replaced as a whole, so other threads may read them without the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from kraftlab.common.clock import wall_clock_ms
from kraftlab.records.record_batch import INT64_MAX, BatchHeader

from . import producer_snapshots
from .files import fsync_directory
from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .log_view import Removal
from .segment import Segment
from .segment_rules import MAX_RELATIVE_OFFSET, Room, room_in


class Before(NamedTuple):
    """Segments before an append, with the size and the end of the active one."""

    segments: tuple[Segment, ...]
    size_bytes: int
    end_offset: int


class LogSegments:
    """`all` has one segment at least; the last one is active. Methods raise OSError."""

    def __init__(self, directory: Path, segments: tuple[Segment, ...], config: LogConfig) -> None:
        self.directory = directory
        self.config = config
        self.all = segments
        self.sealed: tuple[Segment, ...] = ()
        """Rolled segments with indexes that are not durable yet."""
        self.removals: tuple[Removal, ...] = ()
        """Files of deleted segments, the oldest first."""
        self.names_are_durable = False
        self._rolled_at_ms = wall_clock_ms()
        """Time at which the active segment was made or opened."""

    @property
    def active(self) -> Segment:
        return self.all[-1]

    @property
    def size_bytes(self) -> int:
        """Sum of the segment files' sizes, indexes not counted."""
        return sum(segment.size_bytes for segment in self.all)

    # Appending

    def takes(self, header: BatchHeader, log_name: str) -> bool:
        """Return True if the active segment has room for a batch."""
        room = self._room(header, log_name)
        return room.fits(self.all[-1].size_bytes, header.size_bytes, header.last_offset, header.max_timestamp_ms)

    def run(self, headers: Sequence[BatchHeader], log_name: str) -> tuple[int, int]:
        """Return (count, bytes) of the first batches, for the active segment, which takes at least one."""
        room, size_bytes = self._room(headers[0], log_name), self.all[-1].size_bytes
        count, run_bytes = 0, 0
        for header in headers:
            if count and not room.fits(size_bytes + run_bytes, header.size_bytes, header.last_offset, header.max_timestamp_ms):
                break
            count, run_bytes = count + 1, run_bytes + header.size_bytes
        return count, run_bytes

    def _room(self, header: BatchHeader, log_name: str) -> Room:
        """Return the room in the active segment; `header` is that of its first batch if it is empty."""
        active = self.all[-1]
        first_ms = active.first_timestamp_ms if active.size_bytes else header.max_timestamp_ms
        waited_ms = wall_clock_ms() - self._rolled_at_ms
        is_index_full = active.is_full(self.config.segment_index_bytes)
        return room_in(active.base_offset, first_ms, waited_ms, is_index_full, self.config, log_name)

    def end_active(self, last_offset: int, first_offset: int) -> int:
        """End the active segment before a batch with these offsets. Return the base offset of the next segment.

        The new segment begins where the one before ends, even if the batch begins later: a start after a crash then knows that no
        records are missing in between. The names of the other segments are made durable first.
        """
        active = self.active
        active.seal()
        if not self.names_are_durable:
            fsync_directory(self.directory)
            self.names_are_durable = True
        is_reachable = active.size_bytes and last_offset - active.end_offset <= MAX_RELATIVE_OFFSET
        return active.end_offset if is_reachable else first_offset

    def begin(self, base_offset: int) -> None:
        """Begin the segment after the active one, which has ended."""
        following, ended = Segment.create(self.directory, base_offset), self.active
        self.all = (*self.all, following)
        self.sealed = (*self.sealed, ended)
        self.names_are_durable = False
        self._rolled_at_ms = wall_clock_ms()

    def before_append(self) -> Before:
        active = self.all[-1]
        return Before(self.all, active.size_bytes, active.end_offset)

    def roll_back(self, before: Before) -> None:
        """Roll back a failed append: only the segments before it remain, the last with its former size."""
        segments = before.segments
        for segment in self.all[len(segments) :]:
            segment.delete()
        if len(self.all) > len(segments) and producer_snapshots.remove_outside(self.directory, 0, before.end_offset):
            self.names_are_durable = False
        self.all = segments
        self._keep_sealed(segments[:-1])
        if segments[-1].size_bytes > before.size_bytes:
            segments[-1].truncate(before.size_bytes, before.end_offset)

    # Removing

    def end_after_truncation(self, offset: int) -> int:
        """The log end after a truncation: below `offset` if that lies within a batch, or after a gap. Later appends begin there
        and are not durable, so the recovery point may not be higher.
        """
        for segment in reversed(self.all):
            found = segment.locate(offset)
            if found is None and segment.size_bytes:
                return segment.end_offset
            if found is not None and found[0]:
                return segment.end_offset_at(found[0])
        return self.all[0].base_offset

    def truncate(self, offset: int) -> None:
        """Remove whole segments, newest first, so that a crash in between leaves a log without a hole.

        The truncation is durable before anything is appended: otherwise a power cut could bring removed records back, below
        the records of a new segment.
        """
        count = len(self.all)
        while len(self.all) > 1 and self.active.base_offset >= offset:
            self.set_aside(self.active)
            self.all = self.all[:-1]
        active = self.active
        found = active.locate(offset)
        if found is not None:
            active.truncate(found[0], active.end_offset_at(found[0]))
        if not active.size_bytes and len(self.all) > 1:
            active.delete()
            self.all = self.all[:-1]
        self._keep_sealed(self.all[:-1])
        self._sync_truncation(has_removed=len(self.all) < count)

    def _sync_truncation(self, *, has_removed: bool) -> None:
        """Make a truncation durable: of the last segment, and of the names if whole segments were removed."""
        self.active.sync()
        if has_removed:
            fsync_directory(self.directory)

    def recreate_at(self, offset: int) -> None:
        """Replace all segments by an empty one. The log is held exclusively."""
        for segment in reversed(self.all):
            self.set_aside(segment)
        producer_snapshots.remove_outside(self.directory, 0, -1)
        self.all = (Segment.create(self.directory, offset),)
        self.sealed = ()
        self.names_are_durable = False

    def remove_below(self, offset: int) -> None:
        """Remove segments wholly below an offset, but never the active one. The log is held exclusively."""
        first = self.all[0]
        while len(self.all) > 1 and self.all[1].base_offset <= offset:
            self.set_aside(self.all[0])
            self.all = self.all[1:]
        if self.all[0] is not first:
            self._keep_sealed(self.all)
            self.names_are_durable = False
            producer_snapshots.remove_outside(self.directory, self.all[0].base_offset, INT64_MAX)

    def set_aside(self, segment: Segment) -> None:
        """Take the files of a segment out of the log; they are removed later. The log is held exclusively."""
        deadline_ms = wall_clock_ms() + self.config.file_delete_delay_ms
        self.removals += tuple(Removal(deadline_ms, name) for name in segment.set_aside())

    # Durability

    def sync(self, segments: Sequence[Segment], reached: int, recovery_point: int) -> None:
        """Make `segments`, which end at `reached`, durable from the recovery point on."""
        ends = [*(segment.base_offset for segment in segments), reached][1:]
        for segment in [segment for segment, end in zip(segments, ends, strict=True) if end > recovery_point]:
            segment.sync()

    def flush_beside(self, reached: int, epochs: LeaderEpochs, lock: threading.RLock) -> None:
        """Make indexes of rolled segments, leader epochs and names durable, which can be written again if that fails."""
        sealed = self.sealed
        for segment in sealed:
            segment.flush_index(durably=True)
        with lock:
            if epochs.is_dirty_below(reached):
                epochs.write(self.directory)
            self.sealed = tuple(segment for segment in self.sealed if segment not in sealed)
            names_are_durable, self.names_are_durable = self.names_are_durable, True
        if not names_are_durable:
            try:
                fsync_directory(self.directory)
            except OSError:
                self.names_are_durable = False
                raise

    # Compaction

    def find(self, old: Sequence[Segment]) -> slice | None:
        """Return the place of segments, None if they are not all there, or if one of them is active."""
        first = next((index for index, segment in enumerate(self.all) if segment is old[0]), 0)
        after = first + len(old)
        return slice(first, after) if self.all[first:after] == tuple(old) and after < len(self.all) else None

    def replace(self, place: slice, new: Segment) -> None:
        self.all = (*self.all[: place.start], new, *self.all[place.stop :])
        self._keep_sealed(self.all)

    def _keep_sealed(self, segments: Collection[Segment]) -> None:
        self.sealed = tuple(segment for segment in self.sealed if segment in segments)

    def lies_in(self, directory: Path) -> None:
        """Note that the directory was renamed."""
        self.directory = directory
        for segment in self.all:
            segment.lies_in(directory)

    def close(self) -> None:
        for segment in self.all:
            segment.close()
