"""Pictures of an illegal history, in the manner of Porcupine, and of a cycle.

Theory of operation. Time is compressed: every distinct time at which operations begin or return gets a slot of equal width, so
the order stays visible and idle time vanishes. An operation is a box from its slot to that of its return; an operation of unknown
outcome has no return and stays open to the right. A partial order is a line through one point in each of its boxes: each point is
in the first slot that is neither left of the previous point nor left of its own box; points in one slot divide it evenly. A
refused operation gets a point after the last one. Every x is in slots; lanes count from 0.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import msgspec

from kraftlab.checking.facts import Strike
from kraftlab.console.lanes import process_lanes, text_of

from ..evidence import Cycle, IllegalHistory, Orders, Partial
from ..history import History, Op
from .words import operation

DRAWN = 400
"""Operations in one picture."""
RADIUS = 150
LABEL = 24
"""Characters of a value in a box."""


class Box(msgspec.Struct, frozen=True):
    """An operation, from `begin` to `end`. `through`: the index of the longest partial order that contains it, -1 if there is
    none.
    """

    op: int
    label: str
    lane: int
    begin: int
    end: int
    is_open: bool
    through: int
    is_minimal: bool


class Point(msgspec.Struct, frozen=True):
    """The position of an operation in an order. `text`: the state after it, "" if it is refused."""

    op: int
    x: float
    text: str


class Line(msgspec.Struct, frozen=True):
    """A partial order, drawn."""

    points: tuple[Point, ...]
    refused: tuple[Point, ...]


class Shade(msgspec.Struct, frozen=True):
    """A fault in the background of the lanes, in slots."""

    begin: float
    end: float
    kind: str
    text: str


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes in lanes. `slots` is the width; `lanes` names the processes of each lane."""

    slots: int
    lanes: tuple[str, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    shades: tuple[Shade, ...]


class Illegal(msgspec.Struct, frozen=True, kw_only=True):
    """A key's history: the operations that cannot be ordered `alone`, and `among` the other operations on the key at that time,
    if there are any. `others` counts all of those, `others_drawn` those in the picture.
    """

    key: str
    text: str
    initial: str
    alone: Picture
    among: Picture | None
    others: int
    others_drawn: int


def illegal(found: IllegalHistory, history: History, strikes: Sequence[Strike] = (), drawn_max: int = DRAWN) -> Illegal:
    """Draw an illegal history. The evidence must be of this history."""
    ops = [history[index] for index in found.picture.ops]
    begin_ns, end_ns = min(op.invoked_ns for op in ops), max(op.ended_ns for op in ops)
    named = frozenset(found.picture.ops)
    others = [
        op
        for op in history
        if op.key == found.key and op.index not in named and op.invoked_ns <= end_ns and op.ended_ns >= begin_ns
    ]
    drawn = others[: max(drawn_max - len(ops), 0)]
    among = sorted([*ops, *drawn], key=lambda op: op.index)
    return Illegal(
        key=found.key,
        text=found.text,
        initial=found.initial,
        alone=picture(ops, found.picture, strikes),
        among=picture(among, found.picture, strikes) if drawn else None,
        others=len(others),
        others_drawn=len(drawn),
    )


def picture(ops: Sequence[Op], orders: Orders, strikes: Sequence[Strike]) -> Picture:
    """Draw the operations by invocation, with the lines of the orders."""
    moments = sorted({_call(op) for op in ops} | {_return(op) for op in ops if op.returned_ns is not None})
    slot = {moment: place for place, moment in enumerate(moments)}
    end = {op.index: len(moments) if op.returned_ns is None else slot[_return(op)] for op in ops}
    rows = _rows((op.index, op.process, slot[_call(op)], end[op.index]) for op in ops)
    lanes = process_lanes((rows[op.index], slot[_call(op)], end[op.index]) for op in ops)
    names: list[list[str]] = [[] for _ in range(max(lanes.values(), default=-1) + 1)]
    for (process, _), lane in lanes.items():
        names[lane].append(str(process))
    minimal = frozenset(orders.ops)
    boxes = {
        op.index: Box(
            op=op.index,
            label=operation(op, LABEL, key=False),
            lane=lanes[rows[op.index]],
            begin=slot[_call(op)],
            end=end[op.index],
            is_open=op.returned_ns is None,
            through=orders.longest.get(op.index, -1),
            is_minimal=op.index in minimal,
        )
        for op in ops
    }
    return Picture(
        slots=len(moments) + 1,
        lanes=tuple(", ".join(processes) for processes in names),
        boxes=tuple(boxes.values()),
        lines=tuple(_line(partial, boxes) for partial in orders.partials),
        shades=tuple(_shades(strikes, [moment_ns for moment_ns, _ in moments])),
    )


def _rows(spans: Iterable[tuple[int, int, int, int]]) -> dict[int, tuple[int, int]]:
    """Return, for each (operation, process, begin, end), its process and a row in which nothing overlaps: a process may begin an
    operation at the very time of its last return.
    """
    rows: dict[int, tuple[int, int]] = {}
    ends: dict[tuple[int, int], int] = {}
    for op, process, begin, end in spans:
        row = next(row for row in count() if ends.get((process, row), begin) <= begin)
        rows[op], ends[process, row] = (process, row), end
    return rows


def _call(op: Op) -> tuple[int, bool]:
    """At equal times calls come before returns: then operations overlap, as checkers see it."""
    return op.invoked_ns, False


def _return(op: Op) -> tuple[int, bool]:
    return op.ended_ns, True


def _shades(strikes: Sequence[Strike], moments: Sequence[int]) -> Iterator[Shade]:
    for strike in strikes:
        begin = _place(strike.begin_ns, moments)
        end = float(len(moments)) if strike.end_ns is None else _place(strike.end_ns, moments)
        if not strike.error and begin < len(moments) and end > 0:
            yield Shade(begin, end, strike.kind, text_of(strike))


def _place(moment_ns: int, moments: Sequence[int]) -> float:
    """Return the position of a time among the slots: between two slots in proportion to the time."""
    after = bisect_right(moments, moment_ns)
    if after in (0, len(moments)):
        return float(after)
    before_ns = moments[after - 1]
    return after - 1 + (moment_ns - before_ns) / (moments[after] - before_ns)


def _line(partial: Partial, boxes: Mapping[int, Box]) -> Line:
    slots: list[int] = []
    for op in partial.order:
        slots.append(max(boxes[op].begin, slots[-1] if slots else 0))
    last = slots[-1] if slots else 0
    sharing, before = Counter(slots), Counter[int]()
    points: list[Point] = []
    for op, slot, state in zip(partial.order, slots, partial.states, strict=True):
        before[slot] += 1
        points.append(Point(op, slot + before[slot] / (sharing[slot] + 1), state))
    return Line(tuple(points), tuple(Point(op, _behind(points, max(boxes[op].begin, last)), "") for op in partial.refused))


def _behind(points: Sequence[Point], slot: int) -> float:
    """Return the middle of the free part of a slot."""
    taken = points[-1].x if points and points[-1].x > slot else float(slot)
    return (taken + slot + 1) / 2


class Corner(msgspec.Struct, frozen=True):
    """An operation of a cycle at its position on the circle."""

    op: int
    x: float
    y: float


class Arc(msgspec.Struct, frozen=True):
    """An edge between corners: an SVG path and the position of its label."""

    kind: str
    path: str
    x: float
    y: float


class Ring(msgspec.Struct, frozen=True):
    """A cycle, drawn."""

    corners: tuple[Corner, ...]
    arcs: tuple[Arc, ...]


def ring(cycle: Cycle, radius: float = RADIUS) -> Ring:
    """Draw a cycle: operations at equal distances, clockwise from the top, with edges that bulge outwards."""
    count = len(cycle.edges)
    gap = 30 / radius / math.tau  # in turns: arrows end before the circle of their target
    large = int(1 / count - 2 * gap > 0.5)
    corners, arcs = [], []
    for place, edge in enumerate(cycle.edges):
        corners.append(Corner(edge.source, *_at(radius, place / count)))
        begin, end = _at(radius, place / count + gap), _at(radius, (place + 1) / count - gap)
        path = f"M{begin[0]:g},{begin[1]:g} A{radius:g},{radius:g} 0 {large} 1 {end[0]:g},{end[1]:g}"
        arcs.append(Arc(edge.kind, path, *_at(radius, (place + 0.5) / count)))
    return Ring(tuple(corners), tuple(arcs))


def _at(radius: float, turn: float) -> tuple[float, float]:
    return round(radius * math.sin(turn * math.tau), 1), round(-radius * math.cos(turn * math.tau), 1)
