"""Partition records of both formats as columns, record by record. `whole_batches` is faster for our batches of one type.

Our records are decoded by the types of a node, whose attributes then become columns one by one; Kafka's by the compiled readers
of `kraft_log`, whose dicts do. The places of records are kept per batch, not per record: offsets, times and kinds of whole
batches are ranges and repetitions, which numpy makes. A record with a number that fits no column is not a row; the decoder
keeps it elsewhere. Names of topics are unknown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from kraftlab.metadata.records import Partition, PartitionChange

from ..kraft_log.records import uuid_text
from ..own_log.columns import spread
from ..storage.schemas import arrow_schema
from .batch_rows import BatchRow

TABLE = "silver.partition_changes"
SCHEMA = arrow_schema(TABLE)
CREATE, CHANGE, SNAPSHOT = KINDS = ("create", "change", "snapshot")
_INT32_END = 1 << 31
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
KAFKA_LISTS = {"isr": "isr", "replicas": "replicas", "adding": "addingReplicas", "removing": "removingReplicas"}
"""Column → field of Kafka's records."""

PartitionRecord = Partition | PartitionChange
KafkaRecord = tuple[int, dict[str, object]]
"""(version, fields)."""


class _Places:
    """The places of records, as runs of neighbours of one batch."""

    def __init__(self) -> None:
        self.rows: list[BatchRow] = []
        self._runs: list[tuple[int, int, int, int, int]] = []
        self._counts: list[int] = []

    def add(self, row: BatchRow, offset: int, count: int, time_ms: int, kind: str) -> None:
        """Add `count` records from `offset` on, in the batch's own count."""
        step = 1 if row.offset is None else 0
        self.rows.append(row)
        self._runs.append((row.offset_of(offset), step, row.index_of(offset), time_ms, KINDS.index(kind)))
        self._counts.append(count)

    def columns(self) -> dict[str, Any]:
        counts = np.array(self._counts, np.int64)
        offsets, steps, indexes, times, kinds = np.array(self._runs, np.int64).reshape(-1, 5).T
        epochs = np.array([row.leader_epoch for row in self.rows], np.int32)
        _, within = spread(counts)
        return {
            "offset": pa.array(np.repeat(offsets, counts) + within * np.repeat(steps, counts)),
            "leader_epoch": pa.array(np.repeat(epochs, counts)),
            "ts_ms": pa.array(np.repeat(times, counts)),
            "idx_in_batch": pa.array((np.repeat(indexes, counts) + within).astype(np.int32)),
            "kind": pa.array(KINDS).take(pa.array(np.repeat(kinds, counts))),
        }

    def place(self, number: int) -> tuple[BatchRow, int]:
        """Return the batch of the record with this number, and the record's place in it."""
        ends = np.cumsum(self._counts)
        run = int(np.searchsorted(ends, number, "right"))
        row = self.rows[run]
        return row, self._runs[run][2] + number - int(ends[run] - self._counts[run]) - row.first_index

    def all_but(self, numbers: Sequence[int]) -> _Places:
        """Return the places without those of some records."""
        left_out, kept, number = set(numbers), _Places(), 0
        for row, (offset, step, index, time_ms, kind), count in zip(self.rows, self._runs, self._counts, strict=True):
            for within in range(count):
                if number not in left_out:
                    kept.rows.append(row)
                    kept._runs.append((offset + within * step, step, index + within, time_ms, kind))
                    kept._counts.append(1)
                number += 1
        return kept


class OwnPartitions:
    """Records of ours that wait to become rows."""

    def __init__(self) -> None:
        self._texts = _Texts()
        self.clear()

    def clear(self) -> None:
        """Drop the records, and keep the texts of topic ids."""
        self._places = _Places()
        self._records: list[PartitionRecord] = []

    def __len__(self) -> int:
        return len(self._records)

    def add(self, row: BatchRow, offset: int, records: Sequence[PartitionRecord]) -> None:
        """Add neighbours of one type, the first of them at `offset` in the batch's own count."""
        kind = SNAPSHOT if row.is_snapshot else CREATE if isinstance(records[0], Partition) else CHANGE
        self._places.add(row, offset, len(records), row.append_ms, kind)
        self._records += records

    def batch(self) -> tuple[pa.RecordBatch, list[tuple[BatchRow, int]]]:
        """Return the rows, and (batch, place in it) of the records that fit no row."""
        try:
            return _own_batch(self._places, self._records, self._texts), []
        except (pa.ArrowInvalid, OverflowError):
            unfit = [number for number, record in enumerate(self._records) if not is_row(record)]
            fitting = [record for record in self._records if is_row(record)]
            batch = _own_batch(self._places.all_but(unfit), fitting, self._texts)
            return batch, [self._places.place(number) for number in unfit]


class KafkaPartitions:
    """Records of Kafka's that wait to become rows. Their numbers have the columns' widths."""

    def __init__(self) -> None:
        self._places = _Places()
        self._records: list[KafkaRecord] = []

    def __len__(self) -> int:
        return len(self._records)

    def add(self, row: BatchRow, offset: int, time_ms: int, name: str, record: KafkaRecord) -> None:
        kind = SNAPSHOT if row.is_snapshot else CREATE if name == "PARTITION_RECORD" else CHANGE
        self._places.add(row, offset, 1, time_ms, kind)
        self._records.append(record)

    def batch(self) -> pa.RecordBatch:
        data = [fields for _, fields in self._records]
        return _record_batch(
            self._places.columns(),
            topic_id=[fields["topicId"] for fields in data],
            partition=[fields["partitionId"] for fields in data],
            leader=[fields.get("leader") for fields in data],
            directories=pa.array([fields.get("directories") for fields in data], _TEXTS),
            partition_epoch=[fields.get("partitionEpoch") for fields in data],
            rec_version=[version for version, _ in self._records],
            **{column: pa.array([fields.get(name) for fields in data], _INTS) for column, name in KAFKA_LISTS.items()},
        )


def is_row(record: PartitionRecord) -> bool:
    """Return whether every number of a record fits the table's columns, which have the widths of Kafka's numbers."""
    numbers = [record.partition_id, record.leader or 0, getattr(record, "partition_epoch", 0)]
    for name in OWN_LISTS.values():
        numbers += getattr(record, name) or ()
    return all(-_INT32_END <= number < _INT32_END for number in numbers)


def _own_batch(places: _Places, records: list[PartitionRecord], texts: _Texts) -> pa.RecordBatch:
    has_partitions = any(isinstance(record, Partition) for record in records)
    epochs = [record.partition_epoch if isinstance(record, Partition) else None for record in records] if has_partitions else None
    return _record_batch(
        places.columns(),
        topic_id=list(map(texts.__getitem__, map(_TOPIC_ID, records))),
        directories=_text_lists(map(_DIRECTORIES, records)),
        partition_epoch=epochs,
        **{column: pa.array(map(attribute, records), _INTS) for column, attribute in _LIST_ATTRIBUTES.items()},
        **{column: pa.array(map(attribute, records), pa.int32()) for column, attribute in _INT_ATTRIBUTES.items()},
    )


class _Texts(dict[bytes, str]):
    """Uuids as text, each made once."""

    def __missing__(self, uuid: bytes) -> str:
        text = self[uuid] = uuid_text(uuid)
        return text


def _text_lists(lists: Iterable[tuple[bytes, ...] | None]) -> pa.Array:
    return pa.array([each and list(map(uuid_text, each)) for each in lists], _TEXTS)


def _record_batch(columns: dict[str, Any], **more: Any) -> pa.RecordBatch:
    return filled(columns | more)


def filled(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return rows of these columns, with all others null. `offset` must be given."""
    count = len(columns["offset"])
    arrays = []
    for field in SCHEMA:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
