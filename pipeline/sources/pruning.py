"""Offsets and times of a read: they decide which files and which batches can be left out.

A filter that Spark pushes down narrows the bounds and is returned all the same, so that Spark checks every row again. Leaving out
less than possible is therefore never wrong.

A segment is left out by the offsets in the names, exactly. By time it is left out if it and the next one begin more than an hour
outside: append times are the leader's clock, which can step back when the leader changes. Since the step can be larger, only
options leave out segments by time; a filter of Spark's leaves out batches, each by its own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .options import Options

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

CLOCK_SLACK_MS = 3_600_000


class Bounds(NamedTuple):
    """Offsets [lo, hi) and times [from_ms, to_ms). None means unbounded."""

    lo: int = 0
    hi: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @classmethod
    def of(cls, options: Options) -> Bounds:
        return cls(options.start_offset, options.end_offset, options.start_ms, options.end_ms)

    def has_times(self) -> bool:
        return self.from_ms is not None or self.to_ms is not None

    def above_offset(self, lo: int) -> Bounds:
        return self._replace(lo=max(self.lo, lo))

    def below_offset(self, hi: int) -> Bounds:
        return self._replace(hi=hi if self.hi is None else min(self.hi, hi))

    def from_time(self, from_ms: int) -> Bounds:
        return self._replace(from_ms=from_ms if self.from_ms is None else max(self.from_ms, from_ms))

    def to_time(self, to_ms: int) -> Bounds:
        return self._replace(to_ms=to_ms if self.to_ms is None else min(self.to_ms, to_ms))

    def has_offset(self, offset: int) -> bool:
        """Return whether an offset is within the bounds. Records of formatting, at -1, count as offset 0."""
        return max(0, offset) >= self.lo and (self.hi is None or offset < self.hi)

    def has_time(self, time_ms: int) -> bool:
        return (self.from_ms is None or time_ms >= self.from_ms) and (self.to_ms is None or time_ms < self.to_ms)

    def may_have_times(self, first_ms: int, following_ms: int | None) -> bool:
        """Return whether a file can have such times, given its first batch's time and the next file's (None: it is the last)."""
        if self.to_ms is not None and first_ms - CLOCK_SLACK_MS >= self.to_ms:
            return False
        return self.from_ms is None or following_ms is None or following_ms + CLOCK_SLACK_MS >= self.from_ms


def narrowed(bounds: Bounds, pushed: Filter, offset: str, time: str) -> Bounds:
    """Return the bounds narrowed by one filter. `offset` and `time` name the columns of the bounds."""
    from pyspark.sql import datasource as ds

    name, value = getattr(pushed, "attribute", None), getattr(pushed, "value", None)
    if name not in ((offset,), (time,)) or not isinstance(value, int):
        return bounds
    is_offset = name == (offset,)
    if isinstance(pushed, ds.GreaterThan | ds.GreaterThanOrEqual | ds.EqualTo):
        least = value + isinstance(pushed, ds.GreaterThan)
        bounds = bounds.above_offset(least) if is_offset else bounds.from_time(least)
    if isinstance(pushed, ds.LessThan | ds.LessThanOrEqual | ds.EqualTo):
        end = value + (not isinstance(pushed, ds.LessThan))
        bounds = bounds.below_offset(end) if is_offset else bounds.to_time(end)
    return bounds
