"""Past metadata: images and records of any offset or time that a metadata directory still reaches back to.

An image is made from the newest snapshot at or before the requested moment and the batches after it. If that snapshot is damaged,
an older one is used, or the log from its beginning. A batch counts whole or not at all, so an image is at the end of the last
batch that ends at or before the offset. A *time* means everything up to the first batch that was appended later.

Read-only and without a lock, beside a running node or over a broken one. Unreadable files on the way are in `notes`. If the log
cannot be followed to the requested moment, `stopped` says where and why, and the image is the last one before that. It is not
known here if the records are committed; `known_committed` returns the part that certainly is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from typing import NamedTuple, TypeVar

from kraftlab.metadata import codec
from kraftlab.metadata.codec import UnreadableRecords
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import AnyRecord
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.snapshot import image_from
from kraftlab.quorum.core.batch import NO_PREVIOUS_CRC, BatchHeader, ControlRecord, decode_control
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage.committed_mark import read_committed
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.file_system import FileReader, RealFileReader
from kraftlab.quorum.storage.recovery import scan
from kraftlab.quorum.storage.snapshot_file import SnapshotDecoder, id_of_path
from kraftlab.quorum.storage.survey import BrokenPlace, FoundBatch, read_chain, segments_in, snapshots_in

T = TypeVar("T")

READS = 5
"""Number of attempts to read files that vanish meanwhile."""


class Moment(NamedTuple):
    """A moment in history: an offset (exclusive end), or a time in ms since 1970; neither is the newest there is."""

    offset: int | None = None
    time_ms: int | None = None

    def reaches(self, end_offset: int, append_time_ms: int) -> bool:
        """Return True if a batch with this end and append time lies before the moment."""
        if self.offset is not None:
            return end_offset <= self.offset
        return self.time_ms is None or append_time_ms <= self.time_ms


NEWEST = Moment()


class LoggedBatch(NamedTuple):
    """A batch of the log with its records, or those of consensus if it is a control batch."""

    base_offset: int
    epoch: int
    append_time_ms: int
    record_count: int
    records: tuple[AnyRecord, ...]
    control: tuple[ControlRecord, ...] = ()


class NoHistory(Exception):
    """The directory does not reach back to the requested moment; the message says how far it does."""


class PastImage(NamedTuple):
    """A past image. `stopped`: why the log could not be followed to the requested moment, None if it was."""

    image: MetadataImage
    stopped: str | None
    notes: tuple[str, ...]


class Step(NamedTuple):
    """One batch of the log: its records, or those of consensus if it is a control batch, and the image after it."""

    header: BatchHeader
    records: tuple[AnyRecord, ...]
    control: tuple[ControlRecord, ...]
    image: MetadataImage


class History:
    """The history in one partition directory of a metadata log. Blocks: for worker threads and commands.

    `places`: number of places in the log that are remembered with their images, so that reading continues there. The caller then
    asks for committed offsets only, and reads in one thread at a time.
    """

    def __init__(self, partition: str, files: FileReader | None = None, places: int = 0) -> None:
        self.partition = partition
        self._files: FileReader = files or RealFileReader()
        self._places: deque[tuple[MetadataImage, int]] = deque(maxlen=places)

    def at(self, moment: Moment) -> PastImage:
        """Return the image of that moment. NoHistory, OSError."""
        return while_files_vanish(lambda: self._at(moment))

    def steps(self, start: Moment, end: Moment) -> Generator[Step | str]:
        """Yield the batches between two moments, in order, then a text if the log cannot be followed that far.

        NoHistory, OSError. A caller that takes them all at once can repeat it (`while_files_vanish`).
        """
        image, crc, _ = self._start(start)
        for step in self._follow(image, crc, end):
            if isinstance(step, str):
                if image is EMPTY:
                    raise NoHistory(self._reach(step))
                yield step
                return
            image = step.image
            if not start.reaches(step.header.end_offset, step.header.append_time_ms):
                yield step

    def first(self) -> OffsetAndEpoch:
        """Return the earliest position with an image: the log's beginning, or the end of the oldest snapshot. OSError."""
        return while_files_vanish(self._first)

    def _first(self) -> OffsetAndEpoch:
        snapshots = snapshots_in(self.partition, self._files)
        reaches_back = any(base == 0 for base, _ in segments_in(self.partition, self._files))
        return snapshots[-1][0] if snapshots and not reaches_back else OffsetAndEpoch(0, 0)

    def known_committed(self) -> int:
        """Return the largest offset that is certainly committed, by the ends of snapshots and the stamps of leaders."""
        return while_files_vanish(self._known_committed)

    def _known_committed(self) -> int:
        committed = read_committed(self._files, self.partition)
        for position, _ in snapshots_in(self.partition, self._files):
            committed = max(committed, position.offset)
        for _, path in segments_in(self.partition, self._files):
            marks = (header.high_watermark for header in scan(self._files.read(path), 0))
            committed = max(committed, max(marks, default=0))
        return committed

    def _at(self, moment: Moment) -> PastImage:
        image, crc, notes = self._start(moment)
        stopped = None
        for step in self._follow(image, crc, moment):
            if isinstance(step, str):
                stopped = step
            else:
                image = step.image
        if image is EMPTY and stopped is not None:
            raise NoHistory(self._reach(stopped))
        return PastImage(image, stopped, tuple(notes))

    def _start(self, moment: Moment) -> tuple[MetadataImage, int, list[str]]:
        """Return image and crc of the newest remembered place or valid snapshot before the moment, and notes of damaged ones."""
        notes: list[str] = []
        ends = [place for place in self._places if moment.offset is not None and place[0].provenance.offset <= moment.offset]
        place = max(ends, key=lambda place: place[0].provenance.offset, default=None)
        for position, path in snapshots_in(self.partition, self._files):
            if moment.offset is not None and position.offset > moment.offset:
                continue
            if place is not None and position.offset <= place[0].provenance.offset:
                break
            try:
                found = read_snapshot(path, moment, self._files)
            except UnreadableSnapshot as error:
                notes.append(str(error))
                continue
            if found is not None:
                return (*found, notes)
        return (*(place or (EMPTY, NO_PREVIOUS_CRC)), notes)

    def _follow(self, image: MetadataImage, crc: int, end: Moment) -> Iterator[Step | str]:
        """Yield the batches after a place, and remember the last one as a place if `end` is an offset."""
        before = image
        try:
            for step in self._chain(image, crc, end):
                if isinstance(step, Step):
                    image, crc = step.image, step.header.crc
                yield step
        finally:
            if end.offset is not None and image is not before:
                self._places.append((image, crc))

    def _chain(self, image: MetadataImage, crc: int, end: Moment) -> Iterator[Step | str]:
        for entry in read_chain(self.partition, image.provenance.offset, crc, self._files):
            if isinstance(entry, BrokenPlace):
                yield str(entry)
                return
            if not end.reaches(entry.header.end_offset, entry.header.append_time_ms):
                return
            try:
                step = _step(image, entry)
            except (ReplayError, UnreadableRecords, CorruptBatch) as error:
                yield f"{entry.path} position {entry.position}: {error}"
                return
            image = step.image
            yield step

    def _reach(self, reason: str) -> str:
        snapshots = snapshots_in(self.partition, self._files)
        if not snapshots:
            return f"{reason}; no snapshot replaces the records before"
        oldest = snapshots[-1][0].offset
        return f"{reason}. Its oldest snapshot ends at offset {oldest}; ask for that or a later one"


class UnreadableSnapshot(Exception):
    """A snapshot is damaged; the message says where and why."""


def read_snapshot(path: str, moment: Moment = NEWEST, files: FileReader | None = None) -> tuple[MetadataImage, int] | None:
    """Return a snapshot's image and the crc that the log continues from; None if it lies after the moment.

    UnreadableSnapshot, OSError.
    """
    try:
        position = id_of_path(path)
        with closing((files or RealFileReader()).open(path)) as file:
            decoder = SnapshotDecoder(file, position)
            header = decoder.header
            if not moment.reaches(position.offset, header.append_time_ms):
                return None
            image = image_from(found.body for found in decoder.batches())
    except StorageError as error:
        raise UnreadableSnapshot(str(error)) from None
    except (ReplayError, UnreadableRecords) as error:
        raise UnreadableSnapshot(f"{path}: {error}") from None
    return MetadataDelta(image).apply(Provenance(*position, header.append_time_ms)), header.last_crc


def _step(image: MetadataImage, found: FoundBatch) -> Step:
    header = found.header
    records: list[AnyRecord] = []
    control: list[ControlRecord] = []
    delta = MetadataDelta(image)
    if header.is_control:
        control = decode_control(found.body)
    else:
        records = codec.decode(found.body, header.base_offset, header.record_count)
        delta.replay_all(records, header.base_offset)
    after = delta.apply(Provenance(header.end_offset, header.epoch, header.append_time_ms))
    return Step(header, tuple(records), tuple(control), after)


def while_files_vanish(read: Callable[[], T]) -> T:
    """Read again if a file vanishes: a running node may remove old files, and has newer ones then."""
    for _ in range(READS - 1):
        with suppress(FileNotFoundError):
            return read()
    return read()
