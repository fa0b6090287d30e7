"""Operations by function and outcome. A function that never succeeded was not tested: "unknown"."""

from __future__ import annotations

from collections import Counter

from ..history import FAIL, INFO, OK
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run


class Stats:
    """`details`: per function the outcomes, and the errors with their counts. Answers are not checked. `may_fail` are functions
    that need not succeed.
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
