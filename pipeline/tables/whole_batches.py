"""Batches of ours with records of topics or of partitions alone, as rows, many batches at a time.

Batches that `own_log.columns` accepts become rows here, column by column. All others are read record by record elsewhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftlab.metadata.records import Partition, PartitionChange, Topic
from kraftlab.quorum.core.batch import CONTROL, HEADER_BYTES

from ..own_log.columns import TYPES, Bodies, Column, Integers, Records, Texts, Uuids, Vector, records_of, spread
from ..sources.formats import KRAFTLAB
from ..storage.schemas import batch_of_columns
from .batch_rows import SNAPSHOT_SUFFIX, Spans
from .other_rows import LOG, TOPICS
from .partition_rows import CHANGE, CREATE, OWN_LISTS, SNAPSHOT, filled
from .topic_names import uuid_texts

_BASE_OFFSET, _ATTRIBUTES, _RECORD_COUNT = (slice(12, 20), ">u8"), (slice(24, 26), ">u2"), (slice(26, 28), ">u2")
_FIELDS = OWN_LISTS | {
    "topic_id": "topic_id",
    "partition": "partition_id",
    "leader": "leader",
    "directories": "directories",
    "partition_epoch": "partition_epoch",
}
"""Column → field of our records."""
_KINDS = {PartitionChange: CHANGE, Partition: CREATE, Topic: LOG}


class WholeBatches:
    """The rows of bronze that could be taken as a whole: `taken` marks them, `rows` are of `silver.partition_changes` without the
    names of topics, `topics` of `silver.topics`.
    """

    def __init__(self, batch: pa.RecordBatch, spans: Spans) -> None:
        self._batch = batch
        self.taken = np.zeros(batch.num_rows, bool)
        self.rows: list[pa.RecordBatch] = []
        self.topics: list[pa.RecordBatch] = []
        payloads = batch.column("payload").cast(pa.binary())
        ends = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
        self._data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
        self._ends = (ends - ends[0]).astype(np.int64)
        self._is_snapshot = _booleans(pc.ends_with(batch.column("segment"), SNAPSHOT_SUFFIX))
        self._base_offsets = np.zeros(batch.num_rows, np.int64)
        self._take(self._candidates(spans))

    def _candidates(self, spans: Spans) -> Bodies:
        """Return our data batches without aborted records."""
        batch = self._batch
        numbers = np.flatnonzero(_booleans(pc.equal(batch.column("format"), KRAFTLAB)))
        numbers = numbers[self._header(numbers, *_ATTRIBUTES) & CONTROL == 0]
        counts = self._header(numbers, *_RECORD_COUNT)
        self._base_offsets[numbers] = self._header(numbers, *_BASE_OFFSET)
        for start, end in spans:
            first = self._base_offsets[numbers]
            is_clear = self._is_snapshot[numbers] | (first >= end) | (first + counts <= start)
            numbers, counts = numbers[is_clear], counts[is_clear]
        self._numbers = numbers
        return Bodies(self._data, self._ends[numbers] + HEADER_BYTES, self._ends[numbers + 1], counts)

    def _header(self, numbers: Vector, where: slice, kind: str) -> Vector:
        """Return a field of the headers of batches."""
        at = self._ends[numbers, None] + np.arange(where.start, where.stop)
        found: Vector = self._data.take(at, mode="clip").view(kind)[:, 0].astype(np.int64)
        return found

    def _take(self, bodies: Bodies) -> None:
        for kind in TYPES:
            records = records_of(kind, bodies) if len(bodies.counts) else None
            if records is None:
                continue
            numbers, counts = self._numbers[records.numbers], bodies.counts[records.numbers]
            columns = self._places(numbers, counts, _KINDS[kind])
            if kind is Topic:
                self.topics.append(self._topics(columns, records))
            else:
                columns |= {name: _array(records.columns[field]) for name, field in _FIELDS.items() if field in records.columns}
                self.rows.append(filled(columns))
            self.taken[numbers] = True

    def _places(self, numbers: Vector, counts: Vector, kind: str) -> dict[str, pa.Array]:
        """Return the columns of these batches' rows that come from the batches."""
        batch, is_snapshot = self._batch, self._is_snapshot[numbers]
        _, within = spread(counts)
        bases = self._base_offsets[numbers]
        offsets = np.repeat(np.where(is_snapshot, batch.column("base_offset").to_numpy()[numbers], bases), counts)
        return {
            "offset": pa.array(offsets + np.where(np.repeat(is_snapshot, counts), 0, within)),
            "leader_epoch": pa.array(np.repeat(batch.column("leader_epoch").to_numpy()[numbers], counts)),
            "ts_ms": pa.array(np.repeat(batch.column("append_ms").to_numpy()[numbers], counts)),
            "idx_in_batch": pa.array((np.repeat(np.where(is_snapshot, bases, 0), counts) + within).astype(np.int32)),
            "kind": pa.array((kind, SNAPSHOT)).take(pa.array(np.repeat(is_snapshot, counts).astype(np.int8))),
            "rec_version": pa.array(np.zeros(len(within), np.int32)),
        }

    def _topics(self, places: dict[str, pa.Array], records: Records) -> pa.RecordBatch:
        columns = places | {
            "topic_id": _array(records.columns["topic_id"]),
            "name": _array(records.columns["name"]),
            "op": pa.repeat(pa.scalar("create"), len(places["offset"])),
        }
        return batch_of_columns(TOPICS, columns)


def _array(column: Column) -> pa.Array:
    if isinstance(column, Uuids):
        return uuid_texts(column.values)
    if isinstance(column, Texts):
        ends = np.concatenate(([0], np.cumsum(column.counts))).astype(np.int32)
        return pa.StringArray.from_buffers(len(column.counts), pa.py_buffer(ends), pa.py_buffer(column.data))
    if isinstance(column, Integers):
        return pa.array(column.values, mask=None if column.given is None else ~column.given)
    values = uuid_texts(column.items) if column.items.ndim == 2 else pa.array(column.items)
    ends = pa.array(np.concatenate(([0], np.cumsum(column.counts))).astype(np.int32))
    mask = None if column.given is None else pa.array(~column.given)
    return pa.ListArray.from_arrays(ends, values, type=pa.list_(pa.field("element", values.type)), mask=mask)


def _booleans(column: pa.Array) -> Vector:
    found: Vector = column.to_numpy(zero_copy_only=False)
    return found
