"""Plots as inline SVG: distributions, curves with intervals, bars. Pure functions from numbers to markup.

Colours are variables of page.css, so a plot is light or dark with its page. A plot is 400 units wide and its text 11 units high,
which can be read on a screen of 360 pixels. Every curve has a colour and a dash, and the legend names it. A theory has the colour
of the curve that it predicts, thinner and dashed. Published numbers are diamonds with a text, in the colour of their curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

from .experiment import Estimate

WIDTH, HEIGHT = 400, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 40
BAR_HEIGHT = 34
DASHES = ("", "6 3", "2 3", "8 3 2 3")
COLOURS = 8
HALO = "fill:var(--ink);paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round"
"""The style of a text that stands on curves."""
POINTS_MAX = 500
"""Points of a curve of a distribution. More cannot be seen."""


class Axis(NamedTuple):
    """An axis. Values outside of its range are drawn at its end."""

    label: str
    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """Return the place of a value between the ends of the axis, from 0 to 1."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return the values with a line of the grid: powers of ten with 2 and 5 between them, or four to six round steps."""
        if self.is_log:
            decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            factors = (1, 2, 5) if log10(self.high / self.low) < 2.5 else (1,)
            return [factor * 10.0**power for power in decades for factor in factors if self.has(factor * 10.0**power)]
        span = self.high - self.low
        unit = 10.0 ** floor(log10(span / 4))
        step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if span / (factor * unit) <= 6)
        return [step * place for place in range(ceil(self.low / step), floor(self.high / step + 1e-9) + 1)]

    def has(self, value: float) -> bool:
        return self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)


class Point(NamedTuple):
    """A point of a curve, with the interval of its y."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Curve(NamedTuple):
    """A curve through points. A drawn-through theory has `is_thin` and no dots, and `of` names the curve that it predicts.

    A curve without points is left out, and the others keep their colours.
    """

    name: str
    points: Sequence[Point]
    is_thin: bool = False
    of: str = ""


class Bar(NamedTuple):
    """A bar from the left, with its interval, and the published number beside it."""

    name: str
    ours: Estimate
    published: float | None = None


class Mark(NamedTuple):
    """A published number. `text` stands beside its diamond, and `of` names the curve that it belongs to."""

    x: float
    y: float
    text: str
    of: str = ""


def cdf(x: Axis, lines: Sequence[tuple[str, Sequence[float]]], marks: Iterable[Mark] = ()) -> str:
    """Return cumulative distributions: the share of the numbers that are at most x."""
    y = Axis("share of trials", 0, 1)
    return curves(x, y, [Curve(name, steps(numbers), is_thin=True) for name, numbers in lines], marks)


def steps(numbers: Sequence[float]) -> list[Point]:
    """Return the corners of a cumulative distribution, at most POINTS_MAX steps."""
    if not numbers:
        return []
    ordered, points = sorted(numbers), [Point(min(numbers), 0.0)]
    stride = max(1, len(ordered) // POINTS_MAX)
    for place in sorted({*range(0, len(ordered), stride), len(ordered) - 1}):
        points += [Point(ordered[place], points[-1].y), Point(ordered[place], (place + 1) / len(ordered))]
    return points


def curves(x: Axis, y: Axis, lines: Sequence[Curve], marks: Iterable[Mark] = ()) -> str:
    """Return curves with their intervals, published numbers, and a legend below."""
    places = {name: place for place, name in enumerate(curve.name for curve in lines if not curve.of)}
    drawn = [curve for curve in lines if curve.points]
    strokes = {curve.name: _theory(places[curve.of]) if curve.of else _stroke(places[curve.name]) for curve in drawn}
    parts = [*_grid(x, y), *_labels(x, y)]
    for curve in drawn:
        parts += _curve(x, y, curve, strokes[curve.name], _colour(places[curve.of or curve.name]))
    published = [
        _mark(_x(x, mark.x), _y(y, mark.y), mark.text, _colour(places[mark.of]) if mark.of else "var(--ink)") for mark in marks
    ]
    return _svg([*parts, *published], HEIGHT, ", ".join(strokes)) + legend(strokes, has_marks=bool(published))


def bars(x: Axis, entries: Sequence[Bar]) -> str:
    """Return a bar per entry, its name above it."""
    height = TOP + BAR_HEIGHT * len(entries) + BOTTOM
    parts = [
        f'<line class="grid" x1="{_n(_x(x, tick, 10))}" x2="{_n(_x(x, tick, 10))}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        f'<text x="{_n(_x(x, tick, 10))}" y="{height - BOTTOM + 15}" text-anchor="middle">{number(tick)}</text>'
        for tick in x.ticks()
    ]
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(x.label)}</text>')
    for place, bar in enumerate(entries):
        top, colour = TOP + place * BAR_HEIGHT, f"var(--c{place % COLOURS})"
        middle, left = top + 23, _x(x, x.low, 10)
        parts.append(f'<text class="inked" x="{_n(left)}" y="{top + 12}" style="fill:var(--ink)">{escape(bar.name)}</text>')
        width = max(_x(x, bar.ours.value, 10) - left, 1)
        parts.append(f'<rect x="{_n(left)}" y="{top + 17}" width="{_n(width)}" height="12" style="fill:{colour}"/>')
        ends = f'x1="{_n(_x(x, bar.ours.low, 10))}" x2="{_n(_x(x, bar.ours.high, 10))}" y1="{middle}" y2="{middle}"'
        parts.append(f'<line {ends} style="stroke:var(--ink);stroke-width:1.5"/>')
        if bar.published is not None:
            parts.append(_mark(_x(x, bar.published, 10), middle, number(bar.published)))
    return _svg(parts, height, ", ".join(bar.name for bar in entries))


def legend(strokes: Mapping[str, str], has_marks: bool) -> str:
    """Return the legend of curves and published numbers, as HTML that wraps."""
    keys = [
        f'<span><svg width="26" height="8" aria-hidden="true"><line x1="0" x2="26" y1="4" y2="4" style="{stroke}"/></svg>'
        f"{escape(name)}</span>"
        for name, stroke in strokes.items()
    ]
    return f'<div class="legend">{"".join(keys)}{"<span>◇ published</span>" if has_marks else ""}</div>'


def number(value: float) -> str:
    """Format a number for a tick: 0.06, 5.2, 475, 2k."""
    if value and value % 1000 == 0:
        return f"{value / 1000:g}k"
    return f"{value:.4g}"


def _grid(x: Axis, y: Axis) -> Iterable[str]:
    for tick in x.ticks():
        place = _n(_x(x, tick))
        yield f'<line class="grid" x1="{place}" x2="{place}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{place}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{number(tick)}</text>'
    for tick in y.ticks():
        place = _n(_y(y, tick))
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place}" y2="{place}"/>'
        yield f'<text x="{LEFT - 5}" y="{_n(_y(y, tick) + 4)}" text-anchor="end">{number(tick)}</text>'


def _labels(x: Axis, y: Axis) -> Iterable[str]:
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>'
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<text transform="translate(11 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>'


def _curve(x: Axis, y: Axis, curve: Curve, stroke: str, colour: str) -> Iterable[str]:
    corners = " ".join(f"{_n(_x(x, point.x))},{_n(_y(y, point.y))}" for point in curve.points)
    yield f'<polyline points="{corners}" style="fill:none;{stroke}"/>'
    for point in () if curve.is_thin else curve.points:
        at = _n(_x(x, point.x))
        if point.low is not None and point.high is not None:
            ends = f'y1="{_n(_y(y, point.low))}" y2="{_n(_y(y, point.high))}"'
            yield f'<line x1="{at}" x2="{at}" {ends} style="stroke:{colour};stroke-width:1.5"/>'
        yield f'<circle cx="{at}" cy="{_n(_y(y, point.y))}" r="2.5" style="fill:{colour}"/>'


def _mark(x: float, y: float, text: str, colour: str = "var(--ink)") -> str:
    is_right = x + 8 + 7 * len(text) > WIDTH
    anchor = ' text-anchor="end"' if is_right else ""
    return (
        f'<path d="M{_n(x)} {_n(y - 5)}l5 5l-5 5l-5 -5z" style="fill:var(--card);stroke:{colour};stroke-width:1.5"/>'
        f'<text x="{_n(x - 8 if is_right else x + 8)}" y="{_n(y + 4)}"{anchor} style="{HALO}">{escape(text)}</text>'
    )


def _svg(parts: Iterable[str], height: int, names: str) -> str:
    inside = "\n".join(parts)
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(names)}">\n{inside}\n</svg>'


def _colour(place: int) -> str:
    return f"var(--c{place % COLOURS})"


def _stroke(place: int) -> str:
    dash = DASHES[place // COLOURS % len(DASHES)]
    return f"stroke:{_colour(place)};stroke-width:2" + (f";stroke-dasharray:{dash}" if dash else "")


def _theory(place: int) -> str:
    return f"stroke:{_colour(place)};stroke-width:1.5;stroke-dasharray:4 3"


def _x(axis: Axis, value: float, left: int = LEFT) -> float:
    return left + axis.share(value) * (WIDTH - RIGHT - 8 * (left != LEFT) - left)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - BOTTOM - TOP)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
