"""Space-time diagrams: a lane per node, time downwards, around the moments that matter.

Pure. Time is compressed: every recorded event has a row of its own, so nothing overlaps and the order is readable; the time is in
the margin. A diagram shows the events from `messages.py`, with faults that began or ended meanwhile and operations that the
verdict names, and nothing invented. A moment is either a violation with all events before it, or the election of a leader with
its messages. Reports of jepsen-lite have diagrams of a run; the console has one election.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kraftlab.checking.facts import Strike

from .lanes import text_of
from .messages import AGAIN, COMMIT, LEADER, SENT, STATE, Event

BEFORE_VIOLATION = 200
"""Events in the diagram of a violation."""
BEFORE_LEADER, AFTER_LEADER = 40, 14
LEADERS = 6
"""Elections that are drawn."""
LEADER_FROM_US, LEADER_UNTIL_US = 2_000_000, 500_000
GUTTER, LANE, ROW, TOP, RIGHT = 92, 190, 20, 0, 60
LABEL = 29
"""Characters that fit between two lanes."""
OPERATION, FAULT = "operation", "fault"
CONTROLLER = "controller"
"""Nodes with this prefix, and nodes without a name, are on the left."""


class Mark(msgspec.Struct, frozen=True):
    """A text at a position; `look` is "state", "leader", "commit", "boot", "again", "fault" or "operation". The last two span the
    diagram.
    """

    x: int
    y: int
    text: str
    whole: str
    look: str
    has_arrow: bool = False
    """An arrow ends at the mark, so the text has to be above it."""


class Arrow(msgspec.Struct, frozen=True):
    """A message from (x1, y1) to (x2, y2). `look` is "sent", "later" (it arrives after the diagram), "lost" (no arrival is
    recorded) or "inferred" (from the node that a log names; only its end is known).
    """

    x1: int
    y1: int
    x2: int
    y2: int
    text: str
    whole: str
    look: str


class Diagram(msgspec.Struct, frozen=True, kw_only=True):
    """One moment, drawn. `lanes` are names with their x, `times` the times in the margin with their y. The diagram shows `shown`
    of `total` events.
    """

    title: str
    is_of_violation: bool
    lanes: tuple[tuple[int, str], ...]
    times: tuple[tuple[int, str], ...]
    marks: tuple[Mark, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int
    shown: int
    total: int


class SpaceTime(msgspec.Struct, frozen=True):
    """The diagrams of a run. `has_both_ends`: they come from a trace. `leaders`: the number of elections."""

    diagrams: tuple[Diagram, ...]
    has_both_ends: bool
    leaders: int


def space_time(
    events: Sequence[Event],
    names: dict[int, str],
    *,
    has_both_ends: bool,
    violation_us: int | None = None,
    operations: Iterable[Event] = (),
    strikes: Iterable[Strike] = (),
) -> SpaceTime:
    """Draw the violation, if there is one, then elections: the last ones before a violation, or the first ones since the clients
    began.
    """
    struck = _faults(strikes)
    diagrams = []
    if violation_us is not None:
        before = [each for each in events if each.at_us <= violation_us]
        if before:
            drawn = before[-BEFORE_VIOLATION:]
            extra = [row for row in (*struck, *operations) if drawn[0].at_us <= row.at_us <= violation_us]
            diagrams.append(
                _diagram(
                    f"Before the violation at {violation_us / 1e6:.3f} s", drawn, extra, names, len(before), violation_us, True
                )
            )
    elected = [each for each in events if each.kind == STATE and each.state == LEADER]
    chosen = _chosen(elected, violation_us)
    diagrams += [_election(leader, events, struck, names) for leader in chosen]
    return SpaceTime(tuple(diagrams), has_both_ends, len(elected))


def _chosen(elected: Sequence[Event], violation_us: int | None) -> Sequence[Event]:
    if violation_us is not None:
        return [each for each in elected if each.at_us <= violation_us][-LEADERS:]
    return ([each for each in elected if each.at_us >= 0] or elected)[:LEADERS]


def _election(leader: Event, events: Sequence[Event], struck: Sequence[Event], names: dict[int, str]) -> Diagram:
    near = [each for each in events if each.is_of_an_election and -LEADER_FROM_US <= each.at_us - leader.at_us <= LEADER_UNTIL_US]
    place = next(place for place, each in enumerate(near) if each is leader)
    drawn = near[max(place - BEFORE_LEADER, 0) : place + 1 + AFTER_LEADER]
    extra = [row for row in struck if drawn[0].at_us <= row.at_us <= drawn[-1].at_us]
    who = names.get(leader.node, f"node {leader.node}")
    title = f"{who} leads epoch {leader.epoch} at {leader.at_us / 1e6:.3f} s"
    return _diagram(title, drawn, extra, names, len(near), drawn[-1].at_us + LEADER_UNTIL_US)


def _faults(strikes: Iterable[Strike]) -> list[Event]:
    rows = []
    for strike in strikes:
        if not strike.error:
            text = text_of(strike)
            rows.append(Event(at_us=strike.begin_ns // 1000, node=-1, kind=FAULT, text=text))
            if strike.end_ns is not None and strike.end_ns > strike.begin_ns:
                rows.append(Event(at_us=strike.end_ns // 1000, node=-1, kind=FAULT, text=f"over: {text}"))
    return rows


def _diagram(
    title: str,
    drawn: Sequence[Event],
    extra: Iterable[Event],
    names: dict[int, str],
    total: int,
    until_us: int,
    is_of_violation: bool = False,
) -> Diagram:
    """Draw a row for each event and for each arrival until `until_us`, by time. At equal times the earlier event comes first."""
    rows = sorted([*drawn, *extra], key=lambda each: each.at_us)
    moments = [(each.at_us, 0, place) for place, each in enumerate(rows)]
    moments += [
        (each.arrived_us, 1, place)
        for place, each in enumerate(rows)
        if each.arrived_us is not None and each.arrived_us <= until_us
    ]
    moments.sort()
    y_of = {(place, is_arrival): TOP + ROW * (number + 1) for number, (_, is_arrival, place) in enumerate(moments)}
    found = {node for each in rows for node in (each.node, each.peer, each.target) if node >= 0}
    nodes = sorted(found, key=lambda node: (not names.get(node, CONTROLLER).startswith(CONTROLLER), node))
    x_of = {node: GUTTER + 20 + LANE * place for place, node in enumerate(nodes)}
    marks: list[Mark] = []
    arrows: list[Arrow] = []
    for place, each in enumerate(rows):
        y = y_of[place, 0]
        if each.kind == SENT:
            arrows.append(_arrow(each, x_of, y, y_of.get((place, 1))))
            continue
        if each.kind == STATE and each.peer >= 0:
            arrows.append(
                Arrow(x_of[each.peer], y, x_of[each.node], y, "", f"the log of node {each.node} names {each.peer}", "inferred")
            )
        marks.append(_mark(each, x_of, y))
    return Diagram(
        title=title,
        is_of_violation=is_of_violation,
        lanes=tuple((x_of[node], names.get(node, f"node {node}")) for node in nodes),
        times=tuple((y_of[place, is_arrival], f"{at_us / 1e6:.4f} s") for at_us, is_arrival, place in _without_repeats(moments)),
        marks=tuple(marks),
        arrows=tuple(arrows),
        width=GUTTER + 20 + LANE * max(len(nodes), 1) + RIGHT,
        height=TOP + ROW * (len(moments) + 1),
        shown=len(drawn),
        total=total,
    )


def _without_repeats(moments: Sequence[tuple[int, int, int]]) -> Iterable[tuple[int, int, int]]:
    """Return the moments whose time differs from the row above."""
    return [moment for place, moment in enumerate(moments) if place == 0 or moments[place - 1][0] != moment[0]]


def _arrow(each: Event, x_of: dict[int, int], y: int, arrives_y: int | None) -> Arrow:
    target = each.target if each.target >= 0 else each.peer
    to = "any node" if target < 0 else f"node {target}"
    x = x_of[each.node]
    if arrives_y is None:
        stub = 46 if target < 0 or x_of[target] >= x else -46
        look, came = ("lost", "no record of its arrival") if each.arrived_us is None else ("later", "arrives later")
        return Arrow(x, y, x + stub, y + 12, _cut(each.text, LABEL), f"node {each.node} to {to}: {each.text}; {came}", look)
    assert each.arrived_us is not None
    whole = f"node {each.node} to {to}: {each.text}; {(each.arrived_us - each.at_us) / 1000:.1f} ms in transit"
    return Arrow(x, y, x_of[target], arrives_y, _cut(each.text, LABEL), whole, "sent")


def _mark(each: Event, x_of: dict[int, int], y: int) -> Mark:
    if each.kind in (FAULT, OPERATION):
        return Mark(GUTTER, y, _cut(each.text, 90), each.text, each.kind)
    look = LEADER if each.kind == STATE and each.state == LEADER else each.kind
    text = f"again from {each.peer}: {each.text}" if each.kind == AGAIN else each.text
    return Mark(
        x_of[each.node],
        y,
        _cut(text, LABEL + (6 if each.kind == COMMIT else 0)),
        f"node {each.node}: {text}",
        look,
        each.peer >= 0 and each.kind == STATE,
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
