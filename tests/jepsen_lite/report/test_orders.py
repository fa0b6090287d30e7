"""Positions in pictures of histories without an order, and of cycles."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_lite import evidence
from jepsen_lite.checkers.linearizable import Linearizable
from jepsen_lite.evidence import Cycle, Edge, IllegalHistory, Orders, Partial
from jepsen_lite.history import History, Op
from jepsen_lite.report import orders
from jepsen_lite.workload import Options, Run
from kraftlab.checking.facts import Strike
from kraftlab.checking.models import Register


def _op(index: int, process: int, begin: int, end: int, outcome: str = "ok", key: str = "x") -> Op:
    return Op(index=index, process=process, f="f", key=key, outcome=outcome, invoked_ns=begin, ended_ns=end)  # type: ignore[arg-type]


HISTORY = History(
    [_op(0, 0, 0, 1000), _op(1, 1, 500, 1500), _op(2, 2, 2000, 9000, "info"), _op(3, 0, 5000, 6000), _op(4, 4, 900, 950)]
)
FOUND = IllegalHistory(
    key="x",
    text="cannot be",
    minimal=(0, 1, 2, 3),
    stuck=3,
    picture=Orders((0, 1, 2, 3), (Partial((1, 0, 2), ("a", "b", "c"), (3,)),), {0: 0, 1: 0, 2: 0, 3: -1}),
    initial="nothing",
)


def test_every_moment_has_a_slot_and_boxes_without_return_stay_open() -> None:
    alone = orders.illegal(FOUND, HISTORY).alone
    assert sorted((box.op, box.lane, box.begin, box.end, box.is_open) for box in alone.boxes) == [
        (0, 0, 0, 2, False),
        (1, 1, 1, 3, False),
        (2, 1, 4, 7, True),
        (3, 0, 5, 6, False),
    ]
    assert alone.slots == 8
    assert alone.lanes == ("0", "1, 2")


def test_a_process_that_begins_when_another_returns_has_a_lane_of_its_own() -> None:
    history = History([_op(0, 0, 0, 10), _op(1, 1, 10, 20)])
    shown = Orders((0, 1), (Partial((0,), ("a",), (1,)),), {0: 0, 1: -1})
    found = IllegalHistory(key="x", text="cannot be", minimal=(0, 1), stuck=1, picture=shown)
    assert sorted((box.lane, box.begin, box.end) for box in orders.illegal(found, history).alone.boxes) == [(0, 0, 2), (1, 1, 3)]


def test_a_process_that_calls_at_the_moment_of_its_return_has_two_lanes() -> None:
    history = History([_op(0, 0, 0, 10), _op(1, 0, 10, 20)])
    shown = Orders((0, 1), (Partial((0,), ("a",), (1,)),), {0: 0, 1: -1})
    found = IllegalHistory(key="x", text="cannot be", minimal=(0, 1), stuck=1, picture=shown)
    assert sorted((box.op, box.lane, box.begin, box.end) for box in orders.illegal(found, history).alone.boxes) == [
        (0, 0, 0, 2),
        (1, 1, 1, 3),
    ]


def test_points_divide_a_shared_slot_and_the_refused_comes_last() -> None:
    (line,) = orders.illegal(FOUND, HISTORY).alone.lines
    assert [(point.op, point.x, point.text) for point in line.points] == [
        (1, pytest.approx(1 + 1 / 3), "a"),
        (0, pytest.approx(1 + 2 / 3), "b"),
        (2, 4.5, "c"),
    ]
    assert [(point.op, point.x) for point in line.refused] == [(3, 5.5)]


def test_other_operations_on_the_key_are_shown_as_not_needed() -> None:
    found = orders.illegal(FOUND, HISTORY)
    assert found.among is not None
    assert (found.others, found.others_drawn) == (1, 1)
    assert {box.op: box.is_minimal for box in found.among.boxes} == {0: True, 1: True, 2: True, 3: True, 4: False}
    few = orders.illegal(FOUND, HISTORY, drawn_max=4)
    assert (few.among, few.others, few.others_drawn) == (None, 1, 0)


def test_faults_are_drawn_between_the_slots_around_them() -> None:
    strikes = [
        Strike(kind="kill", begin_ns=1750, end_ns=None),
        Strike(kind="pause", begin_ns=250, end_ns=1250),
        Strike(kind="too early", begin_ns=-5, end_ns=-1),
        Strike(kind="not done", begin_ns=250, end_ns=1250, error="needs root"),
    ]
    shades = orders.illegal(FOUND, HISTORY, strikes).alone.shades
    assert [(shade.kind, shade.begin, shade.end) for shade in shades] == [("kill", 3.5, 7.0), ("pause", 0.5, 2.5)]


def _lying_register(seed: int) -> History:
    """Return a history of three clients of one register whose reads are sometimes old."""
    chance = random.Random(seed)
    free, value, before, ops = [0, 0, 0], 0, 0, []
    for index in range(24):
        process = min(range(3), key=free.__getitem__)
        begin = free[process] + chance.randrange(1, 5)
        end = begin + chance.randrange(1, 9)
        free[process] = end
        f = chance.choice(("set", "get", "get"))
        if f == "set":
            before, value = value, index + 1
        result = None if f == "set" else (before if chance.random() < 0.4 else value) or None
        outcome = "info" if f == "set" and chance.random() < 0.1 else "ok"
        ops.append((begin, process if outcome == "ok" else 100 + index, f, value if f == "set" else None, result, outcome, end))
    return History(
        Op(
            index=index,
            process=process,
            f=f,
            key="x",
            value=asked,
            result=result,
            outcome=outcome,
            invoked_ns=begin,
            ended_ns=end,
        )  # type: ignore[arg-type]
        for index, (begin, process, f, asked, result, outcome, end) in enumerate(sorted(ops))
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_points_of_a_found_order_are_in_their_boxes_from_left_to_right(seed: int) -> None:
    history = _lying_register(seed)
    verdict = Linearizable(lambda key: Register()).check(Run(options=Options(), history=history))
    found = evidence.of(verdict.details).illegal
    assert bool(found) == (verdict.valid is False)
    for each in found:
        drawn = orders.illegal(each, history)
        for picture in filter(None, (drawn.alone, drawn.among)):
            boxes = {box.op: box for box in picture.boxes}
            for line in picture.lines:
                assert all(earlier.x < later.x for earlier, later in zip(line.points, line.points[1:], strict=False))
                for point in (*line.points, *line.refused):
                    assert boxes[point.op].begin < point.x < boxes[point.op].end


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_cycle_is_a_ring_with_an_arc_for_each_edge(count: int) -> None:
    cycle = Cycle("G1c", tuple(Edge(place, (place + 1) % count, "wr", "read it") for place in range(count)))
    ring = orders.ring(cycle)
    assert [corner.op for corner in ring.corners] == list(range(count))
    assert all(math.hypot(corner.x, corner.y) == pytest.approx(orders.RADIUS, abs=0.2) for corner in ring.corners)
    assert len({(corner.x, corner.y) for corner in ring.corners}) == len(ring.arcs) == count
