"""Rows of the sources as Arrow batches: batches as they are in the log, damages, or records.

Every kind has one schema. A reader is asked for some of its columns and makes only those. Arrow batches have at most 10,000 rows
and about 32 MiB of bytes from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from ..framing import Frame
from ..kraft_log.batches import Damage, UndecodedRecord
from ..kraft_log.secret_values import hide_record
from .formats import KAFKA, LogFormat, type_of
from .secret_values import hide_batch, hide_damage
from .survey import LOG, SNAPSHOT, LogFile

ROWS_MAX = 10_000
BYTES_MAX = 32 << 20
RAW_MAX = 64 << 10
OK = "ok"
MISSING = "missing_segment"
STATUSES = {"torn": "truncated", "compressed": "undecodable"}
"""Status of a damage → its name in the lake, if it differs."""

RECORDS_SCHEMA = (
    "controller_id int, segment string, pos bigint, offset bigint, idx_in_batch int, leader_epoch int, ts_ms bigint, "
    "kind string, type int, name string, version int, data string, error string, raw binary"
)
"""`data` is JSON. `error` and `raw` are given for records that could not be decoded. `kind` is log, snapshot or control."""

_json = msgspec.json.Encoder()


class FoundDamage(NamedTuple):
    """A damage with the offsets before and after it (None if there is no batch) and its first bytes. Within a snapshot these are
    the snapshot's own numbers, not offsets of the log.
    """

    damage: Damage
    prev_offset: int | None
    next_offset: int | None
    raw: bytes


def batch_columns(file: LogFile, frames: list[Frame], form: LogFormat, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of batches: the fields of the frames, and the values that all batches of a file share. A snapshot's batches
    have its offset.
    """
    shown = (hide_batch(frame, is_kafka=form.name == KAFKA) for frame in frames)
    fields = dict(zip(Frame._fields, zip(*shown, strict=True), strict=True))
    count = len(frames)
    same: dict[str, object] = {
        "segment": file.name,
        "controller_id": file.controller_id,
        "status": OK,
        "format": form.name,
        "cluster_id": file.cluster_id,
    }
    if file.kind == SNAPSHOT:
        same |= {"base_offset": file.base_offset, "last_offset": file.base_offset}
    arrays = [
        pa.repeat(pa.scalar(same[field.name], field.type), count)
        if field.name in same
        else pa.array(fields[FRAME_FIELDS.get(field.name, field.name)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


FRAME_FIELDS = {"pos": "position", "n_records": "record_count", "payload": "data"}
"""Column → field of a frame, if their names differ."""

DAMAGE_COLUMNS: Mapping[str, Callable[[LogFile, FoundDamage, LogFormat], object]] = {
    "controller_id": lambda file, found, form: file.controller_id,
    "segment": lambda file, found, form: file.name,
    "pos": lambda file, found, form: found.damage.position,
    "end_pos": lambda file, found, form: found.damage.position + found.damage.size_bytes,
    "status": lambda file, found, form: STATUSES.get(found.damage.status, found.damage.status),
    "detail": lambda file, found, form: found.damage.error,
    "prev_offset": lambda file, found, form: found.prev_offset if file.kind == LOG else None,
    "next_offset": lambda file, found, form: found.next_offset if file.kind == LOG else None,
    "raw": lambda file, found, form: hide_damage(found.raw),
    "format": lambda file, found, form: form.name,
    "cluster_id": lambda file, found, form: file.cluster_id,
}


class RecordRow(NamedTuple):
    """One record with its place."""

    frame: Frame
    offset: int
    place: int
    kind: str
    number: int | None
    name: str | None
    version: int | None
    record: Any


RECORD_COLUMNS: Mapping[str, Callable[[LogFile, RecordRow, LogFormat], object]] = {
    "controller_id": lambda file, row, form: file.controller_id,
    "segment": lambda file, row, form: file.name,
    "pos": lambda file, row, form: row.frame.position,
    "offset": lambda file, row, form: row.offset,
    "idx_in_batch": lambda file, row, form: row.place,
    "leader_epoch": lambda file, row, form: row.frame.leader_epoch,
    "ts_ms": lambda file, row, form: row.record.timestamp_ms,
    "kind": lambda file, row, form: row.kind,
    "type": lambda file, row, form: row.number,
    "name": lambda file, row, form: row.name,
    "version": lambda file, row, form: row.version,
    "data": lambda file, row, form: None if isinstance(row.record, UndecodedRecord) else _json.encode(row.record.data).decode(),
    "error": lambda file, row, form: row.record.error if isinstance(row.record, UndecodedRecord) else None,
    "raw": lambda file, row, form: row.record.raw if isinstance(row.record, UndecodedRecord) else None,
}

CONTROL = "control"


def record_rows(file: LogFile, frame: Frame, form: LogFormat) -> Iterator[RecordRow]:
    """Yield the records of a frame. Records of a snapshot have the snapshot's offset, and their place in the
    snapshot as index.
    """
    kind = CONTROL if frame.is_control else file.kind
    for record in map(hide_record, form.records(frame)):
        number, name, version = type_of(form, record, frame.is_control)
        if file.kind == SNAPSHOT:
            yield RecordRow(frame, file.base_offset, record.offset, kind, number, name, version, record)
        else:
            index = record.offset - frame.base_offset
            yield RecordRow(frame, record.offset, index, kind, number, name, version, record)


def from_rows(
    file: LogFile, rows: list[Any], form: LogFormat, columns: Mapping[str, Callable[..., object]], schema: pa.Schema
) -> pa.RecordBatch:
    """Return rows of damages or records, with each column made by its function."""
    arrays = []
    for field in schema:
        make = columns[field.name]
        arrays.append(pa.array([make(file, row, form) for row in rows], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
