"""Offsets and times of a read: which files can be left out, which batches are.

A filter that Spark pushes down narrows the bounds and is handed back all the same, so that Spark looks at every row again:
leaving out less than possible is never wrong.

A segment is left out by the offsets in the names, exactly. By time it is left out if it and the next one begin more than an hour
before or after: append times are the leader's clock, which may step back when the leader changes. As that may be by more, only
options leave segments out by time; a filter of Spark's leaves out batches, each by its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .options import Options

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

CLOCK_SLACK_MS = 3_600_000


class Bounds(NamedTuple):
    """Offsets [lo, hi) and times [from_ms, to_ms); None is no bound."""

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
        """What formatting wrote, at -1, counts as offset 0."""
        return max(0, offset) >= self.lo and (self.hi is None or offset < self.hi)

    def has_time(self, time_ms: int) -> bool:
        return (self.from_ms is None or time_ms >= self.from_ms) and (self.to_ms is None or time_ms < self.to_ms)

    def may_have_times(self, first_ms: int, following_ms: int | None) -> bool:
        """Whether a file may, whose first batch has this time and the file behind it that one (None: no file follows)."""
        if self.to_ms is not None and first_ms - CLOCK_SLACK_MS >= self.to_ms:
            return False
        return self.from_ms is None or following_ms is None or following_ms + CLOCK_SLACK_MS >= self.from_ms


def narrowed(bounds: Bounds, pushed: Filter, offset: str, time: str) -> Bounds:
    """Bounds with what one filter adds; `offset` and `time` are the columns that they are about."""
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
