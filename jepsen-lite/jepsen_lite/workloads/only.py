"""Checkers that see a part of a run: the operations that one of several workloads made, or that one question is about."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..history import History, Op
from ..verdicts import Verdict
from ..workload import Checker, Run


class Only:
    """`part` gives the operation as the checker is to see it, or None if it is not to; indices stay what they are."""

    def __init__(self, checker: Checker, part: Callable[[Op], Op | None], name: str) -> None:
        self.name = name
        self._checker, self._part = checker, part

    def check(self, run: Run) -> Verdict:
        seen = [op for op in map(self._part, run.history) if op is not None]
        verdict = self._checker.check(msgspec.structs.replace(run, history=History(seen)))
        return msgspec.structs.replace(verdict, checker=self.name)
