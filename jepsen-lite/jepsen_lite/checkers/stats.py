"""Checkers for every run, and quantiles.

`Stats` counts operations by function and outcome. `Course` judges the run itself: invariants of the world, and whether the
cluster became ready again after the faults. Liveness here means only "ready again in time after the last fault"; other checkers
judge how long clients got no answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..history import FAIL, INFO, OK
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def quantiles(numbers: Iterable[float]) -> dict[str, float]:
    """p50, p95, p99 and max; {} of nothing."""
    ordered = sorted(numbers)
    return {name: ordered[min(len(ordered) - 1, int(rank * len(ordered)))] for name, rank in RANKS.items()} if ordered else {}


class Stats:
    """`details`: per function the outcomes, and the errors with their counts. Answers are not checked. A function that never
    succeeded was not tested: "unknown". `may_fail` are functions that need not succeed.
    """

    name = "stats"

    def __init__(self, *may_fail: str) -> None:
        self._may_fail = frozenset(may_fail)

    def check(self, run: Run) -> Verdict:
        outcomes: dict[str, Counter[str]] = {}
        errors: dict[str, Counter[str]] = {}
        for op in run.history:
            outcomes.setdefault(op.f, Counter())[op.outcome] += 1
            if op.error:
                errors.setdefault(op.f, Counter())[op.error] += 1
        details = {
            f: {OK: found[OK], FAIL: found[FAIL], INFO: found[INFO], "errors": dict(errors.get(f, Counter()).most_common(10))}
            for f, found in sorted(outcomes.items())
        }
        never = [f for f, found in sorted(outcomes.items()) if not found[OK] and f not in self._may_fail]
        if not outcomes:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the history is empty")
        if never:
            reason = f"{', '.join(never)} never succeeded, so its effects were not tested"
            return Verdict(checker=self.name, valid=UNKNOWN, reason=reason, details={"by_name": details})
        return Verdict(checker=self.name, valid=True, details={"by_name": details})


class Course:
    """A broken invariant of the world is a violation of safety; a cluster that does not become ready again, one of liveness."""

    name = "course"

    def check(self, run: Run) -> Verdict:
        details = {"healed_ns": run.healed_ns, "ended_ns": run.ended_ns, "strikes": len(run.strikes)}
        if run.violations:
            reason, more = run.violations[0], len(run.violations) - 1
            reason += f" (and {more} more)" if more else ""
            return Verdict(checker=self.name, valid=False, reason=reason, details=details | {"violations": list(run.violations)})
        if run.not_ready:
            reason = f"the cluster was not ready again after the faults: {run.not_ready}"
            return Verdict(checker=self.name, valid=False, kind="liveness", reason=reason, details=details)
        if run.cut_short:
            return Verdict(checker=self.name, valid=UNKNOWN, reason=f"the run was cut short: {run.cut_short}", details=details)
        return Verdict(checker=self.name, valid=True, details=details)
