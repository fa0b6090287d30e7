"""Plans and reads: files into tasks in the driver, a task's pieces into Arrow batches in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kraftlab.common.garbage import without_gc

from ..errors import CorruptInput, WrongUse
from ..framing import TORN, UNWRITTEN, Frame, ReadAt, Window, frame_at, walk
from ..kraft_log.batches import ControlRecord, Damage
from ..session.settings import processors
from ..storage.schemas import arrow_of
from .columns import (
    BYTES_MAX,
    DAMAGE_COLUMNS,
    MISSING,
    RAW_MAX,
    RECORD_COLUMNS,
    ROWS_MAX,
    FoundDamage,
    batch_columns,
    from_rows,
    record_rows,
)
from .formats import LogFormat, format_named
from .options import BATCHES, DAMAGES, FAILFAST, RECORDS, Options
from .pieces import TASKS_PER_CORE, Piece, cut, packed, piece_bytes
from .pruning import Bounds, narrowed
from .survey import BOOTSTRAP, LOG, SNAPSHOT, LogFile, Survey, reader_of, survey, the_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType


class Task(InputPartition):
    """The pieces that one task reads, and its bounds."""

    def __init__(self, pieces: list[Piece], bounds: Bounds, cluster_id: str | None) -> None:
        super().__init__(None)
        self.pieces = pieces
        self.bounds = bounds
        self.cluster_id = cluster_id


class LogReader(DataSourceReader):
    """Reads logs of one format. `wanted` are the requested columns."""

    def __init__(self, format_name: str, options: Options, known: str, wanted: StructType) -> None:
        self.format_name = format_name
        self.options = options
        self.bounds = Bounds.of(options)
        self.schema = chosen(arrow_of(known), wanted)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. For an empty list Spark calls `read` with a partition of its own, which has nothing to read."""
        form = format_named(self.format_name)
        found = survey(self.options.places, form, self.options.cluster_id)
        return list(tasks_of(found, form, self.options, self.bounds))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Task):
            return iter(())
        return _read_task(partition, format_named(self.format_name), self.options, self.schema)


def tasks_of(found: Survey, form: LogFormat, options: Options, bounds: Bounds) -> list[Task]:
    """Pack the surveyed files into tasks, within the bounds."""
    if options.committed and options.end_offset is None:
        bounds = bounds.below_offset(found.committed_end)
    files = _within(found.files, form, bounds, Bounds.of(options), options.snapshots)
    share_bytes = piece_bytes(files, options.tasks or TASKS_PER_CORE * processors())
    pieces = [piece for file in files for piece in _pieces(file, form, share_bytes)]
    return [Task(task, bounds, found.cluster_id) for task in packed(pieces, share_bytes)]


class PushdownLogReader(LogReader):
    """The same, with offsets and times of `where()` as bounds. It is a class of its own, because a reader with `pushFilters`
    fails in sessions that have push-down turned off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        offset, time = ("offset", "ts_ms") if self.options.rows == RECORDS else ("base_offset", "append_ms")
        if self.options.rows != DAMAGES:
            for each in filters:
                self.bounds = narrowed(self.bounds, each, offset, time)
        return filters


def chosen(known: pa.Schema, wanted: StructType) -> pa.Schema:
    """Return the Arrow fields of Spark's fields, in Spark's order. WrongUse for an unknown column or another type."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in to_arrow_schema(wanted):
        if field.name not in known.names:
            raise WrongUse(f"there is no column {field.name!r}; known are {', '.join(known.names)}")
        if known.field(field.name).type != field.type:
            raise WrongUse(f"column {field.name} is {known.field(field.name).type}, not {field.type}")
    return pa.schema([known.field(name) for name in wanted.fieldNames()])


def _within(files: Iterable[LogFile], form: LogFormat, bounds: Bounds, asked: Bounds, snapshots: bool) -> list[LogFile]:
    """Return the files that can hold offsets of the bounds, and times that the options request."""
    found = [file for file in files if (snapshots or file.kind == LOG) and file.size_bytes and file.touches(bounds.lo, bounds.hi)]
    if not asked.has_times():
        return found
    first_ms = {file.uri: _first_ms(file, form) for file in found}
    kept = []
    for file in found:
        mine = first_ms[file.uri]
        after = [
            first_ms[other.uri]
            for other in found
            if other.controller_id == file.controller_id and other.kind == LOG and other.base_offset == file.next_offset
        ]
        following = after[0] if after and file.kind == LOG else None
        if mine is None or asked.may_have_times(mine, following):
            kept.append(file)
    return kept


def _first_ms(file: LogFile, form: LogFormat) -> int | None:
    """Return the time of a file's first batch, or None if it cannot be read."""
    try:
        read, size_bytes = reader_of(file.uri)
    except FileNotFoundError:
        return None
    start = form.start(read, size_bytes, file.kind == SNAPSHOT).batches_at
    found = frame_at(Window(read, size_bytes, form.form.header_bytes), form.form, start)
    return found.append_ms if isinstance(found, Frame) else None


def _pieces(file: LogFile, form: LogFormat, share_bytes: int) -> list[Piece]:
    try:
        return cut(file, form, share_bytes)
    except FileNotFoundError:
        return [Piece(file, 0, None)]


def _read_task(task: Task, form: LogFormat, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with without_gc():
        yield from _merged(_read_pieces(task, form, options, schema), schema)


def _merged(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Merge small Arrow batches, as small files give."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= ROWS_MAX or size_bytes >= BYTES_MAX:
            yield from _together(waiting, schema)
            waiting, rows, size_bytes = [], 0, 0
    yield from _together(waiting, schema)


def _together(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    found: list[pa.RecordBatch] = pa.Table.from_batches(batches, schema).combine_chunks().to_batches(max_chunksize=ROWS_MAX)
    return found


def _read_pieces(task: Task, form: LogFormat, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    make = ROW_MAKERS[options.rows]
    for piece in task.pieces:
        try:
            read, size_bytes = reader_of(piece.file.uri)
        except FileNotFoundError:
            if options.rows == DAMAGES:
                yield from_rows(piece.file, [_missing(piece)], form, DAMAGE_COLUMNS, schema)
            continue
        entries = piece_entries(piece, form, read, size_bytes, task.cluster_id)
        if options.mode == FAILFAST:
            entries = _failing(entries, piece.file)
        yield from make(entries, piece.file, form, task.bounds, schema)


def piece_entries(
    piece: Piece, form: LogFormat, read: ReadAt, size_bytes: int, cluster_id: str | None
) -> Iterator[Frame | FoundDamage]:
    """Yield the contents of a piece in order, damages with the offsets around them. CorruptInput if the file is of another
    cluster.
    """
    file = piece.file
    position, previous = piece.start, None
    if position == 0:
        start = form.start(read, size_bytes, file.kind == SNAPSHOT)
        if start.cluster_id is not None:
            the_cluster({start.cluster_id: file.uri}, cluster_id)
        previous = file.base_offset - 1 if file.kind == LOG and file.base_offset else None
        position = start.batches_at
        if start.damage is not None and start.damage.status != UNWRITTEN:
            yield FoundDamage(start.damage, previous, _offset_at(read, size_bytes, form, position), _raw(read, start.damage))
    waiting: Damage | None = None
    last: Frame | None = None
    for entry in walk(read, size_bytes, form.form, start=position, end=piece.end):
        if isinstance(entry, Damage):
            waiting = entry if entry.status != UNWRITTEN else None
            continue
        if waiting is not None:
            yield FoundDamage(waiting, previous, entry.base_offset, _raw(read, waiting))
            waiting = None
        last = entry
        if entry.codec != "none":
            reason = f"offsets {entry.base_offset} to {entry.last_offset} are compressed with {entry.codec}"
            damage = Damage(entry.position, entry.size_bytes, "compressed", reason)
            yield FoundDamage(damage, previous, entry.last_offset + 1, entry.data[:RAW_MAX])
        elif previous is not None and entry.base_offset <= previous and file.kind == LOG:
            reason = f"offsets {entry.base_offset} to {entry.last_offset} follow offset {previous}: the batch is misplaced"
            damage = Damage(entry.position, entry.size_bytes, "bad_header", reason)
            yield FoundDamage(damage, previous, None, entry.data[:RAW_MAX])
            continue
        else:
            yield entry
        previous = entry.last_offset
    if waiting is not None:
        following = None if piece.end is None else _offset_at(read, size_bytes, form, piece.end)
        yield FoundDamage(waiting, previous, following, _raw(read, waiting))
    elif file.kind == SNAPSHOT and file.name != BOOTSTRAP and piece.end is None and not _is_footer(last, form):
        end = position if last is None else last.position + last.size_bytes
        missing = Damage(end, max(0, size_bytes - end), TORN, f"the snapshot ends at {end} without its footer")
        yield FoundDamage(missing, previous, None, _raw(read, missing))


def _is_footer(frame: Frame | None, form: LogFormat) -> bool:
    """Return whether a batch is the one that ends a snapshot."""
    if frame is None or not frame.is_control:
        return False
    return any(isinstance(record, ControlRecord) and record.control == "SnapshotFooter" for record in form.records(frame))


def _offset_at(read: ReadAt, size_bytes: int, form: LogFormat, position: int) -> int | None:
    if position >= size_bytes:
        return None
    found = frame_at(Window(read, size_bytes), form.form, position)
    return found.base_offset if isinstance(found, Frame) else None


def _raw(read: ReadAt, damage: Damage) -> bytes:
    return read(damage.position, min(damage.size_bytes, RAW_MAX))


def _missing(piece: Piece) -> FoundDamage:
    file = piece.file
    reason = "the file was there when the read was planned and is gone: it was cleaned, or its node is being restored"
    following = file.next_offset if file.kind == LOG else None
    return FoundDamage(Damage(piece.start, file.size_bytes - piece.start, MISSING, reason), file.base_offset - 1, following, b"")


def _failing(entries: Iterator[Frame | FoundDamage], file: LogFile) -> Iterator[Frame | FoundDamage]:
    """Raise CorruptInput at the first damage, except at the torn end of a segment during a write."""
    for entry in entries:
        if isinstance(entry, FoundDamage) and not is_harmless(entry.damage.status, file.kind, file.next_offset):
            raise CorruptInput(
                f"{file.name} of node {file.controller_id}, position {entry.damage.position}: {entry.damage.error}"
            )
        yield entry


def is_harmless(status: str, kind: str, next_offset: int | None) -> bool:
    """Return whether a damage is the torn end of the newest segment, which is being written."""
    return status == "torn" and kind == LOG and next_offset is None


def batches_of(
    entries: Iterator[Frame | FoundDamage], file: LogFile, form: LogFormat, bounds: Bounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    frames: list[Frame] = []
    size_bytes = 0
    for entry in entries:
        if not isinstance(entry, Frame):
            continue
        offset = entry.base_offset if file.kind == LOG else file.base_offset
        if not (bounds.has_offset(offset) and bounds.has_time(entry.append_ms)):
            continue
        frames.append(entry)
        size_bytes += entry.size_bytes
        if len(frames) >= ROWS_MAX or size_bytes >= BYTES_MAX:
            yield batch_columns(file, frames, form, schema)
            frames, size_bytes = [], 0
    if frames:
        yield batch_columns(file, frames, form, schema)


def _damages(
    entries: Iterator[Frame | FoundDamage], file: LogFile, form: LogFormat, bounds: Bounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    found = [entry for entry in entries if isinstance(entry, FoundDamage) and is_near(entry, file, bounds)]
    if found:
        yield from_rows(file, found, form, DAMAGE_COLUMNS, schema)


def is_near(found: FoundDamage, file: LogFile, bounds: Bounds) -> bool:
    """Return whether a damage touches the bounds: it lies between the offsets before and after it, or, in a snapshot, at the
    snapshot's offset.
    """
    if file.kind == SNAPSHOT:
        return bounds.has_offset(file.base_offset)
    first = found.prev_offset + 1 if found.prev_offset is not None else max(0, file.base_offset)
    last = found.next_offset if found.next_offset is not None else file.next_offset
    return (bounds.hi is None or first <= bounds.hi) and (last is None or last >= bounds.lo)


def _records(
    entries: Iterator[Frame | FoundDamage], file: LogFile, form: LogFormat, bounds: Bounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    rows: list[Any] = []
    for entry in entries:
        if not isinstance(entry, Frame) or (bounds.from_ms is not None and entry.append_ms < bounds.from_ms):
            continue
        first = entry.base_offset if file.kind == LOG else file.base_offset
        last = entry.last_offset if file.kind == LOG else file.base_offset
        if max(0, last) < bounds.lo or (bounds.hi is not None and first >= bounds.hi):
            continue
        rows += [
            row
            for row in record_rows(file, entry, form)
            if bounds.has_offset(row.offset) and bounds.has_time(row.record.timestamp_ms)
        ]
        while len(rows) >= ROWS_MAX:
            yield from_rows(file, rows[:ROWS_MAX], form, RECORD_COLUMNS, schema)
            rows = rows[ROWS_MAX:]
    if rows:
        yield from_rows(file, rows, form, RECORD_COLUMNS, schema)


ROW_MAKERS = {BATCHES: batches_of, DAMAGES: _damages, RECORDS: _records}
"""Option `rows` → function that makes rows of entries: (entries, file, format, bounds, schema) → Arrow batches."""
