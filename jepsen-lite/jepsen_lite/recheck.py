"""Judge stored runs again with the checkers of this version, by the same functions as at their end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .checkers.judgement import judge
from .checkers.linearizable import Linearizable
from .runs import checkers_of
from .store import RunDirectory, RunRecord
from .workload import Checker, Run
from .workloads import workload_named
from .workloads.scoped_checkers import ScopedChecker


def rechecked(directory: RunDirectory, steps_max: int | None = None) -> tuple[RunRecord, Run]:
    """Judge a run again and write the new verdicts into its record. `steps_max` limits each search; None keeps the workload's
    limit. StoreError, UnknownWorkload.
    """
    record, run = directory.record(), directory.run()
    checkers: Sequence[Checker] = checkers_of(workload_named(record.workload), record.options, directory.nodes)
    if steps_max is not None:
        checkers = [_limited(checker, steps_max) for checker in checkers]
    record = msgspec.structs.replace(record, verdicts=tuple(judge(run, checkers)))
    directory.write_record(record)
    return record, run


def _limited(checker: Checker, steps_max: int) -> Checker:
    """Return the checker with another limit of its search; a checker without a search is returned unchanged."""
    if isinstance(checker, Linearizable):
        return Linearizable(checker.model, steps_max=steps_max)
    if isinstance(checker, ScopedChecker) and isinstance(checker.checker, Linearizable):
        return checker.with_checker(Linearizable(checker.checker.model, steps_max=steps_max))
    return checker
