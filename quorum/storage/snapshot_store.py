"""The snapshots of one metadata directory: finished ones, the one being written here, the one being copied from the leader.

**Names.** `<end offset>-<epoch>.checkpoint` is finished: its bytes were durable before it got that name, and they never change.
Only a damaged one may be replaced by another of the same position, in one step: a reader finds the one or the other, and so does
the next start after a power cut. `.checkpoint.tmp` is this node's own snapshot while it is written, `.checkpoint.part` the copy
of a leader's. Both are garbage after a crash and removed at the next start. A copy that `verify_part` has found whole keeps its
name until `MetadataLog.install` gives it the finished one, in the same flush that removes the old log: a power cut leaves the old
log or the snapshot, never neither.

**Threads.** Everything blocks on the disk and belongs to worker threads, except `ids`, `infos`, `is_sound` and `promise`, which
only touch memory. One copy and one own snapshot may be in progress at the same time, each used by one thread at a time; `read` is
for any number.

**Order.** Snapshots are removed oldest first and before the segments after them, so the remaining ones always connect. Errors:
StorageFull may pass (abandon the snapshot, or try again); others are final, as everywhere in storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from kraftlab.common.errors import InvariantViolation

from ..core.batch import Batch, ControlRecord
from ..core.effects import CopyStep, OpenSnapshot, StoreSnapshotChunk
from ..core.events import SnapshotChunkStored, SnapshotVerified
from ..core.types import OffsetAndEpoch
from .errors import DiskFailed, LogCorrupt, StorageFull
from .file_system import File, FileReader, FileSystem
from .identity import LogIdentity
from .snapshot_file import (
    BOOTSTRAP_ID,
    SnapshotDecoder,
    SnapshotEncoder,
    SnapshotInvalid,
    SnapshotSummary,
    id_of_path,
    read_summary,
    snapshot_id,
    snapshot_name,
)

UNFINISHED = ".tmp"
PART = ".part"


class SnapshotInfo(NamedTuple):
    """A finished snapshot, as people list it. `append_time_ms` is the append time of its last record in the log."""

    id: OffsetAndEpoch
    size_bytes: int
    append_time_ms: int


class SnapshotStore:
    """See the module's docstring. `found` are the valid snapshots of the directory, oldest first."""

    def __init__(
        self, file_system: FileSystem, directory: str, identity: LogIdentity, found: Sequence[SnapshotSummary] = ()
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._identity = identity
        self._lock = threading.Lock()
        """Held by worker threads while names change, never by the event loop."""
        self._finished: dict[OffsetAndEpoch, SnapshotInfo] = {}
        self._floor = 0
        self._part: tuple[OffsetAndEpoch, File] | None = None
        self._verified: dict[OffsetAndEpoch, SnapshotSummary] = {}
        self._promised: set[OffsetAndEpoch] = set()
        self._unsound: frozenset[OffsetAndEpoch] = frozenset()
        """Finished ones that are damaged or gone: they must not be copied, and another may take the name."""
        for summary in found:
            self._put(summary)

    def ids(self) -> tuple[OffsetAndEpoch, ...]:
        """Return the finished snapshots, oldest first. Any thread."""
        return tuple(self._finished)

    def infos(self) -> list[SnapshotInfo]:
        """Return the finished snapshots, oldest first. Any thread."""
        return list(self._finished.values())

    def is_sound(self, position: OffsetAndEpoch) -> bool:
        """Return True if there is such a finished snapshot that is not known as damaged. Any thread."""
        return position in self._finished and position not in self._unsound

    def _put(self, summary: SnapshotSummary) -> None:
        info = SnapshotInfo(summary.id, summary.size_bytes, summary.append_time_ms)
        self._finished = dict(sorted({**self._finished, summary.id: info}.items()))
        self._unsound -= {summary.id}

    def path(self, position: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot_name(position)}"

    # --- own snapshots -------------------------------------------------------------------------------------------------------

    def writer(self, position: OffsetAndEpoch, control: Sequence[ControlRecord]) -> SnapshotWriter:
        """Begin a snapshot of the state at `position`; `control` begins with its SnapshotHeader. StorageFull: no room."""
        path = self.path(position) + UNFINISHED
        self._file_system.remove(path)
        return SnapshotWriter(self, self._file_system, self._file_system.open(path, create=True), position, control)

    def _finish(self, temporary: str, summary: SnapshotSummary) -> bool:
        with self._lock:
            if summary.id.offset < self._floor or self.is_sound(summary.id):
                self._file_system.remove(temporary)
                return summary.id.offset >= self._floor
            self._file_system.rename(temporary, self.path(summary.id))
            try:
                self._file_system.sync_directory(self._directory)
            except StorageFull:
                # Not finished, so the name must not stay. A damaged one that it has replaced may stay replaced.
                if summary.id not in self._finished:
                    self._file_system.rename(self.path(summary.id), temporary)
                raise
            self._put(summary)
            return True

    # --- reading -------------------------------------------------------------------------------------------------------------

    def read(self, position: OffsetAndEpoch, start: int, max_bytes: int) -> tuple[int, bytes] | None:
        """Return the finished snapshot's size and its bytes from `start` on, b"" beyond its end.

        None if it is gone, if `check` has found damage, or if the disk cannot read it: then it is not served from now on.
        """
        info = self._finished.get(position)
        if info is None or not self.is_sound(position):
            return None
        try:
            return self._read_piece(position, start, max_bytes)
        except (FileNotFoundError, DiskFailed):
            self._lose(info)
            return None

    def _read_piece(self, position: OffsetAndEpoch, start: int, max_bytes: int) -> tuple[int, bytes]:
        with closing(self._file_system.open(self.path(position))) as file:
            size = file.size()
            return size, file.pread(max_bytes, start) if 0 <= start < size else b""

    def check(self, position: OffsetAndEpoch, pause: Callable[[], None] = lambda: None) -> None:
        """Read all of a finished snapshot. SnapshotInvalid if it is damaged or unreadable: then it is not served from now on.

        `pause` is called between its batches and may raise, to stop the copy. KeyError if it is gone.
        """
        info = self._finished[position]
        try:
            self._read_all(position, pause)
        except FileNotFoundError:
            error = SnapshotInvalid(f"{self.path(position)} is gone, but this node did not remove it")
        except (SnapshotInvalid, DiskFailed) as found:
            error = SnapshotInvalid(str(found))
        else:
            return
        if not self._lose(info):
            raise KeyError(position)
        raise error

    def _read_all(self, position: OffsetAndEpoch, pause: Callable[[], None]) -> None:
        with closing(self._file_system.open(self.path(position))) as file:
            for _ in SnapshotDecoder(file, position).batches():
                pause()

    def _lose(self, info: SnapshotInfo) -> bool:
        """Mark the snapshot that was finished as `info` as damaged.

        Return False if it was removed, or another has its name now.
        """
        with self._lock:
            if self._finished.get(info.id) is not info:
                return False
            self._unsound |= {info.id}
            return True

    def reader(self, position: OffsetAndEpoch) -> SnapshotReader:
        """Open a finished snapshot. KeyError if it is gone, LogCorrupt if its beginning is damaged."""
        try:
            file = self._file_system.open(self.path(position))
        except FileNotFoundError:
            raise KeyError(position) from None
        return SnapshotReader(file, position)

    # --- copies of a leader's ------------------------------------------------------------------------------------------------

    def carry_out(self, step: CopyStep) -> SnapshotChunkStored | SnapshotVerified:
        """Take one step of the copy of a leader's snapshot; return the event to report. SnapshotInvalid refuses the copy."""
        if isinstance(step, OpenSnapshot):
            return SnapshotChunkStored(step.id, self.open_part(step.id))
        if isinstance(step, StoreSnapshotChunk):
            return SnapshotChunkStored(step.id, self.store_part(step.id, step.position, step.data))
        verified = self.verify_part(step.id)
        return SnapshotVerified(step.id, verified.last_crc, verified.control)

    def open_part(self, position: OffsetAndEpoch) -> int:
        """Begin or continue the copy of `position`; return its size. Unfinished copies of others are removed."""
        return self._part_file(position).size()

    def _part_file(self, position: OffsetAndEpoch) -> File:
        if self._part is not None and self._part[0] == position:
            return self._part[1]
        self._close_part()
        promised = self._promised
        for name in self._file_system.names(self._directory):
            found = snapshot_id(name.removesuffix(PART)) if name.endswith(PART) else None
            if found is not None and found != position and found not in promised:
                self._file_system.remove(f"{self._directory}/{name}")
        file = self._file_system.open(self.path(position) + PART, create=True)
        self._part = (position, file)
        return file

    def store_part(self, position: OffsetAndEpoch, start: int, data: bytes) -> int:
        """Write `data` at `start` of the copy; return its size. Start 0 begins again; a gap stores nothing.

        Not durable before `verify_part`.
        """
        file = self._part_file(position)
        size = file.size()
        if start == 0 and size > 0:
            self._close_part()
            self._file_system.remove(file.path)
            file, size = self._part_file(position), 0
        if start != size:
            return size
        file.pwrite(data, start)
        return size + len(data)

    def verify_part(self, position: OffsetAndEpoch) -> SnapshotSummary:
        """Make the complete copy durable and check all of it. SnapshotInvalid discards the copy and says why."""
        file = self._part_file(position)
        try:
            file.fdatasync()
            summary = read_summary(file, position)
            if summary.cluster_id != self._identity.cluster_id:
                raise SnapshotInvalid(f"{file.path} belongs to cluster {summary.cluster_id!r}, not {self._identity.cluster_id!r}")
            if summary.generation > self._identity.generation:
                raise SnapshotInvalid(
                    f"{file.path} has generation {summary.generation}, this node only {self._identity.generation}"
                )
        except SnapshotInvalid:
            self._close_part()
            self._file_system.remove(file.path)
            raise
        self._close_part()
        self._verified[position] = summary
        return summary

    def _close_part(self) -> None:
        if self._part is not None:
            self._part[1].close()
            self._part = None

    def close(self) -> None:
        """Close the files; an unfinished copy stays for the next start to remove."""
        self._close_part()

    # --- calls of MetadataLog ------------------------------------------------------------------------------------------------

    def promise(self, position: OffsetAndEpoch) -> None:
        """Note that the verified copy of `position` will be installed, so no other copy may displace it. Event loop."""
        self._promised.add(position)

    def adopt(self, position: OffsetAndEpoch) -> None:
        """Durably give the verified copy its finished name, then remove the older ones. Can be repeated."""
        with self._lock:
            if position not in self._finished:
                verified = self._verified.get(position)
                if verified is None:
                    raise InvariantViolation(f"{self.path(position)}{PART} is installed, but was never verified")
                self._file_system.rename(self.path(position) + PART, self.path(position))
                self._put(verified)
            self._file_system.sync_directory(self._directory)
            self._remove([other for other in self._finished if other.offset < position.offset])
            self._floor = max(self._floor, position.offset)
            self._verified = {other: kept for other, kept in self._verified.items() if other.offset > position.offset}
        for other in list(self._promised):
            if other.offset <= position.offset:
                self._promised.discard(other)

    def remove_below(self, position: OffsetAndEpoch) -> None:
        """Durably remove the snapshots that end below `position.offset`, and accept no further own one there."""
        with self._lock:
            self._remove([other for other in self._finished if other.offset < position.offset])
            self._floor = max(self._floor, position.offset)

    def _remove(self, unwanted: list[OffsetAndEpoch]) -> None:
        for position in unwanted:
            self._file_system.remove(self.path(position))
            self._finished = {other: info for other, info in self._finished.items() if other != position}
            self._unsound -= {position}
        if unwanted:
            self._file_system.sync_directory(self._directory)


class SnapshotWriter:
    """This node's own snapshot while it is written. One worker thread; `finish` or `abandon` ends it."""

    def __init__(
        self,
        store: SnapshotStore,
        file_system: FileSystem,
        file: File,
        position: OffsetAndEpoch,
        control: Sequence[ControlRecord],
    ) -> None:
        self._store = store
        self._file_system = file_system
        self._file = file
        self._id = position
        self._encoder = SnapshotEncoder(file, position, control)

    def append(self, body: bytes, record_count: int) -> None:
        """Add one batch of data records, a MessagePack array. ValueError: too large. StorageFull: `abandon` it, try later."""
        self._encoder.append(body, record_count)

    def finish(self) -> bool:
        """Write footer and name durably. Return True if it counts, also if the same one was there already.

        False: a newer one has displaced it.
        """
        summary = self._encoder.finish()
        self._file.close()
        return self._store._finish(self._file.path, summary)

    def abandon(self) -> None:
        """Remove the unfinished file. If the disk refuses, the next start removes it."""
        self._file.close()
        self._file_system.remove(self._file.path)


class SnapshotReader:
    """A finished snapshot, read once from front to end. Worker thread. LogCorrupt: it is damaged; the next start repairs that.

    Only when `bodies` or `batches` is exhausted was the whole file checked: do not use a state that was built from it earlier.
    Then `file` is closed, and also when there is damage.
    """

    def __init__(self, file: File, position: OffsetAndEpoch) -> None:
        self._file = file
        self.position = position
        try:
            self._decoder = SnapshotDecoder(file, position)
        except SnapshotInvalid as error:
            file.close()
            raise self._damaged(error) from error
        self.append_time_ms = self._decoder.header.append_time_ms
        self.last_crc = self._decoder.header.last_crc
        self.control = self._decoder.control

    def batches(self) -> Iterator[Batch]:
        """Yield the data batches in order; close the file at the end."""
        try:
            yield from self._decoder.batches()
        except SnapshotInvalid as error:
            raise self._damaged(error) from error
        finally:
            self._file.close()

    def bodies(self) -> Iterator[bytes]:
        """Yield the data batches' bodies, MessagePack arrays of records."""
        for found in self.batches():
            yield found.body

    def close(self) -> None:
        """Close the file before the end."""
        self._file.close()

    @staticmethod
    def _damaged(error: SnapshotInvalid) -> LogCorrupt:
        return LogCorrupt(f"{error}. Start the node again: it fetches the lost data from the other controllers.")


def list_snapshots(file_system: FileReader, directory: str) -> list[OffsetAndEpoch]:
    """Return the ids in the names of a partition directory's finished snapshots, oldest first, unchecked."""
    found = (snapshot_id(name) for name in file_system.names(directory))
    return sorted(position for position in found if position is not None and position != BOOTSTRAP_ID)


def verify_file(file_system: FileReader, path: str) -> SnapshotSummary:
    """Check a whole snapshot file; return its summary. SnapshotInvalid names the fault; FileNotFoundError."""
    position = id_of_path(path)
    with closing(file_system.open(path)) as file:
        return read_summary(file, position)
