"""All records except those of partitions, each as a row of its table.

A record whose type belongs to a table, but which cannot be decoded or has a number too large for the table's column, is an
`other` record with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from kraftlab.metadata.records import AnyRecord as MetadataRecord

from ..errors import CorruptInput
from ..framing import Fault
from ..kraft_log.batches import UndecodedRecord
from ..kraft_log.errors import UndecodableRecord
from ..kraft_log.records import decode_metadata as decode_kafka
from ..kraft_log.secret_values import hide_fields
from ..own_log.records import RECORD_NAMES, fields_of
from ..sources.formats import KAFKA, KRAFTLAB, format_named, type_of
from ..storage.schemas import arrow_schema, batch_of_columns
from .batch_rows import BatchRow

TOPICS, BROKERS, CONFIGS, OTHER = "silver.topics", "silver.brokers", "silver.configs", "silver.other_records"
LOG, SNAPSHOT, CONTROL = "log", "snapshot", "control"
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


class Row(NamedTuple):
    """One row of a table."""

    table: str
    cells: Cells


class TypeRow(NamedTuple):
    """Table of a record type, and the function that makes its cells."""

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


def record_batch(table: str, found: list[Cells]) -> pa.RecordBatch:
    """Return rows of a table."""
    return batch_of_columns(table, {name: [cells.get(name) for cells in found] for name in arrow_schema(table).names})


def own_row(row: BatchRow, offset: int, record: MetadataRecord, raw: Callable[[], bytes]) -> Row:
    """Return the row of one record of ours that does not concern partitions or does not fit their columns. `raw` returns its
    bytes.
    """
    name = RECORD_NAMES[record.TYPE]
    fields = hide_fields(name, fields_of(record))
    return _row(row, offset, row.append_ms, record.TYPE, name, record.version, fields, raw)


def kafka_row(row: BatchRow, offset: int, time_ms: int, value: bytes) -> Row:
    """Return the row of one record of Kafka's that does not concern partitions or cannot be decoded."""
    try:
        name, version, fields = decode_kafka(value)
    except UndecodableRecord as error:
        refused = UndecodedRecord(offset, time_ms, error.reason, value, error.type_number, error.version)
        return refused_row(row, refused)
    fields = hide_fields(name, fields)
    return _row(row, offset, time_ms, format_named(KAFKA).numbers[name], name, version, fields, lambda: value)


def refused_row(row: BatchRow, record: UndecodedRecord) -> Row:
    """Return the row of a record that could not be decoded."""
    form = format_named(KAFKA if row.is_kafka else KRAFTLAB)
    number, name, version = type_of(form, record, row.is_control)
    cells = {"type": number, "version": version, "raw": record.raw, "name": name, "error": record.error}
    return Row(OTHER, place(row, record.offset, record.timestamp_ms or row.append_ms) | cells)


def _row(
    row: BatchRow, offset: int, time_ms: int, number: int, name: str, version: int, fields: Fields, raw: Callable[[], bytes]
) -> Row:
    known = TYPE_ROWS.get(name)
    if known is not None:
        cells = known.cells(fields)
        if -(1 << 31) <= cells.get("broker_id", 0) < 1 << 31:
            return Row(known.table, place(row, offset, time_ms) | cells)
    error = None if known is None and number not in PARTITION_TYPES else "a number is too large for the table's column"
    cells = {"type": number, "version": version, "raw": raw(), "name": name, "error": error}
    return Row(OTHER, place(row, offset, time_ms) | cells)


def place(row: BatchRow, offset: int, time_ms: int) -> Cells:
    return {
        "offset": row.offset_of(offset),
        "leader_epoch": row.leader_epoch,
        "ts_ms": time_ms,
        "idx_in_batch": row.index_of(offset),
        "kind": SNAPSHOT if row.is_snapshot else LOG,
    }


def control_rows(row: BatchRow) -> Iterator[Row]:
    """Yield the rows of a control batch. `raw` of a known record is the whole batch: control batches are small, and their decoder
    takes a batch.
    """
    form = format_named(KAFKA if row.is_kafka else KRAFTLAB)
    frame = form.form.frame(row.payload, 0, len(row.payload), 0)
    if isinstance(frame, Fault):
        raise CorruptInput(f"a control batch at offset {row.base_offset} has changed since it was ingested: {frame.reason}")
    for record in form.records(frame):
        number, name, version = type_of(form, record, True)
        refused = isinstance(record, UndecodedRecord)
        cells = {
            "type": number,
            "version": version,
            "name": name,
            "raw": record.raw if isinstance(record, UndecodedRecord) else row.payload,
            "error": record.error if isinstance(record, UndecodedRecord) else None,
        }
        time_ms = row.append_ms if refused else record.timestamp_ms
        yield Row(OTHER, place(row, record.offset, time_ms) | cells | {"kind": CONTROL})
