"""Rules for the segments of a log: when to begin a new one, and which ones retention deletes. Pure; as in Kafka.

A segment ends before a batch that would make it too large, that came `segment.ms` after the segment's first batch by their
timestamps, or that it cannot index: an index is full, or the offset is too far from the segment's base. `segment.jitter.ms`
spreads the rolls of logs that began together: each segment's time is shortened by a part of the jitter, which follows from the
segment's name.

Retention deletes the oldest segments whose largest timestamp is older than `retention.ms`, or without which the log still has
`retention.bytes`, up to the first one that stays and never beyond the high watermark. It may reach the active segment: then a new
one begins first, so that also an idle topic expires.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from .log_config import NO_LIMIT, LogConfig

MAX_RELATIVE_OFFSET = 2**31 - 1
NEVER = -(2**63)


class Room(NamedTuple):
    """Limits of the batches that a segment takes. The first batch only has to keep the limit of the offset."""

    last_offset: int
    size_bytes: int
    """Size of the segment with the batch."""
    timestamp_ms: int

    def fits(self, segment_bytes: int, batch_bytes: int, last_offset: int, timestamp_ms: int) -> bool:
        """Return True if a batch goes into the segment, which has `segment_bytes` now."""
        if last_offset > self.last_offset:
            return False
        return not segment_bytes or (segment_bytes + batch_bytes <= self.size_bytes and timestamp_ms <= self.timestamp_ms)


def room_in(
    base_offset: int, first_timestamp_ms: int, waited_ms: int, is_index_full: bool, config: LogConfig, log_name: str
) -> Room:
    """Return the room in a segment. `first_timestamp_ms`: the largest of its first batch, negative if the batch has none; then
    `waited_ms` counts, the time since the segment was made or opened.
    """
    limit_ms = segment_time_ms(config, f"{log_name}/{base_offset}")
    without_timestamps = NO_LIMIT if waited_ms <= limit_ms else NEVER
    timestamp_ms = first_timestamp_ms + limit_ms if first_timestamp_ms >= 0 else without_timestamps
    return Room(base_offset + MAX_RELATIVE_OFFSET, 0 if is_index_full else config.segment_bytes, timestamp_ms)


def segment_time_ms(config: LogConfig, segment_name: str) -> int:
    """Return the longest time that a segment takes appends, its part of the jitter subtracted."""
    limit_ms = config.segment_ms
    if config.is_compacted and config.max_compaction_lag_ms > 0:
        limit_ms = min(limit_ms, config.max_compaction_lag_ms)
    if not config.segment_jitter_ms:
        return limit_ms
    return limit_ms - zlib.crc32(segment_name.encode()) * min(config.segment_jitter_ms, config.segment_ms) // 2**32


class RetentionCandidate(NamedTuple):
    """A segment before retention. `end_offset`: the base offset of the next segment, or the log's end."""

    size_bytes: int
    end_offset: int
    timestamp_ms: int


def expired_count(
    segments: Iterable[RetentionCandidate], log_bytes: int, high_watermark: int, config: LogConfig, now_ms: int
) -> int:
    """Return the number of oldest segments that retention deletes. `segments` are consumed up to the first segment that stays.

    An empty segment is passed over: it is active, or the log begins with a gap.
    """
    excess_bytes = log_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    count = deletable = 0
    for segment in segments:
        if segment.end_offset > high_watermark:
            break
        count += 1
        if not segment.size_bytes:
            continue
        is_excess = segment.size_bytes <= excess_bytes
        is_old = 0 <= config.retention_ms < now_ms - segment.timestamp_ms
        if not is_excess and not is_old:
            break
        excess_bytes -= segment.size_bytes
        deletable = count
    return deletable
