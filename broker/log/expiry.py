"""The slow parts of retention, for which the log is not locked.

Before segments are deleted, their timestamps are read and missing indexes are built. Afterwards their files lie in the log's
directory as `.deleted` until `file.delete.delay.ms` is over.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kraftlab.common.clock import wall_clock_ms

from .log_view import ages_of
from .partition_log import PartitionLog
from .segment import Segment
from .segment_rules import expired_count


def has_expired(log: PartitionLog, now_ms: int | None = None) -> bool:
    """Return True if `PartitionLog.delete_old_segments` has something to delete. LogError.

    Indexes that are missing or wrong are built for that, here and wherever a reader has noticed it. Reads and appends go on, and
    truncations wait only for short pieces of the work.
    """
    while True:
        with log.pinned() as view, log.reading():
            ages = ages_of(view.segments, view.log_end_offset)
            at_ms = wall_clock_ms() if now_ms is None else now_ms
            count = expired_count(ages, log.size_bytes, log.high_watermark, log.config, at_ms)
            unindexed = next((segment for segment in view.segments[:-1] if segment.needs_indexes), None)
            cuts = log.cuts
            has_any_below_start = len(view.segments) > 1 and view.segments[1].base_offset <= view.log_start_offset
        if unindexed is None:
            return count > 0 or has_any_below_start
        _build_indexes(log, unindexed, cuts)


def _build_indexes(log: PartitionLog, segment: Segment, cuts: int) -> None:
    """Build the indexes of a full segment, unless the log is truncated meanwhile."""
    steps = segment.build_indexes()
    is_done = False
    while not is_done:
        with log.pinned() as view, log.reading():
            is_done = log.cuts != cuts or segment not in view.segments[:-1] or bool(next(steps, True))


def remove_deleted(log: PartitionLog, now_ms: int) -> int:
    """Remove the files of deleted segments after their delay; return their number. LogError."""
    with log.pinned(), log.reading():
        expired = [item for item in log.removals if item.deadline_ms <= now_ms]
        for item in expired:
            with suppress(FileNotFoundError):
                os.unlink(log.directory / item.name)
        log.removals = tuple(item for item in log.removals if item not in expired)
        return len(expired)
