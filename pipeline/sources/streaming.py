"""The sources as streams: logs in growing files, and the log of a running quorum.

Offsets of a stream are offsets of the log, and never pass the committed end: after a crash Spark requests exactly the same range
again, and must get the same rows.

Rows of a running quorum come from the active controller, as to an observer (`client.metadata_log`). A position has the epoch of
the record before it, from which the controller verifies that its log is the one that was read before. The acknowledged position
is the beginning of the oldest micro-batch that Spark has not committed: from there on the log is kept for a named reader, as long
as the controllers keep logs for observers. If a position was cleaned all the same, a snapshot follows, with rows like those of a
snapshot's file. These rows carry node -1, for the leader of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kraftlab.client.metadata_log import (
    ANONYMOUS,
    HistoryChanged,
    LogState,
    MetadataLog,
    SnapshotInstead,
    observer_named,
)
from kraftlab.client.security import ClientSecurity
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.garbage import without_gc
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.types import OffsetAndEpoch

from ..errors import CorruptInput, WrongUse
from ..framing import Frame, walk
from ..storage.schemas import arrow_of
from .formats import KRAFTLAB, LogFormat, format_named
from .options import DAMAGES, QUORUM, Options
from .pruning import Bounds
from .reader import ROW_MAKERS, LogReader, chosen
from .survey import LOG, SNAPSHOT, LogFile, survey

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ANY_LEADER = -1
Position = dict[str, Any]
"""`offset`; for a quorum also `epoch`, and `snapshot` if a snapshot ends there that replaces the log before it."""


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Common part of both streams: limits, and the end of a run that takes the records of the moment."""

    def __init__(self, format_name: str, options: Options, known: str, wanted: StructType) -> None:
        self.format_name, self.options, self.known, self.wanted = format_name, options, known, wanted
        self._target: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.max_records) if self.options.max_records else ReadAllAvailable()

    def _end_for(self, start: int, committed_end: int, limit: ReadLimit) -> int:
        """Return the end offset of a micro-batch, at least its start."""
        end = committed_end if self._target is None else min(committed_end, self._target)
        if self.options.end_offset is not None:
            end = min(end, self.options.end_offset)
        if isinstance(limit, ReadMaxRows):
            end = min(end, start + limit.max_rows)
        return max(start, end)


class FileStreamReader(_StreamReader):
    """Directories of controllers. Each range is planned and read like a batch read."""

    def initialOffset(self) -> Position:
        return {"offset": self.options.start_offset}

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        return {"offset": self._end_for(start["offset"], self._committed_end(), limit)}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._committed_end()

    def partitions(self, start: Position, end: Position) -> list[InputPartition]:
        return self._reader(start["offset"], end["offset"]).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader(0, None).read(partition)

    def _committed_end(self) -> int:
        form = format_named(self.format_name)
        return survey(self.options.places, form, self.options.cluster_id).committed_end

    def _reader(self, lo: int, hi: int | None) -> LogReader:
        options = self.options._replace(start_offset=lo, end_offset=hi)
        return LogReader(self.format_name, options, self.known, self.wanted)


class LogMoved(CorruptInput):
    """Records that a micro-batch was planned to read were cleaned before it read them. A restarted stream
    continues after them.
    """


class LiveTask(InputPartition):
    """A stretch of the quorum's log. `snapshot` replaces its beginning."""

    def __init__(self, start: OffsetAndEpoch, end_offset: int, snapshot: OffsetAndEpoch | None, cluster_id: str) -> None:
        super().__init__(None)
        self.start, self.end_offset, self.snapshot, self.cluster_id = start, end_offset, snapshot, cluster_id


class QuorumStreamReader(_StreamReader):
    """A running quorum. A micro-batch is one task, since its batches come one after the other from one controller."""

    def __init__(self, format_name: str, options: Options, known: str, wanted: StructType) -> None:
        super().__init__(format_name, options, known, wanted)
        if format_name != KRAFTLAB:
            raise WrongUse(f"{QUORUM} speaks to clusters of kraftlab; read Kafka's logs from files")
        if options.rows == DAMAGES:
            raise WrongUse(f"{QUORUM} has no damages: controllers check records before they send them")
        if options.start_offset and options.start_epoch is None:
            raise WrongUse("a stream off a quorum that begins within the log needs startingEpoch, the epoch of the record before")
        self._log: MetadataLog | None = None
        self._kept_from: OffsetAndEpoch | None = None

    def initialOffset(self) -> Position:
        return {"offset": self.options.start_offset, "epoch": self.options.start_epoch or 0}

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        position = _position(start)
        try:
            state = self._keep(self._kept_from or position)
            end_offset = self._end_for(position.offset, state.high_watermark, limit)
            for frame in _frames(self._quorum(), position, end_offset):
                position = OffsetAndEpoch(frame.last_offset + 1, frame.leader_epoch)
        except SnapshotInstead as cleaned:
            return {"offset": cleaned.snapshot.offset, "epoch": cleaned.snapshot.epoch, "snapshot": True}
        except HistoryChanged as error:
            raise CorruptInput(str(error)) from error
        return {"offset": position.offset, "epoch": position.epoch}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._quorum().state().high_watermark

    def partitions(self, start: Position, end: Position) -> list[InputPartition]:
        begin, until = _position(start), _position(end)
        if self._kept_from is None:
            self._kept_from = begin
        snapshot = until if end.get("snapshot") else None
        return [LiveTask(begin, until.offset, snapshot, self._quorum().cluster_id)]

    def commit(self, end: Position) -> None:
        self._kept_from = _position(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LiveTask):
            return iter(())
        return _read_live(partition, self.options, chosen(arrow_of(self.known), self.wanted))

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def __getstate__(self) -> dict[str, object]:
        """Leave out the connection: workers connect by themselves."""
        return {**self.__dict__, "_log": None}

    def _keep(self, position: OffsetAndEpoch) -> LogState:
        """Ask the leader to keep its log from a position on. If the leader has cleaned it already, a read reports that."""
        quorum = self._quorum()
        if self.options.observer is None:
            return quorum.state()
        try:
            return quorum.acknowledge(position)
        except SnapshotInstead:
            return quorum.state()

    def _quorum(self) -> MetadataLog:
        if self._log is None:
            observer = observer_named(self.options.observer) if self.options.observer else ANONYMOUS
            self._log = _opened(self.options, self.options.cluster_id or "", observer)
        return self._log


def _opened(options: Options, cluster_id: str, observer: ReplicaKey = ANONYMOUS) -> MetadataLog:
    security = None if options.command_config is None else ClientSecurity.load(options.command_config)
    return MetadataLog(options.live or "", observer=observer, cluster_id=cluster_id, security=security)


def _position(at: Position) -> OffsetAndEpoch:
    return OffsetAndEpoch(at["offset"], at["epoch"])


def _frames(log: MetadataLog, position: OffsetAndEpoch, end_offset: int) -> Iterator[Frame]:
    """Yield the whole batches of a stretch, at least one if there is any. SnapshotInstead, HistoryChanged, CorruptInput."""
    form = format_named(KRAFTLAB)
    file_position = 0
    start = position.offset
    while position.offset < end_offset:
        data = log.fetch(position).data
        if not data:
            return
        for frame in _checked(data, form, f"offset {position.offset} on"):
            if frame.last_offset >= end_offset and frame.base_offset > start:
                return
            yield frame._replace(position=file_position + frame.position)
            position = OffsetAndEpoch(frame.last_offset + 1, frame.leader_epoch)
        file_position += len(data)


def _checked(data: bytes, form: LogFormat, what: str) -> Iterator[Frame]:
    for entry in walk(lambda position, size: data[position : position + size], len(data), form.form):
        if not isinstance(entry, Frame):
            raise CorruptInput(f"the active controller sent bytes from {what} that are not a batch: {entry.error}")
        yield entry


def _read_live(task: LiveTask, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    form = format_named(KRAFTLAB)
    bounds = Bounds(0, task.end_offset, options.start_ms, options.end_ms)
    try:
        with without_gc(), _opened(options, task.cluster_id) as log:
            if task.snapshot is not None:
                frames = _checked(_copied(log, task.snapshot), form, f"snapshot {task.snapshot}")
                file = _file(task, SNAPSHOT, f"{task.snapshot.offset:020d}-{task.snapshot.epoch:010d}.checkpoint")
            else:
                frames = _frames(log, task.start, task.end_offset)
                file = _file(task, LOG, f"{task.start.offset:020d}.log")
            yield from ROW_MAKERS[options.rows](frames, file, form, bounds, schema)
    except SnapshotInstead as cleaned:
        raise LogMoved(f"{_gone(task)}: {cleaned}; use a new checkpoint to continue after it") from cleaned


def _copied(log: MetadataLog, snapshot: OffsetAndEpoch) -> bytes:
    try:
        return b"".join(log.snapshot(snapshot))
    except ApiError as error:
        if error.code is not ErrorCode.SNAPSHOT_NOT_FOUND:
            raise
        raise LogMoved(f"snapshot {snapshot} was replaced by a newer one meanwhile; begin with a new checkpoint") from error


def _gone(task: LiveTask) -> str:
    return f"offsets {task.start.offset} to {task.end_offset - 1} are no longer in the active controller's log"


def _file(task: LiveTask, kind: str, name: str) -> LogFile:
    """Describe a micro-batch as a segment that begins where it does. A snapshot is at the last offset that it reflects."""
    base_offset = task.start.offset if kind == LOG or task.snapshot is None else task.snapshot.offset - 1
    return LogFile("", name, kind, ANY_LEADER, task.cluster_id, 0, base_offset, task.end_offset)
