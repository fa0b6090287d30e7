"""Counts of observations by size, kept by hot paths and read by scrapes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def doubling(first: float, count: int) -> tuple[float, ...]:
    """Return `count` bounds, each twice the one before."""
    return tuple(first * 2**power for power in range(count))


class Histogram:
    """Number of observations up to each bound, and above all of them, with their sum. One thread observes.

    Another thread may read the lists meanwhile: it may then miss the newest observation in one of them.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
