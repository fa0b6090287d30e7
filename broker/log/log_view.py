"""A log as a pinned reader sees it, and the places of batches in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from kraftlab.records.errors import CorruptBatch

from .segment import Batches, Segment
from .segment_rules import RetentionCandidate


class Slice(NamedTuple):
    """Whole batches in the file of a segment."""

    segment: Segment
    position: int
    size_bytes: int


class BatchPlaces(NamedTuple):
    """Places of batches, valid as long as the log has lost no records at its end (`cuts`) and still has the segments."""

    slices: tuple[Slice, ...]
    cuts: int

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.slices)


class Removal(NamedTuple):
    """A file of a deleted segment, and the time at which it is removed."""

    deadline_ms: int
    name: str


class LogView(msgspec.Struct, frozen=True):
    """State of the log for a pinned reader: the segments, the size of the last one, and the offsets between which to read."""

    segments: tuple[Segment, ...]
    active_size_bytes: int
    log_start_offset: int
    log_end_offset: int

    def size_of(self, segment: Segment) -> int:
        return self.active_size_bytes if segment is self.segments[-1] else segment.size_bytes

    def segments_from(self, offset: int) -> tuple[Segment, ...]:
        """The segment that may hold `offset`, and those after it."""
        index = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return self.segments[max(index - 1, 0) :]

    def slices(self, offset: int, max_bytes: int, upto: int | None, min_one_batch: bool) -> Iterator[Slice]:
        """Yield the places of whole batches, as `PartitionLog.slices` describes them; `offset` is within the log. They end before
        damage. CorruptBatch if it is in the first place.
        """
        limit_offset = self.log_end_offset if upto is None else min(upto, self.log_end_offset)
        remaining = max_bytes
        for segment in self.segments_from(offset):
            size_bytes = self.size_of(segment)
            try:
                found = segment.locate(offset, size_bytes)
            except CorruptBatch:
                if remaining < max_bytes:
                    break
                raise
            if found is None:
                continue
            position, first = found
            if first.end_offset > limit_offset:
                break
            end = segment.end_of_batches(position, position + remaining, limit_offset, size_bytes)
            if end == position:
                if remaining < max_bytes or not min_one_batch:
                    break
                end = position + first.size_bytes
            yield Slice(segment, position, end - position)
            remaining -= end - position
            if end < size_bytes or remaining <= 0:
                break

    def bytes_from(self, offset: int) -> int:
        """Return the bytes of the batches from the one that holds `offset` to the log's end."""
        total = 0
        for index, segment in enumerate(self.segments_from(offset)):
            size_bytes = self.size_of(segment)
            found = (0, None) if index else segment.locate(offset, size_bytes)
            total += size_bytes - found[0] if found else 0
        return total

    def batches_from(self, offset: int) -> tuple[int, bytes, Batches] | None:
        """Return position, bytes and headers of batches, from the first batch that reaches beyond `offset`; None at the end."""
        for segment in self.segments_from(offset):
            size_bytes = self.size_of(segment)
            found = segment.locate(offset, size_bytes)
            if found is not None:
                return next(segment.chunks(found[0], size_bytes))
        return None


def bytes_of(slices: Sequence[Slice]) -> bytes:
    parts = [each.segment.read(each.position, each.size_bytes) for each in slices]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def ages_of(segments: Sequence[Segment], log_end_offset: int) -> Iterator[RetentionCandidate]:
    """Yield the segments for retention, up to the first segment with unknown timestamps. May read a little of each."""
    ends = (*(segment.base_offset for segment in segments[1:]), log_end_offset)
    for segment, end_offset in zip(segments, ends, strict=True):
        latest = segment.latest
        if latest is None:
            return
        has_none = latest[0] < 0 and segment.size_bytes
        yield RetentionCandidate(segment.size_bytes, end_offset, segment.modified_ms() if has_none else latest[0])
