"""The searches judge histories of a real register as Porcupine judges them (etcd/README.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kraftlab.checking import just_in_time
from kraftlab.checking.calls import NEVER, Operation, RefusedOutput
from kraftlab.checking.contradiction import contradiction
from kraftlab.checking.linearizability import decide
from kraftlab.checking.models import Register

FILE = Path(__file__).parent / "etcd" / "histories.txt"
EVENT = re.compile(r"(\d+)([rwc=+?-])(\w*)")
OTHER_VALUE = "COMPARE_FAILED"
MODEL = Register(frozenset({OTHER_VALUE}))


def calls_of(events: str) -> list[Operation]:
    """The calls of a history. Times are the places of the events. A read without an answer says nothing."""
    open_calls: dict[str, tuple[int, str, Any]] = {}
    calls = []
    for at, event in enumerate(events.split()):
        process, kind, rest = EVENT.fullmatch(event).groups()  # type: ignore[union-attr]
        if kind in "rwc":
            value = tuple(int(digit) for digit in rest) if kind == "c" else int(rest) if rest else None
            assert process not in open_calls
            open_calls[process] = (at, {"r": "get", "w": "set", "c": "cas"}[kind], value)
            continue
        invoked, f, value = open_calls.pop(process)
        result = RefusedOutput(OTHER_VALUE) if kind == "-" else int(rest) if kind == "=" and rest != "nil" else None
        if kind != "?" or f != "get":
            calls.append(Operation("register", invoked, NEVER if kind == "?" else at, (f, value), result))
    calls += [Operation("register", at, NEVER, (f, value)) for at, f, value in open_calls.values() if f != "get"]
    return sorted(calls, key=lambda call: call.invoked)


def histories() -> Iterator[tuple[str, bool, list[Operation]]]:
    for line in FILE.read_text().splitlines():
        number, verdict, events = line.split(" ", 2)
        yield number, verdict == "legal", calls_of(events)


def test_all_are_judged_as_porcupine_judges_them() -> None:
    expected = [(number, legal) for number, legal, _ in histories()]

    assert [(number, decide(calls, MODEL).legal) for number, _, calls in histories()] == expected
    assert (len(expected), sum(legal for _, legal in expected)) == (102, 23)


def test_the_search_by_returns_alone_decides_all_of_them() -> None:
    for number, legal, calls in histories():
        assert just_in_time.check(calls, MODEL, steps_max=2_000_000).legal is legal, number


def test_the_contradiction_in_an_illegal_one_is_illegal_by_itself() -> None:
    calls = next(calls for _, legal, calls in histories() if not legal)
    kept = contradiction(calls, MODEL).calls

    assert 1 < len(kept) < len(calls) // 4
    assert decide(kept, MODEL).legal is False
