"""Rows of `bronze.batches` in the form that the decoders need, in both formats.

Runs in Spark's Python workers and imports no Spark. A batch's own offsets and those of its rows differ only in snapshots: there
all records have the snapshot's offset, and the place in the file orders them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from ..sources.formats import KAFKA

COLUMNS = ("segment", "base_offset", "leader_epoch", "append_ms", "payload", "format")
"""Columns of a batch that the decoders read."""

_OWN_START = struct.Struct(">12xQ4xHH")
_OWN_HEADER_BYTES = 48
_KAFKA_START = struct.Struct(">q13xh")
_CONTROL = 1 << 5
SNAPSHOT_SUFFIX = ".checkpoint"
NO_SPANS: tuple[tuple[int, int], ...] = ()

Spans = Sequence[tuple[int, int]]
"""Stretches [from, to) of offsets of records that never happened: aborted transactions."""


class BatchRow(NamedTuple):
    """One batch. `first_index` is the place of its first record: 0 in a log, its place in the snapshot otherwise. `offset` is the
    offset of all its records in a snapshot, and None in a log, where they count from `base_offset`.
    """

    is_kafka: bool
    is_control: bool
    is_snapshot: bool
    base_offset: int
    first_index: int
    offset: int | None
    leader_epoch: int
    append_ms: int
    record_count: int
    payload: bytes

    @property
    def body(self) -> bytes:
        """The bytes after the header of one of our batches."""
        return self.payload[_OWN_HEADER_BYTES:]

    def offset_of(self, offset: int) -> int:
        """Return the offset of a record with this offset in its batch's own count."""
        return offset if self.offset is None else self.offset

    def index_of(self, offset: int) -> int:
        return offset - self.base_offset + self.first_index


def rows(batch: pa.RecordBatch) -> Iterator[BatchRow]:
    """Yield the rows of an Arrow batch that has COLUMNS."""
    columns = (batch.column(name).to_pylist() for name in COLUMNS)
    for segment, offset, epoch, append_ms, payload, form in zip(*columns, strict=True):
        is_kafka = form == KAFKA
        if is_kafka:
            (base, attributes), count = _KAFKA_START.unpack_from(payload), 0
        else:
            base, attributes, count = _OWN_START.unpack_from(payload)
        is_snapshot = segment.endswith(SNAPSHOT_SUFFIX)
        yield BatchRow(
            is_kafka,
            bool(attributes & _CONTROL),
            is_snapshot,
            base,
            base if is_snapshot else 0,
            offset if is_snapshot else None,
            epoch,
            append_ms,
            count,
            payload,
        )


def is_aborted(offset: int, spans: Spans) -> bool:
    return any(start <= offset < end for start, end in spans)


def touches(row: BatchRow, end_offset: int, spans: Spans) -> bool:
    """Return whether any record of a log's batch can be in the spans."""
    return bool(spans) and not row.is_snapshot and any(row.base_offset < end and start < end_offset for start, end in spans)
