"""Partition records of both formats as columns: the hot path of silver.

Our records are decoded by the types of a node, whose attributes then become columns one by one; Kafka's by the compiled plans of
`kraft_log`, whose dicts do. What cannot be decoded, or has a number that no column can hold, is not among the rows: it is kept in
`silver.other_records` (`other_rows.py`), which asks `is_row` the same question.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import pyarrow as pa

from kraftlab.metadata.records import Partition, PartitionChange

from ..kraft_log.batches import UndecodedRecord
from ..kraft_log.errors import UndecodableRecord
from ..kraft_log.plans import decode_metadata as decode_kafka
from ..kraft_log.primitives import uuid_text
from ..kraft_log.reader import record_values
from ..lake.schemas import arrow_schema
from ..own_log.records import decode_metadata
from .batch_rows import NO_SPANS, BatchRow, Spans, is_aborted, rows, touches

TABLE = "silver.partition_changes"
SCHEMA = arrow_schema(TABLE)
ROWS_MAX = 10_000
CREATE, CHANGE, SNAPSHOT = "create", "change", "snapshot"
_INT32_END = 1 << 31
_KAFKA_TYPES = (3, 5)
_INTS = pa.list_(pa.field("element", pa.int32()))
_TEXTS = pa.list_(pa.field("element", pa.string()))

OWN_LISTS = {
    "isr": "isr",
    "replicas": "replicas",
    "adding": "adding_replicas",
    "removing": "removing_replicas",
    "original": "original_replicas",
    "target": "target_replicas",
}
"""Column → attribute of our records."""
_LIST_ATTRIBUTES = {column: attrgetter(name) for column, name in OWN_LISTS.items()}
_INT_ATTRIBUTES = {"partition": attrgetter("partition_id"), "leader": attrgetter("leader"), "rec_version": attrgetter("version")}
_TOPIC_ID, _DIRECTORIES = attrgetter("topic_id"), attrgetter("directories")
KAFKA_LISTS = ("isr", "replicas", "addingReplicas", "removingReplicas")

PartitionRecord = Partition | PartitionChange
Id = TypeVar("Id", bytes, str)


class _Places:
    """Where the records of an Arrow batch stand: columns of equal length, filled batch by batch."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.epochs: list[int] = []
        self.times: list[int] = []
        self.indexes: list[int] = []
        self.kinds: list[str] = []

    def add_all(self, row: BatchRow, count: int, kind: str) -> None:
        """All records of a batch."""
        base, first = row.base_offset, row.first_index
        self.offsets += range(base, base + count) if row.offset is None else [row.offset] * count
        self.indexes += range(first, first + count)
        self.epochs += [row.leader_epoch] * count
        self.times += [row.append_ms] * count
        self.kinds += [kind] * count

    def add(self, row: BatchRow, offset: int, time_ms: int, kind: str) -> None:
        self.offsets.append(row.offset_of(offset))
        self.indexes.append(row.index_of(offset))
        self.epochs.append(row.leader_epoch)
        self.times.append(time_ms)
        self.kinds.append(kind)


def decoded(batches: Iterator[pa.RecordBatch], names: Mapping[str, str], spans: Spans = NO_SPANS) -> Iterator[pa.RecordBatch]:
    """Rows of SCHEMA for the partition records of batches, but for those within `spans`. `names` are those of topics by id. For
    `mapInArrow`.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for batch in batches:
            own: list[BatchRow] = []
            kafka: list[BatchRow] = []
            for row in rows(batch):
                if not row.is_control:
                    (kafka if row.is_kafka else own).append(row)
            yield from _own(own, names, spans)
            yield from _kafka(kafka, names, spans)
    finally:
        if was_enabled:
            gc.enable()


def _own(found: list[BatchRow], names: Mapping[str, str], spans: Spans) -> Iterator[pa.RecordBatch]:
    places, records = _Places(), list[PartitionRecord]()
    for row in found:
        decoded_records = decode_metadata(row.body, row.base_offset, row.record_count)
        if touches(row, row.base_offset + row.record_count, spans) or set(map(type, decoded_records)) != {PartitionChange}:
            _add_some(row, decoded_records, spans, places, records)
        else:
            places.add_all(row, len(decoded_records), SNAPSHOT if row.is_snapshot else CHANGE)
            records += decoded_records  # type: ignore[arg-type]
        if len(records) >= ROWS_MAX:
            yield _own_batch(places, records, names)
            places, records = _Places(), []
    if records:
        yield _own_batch(places, records, names)


def _add_some(row: BatchRow, found: list[Any], spans: Spans, places: _Places, records: list[PartitionRecord]) -> None:
    for offset, record in enumerate(found, row.base_offset):
        if isinstance(record, PartitionRecord) and (row.is_snapshot or not is_aborted(offset, spans)):
            kind = SNAPSHOT if row.is_snapshot else CREATE if isinstance(record, Partition) else CHANGE
            places.add(row, offset, row.append_ms, kind)
            records.append(record)


def _own_batch(places: _Places, records: list[PartitionRecord], names: Mapping[str, str]) -> pa.RecordBatch:
    try:
        return _own_columns(places, records, names)
    except (pa.ArrowInvalid, OverflowError):
        return _own_columns(*_fitting(places, records), names)


def _fitting(places: _Places, records: list[PartitionRecord]) -> tuple[_Places, list[PartitionRecord]]:
    """Those whose numbers fit their columns."""
    chosen = [index for index, record in enumerate(records) if is_row(record)]
    kept = _Places()
    for name, values in vars(places).items():
        setattr(kept, name, [values[index] for index in chosen])
    return kept, [records[index] for index in chosen]


def is_row(record: PartitionRecord) -> bool:
    """Whether every number of a record fits the table's columns, which hold what Kafka's can."""
    numbers = [record.partition_id, record.leader or 0, getattr(record, "partition_epoch", 0)]
    for name in OWN_LISTS.values():
        numbers += getattr(record, name) or ()
    return all(-_INT32_END <= number < _INT32_END for number in numbers)


def _own_columns(places: _Places, records: list[PartitionRecord], names: Mapping[str, str]) -> pa.RecordBatch:
    has_partitions = any(kind != CHANGE for kind in places.kinds)
    epochs = [record.partition_epoch if isinstance(record, Partition) else None for record in records] if has_partitions else None
    topic_id, topic = _topics(list(map(_TOPIC_ID, records)), uuid_text, names)
    return _record_batch(
        places,
        topic_id=topic_id,
        topic=topic,
        directories=_text_lists(map(_DIRECTORIES, records)),
        partition_epoch=epochs,
        **{column: pa.array(map(attribute, records), _INTS) for column, attribute in _LIST_ATTRIBUTES.items()},
        **{column: pa.array(map(attribute, records), pa.int32()) for column, attribute in _INT_ATTRIBUTES.items()},
    )


def _topics(ids: list[Id], text: Callable[[Id], str], names: Mapping[str, str]) -> tuple[pa.Array, pa.Array]:
    """(ids as text, names): each id of the batch is looked at once."""
    places: dict[Id, int] = {}
    indexes = pa.array([places.setdefault(each, len(places)) for each in ids], pa.int32())
    texts = [text(each) for each in places]
    return pa.array(texts, pa.string()).take(indexes), pa.array(map(names.get, texts), pa.string()).take(indexes)


def _text_lists(lists: Iterable[tuple[bytes, ...] | None]) -> pa.Array:
    return pa.array([each and list(map(uuid_text, each)) for each in lists], _TEXTS)


def _record_batch(places: _Places, **columns: Any) -> pa.RecordBatch:
    columns |= {
        "offset": places.offsets,
        "leader_epoch": places.epochs,
        "ts_ms": places.times,
        "idx_in_batch": places.indexes,
        "kind": places.kinds,
    }
    count = len(places.offsets)
    arrays = []
    for field in SCHEMA:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _kafka(found: list[BatchRow], names: Mapping[str, str], spans: Spans) -> Iterator[pa.RecordBatch]:
    places, records = _Places(), list[tuple[int, dict[str, Any]]]()
    for row in found:
        for entry in record_values(row.payload):
            if isinstance(entry, UndecodedRecord) or entry[2][1:2] not in _KAFKA_TYPE_BYTES:
                continue
            offset, time_ms, value = entry
            if not row.is_snapshot and spans and is_aborted(offset, spans):
                continue
            try:
                name, version, fields = decode_kafka(value)
            except UndecodableRecord:
                continue
            kind = SNAPSHOT if row.is_snapshot else CREATE if name == "PARTITION_RECORD" else CHANGE
            places.add(row, offset, time_ms, kind)
            records.append((version, fields))
        if len(records) >= ROWS_MAX:
            yield _kafka_columns(places, records, names)
            places, records = _Places(), []
    if records:
        yield _kafka_columns(places, records, names)


_KAFKA_TYPE_BYTES = frozenset(bytes([number]) for number in _KAFKA_TYPES)


def _kafka_columns(places: _Places, records: list[tuple[int, dict[str, Any]]], names: Mapping[str, str]) -> pa.RecordBatch:
    data = [fields for _, fields in records]
    topic_id, topic = _topics([fields["topicId"] for fields in data], str, names)
    lists = {name: pa.array([fields.get(name) for fields in data], _INTS) for name in KAFKA_LISTS}
    return _record_batch(
        places,
        topic_id=topic_id,
        topic=topic,
        partition=[fields["partitionId"] for fields in data],
        isr=lists["isr"],
        leader=[fields.get("leader") for fields in data],
        replicas=lists["replicas"],
        adding=lists["addingReplicas"],
        removing=lists["removingReplicas"],
        directories=pa.array([fields.get("directories") for fields in data], _TEXTS),
        partition_epoch=[fields.get("partitionEpoch") for fields in data],
        rec_version=[version for version, _ in records],
    )
