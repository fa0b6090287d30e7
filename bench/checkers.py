"""The fault harness's checkers on long histories: processor time, and its ratio to one plain pass.

The histories are generated from a seed, each with the wanted number of operations: registers behind a log (10 clients, a hundred
operations per key, one in fifty without an answer), a set that is read a few times, counters, blocks, and transactions of two
steps over lists. All are histories of a correct cluster: no checker ends early at a violation.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import click
import msgspec

from jepsen_lite.checkers.availability import Availability
from jepsen_lite.checkers.blocks import Blocks
from jepsen_lite.checkers.exactly_once import ExactlyOnce
from jepsen_lite.checkers.fold import Change
from jepsen_lite.checkers.linearizable import Linearizable
from jepsen_lite.checkers.list_append import ListAppend
from jepsen_lite.checkers.set_full import SetFull
from jepsen_lite.checkers.stats import Stats
from jepsen_lite.checkers.witness import Witness
from jepsen_lite.committed_log import CommittedLog, Entry
from jepsen_lite.history import History, Op
from jepsen_lite.workload import Checker, Options, Run
from kraftlab.checking.models import Register
from kraftlab.common.garbage import without_gc

from .measure import Report, measurement, table

CLIENTS = 10
OPS_PER_KEY = 100
SET_READS = 10


class RegistersFold:
    """Values by key, as the log of `registers` makes them."""

    writes = frozenset({"set"})
    refusals: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def apply(self, change: Change) -> Iterable[str]:
        record = change.entries[0].record
        self._values[record["name"]] = record["value"]
        return (record["name"],)

    def wrote(self, op: Op, change: Change) -> str:
        return "" if change is not None and change.entries[0].record == {"name": op.key, "value": op.value} else "another record"

    def permits(self, op: Op) -> str:
        return ""

    def answers(self, op: Op) -> str:
        found = self._values.get(op.key)
        return "" if found == (op.value if op.f == "set" else op.result) else f"the value is {found!r}"

    def refuses(self, op: Op) -> str:
        return ""


class _Clock:
    """Start and end times of operations of `CLIENTS` clients; a client's next operation starts after its last has ended."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._free_at = [0] * CLIENTS
        self._at = 0

    def next(self) -> tuple[int, int, int]:
        """Return (process, invoked, ended). Operations take effect in the order of these calls."""
        self._at += 1_000
        process = self._at // 1_000 % CLIENTS
        ended = self._at + self._chance.randrange(1, 4_000)
        invoked = max(self._free_at[process] + 1, self._at - self._chance.randrange(4_000))
        self._free_at[process] = ended
        return process, min(invoked, self._at), ended


def registers(count: int, chance: random.Random) -> Run:
    clock, values = _Clock(chance), dict[str, int]()
    ops: list[Op] = []
    entries: list[Entry] = []
    for index in range(count):
        process, invoked, ended = clock.next()
        key = f"k{index // (OPS_PER_KEY * 5)}-{index % 5}"
        fields: dict[str, Any] = {"process": process, "key": key, "invoked_ns": invoked, "ended_ns": ended}
        if chance.random() < 0.5:
            ops.append(Op(index=index, f="get", outcome="ok", result=values.get(key), offset=len(entries), **fields))
            continue
        lost = chance.random()
        request = f"{process:032x}:{index}"
        if lost > 0.01:
            values[key] = index
            entries.append(Entry(len(entries), len(entries) + 1, 1, 0, "Config", {"name": key, "value": index}, request))
        outcome: dict[str, Any] = {"outcome": "info"} if lost < 0.02 else {"outcome": "ok", "offset": len(entries)}
        ops.append(Op(index=index, f="set", value=index, request_id=request, **outcome, **fields))
    log = CommittedLog(tuple(entries), 0, len(entries))
    return Run(options=Options(), history=History(ops), log=log, ended_ns=ops[-1].ended_ns)


def elements(count: int, chance: random.Random) -> Run:
    clock, held = _Clock(chance), list[int]()
    ops: list[Op] = []
    every = max(count // SET_READS, 1)
    for index in range(count):
        process, invoked, ended = clock.next()
        fields: dict[str, Any] = {"process": process, "outcome": "ok", "invoked_ns": invoked, "ended_ns": ended}
        if index % every == every - 1:
            ops.append(Op(index=index, f="get", result=list(held), **fields))
        else:
            held.append(index)
            ops.append(Op(index=index, f="add", value=index, **fields))
    return Run(options=Options(), history=History(ops))


def blocks(count: int, chance: random.Random) -> Run:
    clock = _Clock(chance)
    ops = []
    for index in range(count):
        process, invoked, ended = clock.next()
        result = [index * 1_000, 1_000]
        ops.append(
            Op(index=index, process=process, f="allocate", outcome="ok", result=result, invoked_ns=invoked, ended_ns=ended)
        )
    return Run(options=Options(), history=History(ops))


def transactions(count: int, chance: random.Random) -> Run:
    clock, lists = _Clock(chance), dict[str, list[int]]()
    ops = []
    for index in range(count):
        process, invoked, ended = clock.next()
        asked, answered = [], []
        for step in range(2):
            key = f"k{index // 50}-{chance.randrange(5)}"
            if chance.random() < 0.5:
                lists.setdefault(key, []).append(2 * index + step)
                asked.append(["append", key, 2 * index + step])
                answered.append(asked[-1])
            else:
                asked.append(["r", key, None])
                answered.append(["r", key, list(lists.get(key, ()))])
        ops.append(
            Op(
                index=index,
                process=process,
                f="txn",
                value=asked,
                result=answered,
                outcome="ok",
                invoked_ns=invoked,
                ended_ns=ended,
            )
        )
    return Run(options=Options(), history=History(ops))


CHECKED: tuple[tuple[Callable[[int, random.Random], Run], tuple[Checker, ...]], ...] = (
    (
        registers,
        (
            Stats(),
            Witness(RegistersFold),
            ExactlyOnce("set"),
            Availability(),
            Linearizable(lambda key: Register()),
        ),
    ),
    (elements, (SetFull(),)),
    (blocks, (Blocks(),)),
    (transactions, (ListAppend(),)),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one checker for one history. `times_a_pass` is the ratio to the time of `plain_pass_s`."""

    history: str
    checker: str
    operations: int
    cpu_s: float
    operations_per_s: float
    times_a_pass: float


def plain_pass_s(history: History) -> float:
    """Return the processor seconds to read each operation once."""
    begun = time.process_time()
    succeeded = sum(op.outcome == "ok" and op.ended_ns >= op.invoked_ns for op in history)
    assert succeeded
    return time.process_time() - begun


def measure(count: int) -> list[Row]:
    rows = []
    for make, checkers in CHECKED:
        run = make(count, random.Random(make.__name__))
        gc.collect()
        pass_s = plain_pass_s(run.history)
        for checker in checkers:
            begun = time.process_time()
            with without_gc():
                verdict = checker.check(run)
            took = time.process_time() - begun
            if verdict.valid is not True:
                raise AssertionError(f"{checker.name} judges {make.__name__} {verdict.valid}: {verdict.reason}")
            rows.append(
                Row(
                    history=make.__name__,
                    checker=checker.name,
                    operations=count,
                    cpu_s=took,
                    operations_per_s=count / took,
                    times_a_pass=took / pass_s,
                )
            )
        del run
    return rows


@measurement("checkers", __doc__, quick="Histories of 20000 operations.")
@click.option("--operations", default=1_000_000, help="Operations of each history (default 1000000).")
def main(quick: bool, operations: int) -> Report:
    rows = measure(20_000 if quick else operations)
    heading = ("history", "checker", "CPU s", "operations/s", "ratio to a plain pass")
    lines = [heading]
    lines += [
        (row.history, row.checker, f"{row.cpu_s:.2f}", f"{row.operations_per_s:,.0f}", f"{row.times_a_pass:.1f}") for row in rows
    ]
    lines.append(("all", "", f"{sum(row.cpu_s for row in rows):.2f}", "", ""))
    return Report([{"measurement": "checkers", "rows": rows}], table(lines))
