"""Offsets of a log by time, as ListOffsets asks for them.

A timestamp asks for the first record that has it or a later one. Whole segments are passed over by their largest timestamp, then
the time index says where to begin; the record is found by reading the batches that may hold it, decompressed if need be. Negative
timestamps ask for a place in the log; without remote storage the local log is all there is.

Reads pin the log and take no lock. An index that is missing or wrong makes a lookup slow, not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import APPEND_TIME, NO_EPOCH, BatchHeader, as_int64, check_place
from kraftlab.records.record_walk import boundaries, offset_deltas, records_in, timestamp_delta

from .log_view import LogView
from .partition_log import PartitionLog
from .segment import NO_TIMESTAMP, Segment

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
PLACES = (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)


class FoundOffset(NamedTuple):
    """An offset, with the timestamp of its record (-1: not a record's) and the epoch of its leader (-1: unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find_offset(log: PartitionLog, timestamp_ms: int) -> FoundOffset | None:
    """Return the first offset with the timestamp `timestamp_ms` or a later one, None if there is none; or one of `PLACES`.

    The search ends at the log's end: the caller compares with the high watermark. ValueError for other negative timestamps;
    CorruptLog, CodecError.
    """
    match timestamp_ms:
        case _ if timestamp_ms >= 0:
            return _first_since(log, timestamp_ms)
        case -1:
            return FoundOffset(NO_TIMESTAMP, log.log_end_offset, log.latest_epoch)
        case -2 | -4:
            start_offset = log.log_start_offset
            return FoundOffset(NO_TIMESTAMP, start_offset, log.epoch_at(start_offset))
        case -3:
            return _latest_timestamp(log)
        case -5 | -6:
            return FoundOffset(NO_TIMESTAMP, -1, NO_EPOCH)
    raise ValueError(f"timestamp {timestamp_ms} is neither a time nor one of {', '.join(map(str, PLACES))}")


def _first_since(log: PartitionLog, timestamp_ms: int) -> FoundOffset | None:
    with log.pinned() as view, log.reading():
        for segment in view.segments_from(view.log_start_offset):
            size_bytes, latest = view.size_of(segment), segment.latest
            if latest is not None and latest[0] < timestamp_ms:
                continue
            for position, header in segment.batches_since(timestamp_ms, view.log_start_offset, size_bytes):
                for offset, at_ms in _times(segment, position, header):
                    if at_ms >= timestamp_ms and offset >= view.log_start_offset:
                        return FoundOffset(at_ms, offset, log.epoch_at(offset))
    return None


def _latest_timestamp(log: PartitionLog) -> FoundOffset:
    """Return the first record with the largest timestamp of all; offset -1 in a log without records.

    Records below the log start count as long as their batch does.
    """
    with log.pinned() as view, log.reading():
        best = FoundOffset(NO_TIMESTAMP, -1, NO_EPOCH)
        for segment in view.segments_from(view.log_start_offset):
            latest = _latest_in(view, segment)
            if latest is not None and latest[0] > best.timestamp_ms:
                best = FoundOffset(*latest, log.epoch_at(latest[1]))
        found = None
        for segment in view.segments_from(best.offset) if best.offset >= 0 else ():
            found = found or segment.locate(best.offset, view.size_of(segment))
            if found is not None:
                times = _times(segment, *found)
                first = (offset for offset, at_ms in times if at_ms == best.timestamp_ms and offset >= view.log_start_offset)
                return best._replace(offset=next(first, best.offset))
        return best


def _latest_in(view: LogView, segment: Segment) -> tuple[int, int] | None:
    """Return the largest timestamp in the segment, and the last offset of the first batch that has it, above the log start."""
    latest = segment.latest
    if latest is not None and latest[1] >= view.log_start_offset:
        return latest
    batches = segment.batches_since(0, view.log_start_offset, view.size_of(segment))
    return max(((header.max_timestamp_ms, header.last_offset) for _, header in batches), key=lambda one: one[0], default=None)


def _times(segment: Segment, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of each record of a batch, in order. CorruptBatch, CodecError."""
    found = records_in(header, segment.read(position, header.size_bytes))
    try:
        starts = boundaries(found.data, header.record_count, found.start, found.end)[:-1]
        deltas = offset_deltas(found.data, starts)
        for start, delta in zip(starts, deltas, strict=True):
            is_appended = header.attributes & APPEND_TIME
            created_ms = header.base_timestamp_ms + timestamp_delta(found.data, start)[0]
            check_place(header, delta)
            yield header.base_offset + delta, header.max_timestamp_ms if is_appended else as_int64(created_ms)
    except IndexError as error:
        raise CorruptBatch(position, f"its records cannot be read: {error}") from error
