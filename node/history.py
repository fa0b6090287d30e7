"""The metadata as it was: images and records of any offset or time that a metadata directory still reaches back to.

An image is made from the newest snapshot at or before the moment asked for and the batches behind it; if that snapshot does not
hold, an older one does, or the log from its beginning. A batch counts whole or not at all, so an image stands at the end of the
last batch that ends at or before the offset. A *time* means everything up to the first batch that was appended later.

Read-only and without a lock, beside a running node or over a broken one. What can not be read on the way is told in `notes`; if
the log can not be followed to the moment asked for, `stopped` says where it broke off and why, and the image is the last one
before that. Whether what was read is committed is not known here; `known_committed` gives what is known for certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple, TypeVar

from kraftlab.metadata import codec
from kraftlab.metadata.codec import UnreadableRecords
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import AnyRecord
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.snapshot import image_from
from kraftlab.quorum.core.batch import NO_PREVIOUS_CRC, BatchHeader
from kraftlab.quorum.storage.committed_mark import read_committed
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.file_system import FileReader, RealFileReader
from kraftlab.quorum.storage.recovery import scan
from kraftlab.quorum.storage.snapshot_file import SnapshotDecoder, id_of_path
from kraftlab.quorum.storage.survey import BrokenPlace, FoundBatch, read_chain, segments_in, snapshots_in

T = TypeVar("T")

READS = 5
"""How often files that vanish meanwhile are looked for again."""


class Moment(NamedTuple):
    """A place in history: an offset (exclusive end), or a time in ms since 1970; neither is the newest there is."""

    offset: int | None = None
    time_ms: int | None = None

    def reaches(self, end_offset: int, append_time_ms: int) -> bool:
        """Whether something that ends there and was appended then lies before the moment."""
        if self.offset is not None:
            return end_offset <= self.offset
        return self.time_ms is None or append_time_ms <= self.time_ms


NEWEST = Moment()


class NoHistory(Exception):
    """The directory does not reach back to the moment asked for; says how far it does."""


class Found(NamedTuple):
    """An image of the past. `stopped`: why the log could not be followed to the moment asked for, None if it was."""

    image: MetadataImage
    stopped: str | None
    notes: tuple[str, ...]


class Step(NamedTuple):
    """One batch of the log: its records (none of a control batch) and the image after it."""

    header: BatchHeader
    records: tuple[AnyRecord, ...]
    image: MetadataImage


class History:
    """What one partition directory of a metadata log tells. Blocks: for worker threads and commands."""

    def __init__(self, partition: str, files: FileReader | None = None) -> None:
        self.partition = partition
        self._files: FileReader = files or RealFileReader()

    def at(self, moment: Moment) -> Found:
        """The image of that moment. NoHistory, OSError."""
        return while_files_vanish(lambda: self._at(moment))

    def steps(self, start: Moment, end: Moment) -> Iterator[Step | str]:
        """The batches between two moments, in order; a text comes last if the log can not be followed that far. NoHistory,
        OSError: who takes them all at once may look again (`while_files_vanish`).
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

    def known_committed(self) -> int:
        """The largest offset below which everything is committed for certain: ends of snapshots, what leaders have noted, and
        what the node has noted at its last clean stop.
        """
        return while_files_vanish(self._known_committed)

    def _known_committed(self) -> int:
        committed = read_committed(self._files, self.partition)
        for position, _ in snapshots_in(self.partition, self._files):
            committed = max(committed, position.offset)
        for _, path in segments_in(self.partition, self._files):
            marks = (header.high_watermark for header in scan(self._files.read(path), 0))
            committed = max(committed, max(marks, default=0))
        return committed

    def _at(self, moment: Moment) -> Found:
        image, crc, notes = self._start(moment)
        stopped = None
        for step in self._follow(image, crc, moment):
            if isinstance(step, str):
                stopped = step
            else:
                image = step.image
        if image is EMPTY and stopped is not None:
            raise NoHistory(self._reach(stopped))
        return Found(image, stopped, tuple(notes))

    def _start(self, moment: Moment) -> tuple[MetadataImage, int, list[str]]:
        """Where to begin: image and crc of the newest snapshot that holds and lies before the moment, and what did not hold."""
        notes: list[str] = []
        for position, path in snapshots_in(self.partition, self._files):
            if moment.offset is not None and position.offset > moment.offset:
                continue
            try:
                found = read_snapshot(path, moment, self._files)
            except UnreadableSnapshot as error:
                notes.append(str(error))
                continue
            if found is not None:
                return (*found, notes)
        return EMPTY, NO_PREVIOUS_CRC, notes

    def _follow(self, image: MetadataImage, crc: int, end: Moment) -> Iterator[Step | str]:
        for entry in read_chain(self.partition, image.provenance.offset, crc, self._files):
            if isinstance(entry, BrokenPlace):
                yield str(entry)
                return
            if not end.reaches(entry.header.end_offset, entry.header.append_time_ms):
                return
            try:
                step = _step(image, entry)
            except (ReplayError, UnreadableRecords) as error:
                yield f"{entry.path} position {entry.position}: {error}"
                return
            image = step.image
            yield step

    def _reach(self, reason: str) -> str:
        snapshots = snapshots_in(self.partition, self._files)
        if not snapshots:
            return f"{reason}; no snapshot stands for what came before"
        oldest = snapshots[-1][0].offset
        return f"{reason}. Its oldest snapshot ends at offset {oldest}; ask for that or a later one"


class UnreadableSnapshot(Exception):
    """A snapshot that does not hold; says where and why."""


def read_snapshot(path: str, moment: Moment = NEWEST, files: FileReader | None = None) -> tuple[MetadataImage, int] | None:
    """A snapshot's image and the crc that the log goes on from; None if it stands for more than that moment. UnreadableSnapshot,
    OSError.
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
    delta = MetadataDelta(image)
    if not header.is_control:
        records = codec.decode(found.body, header.base_offset, header.record_count)
        delta.replay_all(records, header.base_offset)
    return Step(header, tuple(records), delta.apply(Provenance(header.end_offset, header.epoch, header.append_time_ms)))


def while_files_vanish(read: Callable[[], T]) -> T:
    """A running node may remove old files: what it has then is newer."""
    for _ in range(READS - 1):
        with suppress(FileNotFoundError):
            return read()
    return read()
