"""Outages per fault, and recovery after the last fault. Liveness, not safety.

An *outage* is the time between two consecutive successes (or the first invocation, or the end). Each strike gets: the longest
outage that began before its end, the time from its end to the first success of an operation invoked after it, and successes per
second for equally long times before, during and after it. Strikes of one kind are combined.

The verdict depends on one thing only: a success within `recovery_max_s` after the last fault was healed. Outages during faults
are numbers for the report.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from kraftlab.checking.facts import Strike

from ..history import OK, Op
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run

SECOND_NS = 1_000_000_000


class AroundStrike(NamedTuple):
    """Measurements around one strike. `recovered_s` None: not until the end. Rates are successes per second."""

    longest_outage_s: float
    recovered_s: float | None
    rate_before: float
    rate_during: float
    rate_after: float


class Availability:
    """Checks that an operation succeeds within `recovery_max_s` after the last fault was healed."""

    name = "availability"

    def __init__(self, recovery_max_s: float = 15.0) -> None:
        self._recovery_max_s = recovery_max_s

    def check(self, run: Run) -> Verdict:
        if not run.history:
            return Verdict(checker=self.name, valid=UNKNOWN, kind="liveness", reason="the history has no operations")
        successes = Successes(run.history, run.ended_ns)
        longest, begun_ns = successes.longest_outage(successes.first_ns, successes.last_ns)
        recovered_s = successes.recovered_s(run.healed_ns)
        details: dict[str, Any] = {
            "longest_outage_s": longest,
            "longest_outage_begun_ns": begun_ns,
            "recovered_s": recovered_s,
            "ok_per_s": len(successes.ended) / max(1e-9, (successes.last_ns - successes.first_ns) / SECOND_NS),
            "by_kind": self._by_kind(run.strikes, successes),
        }
        valid, reason = self._judged(run, successes, recovered_s)
        return Verdict(checker=self.name, valid=valid, kind="liveness", reason=reason, details=details)

    def _judged(self, run: Run, successes: Successes, recovered_s: float | None) -> tuple[Any, str]:
        if recovered_s is not None and recovered_s <= self._recovery_max_s:
            return True, ""
        waited_s = (successes.last_ns - run.healed_ns) / SECOND_NS
        asked = successes.asked_after(run.healed_ns)
        if recovered_s is None and not asked:
            return UNKNOWN, "no operation began after the faults were healed"
        if recovered_s is None and waited_s < self._recovery_max_s:
            return UNKNOWN, f"no operation succeeded after the faults were healed, but the run ended {waited_s:.1f} s later"
        when = f"{recovered_s:.1f} s" if recovered_s is not None else f"not within {waited_s:.1f} s"
        return False, f"the first operation succeeded {when} after the faults were healed; {self._recovery_max_s:g} s are allowed"

    def _by_kind(self, strikes: Sequence[Strike], successes: Successes) -> dict[str, dict[str, Any]]:
        kinds: dict[str, list[AroundStrike]] = {}
        for strike in strikes:
            if not strike.error:
                kinds.setdefault(strike.kind, []).append(successes.around(strike))
        return {
            kind: {
                "strikes": len(found),
                "longest_outage_s": max(around.longest_outage_s for around in found),
                "slowest_recovery_s": max(
                    (around.recovered_s for around in found if around.recovered_s is not None), default=None
                ),
                "never_recovered": sum(around.recovered_s is None for around in found),
                "rate_before": _mean([around.rate_before for around in found]),
                "rate_during": _mean([around.rate_during for around in found]),
                "rate_after": _mean([around.rate_after for around in found]),
            }
            for kind, found in kinds.items()
        }


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


class Successes:
    """The times of successful operations."""

    def __init__(self, ops: Sequence[Op], run_ended_ns: int) -> None:
        self.ended = sorted(op.ended_ns for op in ops if op.outcome == OK)
        self._by_invocation = sorted((op.invoked_ns, op.ended_ns) for op in ops if op.outcome == OK)
        self._earliest_from: list[int] = []
        """For each position in the order of invocation, the earliest success from there on."""
        earliest = 1 << 62
        for _, ended_ns in reversed(self._by_invocation):
            earliest = min(earliest, ended_ns)
            self._earliest_from.append(earliest)
        self._earliest_from.reverse()
        self._last_invoked_ns = max(op.invoked_ns for op in ops)
        self.first_ns = min(op.invoked_ns for op in ops)
        self.last_ns = max([run_ended_ns, *(op.ended_ns for op in ops)])

    def asked_after(self, at_ns: int) -> bool:
        return self._last_invoked_ns >= at_ns

    def recovered_s(self, at_ns: int) -> float | None:
        """Return the seconds from `at_ns` to the first success of an operation invoked after it."""
        place = bisect_left(self._by_invocation, (at_ns, 0))
        return None if place == len(self._by_invocation) else (self._earliest_from[place] - at_ns) / SECOND_NS

    def longest_outage(self, begin_ns: int, end_ns: int) -> tuple[float, int]:
        """Return the longest outage (s) that overlaps this time, and when it began."""
        first = bisect_left(self.ended, begin_ns) - 1
        last = bisect_right(self.ended, end_ns) + 1
        moments = self.ended[max(0, first) : last]
        if first < 0:
            moments = [self.first_ns, *moments]
        if last > len(self.ended):
            moments = [*moments, self.last_ns]
        gaps = [(after - before, -before) for before, after in pairwise(moments)]
        longest, begun = max(gaps, default=(0, 0))
        return longest / SECOND_NS, -begun

    def rate(self, begin_ns: int, end_ns: int) -> float:
        begin_ns, end_ns = max(begin_ns, self.first_ns), min(end_ns, self.last_ns)
        if end_ns <= begin_ns:
            return 0.0
        return (bisect_left(self.ended, end_ns) - bisect_left(self.ended, begin_ns)) / ((end_ns - begin_ns) / SECOND_NS)

    def around(self, strike: Strike) -> AroundStrike:
        """Measure around a strike. A strike without duration, or never undone, counts as one second."""
        begin_ns, end_ns = strike.begin_ns, strike.begin_ns if strike.end_ns is None else strike.end_ns
        length = max(end_ns - begin_ns, SECOND_NS)
        return AroundStrike(
            self.longest_outage(begin_ns, max(end_ns, begin_ns))[0],
            self.recovered_s(end_ns),
            self.rate(begin_ns - length, begin_ns),
            self.rate(begin_ns, begin_ns + length),
            self.rate(begin_ns + length, begin_ns + 2 * length),
        )
