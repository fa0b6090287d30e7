"""The plots of a report as SVG. Each arranges numbers from `content` and computes none of its own.

Colours are CSS variables, so that a plot follows the page into dark mode. Each mark has its numbers as a title, which a browser
shows under the pointer. A plot has at most some thousand marks, and no scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from math import log10
from typing import NamedTuple

from .content import BAND, LISTED, CatchUp, DirLoad, Drift, Epoch, ReassignmentReport, ReassignmentRow

COLOURS = {name: f"var(--{name})" for name in ("completed", "cancelled", "superseded", "open", "deleted", "unknown", "instant")}
"""CSS variables by status; page.html.j2 has their values for light and dark pages."""
_DRIFT_COLOURS = {"union_race": "var(--cancelled)", "rf_change": "var(--superseded)", "sibling_mismatch": "var(--open)"}
_LANES = 40
"""Maximum number of lanes into which bars are packed; thinner bars could not be distinguished."""
_WIDTH, _LEFT, _RIGHT = 800, 120, 780
_EPOCHS = 500
"""Maximum number of epochs in the plot: the newest."""
_TICKS = 4


class Scale(NamedTuple):
    """A linear scale from values to pixels."""

    low: float
    high: float
    begin_px: float = _LEFT
    end_px: float = _RIGHT

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(self.begin_px + share * (self.end_px - self.begin_px), 1)


def figures(report: ReassignmentReport) -> dict[str, str]:
    """Return name of a section → its plot, for sections with data."""
    found: dict[str, str] = {}
    if report.moves:
        found["moves"] = timeline(report.moves, report.under_way)
    if report.catch_up:
        found["catch_up"] = catch_up(report.catch_up)
    if report.dirs:
        found["skew"] = skew(report.dirs)
    if report.drift:
        found["drift"] = drift(report.drift)
    if report.epochs:
        found["epochs"] = epochs(report.epochs)
    return found


def timeline(moves: Sequence[ReassignmentRow], under_way: Sequence[tuple[int, int]]) -> str:
    """Plot the number of running reassignments over time, and below it a bar for each listed one."""
    ends = [ms for move in moves for ms in (move.start_ms, move.end_ms) if ms is not None]
    begin_ms, end_ms = min(ends, default=0), max(ends, default=0)
    x, y = Scale(begin_ms, end_ms), Scale(0, max((running for _, running in under_way), default=1), 110, 16)
    path, before = f"M{_LEFT},110", 110.0
    for at_ms, running in under_way:
        path += f"L{x(at_ms)},{before}V{y(running)}"
        before = y(running)
    parts = [f'<path class="curve" d="{path}H{_RIGHT}V110z"/>', _text(_LEFT - 8, 20, f"{y.high} under way", "end")]
    lanes = lanes_of(moves, begin_ms, end_ms)
    height_px = max(4, min(14, 420 // (max(lanes, default=0) + 1)))
    for lane, move in zip(lanes, moves, strict=True):
        start, end = _or(move.start_ms, begin_ms), _or(move.end_ms, end_ms)
        place = x(start), 124 + lane * height_px, max(2, x(end) - x(start)), height_px - 2
        parts.append(_bar(*place, COLOURS.get(move.status, "var(--unknown)"), _label(move)))
    bottom = 130 + (max(lanes, default=0) + 1) * height_px
    return _svg("Reassignments over time", bottom + 24, [*parts, *_axis(x, bottom, _time)])


def catch_up(brokers: Sequence[CatchUp]) -> str:
    """Plot a row per broker: quartiles as a box, a line up to the 99th percentile, and a diamond for the slowest replica."""
    known = [each for each in brokers if each.replicas > each.never][:LISTED]
    is_wide = _spread(known) > 100
    slowest = max((each.max_ms for each in known), default=1)
    x = Scale(0, log10(1 + slowest) if is_wide else slowest)

    def at(ms: float) -> float:
        return x(log10(1 + max(0, ms)) if is_wide else ms)

    parts = []
    for row, each in enumerate(known):
        y, (low, middle, high) = 10 + 26 * row, each.quartiles_ms
        parts.append(_text(_LEFT - 8, y + 13, f"broker {each.broker_id}", "end"))
        parts.append(f'<line class="axis" x1="{at(low)}" x2="{at(each.p99_ms)}" y1="{y + 8}" y2="{y + 8}"/>')
        told = f"quartiles {low:.0f}, {middle:.0f} and {high:.0f} ms; 99 % within {each.p99_ms:.0f} ms"
        parts.append(_bar(at(low), y, max(2, at(high) - at(low)), 16, "var(--open)", told))
        parts.append(f'<line class="median" x1="{at(middle)}" x2="{at(middle)}" y1="{y}" y2="{y + 16}"/>')
        parts.append(_mark(at(each.max_ms), y + 8, "var(--cancelled)", f"slowest: {each.max_ms} ms"))
    bottom = 10 + 26 * len(known)
    axis = _axis(x, bottom, lambda value: f"{10**value - 1 if is_wide else value:,.0f} ms")
    return _svg("Time until added replicas were in sync", bottom + 24, [*parts, *axis])


def skew(dirs: Sequence[tuple[int, Sequence[DirLoad]]]) -> str:
    """Plot the bytes of each log dir relative to its broker's mean, at the first and the last sample, with the allowed band."""
    rows = {(load.broker_id, load.path): row for row, load in enumerate(dirs[-1][1][:LISTED])}
    for _, loads in dirs:
        for load in loads[:LISTED]:
            rows.setdefault((load.broker_id, load.path), len(rows))
    x = Scale(0, max((load.ratio for _, loads in dirs for load in loads), default=1) * 1.05 or 1)
    bottom = 10 + 44 * len(rows)
    parts = [f'<rect class="band" x="{x(1 - BAND)}" y="4" width="{x(1 + BAND) - x(1 - BAND)}" height="{bottom - 4}"/>']
    parts += [_text(4, 22 + 44 * row, f"broker {broker} {path}", "start") for (broker, path), row in rows.items()]
    for sample, (as_of, loads) in enumerate(dirs, 2 - len(dirs)):
        for load in loads[:LISTED]:
            y = 26 + 44 * rows[load.broker_id, load.path] + 9 * sample
            told = f"{_time(as_of)}: {load.ratio:.2f} of the mean, {load.bytes:,} bytes"
            colour = "var(--cancelled)" if load.over_band else ("var(--instant)", "var(--completed)")[sample]
            parts.append(_bar(_LEFT, y, max(2, x(load.ratio) - _LEFT), 7, colour, told))
    return _svg("Log dirs relative to the mean", bottom + 24, [*parts, *_axis(x, bottom, lambda value: f"{value:.2f}")])


def drift(found: Sequence[Drift]) -> str:
    """Plot each finding at the offset of the record that caused it; the height is the difference of the factors."""
    placed = [(each.offset, each.rf - _or(each.rf_expected, each.rf), each) for each in found if each.offset is not None]
    x = Scale(min((offset for offset, _, _ in placed), default=0), max((offset for offset, _, _ in placed), default=1))
    most = max((abs(excess) for _, excess, _ in placed), default=0) or 1
    y = Scale(-most, most, 150, 14)
    parts = [f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{y(0)}" y2="{y(0)}"/>']
    parts += [_text(_LEFT - 8, y(value) + 4, f"{value:+} replicas", "end") for value in (-most, most)]
    for offset, excess, each in placed:
        told = f"{each.topic}-{each.partition}: {each.rf} instead of {each.rf_expected}, {each.kind}, offset {offset}"
        parts.append(_mark(x(offset), y(excess), _DRIFT_COLOURS.get(each.kind, "var(--unknown)"), told))
    return _svg("Replicas too many or too few", 190, [*parts, *_axis(x, 166, lambda value: f"offset {value:,.0f}")])


def epochs(found: Sequence[Epoch]) -> str:
    """Plot the leading controllers by offset, in the newest epochs."""
    found = found[-_EPOCHS:]
    end = max((each.end_offset for each in found if each.end_offset is not None), default=found[-1].start_offset + 1)
    x = Scale(found[0].start_offset, max(end, found[-1].start_offset + 1))
    rows = {leader: row for row, leader in enumerate(dict.fromkeys(each.leader for each in found))}
    parts = [
        _text(_LEFT - 8, 25 + 30 * row, "unknown" if leader is None else f"controller {leader}", "end")
        for leader, row in rows.items()
    ]
    for each in found:
        left, right = x(each.start_offset), x(_or(each.end_offset, end))
        colour = "var(--open)" if each.epoch % 2 else "var(--instant)"
        told = f"epoch {each.epoch}, from offset {each.start_offset}"
        parts.append(_bar(left, 10 + 30 * rows[each.leader], max(2, right - left), 22, colour, told))
        if right - left > 9 * len(str(each.epoch)):
            parts.append(_text((left + right) / 2, 25 + 30 * rows[each.leader], str(each.epoch), "middle", "inside"))
    bottom = 10 + 30 * len(rows)
    return _svg("Leaders of the quorum by offset", bottom + 24, [*parts, *_axis(x, bottom, lambda value: f"offset {value:,.0f}")])


def lanes_of(moves: Sequence[ReassignmentRow], begin_ms: int, end_ms: int) -> list[int]:
    """Return a lane for each move in which nothing else runs; if all lanes are taken, the lane that is free first."""
    free_from: list[int] = []
    lanes = []
    for move in moves:
        start, end = _or(move.start_ms, begin_ms), _or(move.end_ms, end_ms)
        lane = next((lane for lane, free_ms in enumerate(free_from) if free_ms <= start), None)
        if lane is None:
            if len(free_from) < _LANES:
                free_from.append(end)
                lanes.append(len(free_from) - 1)
                continue
            lane = free_from.index(min(free_from))
        free_from[lane] = max(free_from[lane], end)
        lanes.append(lane)
    return lanes


def _svg(title: str, height_px: int, parts: Iterable[str]) -> str:
    head = f'<svg class="plot" viewBox="0 0 {_WIDTH} {height_px}" role="img" aria-label="{escape(title)}">'
    return f'<div class="figure" tabindex="0">{head}{"".join(parts)}</svg></div>'


def _bar(x: float, y: float, width: float, height: float, colour: str, told: str) -> str:
    place = f'x="{x}" y="{y}" width="{round(width, 1)}" height="{height}"'
    return f'<rect class="bar" {place} style="fill:{colour}"><title>{escape(told)}</title></rect>'


def _mark(x: float, y: float, colour: str, told: str) -> str:
    path = f"M{x},{y - 6}l6,6l-6,6l-6,-6z"
    return f'<path class="mark" d="{path}" style="fill:{colour}"><title>{escape(told)}</title></path>'


def _text(x: float, y: float, text: str, anchor: str, look: str = "") -> str:
    return f'<text class="{look}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _axis(x: Scale, y: int, label: Callable[[float], str]) -> Iterable[str]:
    """Yield a line with labels at equal distances, the outer ones within the picture."""
    yield f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'
    for tick in range(_TICKS + 1):
        value = x.low + ((x.high - x.low) or 1) * tick / _TICKS
        anchor = "end" if tick == _TICKS else "middle" if tick else "start"
        if tick % 2 == 0:
            yield _text(x(value), y + 17, label(value), anchor)


def _label(move: ReassignmentRow) -> str:
    took = "" if move.duration_ms is None else f", {move.duration_ms:,} ms"
    return f"{move.topic}-{move.partition} {move.status}{took}: {_list(move.orig)} → {_list(move.target)}"


def _list(replicas: list[int] | None) -> str:
    return "?" if replicas is None else f"[{','.join(map(str, replicas))}]"


def _spread(brokers: Sequence[CatchUp]) -> float:
    lowest = min((each.quartiles_ms[0] for each in brokers), default=0)
    return max((each.max_ms for each in brokers), default=0) / lowest if lowest > 0 else 0.0


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _time(at_ms: float) -> str:
    """Return a time in UTC, or the nearest one that a calendar can show."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        at = datetime.max if at_ms > 0 else datetime.min
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
