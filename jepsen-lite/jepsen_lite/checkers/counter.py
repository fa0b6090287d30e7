"""A counter that is added to: what reads show lies between what must have been added and what may have been.

What must: additions that were acknowledged before the read began. What may: those that were asked for before it ended and did not
fail. It is arithmetic on intervals, so it finds fewer faults than a search would, in O(n log n).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from ..history import FAIL, OK, Op
from ..verdicts import Verdict
from ..workload import Run
from .findings import Findings
from .resolution import one_per_request


class _Sums:
    """Sums of numbers up to a time."""

    def __init__(self, moments: list[tuple[int, int]]) -> None:
        moments.sort()
        self._times = [moment for moment, _ in moments]
        self._sums = [0, *accumulate(number for _, number in moments)]

    def before(self, at_ns: int) -> int:
        return self._sums[bisect_left(self._times, at_ns)]

    def until(self, at_ns: int) -> int:
        return self._sums[bisect_right(self._times, at_ns)]


class CounterBounds:
    """Each key is a counter with the operations `add` and `get`; a request that was sent several times adds once. Numbers may
    be negative. `details`: the largest doubt (what may be less what must).
    """

    name = "counter"

    def check(self, run: Run) -> Verdict:
        findings = Findings()
        reads = doubt_max = 0
        for key, history in one_per_request(run.history).by_key().items():
            adds = [op for op in history if op.f == "add" and op.outcome != FAIL]
            bounds = _Bounds(adds)
            for op in history:
                if op.f != "get" or op.outcome != OK:
                    continue
                reads += 1
                low, high = bounds.of(op)
                doubt_max = max(doubt_max, high - low)
                if not low <= op.result <= high:
                    text = f"operation {op.index} ({op.f} {key}) shows {op.result}, which is not within {low} to {high}"
                    findings.add("out of bounds", text, [op.index])
        return findings.verdict(self.name, checked=reads, nothing="no get succeeded", details={"doubt_max": doubt_max})


class _Bounds:
    def __init__(self, adds: list[Op]) -> None:
        certain = [op for op in adds if op.outcome == OK]
        self._certain = {sign: _Sums([(op.ended_ns, op.value) for op in certain if op.value * sign > 0]) for sign in (1, -1)}
        self._asked = {sign: _Sums([(op.invoked_ns, op.value) for op in adds if op.value * sign > 0]) for sign in (1, -1)}

    def of(self, read: Op) -> tuple[int, int]:
        must = {sign: self._certain[sign].before(read.invoked_ns) for sign in (1, -1)}
        asked = {sign: self._asked[sign].until(read.ended_ns) for sign in (1, -1)}
        return must[1] + asked[-1], asked[1] + must[-1]
