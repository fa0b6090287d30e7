"""The offset witness accepts all possible histories and names each impossible operation. Histories of whole clusters, honest and
lying, are in workloads/test_lies.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from jepsen_lite.checkers.fold import Change, changes
from jepsen_lite.checkers.resolution import NEVER_HAPPENED, resolved
from jepsen_lite.checkers.witness import Witness
from jepsen_lite.committed_log import CommittedLog, Entry
from jepsen_lite.history import History, Op
from jepsen_lite.verdicts import UNKNOWN
from jepsen_lite.workload import Options, Run

MISMATCH = "INVALID_UPDATE_VERSION"


class Registers:
    """Values by key. Every write leaves its new value; `cas` [expected, new] is refused if the key has another value."""

    writes = frozenset({"set", "cas"})
    refusals = frozenset({MISMATCH})

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def apply(self, change: Change) -> Iterable[str]:
        for entry in change.entries:
            if entry.kind == "Config":
                self.values[entry.record["name"]] = entry.record["value"]
        return {entry.record["name"] for entry in change.entries if entry.kind == "Config"}

    def wrote(self, op: Op, change: Change) -> str:
        new = op.value[1] if op.f == "cas" else op.value
        written = [(entry.record["name"], entry.record["value"]) for entry in change.entries if entry.kind == "Config"]
        return "" if written == [(op.key, new)] else f"it says {written}"

    def permits(self, op: Op) -> str:
        found = self.values.get(op.key)
        return "" if op.f != "cas" or op.value[0] == found else f"{found!r} was there"

    def answers(self, op: Op) -> str:
        found = self.values.get(op.key)
        return "" if op.f in self.writes or op.result == found else f"{found!r} is there"

    def refuses(self, op: Op) -> str:
        found = self.values.get(op.key)
        return "" if op.value[0] != found else f"{found!r} was there"


def config(offset: int, name: str, value: object, request_id: str = "", end: int = 0, epoch: int = 1) -> Entry:
    return Entry(offset, end or offset + 1, epoch, 0, "Config", {"name": name, "value": value}, request_id)


def op(index: int, f: str, invoked_ns: int, ended_ns: int, value: object = None, offset: int = -1, **fields: object) -> Op:
    others: dict[str, Any] = {
        "outcome": "ok",
        "key": "x",
        "process": index,
        "request_id": f"a:{index}" if f != "get" else "",
        **fields,
    }
    return Op(index=index, f=f, value=value, invoked_ns=invoked_ns, ended_ns=ended_ns, offset=offset, **others)


def check(ops: list[Op], entries: list[Entry], start: int = 0, **settings: Any) -> Any:
    log = CommittedLog(tuple(entries), start, entries[-1].batch_end if entries else 0)
    return Witness(Registers, **settings).check(Run(options=Options(), history=History(ops), log=log))


TWO_SETS = [config(0, "x", 1, "a:0"), config(1, "x", 2, "a:1")]
GOOD: dict[str, tuple[list[Op], list[Entry]]] = {
    "in order": ([op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, 2), op(2, "get", 4, 5, result=2, offset=2)], TWO_SETS),
    "a read that overlaps": (
        [op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 9, 2, 2), op(2, "get", 4, 5, result=1, offset=1)],
        TWO_SETS,
    ),
    "unknown, and written": (
        [op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, outcome="info"), op(2, "get", 4, 5, result=1, offset=1)],
        TWO_SETS,
    ),
    "unknown, and not written": ([op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, outcome="info")], TWO_SETS[:1]),
    "a request sent again": (
        [op(0, "set", 0, 1, 1, outcome="info"), op(1, "set", 2, 3, 2, 2), op(2, "set", 4, 5, 1, 1, request_id="a:0")],
        TWO_SETS,
    ),
    "refused by the state": (
        [op(0, "set", 0, 1, 1, 1), op(1, "cas", 2, 3, [7, 8], outcome="fail", error=MISMATCH)],
        TWO_SETS[:1],
    ),
    "refused by a short-lived state": (
        [op(0, "set", 0, 9, 1, 1), op(1, "set", 0, 9, 2, 2), op(2, "cas", 0, 9, [2, 8], outcome="fail", error=MISMATCH)],
        TWO_SETS,
    ),
}
GOOD["an exchange of unknown outcome, of which the log remembers the refusal alone"] = (
    [op(0, "set", 0, 1, 1, 1), op(1, "cas", 2, 3, [7, 2], outcome="info")],
    [TWO_SETS[0], Entry(1, 2, 1, 0, "RequestOutcome", {}, "a:1")],
)
GOOD["refused, and again with the same answer later"] = (
    [
        op(0, "set", 0, 1, 1, 1),
        op(1, "cas", 2, 3, [7, 8], outcome="info"),
        op(2, "set", 4, 5, 7, 2),
        op(3, "cas", 6, 7, [7, 8], outcome="fail", error=MISMATCH, request_id="a:1"),
    ],
    [config(0, "x", 1, "a:0"), config(1, "x", 7, "a:2")],
)
BAD: dict[str, tuple[list[Op], list[Entry], str]] = {
    "lost": ([op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, 2)], [config(0, "x", 1, "a:0"), config(1, "y", 5)], "lost"),
    "lost at the end": ([op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, 2)], TWO_SETS[:1], "lost"),
    "somewhere else": ([op(0, "set", 0, 1, 1, 2), op(1, "set", 0, 3, 2, 2)], TWO_SETS, "misplaced"),
    "twice": ([op(0, "set", 0, 1, 1, 1)], [config(0, "x", 1, "a:0"), config(1, "x", 1, "a:0")], "duplicate"),
    "twice, never answered": (
        [op(0, "set", 0, 1, 1, outcome="info")],
        [config(0, "x", 1, "a:0"), config(1, "x", 1, "a:0")],
        "duplicate",
    ),
    "as something else": ([op(0, "set", 0, 1, 1, 1)], [config(0, "x", 9, "a:0")], "wrong record"),
    "failed and written": ([op(0, "set", 0, 1, 1, outcome="fail", error="X")], TWO_SETS[:1], "failed but written"),
    "refused twice, never justified": (
        [
            op(0, "set", 0, 1, 7, 1),
            op(1, "cas", 2, 3, [7, 8], outcome="info"),
            op(2, "cas", 6, 7, [7, 8], outcome="fail", error=MISMATCH, request_id="a:1"),
        ],
        [config(0, "x", 7, "a:0")],
        "unjustified refusal",
    ),
    "against time": ([op(0, "set", 2, 3, 1, 1), op(1, "set", 0, 1, 2, 2)], TWO_SETS, "write order"),
    "unknown, before an acknowledged write": (
        [op(0, "set", 4, 5, 1, outcome="info"), op(1, "set", 2, 3, 2, 2)],
        TWO_SETS,
        "write order",
    ),
    "a read that is too old": (
        [op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, 2), op(2, "get", 4, 5, result=1, offset=1)],
        TWO_SETS,
        "stale read",
    ),
    "a wrong value": (
        [op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, 2), op(2, "get", 4, 5, result=1, offset=2)],
        TWO_SETS,
        "wrong answer",
    ),
    "uncommitted": ([op(0, "set", 0, 1, 1, 1), op(2, "get", 4, 5, result=2, offset=2)], TWO_SETS[:1], "beyond the log"),
    "a session that goes back": (
        [
            op(0, "set", 0, 1, 1, 1),
            op(1, "set", 2, 9, 2, 2),
            op(2, "get", 3, 4, result=2, offset=2, process=7),
            op(3, "get", 5, 6, result=1, offset=1, process=7),
        ],
        TWO_SETS,
        "session",
    ),
    "an exchange that should have been refused": (
        [op(0, "set", 0, 1, 1, 1), op(1, "cas", 2, 3, [7, 2], 2)],
        TWO_SETS,
        "not allowed",
    ),
    "an exchange of unknown outcome that should have been refused": (
        [op(0, "set", 0, 1, 1, 1), op(1, "cas", 2, 3, [7, 2], outcome="info")],
        TWO_SETS,
        "not allowed",
    ),
    "of unknown outcome, as something else": (
        [op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 9, outcome="info")],
        TWO_SETS,
        "wrong record",
    ),
    "a refusal that nothing justifies": (
        [op(0, "set", 0, 1, 1, 1), op(2, "cas", 2, 3, [1, 8], outcome="fail", error=MISMATCH), op(1, "set", 4, 5, 2, 2)],
        TWO_SETS,
        "unjustified refusal",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    verdict = check(*GOOD[name])
    assert verdict.valid is True, verdict.reason


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    ops, entries, kind = BAD[name]
    verdict = check(ops, entries)
    assert verdict.valid is False
    assert kind in verdict.details["violations"]
    assert verdict.lost == (kind == "lost")
    assert verdict.ops


def test_local_reads_may_be_old_but_must_have_been_so() -> None:
    writes = [op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, 2)]
    old = op(2, "peek", 4, 5, result=1, offset=1, request_id="")
    assert check([*writes, old], TWO_SETS, local_reads=frozenset({"peek"})).valid is True
    never = msgspec.structs.replace(old, result=9)
    assert "wrong answer" in check([*writes, never], TWO_SETS, local_reads=frozenset({"peek"})).details["violations"]


def test_a_transaction_becomes_visible_at_once_and_an_aborted_one_never() -> None:
    entries = [
        Entry(0, 2, 1, 0, "BeginTransaction", {}, "a:0"),
        config(1, "x", 1, "a:0", end=2),
        config(2, "y", 1, "a:0", end=4),
        Entry(3, 4, 1, 0, "EndTransaction", {}, "a:0"),
        Entry(4, 6, 1, 0, "BeginTransaction", {}, "a:9"),
        config(5, "x", 7, "a:9", end=6),
        Entry(6, 7, 1, 0, "AbortTransaction", {}),
        config(7, "x", 2, "a:1"),
    ]
    found = changes(CommittedLog(tuple(entries), 0, 8))
    assert [(change.begin, change.end, change.request_id) for change in found] == [(0, 4, "a:0"), (7, 8, "a:1")]
    reads = [
        op(2, "get", 0, 9, result=None, offset=2),
        op(3, "get", 0, 9, result=1, offset=4),
        op(4, "get", 0, 9, result=1, offset=7),
    ]
    assert check(reads, entries).valid is True


def test_requests_of_one_batch_are_changes_of_their_own() -> None:
    found = changes(CommittedLog((config(0, "x", 1, "a:0", end=2), config(1, "x", 2, "a:1", end=2)), 0, 2))
    assert [(change.begin, change.end) for change in found] == [(0, 2), (1, 2)]


def test_a_run_without_checks_is_unknown() -> None:
    assert check([], []).valid == UNKNOWN
    assert check([op(0, "set", 0, 1, 1, outcome="info")], TWO_SETS[:1]).valid == UNKNOWN
    assert Witness(Registers).check(Run(options=Options(), history=History([]))).reason == "the committed log was not kept"
    cleaned = check([op(1, "set", 2, 3, 2, 2), op(2, "get", 4, 5, result=2, offset=2)], TWO_SETS[1:], start=1)
    assert cleaned.valid == UNKNOWN
    assert "the log begins at 1" in cleaned.reason
    assert check([op(1, "set", 2, 3, 5, 2)], TWO_SETS[1:], start=1).valid is False


def test_a_log_that_cannot_be_folded_is_unknown_unless_it_is_wrong_otherwise() -> None:
    broken = Entry(1, 2, 1, 0, "Config", {}, "")
    verdict = check([op(0, "set", 0, 1, 1, 1)], [TWO_SETS[0], broken])
    assert verdict.valid == UNKNOWN
    assert verdict.reason.startswith("the change at 1 cannot be folded (KeyError: 'value')")
    assert check([op(0, "set", 0, 1, 1, 1), op(1, "set", 2, 3, 2, 2)], [TWO_SETS[0], broken]).lost == 1


def test_unknown_outcomes_are_resolved_from_the_log() -> None:
    unknown = {"outcome": "info", "error": "UNAVAILABLE"}
    history = History([op(0, "set", 0, 1, 1, **unknown), op(1, "set", 0, 1, 2, **unknown), op(2, "get", 0, 1, **unknown)])
    found = resolved(history, CommittedLog((config(5, "x", 1, "a:0", end=7, epoch=3),), 0, 7))
    happened, never, read = found
    assert (happened.outcome, happened.returned_ns, happened.offset, happened.epoch) == ("info", None, 7, 3)
    assert (never.outcome, never.error) == ("fail", NEVER_HAPPENED)
    assert read.outcome == "info"
    assert {op.outcome for op in resolved(history, CommittedLog((), 4, 7))} == {"info"}
