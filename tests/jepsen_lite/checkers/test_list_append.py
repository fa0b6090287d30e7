"""Transactions over lists: cycles of dependencies are found, named and explained, and nothing else is reported."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_lite.checkers import dependencies
from jepsen_lite.checkers.dependencies import REALTIME, RW, WR, WW, Graph
from jepsen_lite.checkers.list_append import ListAppend
from jepsen_lite.history import History, Op
from jepsen_lite.verdicts import UNKNOWN
from jepsen_lite.workload import Options, Run


def txn(index: int, invoked_ns: int, ended_ns: int, *steps: str, outcome: str = "ok") -> Op:
    """Parse steps: "x+1" appends 1 to x; "x=1,2" reads [1, 2] of x; "x=" reads an empty list."""
    asked: list[list[object]] = []
    answered: list[list[object]] = []
    for step in steps:
        if "+" in step:
            key, value = step.split("+")
            asked.append(["append", key, int(value)])
            answered.append(["append", key, int(value)])
        else:
            key, shown = step.split("=")
            asked.append(["r", key, None])
            answered.append(["r", key, [int(value) for value in shown.split(",") if value]])
    return Op(
        index=index,
        process=index,
        f="txn",
        value=asked,
        result=answered if outcome == "ok" else None,
        outcome=outcome,  # type: ignore[arg-type]
        invoked_ns=invoked_ns,
        ended_ns=ended_ns,
    )


def history(*rows: tuple[object, ...]) -> Run:
    """Return a history of rows (invoked, ended, step, …), with "fail" or "info" in place of a step."""
    ops = []
    for index, (invoked, ended, *steps) in enumerate(rows):
        outcome = next((step for step in steps if step in ("fail", "info")), "ok")
        ops.append(txn(index, invoked, ended, *(step for step in steps if step != outcome), outcome=outcome))  # type: ignore[arg-type]
    return Run(options=Options(), history=History(ops))


GOOD = {
    "one after the other": history((0, 1, "x+1"), (2, 3, "x=1", "y+2"), (4, 5, "x=1", "y=2")),
    "overlapping in any order": history((0, 9, "x+1", "y+1"), (0, 9, "x+2", "y+2"), (10, 11, "x=2,1", "y=2,1")),
    "unknown and seen": history((0, 1, "x+1", "info"), (2, 3, "x="), (9, 10, "x=1")),
    "unknown and never seen": history((0, 1, "x+1", "info"), (2, 3, "x="), (9, 10, "x=")),
    "unknown, and seen in one list before the other": history((0, 1, "x+1", "y+1", "info"), (0, 9, "y="), (2, 3, "x=1")),
    "failed and not seen": history((0, 1, "x+1", "fail"), (2, 3, "x=")),
    "it reads what it then appends to": history((0, 1, "x=", "x+1")),
    "two do so": history((0, 9, "x+1"), (10, 11, "x=1", "x+2"), (12, 13, "y=")),
    "its own appends are seen": history((0, 1, "x+1", "x=1", "x+2", "x=1,2"), (2, 3, "x=1,2")),
}
BAD = {
    "lost": (history((0, 1, "x+1"), (2, 3, "x=")), "G-single-realtime"),
    "lost after others": (history((0, 1, "x+1"), (2, 3, "x+2"), (4, 5, "x=1")), "G-single-realtime"),
    "lost, and appended to by a reader that did not see it": (history((0, 1, "x+1"), (2, 3, "x=", "x+2")), "G-single-realtime"),
    "stale": (history((0, 1, "x+1"), (2, 3, "x="), (4, 5, "x=1")), "G-single-realtime"),
    "writes in two orders": (history((0, 9, "x+1", "y+1"), (0, 9, "x+2", "y+2"), (10, 11, "x=1,2", "y=2,1")), "G0"),
    "writes against time": (history((0, 1, "x+1"), (2, 3, "x+2"), (4, 5, "x=2,1")), "G0-realtime"),
    "seeing each other": (history((0, 9, "x+1", "y=2"), (0, 9, "y+2", "x=1"), (10, 11, "x=1", "y=2")), "G1c"),
    "half of another": (history((0, 9, "x+1", "y+1"), (0, 9, "x=1", "y="), (10, 11, "x=1", "y=1")), "G-single"),
    "half of an unknown transaction": (history((0, 1, "x+1", "y+1", "info"), (2, 3, "x=1", "y=")), "G-single"),
    "never the other half of an unknown transaction": (
        history((0, 1, "x+1", "y+1", "info"), (2, 3, "x=1"), (4, 5, "y=")),
        "G-single-realtime",
    ),
    "write skew": (history((0, 9, "x=", "y+1"), (0, 9, "y=", "x+2"), (10, 11, "x=2", "y=1")), "G2"),
    "aborted read": (history((0, 1, "x+1", "fail"), (2, 3, "x=1")), "G1a"),
    "intermediate read": (history((0, 9, "x+1", "x+2"), (0, 9, "x=1"), (10, 11, "x=1,2")), "G1b"),
    "two orders of one list": (history((0, 9, "x+1"), (0, 9, "x+2"), (0, 9, "x=1,2"), (0, 9, "x=2,1")), "incompatible order"),
    "a value from nowhere": (
        history(
            (0, 1, "x=7"),
        ),
        "unexpected",
    ),
    "a value twice": (history((0, 1, "x+1"), (2, 3, "x=1,1")), "appended twice"),
    "not its own append": (history((0, 9, "x+1", "x="), (0, 9, "x=1")), "internal"),
    "two reads of one transaction": (history((0, 9, "x=", "x=1"), (0, 9, "x+1")), "internal"),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    verdict = ListAppend().check(GOOD[name])
    assert verdict.valid is True, verdict.reason


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    run, kind = BAD[name]
    verdict = ListAppend().check(run)
    assert verdict.valid is False
    assert kind in verdict.details["violations"]


def test_a_cycle_is_explained_edge_by_edge() -> None:
    run, _ = BAD["half of another"]
    (cycle,) = ListAppend().check(run).details["cycles"]
    assert cycle["name"] == "G-single"
    assert [(edge["from"], edge["to"], edge["kind"]) for edge in cycle["edges"]] == [(1, 0, "rw"), (0, 1, "wr")]
    assert [edge["why"] for edge in cycle["edges"]] == [
        "1 read y without 1, which 0 appended",
        "1 read x up to 1, which 0 appended",
    ]


def test_transactions_that_read_nothing_prove_nothing() -> None:
    assert ListAppend().check(history()).valid == UNKNOWN
    assert ListAppend().check(history((0, 1, "x+1"))).valid == UNKNOWN


def in_some_order(ops: list[Op]) -> bool:
    """Return True if the definition holds: there is an order of all transactions that respects real time, in which every read
    returns the earlier appends.
    """
    for order in permutations(ops):
        if any(late.ended_ns < early.invoked_ns for at, early in enumerate(order) for late in order[at + 1 :]):
            continue
        lists: dict[str, list[int]] = {}
        fits = True
        for op in order:
            for name, key, value in op.result:
                if name == "append":
                    lists.setdefault(key, []).append(value)
                elif lists.get(key, []) != value:
                    fits = False
        if fits:
            return True
    return False


@st.composite
def small_histories(draw: st.DrawFn) -> list[Op]:
    """Draw a few transactions over two keys, and a last one that reads both in full."""
    appended: dict[str, list[int]] = {"x": [], "y": []}
    rows: list[tuple[int, int, list[str]]] = []
    value = 0
    for _ in range(draw(st.integers(1, 4))):
        invoked = draw(st.integers(0, 8))
        steps: list[str] = []
        for key in draw(st.lists(st.sampled_from("xy"), min_size=1, max_size=2, unique=True)):
            if draw(st.booleans()):
                value += 1
                appended[key].append(value)
                steps.append(f"{key}+{value}")
            else:
                steps.append(f"{key}?")
        rows.append((invoked, invoked + draw(st.integers(1, 5)), steps))
    orders = {key: draw(st.permutations(values)) for key, values in appended.items()}

    def filled(step: str) -> str:
        if "?" not in step:
            return step
        order = orders[step[0]]
        return f"{step[0]}=" + ",".join(map(str, order[: draw(st.integers(0, len(order)))]))

    ops = [txn(index, begun, done, *map(filled, steps)) for index, (begun, done, steps) in enumerate(rows)]
    return [*ops, txn(len(ops), 99, 100, *(f"{key}=" + ",".join(map(str, order)) for key, order in orders.items()))]


@settings(max_examples=150, deadline=None)
@given(small_histories())
def test_it_agrees_with_trying_all_orders(ops: list[Op]) -> None:
    verdict = ListAppend().check(Run(options=Options(), history=History(ops)))
    assert verdict.valid is in_some_order(ops), verdict.reason


# -- circles of graphs -------------------------------------------------------------------------------------------------


def test_a_long_way_between_two_circles_hides_neither() -> None:
    graph = Graph(1004)
    for source, target in [(1000, 1001), (1001, 1000), (1001, 0), *((n, n + 1) for n in range(400)), (400, 1002)]:
        graph.add(source, target, WW)
    graph.add(1002, 1003, WW)
    graph.add(1003, 1002, WW)
    (cycle,) = graph.cycles()
    assert (cycle.name, {edge.source for edge in cycle.edges}) == ("G0", {1000, 1001})


places = st.integers(0, 11)
kinds = st.sampled_from([WW, WR, RW, REALTIME])


@given(st.lists(st.tuples(places, places, kinds), max_size=30))
def test_there_is_a_circle_if_following_edges_leads_back(drawn: list[tuple[int, int, int]]) -> None:
    edges = {edge for edge in drawn if edge[0] < edge[1] or (edge[2] != REALTIME and edge[0] != edge[1])}
    graph, reached = Graph(12), {(source, target) for source, target, _ in edges}
    for edge in edges:
        graph.add(*edge)
    for between in range(12):
        reached |= {(a, d) for a, b in reached for c, d in reached if b == c == between}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependencies, "STARTS_MAX", 1)
        assert bool(graph.cycles()) == any(a == b for a, b in reached)
