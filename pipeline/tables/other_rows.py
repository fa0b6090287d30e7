"""All records but those of partitions, as rows of one wide shape that the tables of silver are cut from.

Partition records are only counted, by their first bytes, so that logs that consist of them are passed over quickly. If the table
of partitions then holds fewer rows than were counted, some could not be decoded, and a thorough pass keeps those too.

A record whose type belongs to a table, but which cannot be decoded, is an `other` record with the reason. NoOp records say
nothing and are left out.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from kraftlab.metadata.records import Partition, PartitionChange

from ..framing import Frame
from ..kraft_log.batches import UndecodedRecord
from ..kraft_log.errors import UndecodableRecord
from ..kraft_log.plans import decode_metadata as decode_kafka
from ..kraft_log.tables import METADATA_RECORDS
from ..lake.schemas import arrow_of
from ..own_log.records import RECORD_NAMES, decode_one, fields_of, type_number
from ..sources.formats import KAFKA, KRAFTLAB, format_named, type_of
from .batch_rows import NO_SPANS, BatchRow, Spans, is_aborted, raw_records, rows
from .partition_rows import is_row

SCHEMA_TEXT = (
    "t string, offset bigint, leader_epoch int, ts_ms bigint, idx_in_batch int, kind string, topic_id string, name string, "
    "op string, broker_id int, incarnation string, rack string, log_dirs array<string>, fenced boolean, resource_type string, "
    "resource string, key string, value string, type int, version int, raw binary, error string"
)
SCHEMA = arrow_of(SCHEMA_TEXT)
TOPICS, BROKERS, CONFIGS, OTHER, PARTITIONS = "topics", "brokers", "configs", "other", "partitions"
LOG, SNAPSHOT, CONTROL = "log", "snapshot", "control"
ROWS_MAX = 10_000
PARTITION_TYPES = frozenset({3, 5})
NO_OP = 20
RESOURCE_TYPES: Mapping[int, str] = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}

Fields = dict[str, Any]
Cells = dict[str, Any]
"""Columns of a row that are not null."""


def _registered(fields: Fields) -> Cells:
    return {
        "broker_id": fields["brokerId"],
        "incarnation": fields["incarnationId"],
        "rack": fields.get("rack"),
        "log_dirs": fields.get("logDirs", []),
        "fenced": bool(fields.get("fenced", True)),
        "op": "register",
    }


def _registration_changed(fields: Fields) -> Cells:
    fenced = fields.get("fenced")
    return {
        "broker_id": fields["brokerId"],
        "log_dirs": fields.get("logDirs"),
        "fenced": None if fenced is None else fenced > 0,
        "op": "change",
    }


def _config(fields: Fields) -> Cells:
    number = fields["resourceType"]
    return {
        "resource_type": RESOURCE_TYPES.get(number, str(number)),
        "resource": fields["resourceName"],
        "key": fields["name"],
        "value": fields["value"],
    }


class TypeRow(NamedTuple):
    """Which table a record type belongs to, and its cells."""

    table: str
    cells: Callable[[Fields], Cells]


TYPE_ROWS: Mapping[str, TypeRow] = {
    "REGISTER_BROKER_RECORD": TypeRow(BROKERS, _registered),
    "UNREGISTER_BROKER_RECORD": TypeRow(BROKERS, lambda fields: {"broker_id": fields["brokerId"], "op": "unregister"}),
    "BROKER_REGISTRATION_CHANGE_RECORD": TypeRow(BROKERS, _registration_changed),
    "FENCE_BROKER_RECORD": TypeRow(BROKERS, lambda fields: {"broker_id": fields["id"], "fenced": True, "op": "change"}),
    "UNFENCE_BROKER_RECORD": TypeRow(BROKERS, lambda fields: {"broker_id": fields["id"], "fenced": False, "op": "change"}),
    "TOPIC_RECORD": TypeRow(TOPICS, lambda fields: {"topic_id": fields["topicId"], "name": fields["name"], "op": "create"}),
    "REMOVE_TOPIC_RECORD": TypeRow(TOPICS, lambda fields: {"topic_id": fields["topicId"], "op": "delete"}),
    "CONFIG_RECORD": TypeRow(CONFIGS, _config),
}
"""By the names that both formats share. All other types are `other`."""

_KAFKA_NAMES: Mapping[int, str] = {schema.number: schema.name for schema in METADATA_RECORDS}


def decoded(batches: Iterator[pa.RecordBatch], spans: Spans = NO_SPANS, thorough: bool = False) -> Iterator[pa.RecordBatch]:
    """Rows of SCHEMA for all records that are not of partitions, but for those within `spans`, and per Arrow batch one row of
    table `partitions` whose `offset` is how many partition records there were. For `mapInArrow`.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for batch in batches:
            found: list[Cells] = []
            partitions = 0
            for row in rows(batch):
                partitions += _add(row, spans, thorough, found)
            found.append({"t": PARTITIONS, "offset": partitions})
            for start in range(0, len(found), ROWS_MAX):
                yield _record_batch(found[start : start + ROWS_MAX])
    finally:
        if was_enabled:
            gc.enable()


def _record_batch(found: list[Cells]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([cells.get(field.name) for cells in found], field.type) for field in SCHEMA], schema=SCHEMA
    )


def _add(row: BatchRow, spans: Spans, thorough: bool, found: list[Cells]) -> int:
    """Adds a batch's rows; how many partition records it has."""
    if row.is_control:
        found += _control_cells(row)
        return 0
    partitions = 0
    for entry in raw_records(row):
        offset = entry.offset if isinstance(entry, UndecodedRecord) else entry[0]
        if spans and not row.is_snapshot and is_aborted(offset, spans):
            continue
        if isinstance(entry, UndecodedRecord):
            found.append(_place(row, offset, entry.timestamp_ms or row.append_ms) | _unknown(row, entry))
            continue
        _, time_ms, raw = entry
        number = _number_of(row, raw)
        if number in PARTITION_TYPES:
            partitions += 1
            if not thorough or _is_partition_row(row, raw, offset):
                continue
        if number != NO_OP:
            found.append(_place(row, offset, time_ms) | _cells(row, raw, offset))
    return partitions


def _number_of(row: BatchRow, raw: bytes) -> int:
    """A record's type by its first bytes, -1 if it is not so simple."""
    if not row.is_kafka:
        return type_number(raw)
    return raw[1] if len(raw) > 1 and raw[1] < 0x80 else -1


def _is_partition_row(row: BatchRow, raw: bytes, offset: int) -> bool:
    """Whether the table of partitions has this record."""
    if row.is_kafka:
        try:
            decode_kafka(raw)
        except UndecodableRecord:
            return False
        return True
    record = decode_one(raw, offset)
    return isinstance(record, Partition | PartitionChange) and is_row(record)


def _place(row: BatchRow, offset: int, time_ms: int) -> Cells:
    return {
        "offset": row.offset_of(offset),
        "leader_epoch": row.leader_epoch,
        "ts_ms": time_ms,
        "idx_in_batch": row.index_of(offset),
        "kind": SNAPSHOT if row.is_snapshot else LOG,
    }


def _cells(row: BatchRow, raw: bytes, offset: int) -> Cells:
    """Table and columns of one record."""
    try:
        number, name, version, fields = _kafka_record(raw) if row.is_kafka else _own_record(raw, offset)
    except _Refused as refused:
        return _unknown(row, refused.record)
    known = TYPE_ROWS.get(name)
    if known is not None:
        cells = known.cells(fields)
        if -(1 << 31) <= cells.get("broker_id", 0) < 1 << 31:
            return {"t": known.table} | cells
    error = None if known is None and number not in PARTITION_TYPES else "a number is too large for the table's column"
    return {"t": OTHER, "type": number, "version": version, "raw": raw, "name": name, "error": error}


class _Refused(Exception):
    """A record that cannot be decoded."""

    def __init__(self, record: UndecodedRecord) -> None:
        super().__init__(record.error)
        self.record = record


def _own_record(raw: bytes, offset: int) -> tuple[int, str, int, Fields]:
    record = decode_one(raw, offset)
    if isinstance(record, UndecodedRecord):
        raise _Refused(record)
    return record.TYPE, RECORD_NAMES[record.TYPE], record.version, fields_of(record)


def _kafka_record(raw: bytes) -> tuple[int, str, int, Fields]:
    try:
        name, version, fields = decode_kafka(raw)
    except UndecodableRecord as error:
        raise _Refused(UndecodedRecord(0, 0, error.reason, raw, error.type_number, error.version)) from None
    return format_named(KAFKA).numbers[name], name, version, fields


def _unknown(row: BatchRow, record: UndecodedRecord) -> Cells:
    form = format_named(KAFKA if row.is_kafka else KRAFTLAB)
    number, name, version = type_of(form, record, row.is_control)
    return {"t": OTHER, "type": number, "version": version, "raw": record.raw, "name": name, "error": record.error}


def _control_cells(row: BatchRow) -> Iterator[Cells]:
    """Records of the quorum's own. `raw` of one that is known is the whole batch's: control batches are small, and so its decoder
    is the batch's.
    """
    form = format_named(KAFKA if row.is_kafka else KRAFTLAB)
    last = row.base_offset + max(0, row.record_count - 1)
    frame = Frame(
        0,
        len(row.payload),
        row.base_offset,
        last,
        row.leader_epoch,
        row.append_ms,
        row.record_count,
        0,
        "none",
        True,
        -1,
        row.payload,
    )
    for record in form.records(frame):
        number, name, version = type_of(form, record, True)
        refused = isinstance(record, UndecodedRecord)
        cells = {
            "t": OTHER,
            "type": number,
            "version": version,
            "name": name,
            "raw": record.raw if isinstance(record, UndecodedRecord) else row.payload,
            "error": record.error if isinstance(record, UndecodedRecord) else None,
        }
        yield _place(row, record.offset, row.append_ms if refused else record.timestamp_ms) | cells | {"kind": CONTROL}
