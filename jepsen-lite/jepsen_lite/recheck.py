"""Judge stored runs again with the checkers of this version.

A run is judged by the same functions as at its end. Most of the time goes into searches for orders, one per key of a run and
independent of each other. For many runs Spark can do them (`spark_engine`): it gives the answer of each key to the checker that
would otherwise search itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from kraftlab.checking.calls import Operation
from kraftlab.checking.linearizability import Decision

from .checkers.judgement import judge
from .checkers.linearizable import Linearizable
from .history import Op
from .runs import checkers_of
from .store import RunDirectory, RunRecord
from .workload import Checker, Options, Run
from .workloads import workload_named
from .workloads.scoped_checkers import ScopedChecker


class KeyTask(msgspec.Struct, frozen=True, kw_only=True):
    """One key's history of one run, with everything needed to judge it in another process. `checker` is the name of the checker
    that asks.
    """

    run: str
    workload: str
    options: Options
    checker: str
    key: str
    ops: tuple[Op, ...]
    steps_max: int


class KeyResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a task."""

    run: str
    checker: str
    key: str
    answer: Decision


Answers = Mapping[tuple[str, str, str], Decision]
"""(run, checker, key) → decision."""


def answer(task: KeyTask) -> KeyResult:
    """Judge the key of a task; every process gives the same answer."""
    searches = _searches(workload_named(task.workload).checkers(task.options))
    model = next(found.checker.model for found in searches if found.name == task.checker)
    checker = Linearizable(model, steps_max=task.steps_max)
    _, calls = checker.calls_by_key(task.ops)[task.key]
    return KeyResult(run=task.run, checker=task.checker, key=task.key, answer=checker.judged(task.key, calls))


def tasks_of(directory: RunDirectory, steps_max: int | None = None) -> Iterator[KeyTask]:
    """Yield the searches of a run, one task per key. StoreError, UnknownWorkload."""
    record, run = directory.record(), directory.run()
    for name, checker, seen in _searches(workload_named(record.workload).checkers(record.options)):
        for key, (ops, _) in checker.keys_of(seen(run)).items():
            yield KeyTask(
                run=str(directory.path),
                workload=record.workload,
                options=record.options,
                checker=name,
                key=key,
                ops=tuple(ops),
                steps_max=steps_max or checker.steps_max,
            )


def rechecked(directory: RunDirectory, answers: Answers | None = None, steps_max: int | None = None) -> tuple[RunRecord, Run]:
    """Judge a run again and write the new verdicts into its record. With `answers` nothing is searched here. `steps_max` limits
    each search; None keeps the workload's limit. StoreError, UnknownWorkload.
    """
    record, run = directory.record(), directory.run()
    checkers: Sequence[Checker] = checkers_of(workload_named(record.workload), record.options, directory.nodes)
    if answers is not None:
        checkers = [_replaced(checker, partial(_with_answers, str(directory.path), answers)) for checker in checkers]
    elif steps_max is not None:
        checkers = [_replaced(checker, lambda _, found: Linearizable(found.model, steps_max=steps_max)) for checker in checkers]
    record = msgspec.structs.replace(record, verdicts=tuple(judge(run, checkers)))
    directory.write_record(record)
    return record, run


class _Search(NamedTuple):
    """A checker that searches, the name by which it is known, and its view of a run."""

    name: str
    checker: Linearizable
    seen: Callable[[Run], Run]


def _searches(checkers: Sequence[Checker]) -> list[_Search]:
    found = []
    for checker in checkers:
        if isinstance(checker, Linearizable):
            found.append(_Search(checker.name, checker, lambda run: run))
        elif isinstance(checker, ScopedChecker) and isinstance(checker.checker, Linearizable):
            found.append(_Search(checker.name, checker.checker, checker.seen))
    return found


def _replaced(checker: Checker, change: Callable[[str, Linearizable], Linearizable]) -> Checker:
    """Return the checker with another search, made by `change` from its name and its current search; a checker without a search
    is returned unchanged.
    """
    for name, search, _ in _searches([checker]):
        changed = change(name, search)
        return checker.with_checker(changed) if isinstance(checker, ScopedChecker) else changed
    return checker


def _with_answers(run: str, answers: Answers, name: str, checker: Linearizable) -> Linearizable:
    """Return the checker with known answers in place of its search."""

    def search(key: str, calls: Sequence[Operation]) -> Decision:
        return answers[run, name, key]

    return Linearizable(checker.model, search=search)
