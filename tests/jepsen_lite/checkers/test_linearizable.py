"""Operations of clients become calls of a model, and verdicts name the operations that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jepsen_lite.checkers.calls import as_call, frozen
from jepsen_lite.checkers.judgement import judge
from jepsen_lite.checkers.linearizable import Linearizable
from jepsen_lite.checkers.stats import Stats
from jepsen_lite.committed_log import CommittedLog
from jepsen_lite.history import History, Op
from jepsen_lite.verdicts import UNKNOWN
from jepsen_lite.workload import Options, Run
from kraftlab.checking.models import Register

MISMATCH = "INVALID_UPDATE_VERSION"


def call(
    f: str, invoked_ns: int, ended_ns: int, value: object = None, result: object = None, **fields: object
) -> Callable[[int], Op]:
    def numbered(index: int) -> Op:
        others = {"outcome": "ok", "key": "x", **fields}
        return Op(index=index, process=index, f=f, value=value, result=result, invoked_ns=invoked_ns, ended_ns=ended_ns, **others)  # type: ignore[arg-type]

    return numbered


def run_of(*calls: Callable[[int], Op]) -> Run:
    return Run(options=Options(), history=History(numbered(index) for index, numbered in enumerate(calls)))


LEGAL = {
    "a lost answer takes effect late": [call("set", 0, 1, 1, outcome="info"), call("get", 2, 3), call("get", 9, 10, None, 1)],
    "a lost answer never takes effect": [call("set", 0, 1, 1, outcome="info"), call("get", 9, 10)],
    "an exchange that is refused rightly": [call("set", 0, 1, 1), call("cas", 2, 3, [7, 8], outcome="fail", error=MISMATCH)],
    "a failure that says nothing": [call("set", 0, 1, 1, outcome="fail", error="NOT_CONTROLLER"), call("get", 2, 3)],
    "a read of unknown outcome says nothing": [call("get", 0, 1, None, 99, outcome="info"), call("get", 2, 3)],
}
ILLEGAL = {
    "a stale read": (
        [call("set", 0, 1, 1), call("set", 2, 3, 2), call("get", 4, 5, None, 1), call("get", 6, 7, None, 2)],
        (0, 1, 2),
    ),
    "a lost write": ([call("get", 0, 1), call("set", 2, 3, 1), call("set", 2, 3, 2, key="y"), call("get", 4, 5)], (1, 3)),
    "an exchange refused wrongly": ([call("set", 0, 1, 7), call("cas", 2, 3, [7, 8], outcome="fail", error=MISMATCH)], (0, 1)),
    "a write that failed and is seen": (
        [call("set", 0, 1, 1, outcome="fail", error="NOT_CONTROLLER"), call("get", 2, 3, None, 1)],
        (1,),
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal(name: str) -> None:
    (verdict,) = judge(run_of(*LEGAL[name]), [Linearizable(lambda key: Register(frozenset({MISMATCH})))])
    assert verdict.valid is True
    assert verdict.details["checked"] >= 1


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_and_the_least_part_that_shows_it(name: str) -> None:
    calls, minimal = ILLEGAL[name]
    (verdict,) = judge(run_of(*calls), [Linearizable(lambda key: Register(frozenset({MISMATCH})))])
    assert verdict.valid is False
    assert verdict.ops == minimal
    assert "cannot have happened one at a time" in verdict.reason


def test_an_empty_history_proves_nothing() -> None:
    verdicts = judge(run_of(), [Linearizable(lambda key: Register()), Stats()])
    assert [verdict.valid for verdict in verdicts] == [UNKNOWN, UNKNOWN]
    lost = run_of(call("set", 0, 1, 1, outcome="info"))
    assert [verdict.valid for verdict in judge(lost, [Linearizable(lambda key: Register()), Stats()])] == [UNKNOWN, UNKNOWN]


def test_a_checker_that_fails_has_found_nothing_out() -> None:
    run = run_of(call("cas", 0, 1, 5))
    (verdict,) = judge(run, [Linearizable(lambda key: Register())])
    assert verdict.valid == UNKNOWN
    assert verdict.reason.startswith("the checker itself failed: TypeError")


def test_undecided_keys_are_unknown_with_a_reason() -> None:
    ops = [Op(index=n, process=n, f="set", key="x", value=n, outcome="ok", invoked_ns=0, ended_ns=100) for n in range(14)]
    ops.append(Op(index=14, process=14, f="get", key="x", outcome="ok", result=-1, invoked_ns=101, ended_ns=102))
    checker = Linearizable(lambda key: Register(), steps_max=2_000)
    verdict = checker.check(Run(options=Options(), history=History(ops)))
    assert verdict.valid == UNKNOWN
    assert verdict.reason.startswith("1 of 1 keys could not be decided, for example 'x': given up after ")


def test_calls_that_the_log_does_not_have_are_not_searched() -> None:
    ops = [
        Op(index=n, process=n, f="set", key="x", value=n, outcome="info", request_id=f"a:{n}", invoked_ns=0, ended_ns=1)
        for n in range(30)
    ]
    ops.append(Op(index=30, process=30, f="get", key="x", outcome="ok", result=None, invoked_ns=5, ended_ns=6))
    checker = Linearizable(lambda key: Register())
    assert checker.check(Run(options=Options(), history=History(ops))).details["checked"] == 31
    verdict = checker.check(Run(options=Options(), history=History(ops), log=CommittedLog(())))
    assert (verdict.valid, verdict.details["checked"]) == (True, 1)


def test_a_request_that_was_sent_again_is_one_call() -> None:
    def sent(index: int, outcome: str, invoked_ns: int, ended_ns: int, value: int, request_id: str) -> Op:
        fields: dict[str, Any] = {"outcome": outcome, "request_id": request_id, "invoked_ns": invoked_ns, "ended_ns": ended_ns}
        return Op(index=index, process=index, f="set", key="x", value=value, **fields)

    first, other = sent(0, "info", 0, 1, 1, "a:1"), sent(1, "ok", 2, 3, 2, "a:2")
    again, failed = sent(2, "ok", 4, 5, 1, "a:1"), sent(3, "fail", 6, 7, 1, "a:1")
    read = Op(index=4, process=4, f="get", key="x", outcome="ok", result=2, invoked_ns=8, ended_ns=9)
    checker = Linearizable(lambda key: Register())
    assert checker.check(Run(options=Options(), history=History([first, other, again, failed, read]))).valid is True
    assert checker.check(Run(options=Options(), history=History([other, again, read]))).valid is False


def test_values_of_calls_can_be_hashed() -> None:
    assert frozen({"b": [1, {"c": 2}], "a": None}) == (("a", None), ("b", (1, (("c", 2),))))
    read = Op(index=0, process=0, f="get", outcome="ok", result=[1], invoked_ns=0, ended_ns=1)
    call = as_call(read, Register())
    assert call is not None
    assert call.output == (1,)
