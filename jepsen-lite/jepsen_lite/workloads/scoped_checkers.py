"""Checkers that see a part of a run: the operations of one of several workloads, or those that one question concerns."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..history import History, Op
from ..verdicts import Verdict
from ..workload import Checker, Run


class ScopedChecker:
    """A checker of a part of a run. `part` maps an operation to the one that the checker sees, or to None; indices
    stay the same.
    """

    def __init__(self, checker: Checker, part: Callable[[Op], Op | None], name: str) -> None:
        self.name = name
        self.checker, self._part = checker, part

    def with_checker(self, checker: Checker) -> ScopedChecker:
        """Return another checker of the same part."""
        return ScopedChecker(checker, self._part, self.name)

    def seen(self, run: Run) -> Run:
        """Return the run as the checker sees it."""
        ops = [op for op in map(self._part, run.history) if op is not None]
        return msgspec.structs.replace(run, history=History(ops))

    def check(self, run: Run) -> Verdict:
        return msgspec.structs.replace(self.checker.check(self.seen(run)), checker=self.name)
