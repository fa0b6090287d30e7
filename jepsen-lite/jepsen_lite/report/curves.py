"""Numbers over time from a history: bins, quantiles, rates, and the sample for a scatter plot.

Pure. Times are nanoseconds since the run began. The width of a bin is a round number of milliseconds that gives at most `BINS`
bins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from kraftlab.checking.facts import Observation

from ..checkers import stats as by_rank
from ..history import OK, Op

BINS = 60
DRAWN = 10_000
"""More points would make a scatter plot slower, not richer."""
SLOWEST_BINS = 400
CURVE_POINTS = 2_000
CLOCK_GRAIN_MS = 2
"""Clocks show whole milliseconds: a smaller difference is not a fault."""


Point = TypeVar("Point", tuple[int, int], tuple[int, int, int])


class Quantiles(msgspec.Struct, frozen=True, array_like=True):
    """The answered operations that ended in a bin; latencies in µs: 50, 95, 99, 100 %."""

    bin: int
    count: int
    latencies_us: tuple[int, ...]


class Rate(msgspec.Struct, frozen=True):
    """Operations of one function with one outcome, per bin."""

    f: str
    outcome: str
    counts: tuple[int, ...]


class Curve(msgspec.Struct, frozen=True):
    """Observations of a node's log: (time in µs, high watermark, log end); -1, -1 where it does not answer."""

    node: int
    points: tuple[tuple[int, int, int], ...]


class Clock(msgspec.Struct, frozen=True):
    """The advance of a node's clock over true time since the first observation: (time in µs, ms)."""

    node: int
    points: tuple[tuple[int, int], ...]


class Sample(NamedTuple):
    """The operations to draw. `step`: every step-th of the other operations is drawn; 1 if all are."""

    ops: tuple[Op, ...]
    step: int


def bin_width_ns(span_ns: int, bins_max: int = BINS) -> int:
    """Return the smallest of 1, 2, 5, 10, … ms that needs at most `bins_max` bins."""
    width_ns = 1_000_000
    for factor in _factors():
        width_ns = factor * 1_000_000
        if width_ns * bins_max >= span_ns:
            break
    return width_ns


def _factors() -> Iterable[int]:
    decade = 1
    while True:
        yield from (decade, 2 * decade, 5 * decade)
        decade *= 10


def quantiles(ops: Iterable[Op], width_ns: int) -> tuple[Quantiles, ...]:
    """Return the quantiles of `ok` operations by the bin in which they ended, without empty bins."""
    bins: dict[int, list[int]] = defaultdict(list)
    for op in ops:
        if op.outcome == OK:
            bins[op.ended_ns // width_ns].append((op.ended_ns - op.invoked_ns) // 1000)
    return tuple(_quantiles(place, bins[place]) for place in sorted(bins))


def overall(ops: Iterable[Op]) -> Quantiles:
    """Return the quantiles of all `ok` operations, as one bin."""
    return _quantiles(0, [(op.ended_ns - op.invoked_ns) // 1000 for op in ops if op.outcome == OK])


def _quantiles(place: int, latencies_us: Sequence[int]) -> Quantiles:
    return Quantiles(place, len(latencies_us), tuple(map(int, by_rank.quantiles(latencies_us).values())))


def rates(ops: Iterable[Op], width_ns: int, span_ns: int) -> tuple[Rate, ...]:
    """Return the rates by function and outcome, in the order of their names."""
    bins = max(-(-span_ns // width_ns), 1)
    found: dict[tuple[str, str], list[int]] = {}
    for op in ops:
        counts = found.setdefault((op.f, op.outcome), [0] * bins)
        counts[min(op.ended_ns // width_ns, bins - 1)] += 1
    return tuple(Rate(f, outcome, tuple(counts)) for (f, outcome), counts in sorted(found.items()))


def sample(ops: Sequence[Op], named: frozenset[int], span_ns: int, drawn_max: int = DRAWN) -> Sample:
    """Return all operations, or: those that a verdict names, the slowest of each of 400 spans of time by function and outcome,
    and every n-th.
    """
    if len(ops) <= drawn_max:
        return Sample(tuple(ops), 1)
    step = -(-len(ops) // drawn_max)
    width_ns = max(-(-span_ns // SLOWEST_BINS), 1)
    slowest: dict[tuple[int, str, str], Op] = {}
    for op in ops:
        place = (op.ended_ns // width_ns, op.f, op.outcome)
        other = slowest.get(place)
        if other is None or op.ended_ns - op.invoked_ns > other.ended_ns - other.invoked_ns:
            slowest[place] = op
    chosen = named | {op.index for op in slowest.values()}
    return Sample(tuple(op for op in ops if op.index % step == 0 or op.index in chosen), step)


def offset_curves(observations: Iterable[Observation], points_max: int = CURVE_POINTS) -> tuple[Curve, ...]:
    """Return one curve per node that ever reported its log end, without points at which nothing changed."""
    by_node: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for seen in sorted(observations, key=lambda observation: observation.at_ns):
        ends = (seen.high_watermark, seen.log_end) if seen.is_up else (-1, -1)
        by_node[seen.node].append((seen.at_ns // 1000, *ends))
    return tuple(
        Curve(node, _thinned(points, points_max))
        for node, points in sorted(by_node.items())
        if any(log_end >= 0 for _, _, log_end in points)
    )


def clock_curves(observations: Iterable[Observation], points_max: int = CURVE_POINTS) -> tuple[Clock, ...]:
    """Return one curve per node whose clock is known; none if all clocks ran true. Points in the middle of a horizontal line are
    left out.
    """
    by_node: dict[int, list[tuple[int, int]]] = defaultdict(list)
    first_ms: dict[int, int] = {}
    for seen in sorted(observations, key=lambda observation: observation.at_ns):
        if seen.clock_ahead_ms is not None:
            ahead_ms = seen.clock_ahead_ms - first_ms.setdefault(seen.node, seen.clock_ahead_ms)
            by_node[seen.node].append((seen.at_ns // 1000, ahead_ms))
    if not any(abs(ahead_ms) > CLOCK_GRAIN_MS for points in by_node.values() for _, ahead_ms in points):
        return ()
    return tuple(Clock(node, tuple(_every(_bends(points), points_max))) for node, points in sorted(by_node.items()))


def _bends(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    inner = zip(points, points[1:], points[2:], strict=False)
    bends = [point for before, point, after in inner if not before[1] == point[1] == after[1]]
    return [*points[:1], *bends, *points[1:][-1:]]


def _thinned(points: list[tuple[int, int, int]], points_max: int) -> tuple[tuple[int, int, int], ...]:
    last = len(points) - 1
    kept = [point for place, point in enumerate(points) if place in (0, last) or point[1:] != points[place - 1][1:]]
    return tuple(_every(kept, points_max))


def _every(points: list[Point], points_max: int) -> Iterable[Point]:
    """Return every n-th point, and the last."""
    step = max(-(-len(points) // points_max), 1)
    return (point for place, point in enumerate(points) if place % step == 0 or place == len(points) - 1)
