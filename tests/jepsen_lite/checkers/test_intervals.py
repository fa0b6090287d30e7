"""Checkers of sets and blocks: arithmetic on intervals accepts every possible history and refuses impossible ones."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_lite.checkers.blocks import Blocks
from jepsen_lite.checkers.set_full import SetFull
from jepsen_lite.history import History, Op
from jepsen_lite.verdicts import UNKNOWN
from jepsen_lite.workload import Checker, Options, Run

Numbered = Callable[[int], Op]


def call(f: str, invoked_ns: int, ended_ns: int, value: object = None, result: object = None, **fields: object) -> Numbered:
    def numbered(index: int) -> Op:
        others = {"outcome": "ok", "process": index, **fields}
        return Op(index=index, f=f, value=value, result=result, invoked_ns=invoked_ns, ended_ns=ended_ns, **others)  # type: ignore[arg-type]

    return numbered


def run_of(*calls: Numbered) -> Run:
    return Run(options=Options(), history=History(numbered(index) for index, numbered in enumerate(calls)))


def add(value: object, invoked_ns: int, ended_ns: int, **fields: object) -> Numbered:
    return call("add", invoked_ns, ended_ns, value, **fields)


def get(invoked_ns: int, ended_ns: int, *shown: object, **fields: object) -> Numbered:
    return call("get", invoked_ns, ended_ns, None, list(shown), **fields)


def block(start: int, length: int, invoked_ns: int, ended_ns: int, **fields: object) -> Numbered:
    return call("allocate", invoked_ns, ended_ns, None, [start, length], **fields)


GOOD: dict[str, tuple[Checker, list[Numbered]]] = {
    "an element is seen": (SetFull(), [add(1, 0, 1), get(2, 3, 1)]),
    "an element that overlaps a read may be missed": (SetFull(), [add(1, 0, 5), get(2, 3), get(6, 7, 1)]),
    "an addition of unknown outcome may show": (SetFull(), [add(1, 0, 5, outcome="info"), get(2, 3), get(6, 7, 1)]),
    "or not": (SetFull(), [add(1, 0, 5, outcome="info"), add(2, 0, 1), get(2, 3, 2)]),
    "blocks": (Blocks(), [block(0, 10, 0, 5), block(20, 10, 1, 2), block(10, 10, 3, 4)][:2]),
    "overlapping calls get blocks in either order": (Blocks(), [block(10, 10, 0, 5), block(0, 10, 1, 6)]),
    "a retry is given its block again": (Blocks(), [block(0, 9, 0, 1, request_id="a:1"), block(0, 9, 5, 6, request_id="a:1")]),
    "a block of an unanswered attempt": (
        Blocks(),
        [
            call("allocate", 0, 1, outcome="info", request_id="a:1"),
            block(9, 9, 2, 3, request_id="a:2"),
            block(0, 9, 5, 6, request_id="a:1"),
        ],
    ),
}
BAD: dict[str, tuple[Checker, list[Numbered], str, int]] = {
    "lost": (SetFull(), [add(1, 0, 1), get(2, 3, 1), get(4, 5)], "lost", 1),
    "lost before anybody saw it": (SetFull(), [add(1, 0, 1), add(2, 0, 1), get(4, 5, 2)], "lost", 1),
    "lost though never acknowledged, for it was seen": (
        SetFull(),
        [add(1, 0, 1, outcome="info"), get(2, 3, 1), get(4, 5)],
        "lost",
        1,
    ),
    "stale": (SetFull(), [add(1, 0, 1), get(2, 3), get(4, 5, 1)], "stale", 0),
    "unexpected": (SetFull(), [add(1, 0, 1), get(2, 3, 1, 9)], "unexpected", 0),
    "failed and yet there": (SetFull(), [add(1, 0, 1, outcome="fail"), add(2, 0, 1), get(2, 3, 1, 2)], "unexpected", 0),
    "seen too early": (SetFull(), [get(0, 1, 1), add(1, 2, 3), get(4, 5, 1)], "from the future", 0),
    "shown twice": (SetFull(), [add(1, 0, 1), get(2, 3, 1, 1)], "shown twice", 0),
    "a block twice": (Blocks(), [block(0, 10, 0, 5), block(0, 10, 0, 5)], "overlap", 0),
    "a block within a wide one": (Blocks(), [block(0, 90, 0, 9), block(10, 5, 0, 9), block(50, 5, 0, 9)], "overlap", 0),
    "blocks going down": (Blocks(), [block(10, 10, 0, 1), block(0, 10, 2, 3)], "order", 0),
    "a block below that of an earlier attempt of its request": (
        Blocks(),
        [block(6, 2, 0, 9, request_id="a:1"), block(6, 2, 1, 3, request_id="a:1"), block(0, 2, 5, 6)],
        "order",
        0,
    ),
    "a retry with another block": (
        Blocks(),
        [block(0, 9, 0, 1, request_id="a:1"), block(9, 9, 5, 6, request_id="a:1")],
        "another answer",
        0,
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    checker, calls = GOOD[name]
    verdict = checker.check(run_of(*calls))
    assert verdict.valid is True, verdict.reason
    assert verdict.details["checked"] >= 1


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    checker, calls, kind, lost = BAD[name]
    verdict = checker.check(run_of(*calls))
    assert verdict.valid is False
    assert kind in verdict.details["violations"]
    assert verdict.lost == lost
    assert verdict.ops


@pytest.mark.parametrize("checker", [SetFull(), Blocks()])
def test_an_empty_history_proves_nothing(checker: Checker) -> None:
    assert checker.check(run_of()).valid == UNKNOWN


def test_elements_that_no_read_could_show_prove_nothing() -> None:
    verdict = SetFull().check(run_of(get(0, 1), add(1, 2, 3)))
    assert verdict.valid == UNKNOWN
    assert verdict.details["never_read"] == 1


def test_the_time_until_an_element_stays_is_reported() -> None:
    verdict = SetFull().check(run_of(add(1, 0, 1_000_000), get(3_000_000, 4_000_000), get(6_000_000, 7_000_000, 1)))
    assert verdict.details["stale"] == 1
    assert verdict.details["stable_latency_ms"]["max"] == 2.0


def simulated(seed: int, steps: int, lose: bool = False) -> list[Numbered]:
    """Return a history of clients of a set and a counter, with real overlap, lost answers and refusals; `lose` omits one added
    value.
    """
    chance = random.Random(seed)
    held: list[int] = []
    calls: list[Numbered] = []
    late: list[int] = []
    for step in range(steps):
        at = step * 10
        begun, done = at - chance.randrange(25), at + chance.randrange(1, 25)
        if late and chance.random() < 0.3:
            held.append(late.pop())
        if chance.random() < 0.5:
            outcome = chance.choice(["ok", "ok", "ok", "fail", "info"])
            if outcome == "ok" or (outcome == "info" and chance.random() < 0.5):
                held.append(step)
            elif outcome == "info" and chance.random() < 0.5:
                late.append(step)
            calls.append(add(step, begun, done, outcome=outcome))
        else:
            calls.append(get(begun, done, *held))
    calls.append(get(steps * 10 + 100, steps * 10 + 101, *(held[1:] if lose else held)))
    return calls


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 80))
def test_histories_of_a_set_are_accepted(seed: int, steps: int) -> None:
    verdict = SetFull().check(run_of(*simulated(seed, steps)))
    assert verdict.valid is not False, verdict.reason


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_one_element_that_is_lost_is_seen(seed: int) -> None:
    history = run_of(*simulated(seed, 60, lose=True))
    first = history.history[-1].result
    held = run_of(*simulated(seed, 60)).history[-1].result
    lost = held[0]
    was_seen = any(lost in op.result for op in history.history if op.f == "get")
    acknowledged = any(op.f == "add" and op.value == lost and op.outcome == "ok" for op in history.history)
    verdict = SetFull().check(history)
    assert lost not in first
    assert (verdict.lost == 1) == (was_seen or acknowledged)
