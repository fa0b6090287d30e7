"""Batches of bronze as rows of all tables of silver, in one pass. Runs in Spark's workers and imports no Spark.

Batches of ours with records of partitions or topics alone, most of a log, become columns many at a time (`whole_batches`). Any
other batch is read record by record. A record can depend on others elsewhere: partitions and deleted topics need the names of
topics, and records of aborted transactions never happened. Both are passed in, found by a look at the few batches that can hold
such records (`marks`), and both are verified: a decoder collects the names and markers that were not passed in, so that its
caller can decode again.

NoOp records are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftlab.common.garbage import without_gc
from kraftlab.metadata import records as r
from kraftlab.metadata.codec import HIGHEST_VERSION

from ..kraft_log.batches import UndecodedRecord
from ..kraft_log.errors import UndecodableRecord
from ..kraft_log.reader import record_values
from ..kraft_log.records import METADATA_RECORDS, uuid_text
from ..kraft_log.records import decode_metadata as decode_kafka
from ..own_log.columns import places_of
from ..own_log.records import decode_metadata, split
from ..sources.formats import KAFKA, KRAFTLAB
from ..storage.schemas import arrow_of
from .batch_rows import NO_SPANS, BatchRow, Spans, is_aborted, rows, touches
from .other_rows import NO_OP, TOPICS, Cells, Row, control_rows, kafka_row, own_row, record_batch, refused_row
from .partition_rows import TABLE as CHANGES
from .partition_rows import KafkaPartitions, OwnPartitions
from .topic_names import TopicNames
from .whole_batches import WholeBatches

BEGIN, END, ABORT = MARKERS = (23, 24, 25)
TOPIC = 2
ROWS_MAX = 1 << 15
"""Maximum number of records that are Python objects at one time."""
CHANGES_MAX = 1 << 17
BYTES_AT_ONCE = 1 << 20
"""Bytes of batches from which columns are made at one time: they fit a processor's cache."""

_OWN_MARKS = (r.Topic(0, "", bytes(16)), r.BeginTransaction(0), r.EndTransaction(0), r.AbortTransaction(0))
_OWN_PARTITIONS = frozenset({r.Partition, r.PartitionChange})
_KAFKA_FRAME_VERSION = 1
_KAFKA_PARTITION_TYPES = frozenset(
    bytes([schema.number]) for schema in METADATA_RECORDS if schema.name in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD")
)
MARKS_TEXT = "offset bigint, type int, topic_id string, name string"
MARKS = arrow_of(MARKS_TEXT)


class Decoder:
    """Rows of one task's batches. `markers` are the (offset, type) of records that begin, end and abort transactions; `unnamed`
    are names by id of topics that were not among `names`. The decoder finds both by itself.
    """

    def __init__(self, names: Mapping[str, str], spans: Spans = NO_SPANS) -> None:
        self._names, self._spans = TopicNames.of(names), spans
        self._own, self._kafka = OwnPartitions(), KafkaPartitions()
        self._changes: list[pa.RecordBatch] = []
        self._others: dict[str, list[Cells]] = {}
        self.markers: list[tuple[int, int]] = []
        self.unnamed: dict[str, str] = {}

    def tables(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield (table, some of its rows) of batches that have the columns of `batch_rows`."""
        with without_gc():
            for batch in batches:
                for piece in _pieces(batch):
                    whole = WholeBatches(piece, self._spans)
                    self._changes += whole.rows
                    for topics in whole.topics:
                        self.unnamed |= self._names.missing(topics.column("topic_id"), topics.column("name"))
                        yield TOPICS, topics
                    if not whole.taken.all():
                        for row in rows(piece.filter(pa.array(~whole.taken))):
                            self._add(row)
                            yield from self._other_tables(ROWS_MAX)
                    yield from self._changes_of(CHANGES_MAX)
            yield from self._changes_of(1)
            yield from self._other_tables(1)

    def _other_tables(self, least: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of tables with at least so many waiting rows. Those of partitions become Arrow batches and continue to
        wait.
        """
        if len(self._own) >= least:
            self._end_own()
        if len(self._kafka) >= least:
            self._end_kafka()
        for table, cells in self._others.items():
            if len(cells) >= least:
                yield table, record_batch(table, cells)
                self._others[table] = []

    def _changes_of(self, least: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows of partitions, in the order of the log, if at least so many wait."""
        waiting = len(self._own) + len(self._kafka) + sum(batch.num_rows for batch in self._changes)
        if waiting < least:
            return
        self._end_own()
        self._end_kafka()
        changes = pa.Table.from_batches(self._changes).combine_chunks()
        self._changes = []
        for batch in changes.to_batches():  # one, or none if no record could be a row
            names = self._names.of_ids(batch.column("topic_id"))
            batch = batch.set_column(batch.schema.get_field_index("topic"), batch.schema.field("topic"), names)
            yield CHANGES, _in_order(batch)

    def _end_own(self) -> None:
        if len(self._own):
            batch, unfit = self._own.batch()
            self._own.clear()
            self._changes.append(batch)
            for row, place in unfit:
                self._add_unfit(row, place)

    def _end_kafka(self) -> None:
        if len(self._kafka):
            self._changes.append(self._kafka.batch())
            self._kafka = KafkaPartitions()

    def _add(self, row: BatchRow) -> None:
        if row.is_control:
            for other in control_rows(row):
                self._add_other(other)
        elif row.is_kafka:
            self._add_kafka(row)
        else:
            self._add_own(row)

    def _add_own(self, row: BatchRow) -> None:
        records: list[Any] = decode_metadata(row.body, row.base_offset, row.record_count)
        aborted = touches(row, row.base_offset + row.record_count, self._spans)
        if not aborted and set(map(type, records)) == {r.PartitionChange}:
            self._own.add(row, row.base_offset, records)
            return
        index = 0
        for kind, run in groupby(records, type):
            found = list(run)
            if kind in _OWN_PARTITIONS and not aborted:
                self._own.add(row, row.base_offset + index, found)
            else:
                for place, record in enumerate(found, index):
                    self._add_own_record(row, place, record, self._spans if aborted else NO_SPANS)
            index += len(found)

    def _add_own_record(self, row: BatchRow, index: int, record: Any, spans: Spans) -> None:
        is_refused = isinstance(record, UndecodedRecord)
        offset = record.offset if is_refused else row.base_offset + index
        number = record.type_number if is_refused else record.TYPE
        if number in MARKERS and not is_refused and not row.is_snapshot:
            self.markers.append((offset, number))
        if number == NO_OP or is_aborted(offset, spans):
            return
        if is_refused:
            self._add_other(refused_row(row, record))
        elif type(record) in _OWN_PARTITIONS:
            self._own.add(row, offset, [record])
        else:
            self._add_other(own_row(row, offset, record, _raw(row, index)))

    def _add_unfit(self, row: BatchRow, place: int) -> None:
        """Add a partition record with a number that is too large for its column."""
        record: Any = decode_metadata(row.body, row.base_offset, row.record_count)[place]
        self._add_other(own_row(row, row.base_offset + place, record, _raw(row, place)))

    def _add_kafka(self, row: BatchRow) -> None:
        spans = NO_SPANS if row.is_snapshot else self._spans
        for entry in record_values(row.payload):
            if isinstance(entry, UndecodedRecord):
                if not is_aborted(entry.offset, spans):
                    self._add_other(refused_row(row, entry))
                continue
            offset, time_ms, value = entry
            number = value[1] if len(value) > 1 else -1
            if number in MARKERS and not row.is_snapshot:
                self._add_marker(offset, value)
            if number == NO_OP or (spans and is_aborted(offset, spans)):
                continue
            if value[1:2] in _KAFKA_PARTITION_TYPES:
                try:
                    name, version, fields = decode_kafka(value)
                except UndecodableRecord:
                    self._add_other(kafka_row(row, offset, time_ms, value))
                else:
                    self._kafka.add(row, offset, time_ms, name, (version, fields))
            else:
                self._add_other(kafka_row(row, offset, time_ms, value))

    def _add_marker(self, offset: int, value: bytes) -> None:
        try:
            decode_kafka(value)
        except UndecodableRecord:
            return
        self.markers.append((offset, value[1]))

    def _add_other(self, other: Row) -> None:
        if other.table == TOPICS:
            topic_id, name = other.cells["topic_id"], other.cells.get("name")
            if name is None:
                other.cells["name"] = self._names.get(topic_id)
            elif topic_id not in self._names:
                self.unnamed[topic_id] = name
        self._others.setdefault(other.table, []).append(other.cells)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield consecutive rows with `BYTES_AT_ONCE` of payload, or one row more."""
    if batch.num_rows:
        sizes = pc.binary_length(batch.column("payload")).to_numpy(zero_copy_only=False)
        numbers = np.cumsum(sizes, dtype=np.int64) // BYTES_AT_ONCE
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(starts):
            yield batch.slice(start, end - start)


def _in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Sort by offset, and by place in the batch or snapshot for equal offsets."""
    offsets, places = (batch.column(name).to_numpy() for name in ("offset", "idx_in_batch"))
    if (offsets[1:] > offsets[:-1]).all():
        return batch
    return batch.take(pa.array(np.lexsort((places, offsets))))


def _raw(row: BatchRow, index: int) -> Callable[[], bytes]:
    """Return a function for the bytes of one record of ours."""

    def raw() -> bytes:
        found = split(row.body, row.base_offset, row.record_count)[index]
        return found if isinstance(found, bytes) else found.raw

    return raw


def marks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield (offset, type, topic id, name) of the records that name topics or mark transactions. Snapshots have
    no transactions.
    """
    for batch in batches:
        whole = WholeBatches(batch, NO_SPANS)
        for topics in whole.topics:
            kinds = pa.repeat(pa.scalar(TOPIC, pa.int32()), topics.num_rows)
            found = [topics.column("offset"), kinds, topics.column("topic_id"), topics.column("name")]
            yield pa.RecordBatch.from_arrays(found, schema=MARKS)
        yield _marks_one_by_one(batch.filter(pa.array(~whole.taken)))


def _marks_one_by_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = [mark for row in rows(batch) if not row.is_control for mark in (_kafka_marks if row.is_kafka else _own_marks)(row)]
    columns = list(zip(*found, strict=True)) or [()] * len(MARKS)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, MARKS, strict=True)], schema=MARKS
    )


Mark = tuple[int, int, str | None, str | None]


def _own_marks(row: BatchRow) -> Iterator[Mark]:
    for offset, record in enumerate(decode_metadata(row.body, row.base_offset, row.record_count), row.base_offset):
        if isinstance(record, r.Topic):
            yield offset, TOPIC, uuid_text(record.topic_id), record.name
        elif not isinstance(record, UndecodedRecord) and record.TYPE in MARKERS and not row.is_snapshot:
            yield offset, record.TYPE, None, None


def _kafka_marks(row: BatchRow) -> Iterator[Mark]:
    for entry in record_values(row.payload):
        if isinstance(entry, UndecodedRecord) or len(entry[2]) < 2 or entry[2][1] not in (TOPIC, *MARKERS):
            continue
        try:
            _, _, fields = decode_kafka(entry[2])
        except UndecodableRecord:
            continue
        if entry[2][1] == TOPIC:
            yield entry[0], TOPIC, fields["topicId"], fields["name"]
        elif not row.is_snapshot:
            yield entry[0], entry[2][1], None, None


def _starts() -> dict[str, tuple[bytes, ...]]:
    own = [
        msgspec.msgpack.encode(msgspec.structs.replace(record, version=version))[:3]
        for record in _OWN_MARKS
        for version in range(HIGHEST_VERSION[record.TYPE] + 1)
    ]
    kafka = [
        bytes([_KAFKA_FRAME_VERSION, schema.number, version])
        for schema in METADATA_RECORDS
        if schema.number in (TOPIC, *MARKERS)
        for version in range(schema.kind.NEWEST + 1)
    ]
    return {KRAFTLAB: tuple(own), KAFKA: tuple(kafka)}


STARTS: Mapping[str, tuple[bytes, ...]] = _starts()
"""Format → the beginnings of records that are marks, as programs write them."""


def with_marks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batches that contain such a beginning. Few batches do."""
    payloads = batch.column("payload").cast(pa.binary())
    ends = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    found = np.zeros(batch.num_rows, bool)
    for name in pc.unique(batch.column("format")).to_pylist():
        for start in STARTS[name]:
            found[np.searchsorted(ends, places_of(start, data) + ends[0], "right") - 1] = True
    return batch.filter(pa.array(found))
