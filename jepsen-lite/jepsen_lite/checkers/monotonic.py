"""What one client sees of one thing never goes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..history import OK, Op
from ..verdicts import Verdict
from ..workload import Run
from .findings import Findings


class Monotonic:
    """Of the operations `f` of each process and key, in the order of time, `seen` does not sink. None says nothing."""

    name = "monotonic"

    def __init__(self, *f: str, seen: Callable[[Op], object] = lambda op: op.result) -> None:
        self._f, self._seen = frozenset(f), seen

    def check(self, run: Run) -> Verdict:
        findings = Findings()
        last: dict[tuple[int, str], tuple[Any, int]] = {}
        checked = 0
        for op in run.history:
            if op.f not in self._f or op.outcome != OK:
                continue
            value = self._seen(op)
            if value is None:
                continue
            checked += 1
            before = last.get((op.process, op.key))
            if before is not None and value < before[0]:
                text = f"process {op.process} saw {before[0]!r} of {op.key or op.f}, and {value!r} later"
                findings.add("went back", text, [before[1], op.index])
            else:
                last[op.process, op.key] = (value, op.index)
        return findings.verdict(self.name, checked=checked, nothing=f"no {' or '.join(sorted(self._f))} succeeded")
