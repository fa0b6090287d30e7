"""The linearizability checker against histories of a real register whose verdicts are known from elsewhere (etcd/README.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jepsen_lite.checkers import just_in_time
from jepsen_lite.checkers.linearizable import STEPS_MAX, Linearizable
from jepsen_lite.history import FAIL, INFO, OK, History, Op, Outcome
from jepsen_lite.models.model import Operation
from jepsen_lite.models.register import Register
from jepsen_lite.workload import Options, Run

FILE = Path(__file__).parent / "etcd" / "histories.txt"
EVENT = re.compile(r"(\d+)([rwc=+?-])(\w*)")
OTHER_VALUE = "COMPARE_FAILED"
MODEL = Register(frozenset({OTHER_VALUE}))
ONLY = Linearizable(lambda key: MODEL)


class Asked(NamedTuple):
    index: int
    at: int
    f: str
    value: Any


def ops(events: str) -> Iterator[Op]:
    """A history's operations; the times are the places of the events."""
    open_calls: dict[int, Asked] = {}
    index = 0
    for at, event in enumerate(events.split()):
        process_text, kind, rest = EVENT.fullmatch(event).groups()  # type: ignore[union-attr]
        process = int(process_text)
        if kind in "rwc":
            f = {"r": "get", "w": "set", "c": "cas"}[kind]
            value = [int(digit) for digit in rest] if kind == "c" else int(rest) if rest else None
            assert process not in open_calls
            open_calls[process] = Asked(index, at, f, value)
            index += 1
        else:
            outcome: Outcome = {"=": OK, "+": OK, "-": FAIL, "?": INFO}[kind]
            result = int(rest) if kind == "=" and rest != "nil" else None
            yield ended(process, open_calls.pop(process), at, outcome, result)
    for process, asked in open_calls.items():
        yield ended(process, asked, 1 << 30, INFO, None)


def ended(process: int, asked: Asked, at: int, outcome: Outcome, result: int | None) -> Op:
    return Op(
        index=asked.index,
        process=process,
        f=asked.f,
        key="register",
        value=asked.value,
        outcome=outcome,
        result=result,
        invoked_ns=asked.at,
        ended_ns=at,
        error=OTHER_VALUE if outcome == FAIL else "",
    )


def histories() -> Iterator[tuple[str, bool, History]]:
    for line in FILE.read_text().splitlines():
        number, verdict, events = line.split(" ", 2)
        yield number, verdict == "legal", History(ops(events))


def calls_of(history: History) -> Sequence[Operation]:
    _, calls = ONLY.calls_by_key(history)["register"]
    return calls


def test_all_are_judged_as_porcupine_judges_them() -> None:
    expected = [(number, legal) for number, legal, _ in histories()]

    assert [(number, ONLY.judged("register", calls_of(history)).valid) for number, _, history in histories()] == expected
    assert (len(expected), sum(legal for _, legal in expected)) == (102, 23)


def test_the_search_by_returns_alone_decides_all_of_them() -> None:
    for number, legal, history in histories():
        assert just_in_time.check(calls_of(history), MODEL, steps_max=STEPS_MAX).legal is legal, number


def test_what_is_kept_of_an_illegal_one_is_illegal_by_itself() -> None:
    history = next(history for _, legal, history in histories() if not legal)
    verdict = ONLY.check(Run(options=Options(), history=history))

    kept = [op for op in history if op.index in verdict.ops]
    assert verdict.valid is False
    assert 1 < len(kept) < len(history) // 4
    assert ONLY.judged("register", calls_of(History(kept))).valid is False
