"""Compaction of a log: which part of it, and what is written together. Pure; `compaction_filter.py` decides on the records.

Theory of operation. A compacted log has three parts::

    log start        cleaned to                 limit            log end
    |  cleaned part  |  dirty part               |  head          |

In the cleaned part no key occurs twice. A compaction reads the keys of the dirty part, as many as fit into memory, then writes
the cleaned part and the dirty part again without the records that a later one has replaced. Offsets never change, so readers and
followers notice nothing but gaps. The head stays as it is: the active segment, all that is not yet below the high watermark (a
truncation could remove it), and the segments that are younger than min.compaction.lag.ms.

A log is due when its dirty part is more than min.cleanable.dirty.ratio of both parts, or holds records that are older than
max.compaction.lag.ms. Of several logs the one with the largest ratio is first.

Segments are written in groups, each of which becomes one segment, as long as the old ones together are no larger than a segment
may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from .log_config import NO_LIMIT, LogConfig
from .segment_rules import MAX_RELATIVE_OFFSET

INDEX_ENTRY_BYTES = 12
"""Size of a time index entry, the larger kind. There is at most one entry in index.interval.bytes of batches."""


class SegmentFacts(Protocol):
    """The part of a segment that the plan depends on."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def first_timestamp_ms(self) -> int:
        """Time of the first batch, -1 if there is none."""


AnySegment = TypeVar("AnySegment", bound=SegmentFacts)


class Cleanable(NamedTuple):
    """The part of a log that can be compacted: from `start_offset`, where it is dirty, to below `end_offset`."""

    start_offset: int
    end_offset: int
    cleaned_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """It holds records that are older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.cleaned_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)

    @property
    def urgency(self) -> tuple[bool, float]:
        """Orders logs that are due; the largest one comes first."""
        return self.is_overdue, self.dirty_ratio


def cleanable(
    segments: Sequence[SegmentFacts], *, cleaned_to: int, high_watermark: int, config: LogConfig, now_ms: int
) -> Cleanable:
    """Return the part of a log that can be compacted now. The last of `segments` is the active one.

    A segment in which the dirty part begins counts as dirty: only a map that was full ends a compaction within a segment.
    """
    cleaned_bytes = dirty_bytes = 0
    end_offset, is_overdue = cleaned_to, False
    for segment in segments[:-1]:
        if segment.end_offset > high_watermark:
            break
        if segment.end_offset <= cleaned_to:
            cleaned_bytes += segment.size_bytes
            continue
        if config.min_compaction_lag_ms and segment.max_timestamp_ms > now_ms - config.min_compaction_lag_ms:
            break
        if config.max_compaction_lag_ms != NO_LIMIT:
            is_overdue = is_overdue or 0 <= segment.first_timestamp_ms < now_ms - config.max_compaction_lag_ms
        dirty_bytes += segment.size_bytes
        end_offset = segment.end_offset
    return Cleanable(cleaned_to, end_offset, cleaned_bytes, dirty_bytes, is_overdue)


def groups(segments: Iterable[AnySegment], config: LogConfig) -> list[list[AnySegment]]:
    """Return adjacent segments in groups, each of which fits into one segment."""
    found: list[list[AnySegment]] = []
    size_bytes = 0
    for segment in segments:
        size_bytes += segment.size_bytes
        group = found[-1] if found else []
        if (
            not group
            or size_bytes > config.segment_bytes
            or size_bytes // max(config.index_interval_bytes, 1) * INDEX_ENTRY_BYTES > config.segment_index_bytes
            or segment.end_offset - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET
            or segment.base_offset != group[-1].end_offset
        ):
            found.append([segment])
            size_bytes = segment.size_bytes
        else:
            group.append(segment)
    return found
