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
BEFORE_LEADER, AFTER_LEADER = 80, 40
LEADERS = 6
"""Elections that are drawn."""
LEADER_FROM_US, LEADER_UNTIL_US = 2_000_000, 500_000
STANDING_FROM_US = 300_000
"""Time before the first node stood for election."""
GUTTER, LANE, ROW, TOP, RIGHT = 92, 190, 20, 0, 60
LABEL = 29
"""Characters that fit between two lanes."""
OPERATION, FAULT = "operation", "fault"
STANDING = ("prospective", "candidate", "resigned")
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
    """One moment, drawn. `lanes` are (x, name), `times` in the margin (y, µs). The diagram shows `shown` of `total` events."""

    title: str
    is_of_violation: bool
    lanes: tuple[tuple[int, str], ...]
    times: tuple[tuple[int, int], ...]
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
    diagrams += [election(leader, events, names, struck=struck) for leader in chosen]
    return SpaceTime(tuple(diagrams), has_both_ends, len(elected))


def _chosen(elected: Sequence[Event], violation_us: int | None) -> Sequence[Event]:
    if violation_us is not None:
        return [each for each in elected if each.at_us <= violation_us][-LEADERS:]
    return ([each for each in elected if each.at_us >= 0] or elected)[:LEADERS]


def election(
    leader: Event, events: Sequence[Event], names: dict[int, str], *, struck: Sequence[Event] = (), lanes: Iterable[int] = ()
) -> Diagram:
    """Draw the messages that made a node the leader, and those between controllers until its first records were committed.
    `lanes` are nodes that have a lane in any case.
    """
    begin_us, end_us = _begin_us(leader, events), leader.at_us + LEADER_UNTIL_US
    around = [each for each in events if begin_us <= each.at_us <= end_us]
    own = [each for each in around if each.epoch == leader.epoch and each.at_us >= leader.at_us]
    first = next((each for each in own if each.kind == COMMIT and each.node == leader.node), None)
    until_us = leader.at_us if first is None else first.at_us
    copied = [each for each in own if each.at_us <= until_us and each.message.startswith("Fetch") and _is_of_voters(each, names)]
    shown = {id(each) for each in (first, *copied)}
    near = [each for each in around if each.is_of_an_election or id(each) in shown]
    place = next(place for place, each in enumerate(near) if each is leader)
    drawn = near[max(place - BEFORE_LEADER, 0) : place + 1 + AFTER_LEADER]
    extra = [row for row in struck if drawn[0].at_us <= row.at_us <= drawn[-1].at_us]
    who = names.get(leader.node, f"node {leader.node}")
    title = f"{who} leads epoch {leader.epoch} at {leader.at_us / 1e6:.3f} s"
    return _diagram(title, drawn, extra, names, len(near), drawn[-1].at_us + LEADER_UNTIL_US, lanes=lanes)


def _begin_us(leader: Event, events: Sequence[Event]) -> int:
    """Return where the diagram of an election begins: a little before a node stood for it, or a leader resigned."""
    begin_us, stood_us = leader.at_us - LEADER_FROM_US, None
    for each in events:
        if each.kind == STATE and begin_us <= each.at_us < leader.at_us:
            if each.state == LEADER:
                stood_us = None
            elif each.state in STANDING and stood_us is None:
                stood_us = each.at_us
    return begin_us if stood_us is None else max(begin_us, stood_us - STANDING_FROM_US)


def _is_of_voters(each: Event, names: dict[int, str]) -> bool:
    return all(names.get(node, CONTROLLER).startswith(CONTROLLER) for node in (each.node, each.peer, each.target))


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
    lanes: Iterable[int] = (),
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
    found = {node for each in rows for node in (each.node, each.peer, each.target) if node >= 0} | set(lanes)
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
        times=tuple((y_of[place, is_arrival], at_us) for at_us, is_arrival, place in _without_repeats(moments)),
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
