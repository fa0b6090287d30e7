"""Records that a compaction keeps: the map of the latest offsets, and what stays of each batch. Pure.

`LatestOffsets` notes the offset of the last record of each key in the dirty part of a log. `BatchFilter` then passes over both
parts of the log, batch by batch in order. A record stays if it is the last one with its key and has a value. A record
without a value (a tombstone) stays until the batch's delete horizon: the first compaction that keeps it sets the horizon, to its
own time plus delete.retention.ms, so that a reader that began before can still see the deletion. Control batches stay as they
are, and so do batches that reach above the map: it may end at a log start within a batch that is not committed yet. Records
without a key have no place in a compacted topic and are dropped, as Kafka does.

What stays keeps its offset, its bytes and its batch; the batch keeps its base offset, last offset, epoch, producer, sequence and
codec. A batch without records is dropped, but its header stays in three cases, each of which others rely on:

- it is the first batch of a leader epoch: a follower that copies the log, and a recovery that has lost the epoch file, then know
  the same epochs with the same first offsets, and agree with other replicas where logs diverge;
- it is the last batch of a producer that is known: its sequence is needed to recognise a batch that is sent again;
- it is the last one of a segment (`without_records`): the segment ends where the next one begins, so that neither the end
  of the log nor the check for missing records depends on what was dropped.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from kraftlab.records.codecs import compress
from kraftlab.records.errors import CorruptBatch, LogError
from kraftlab.records.record_batch import (
    APPEND_TIME,
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    MAX_BATCH_BYTES,
    NO_EPOCH,
    BatchHeader,
    as_int64,
    encode_batch,
    put_varint,
)
from kraftlab.records.record_walk import Records, boundaries, keys_of, offset_deltas, records_in, time_and_value, timestamp_delta

from .log_config import NO_LIMIT

KEY_OVERHEAD_BYTES = 200
"""Memory that a key takes in the map, beside its own bytes."""
_NO_TIMESTAMP = -1
_TOMBSTONE_HINT = b"\x01"
"""Length -1. Records without this byte hold no tombstone."""


class LatestOffsets:
    """Offsets of the last record of each key, from offset `start` on. `end_offset`: all records below it are in the map."""

    def __init__(self, start: int, limit_bytes: int) -> None:
        self.start_offset = start
        self.end_offset = start
        self.records_without_key = 0
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._offsets: dict[bytes | None, int] = {}
        self._sorted: array[int] | None = None

    def take(self, header: BatchHeader, data: bytes, position: int = 0) -> None:
        """Add the records of the next batch, which begins at `position`. CorruptBatch, CodecError."""
        if header.record_count and not header.is_control:
            try:
                found = records_in(header, data, position)
                keys = keys_of(found.data, header.record_count, found.start, found.end)
                deltas = _deltas(header, found)
            except IndexError as error:
                raise _unreadable(header, position, error) from error
            before = len(self._offsets)
            base = header.base_offset
            is_whole = isinstance(deltas, range)
            offsets = range(base, base + len(keys)) if is_whole else [base + delta for delta in deltas]
            self._offsets.update(zip(keys, offsets, strict=True))
            if self._offsets.pop(None, None) is not None:
                self.records_without_key += keys.count(None)
            added = len(self._offsets) - before
            if added > 0:
                mean_bytes = len(b"".join(filter(None, keys))) // len(keys)
                self._size_bytes += added * (KEY_OVERHEAD_BYTES + mean_bytes)
            self._sorted = None
        self.end_offset = header.end_offset

    @property
    def is_full(self) -> bool:
        return self._size_bytes >= self._limit_bytes

    def __contains__(self, key: bytes) -> bool:
        return key in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def between(self, start: int, end: int) -> Sequence[int]:
        """Return the offsets in the map from `start` to below `end`, in order."""
        if self._sorted is None:
            self._sorted = array("q", sorted(self._offsets.values()))
        return self._sorted[bisect_left(self._sorted, start) : bisect_left(self._sorted, end)]


class BatchFilter:
    """Passes over a log once, from its first batch. `last_of_producers`: the last batch's end offset of each producer that is
    known.
    """

    def __init__(
        self, latest: LatestOffsets, *, now_ms: int, delete_retention_ms: int, last_of_producers: Mapping[int, int]
    ) -> None:
        self.records_read = 0
        self.records_kept = 0
        self._latest = latest
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, NO_LIMIT)
        self._last_of_producers = last_of_producers
        self._epoch = NO_EPOCH

    def __call__(self, header: BatchHeader, data: bytes, position: int = 0) -> bytes | None:
        """Return what stays of the next batch, which begins at `position`: None if all does, b"" if nothing does. CorruptBatch,
        CodecError.
        """
        begins_epoch = header.leader_epoch > self._epoch
        self._epoch = max(self._epoch, header.leader_epoch)
        self.records_read += header.record_count
        if header.is_control or header.end_offset > self._latest.end_offset:
            self.records_kept += header.record_count
            return None
        if header.record_count:
            try:
                kept = self._filtered(header, records_in(header, data, position))
            except IndexError as error:
                raise _unreadable(header, position, error) from error
            if kept != b"":
                return kept
        if begins_epoch or self._last_of_producers.get(header.producer_id) == header.end_offset:
            return without_records(header)
        return b""

    def _filtered(self, header: BatchHeader, found: Records) -> bytes | None:
        kept = self._latest_in(header, found)
        if not kept:
            return b""
        records = found.data
        starts = boundaries(records, header.record_count, found.start, found.end)
        horizon_ms = header.delete_horizon_ms
        if records.find(_TOMBSTONE_HINT, found.start, found.end) >= 0:
            has_value = [time_and_value(records, starts[index])[1] for index in kept]
            if horizon_ms is not None and horizon_ms <= self._now_ms:
                kept = [index for index, stays in zip(kept, has_value, strict=True) if stays]
            elif horizon_ms is None and not all(has_value):
                horizon_ms = self._horizon_ms
        self.records_kept += len(kept)
        if not kept:
            return b""
        if len(kept) == header.record_count and horizon_ms == header.delete_horizon_ms:
            return None
        return _rebuilt(header, records, starts, kept, horizon_ms)

    def _latest_in(self, header: BatchHeader, found: Records) -> Sequence[int]:
        """Return the indexes of the records that are the last ones of their keys."""
        base = header.base_offset
        if header.end_offset > self._latest.start_offset:
            offsets = self._latest.between(base, header.end_offset)
            if not offsets or header.record_count == header.last_offset_delta + 1:
                return [offset - base for offset in offsets]
            wanted = set(offsets)
            return [index for index, delta in enumerate(_deltas(header, found)) if base + delta in wanted]
        latest, keys = self._latest, keys_of(found.data, header.record_count, found.start, found.end)
        return [index for index, key in enumerate(keys) if key is not None and key not in latest]


def without_records(header: BatchHeader) -> bytes | None:
    """Return the batch without its records, None if it has none: offsets, epoch, producer, sequence and time stay."""
    if not header.record_count:
        return None
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return encode_batch(header._replace(attributes=attributes, base_timestamp_ms=_NO_TIMESTAMP, record_count=0), b"")


def _deltas(header: BatchHeader, found: Records) -> Sequence[int]:
    """Return the offset delta of each record. A batch without gaps has one for each record."""
    count = header.record_count
    if count == header.last_offset_delta + 1:
        return range(count)
    return offset_deltas(found.data, boundaries(found.data, count, found.start, found.end)[:-1])


def _rebuilt(header: BatchHeader, records: bytes, starts: Sequence[int], kept: Sequence[int], horizon_ms: int | None) -> bytes:
    """Return the batch with the `kept` of its records. LogError if it becomes too large, which compression can cause."""
    times = [timestamp_delta(records, starts[index])[0] for index in kept]
    max_timestamp_ms = max(as_int64(header.base_timestamp_ms + time) for time in times)
    if horizon_ms == header.delete_horizon_ms:
        body = b"".join([records[starts[index] : starts[index + 1]] for index in kept])
        changed = header
    else:
        assert horizon_ms is not None
        shift_ms = header.base_timestamp_ms - horizon_ms
        body = b"".join([_with_shifted_time(records, starts[index], starts[index + 1], shift_ms) for index in kept])
        changed = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp_ms=horizon_ms)
    if not header.attributes & APPEND_TIME:
        changed = changed._replace(max_timestamp_ms=max_timestamp_ms)
    if header.attributes & CODEC_MASK:
        body = compress(header.codec, body)
    if HEADER_BYTES + len(body) > MAX_BATCH_BYTES:
        raise LogError(f"{header!r} takes {len(body)} bytes when it is compressed again, over the limit of {MAX_BATCH_BYTES}")
    return encode_batch(changed._replace(record_count=len(kept)), body)


def _with_shifted_time(records: bytes, start: int, end: int, shift_ms: int) -> bytes:
    """Return one record with its timestamp delta changed by `shift_ms`."""
    delta_ms, after = timestamp_delta(records, start)
    content = start
    while records[content] > 127:
        content += 1
    body = bytearray(records[content + 1 : content + 2])
    put_varint(body, as_int64(delta_ms + shift_ms))
    body += records[after:end]
    length = bytearray()
    put_varint(length, len(body))
    return bytes(length + body)


def _unreadable(header: BatchHeader, position: int, error: IndexError) -> CorruptBatch:
    return CorruptBatch(position, f"the records of {header!r} cannot be read: {error}")
