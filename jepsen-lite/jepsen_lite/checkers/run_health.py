"""The run itself: invariants of the world, and whether the cluster became ready again after the faults.

Liveness here means only "ready again in time after the last fault"; other checkers judge how long clients got no answers.
"""

from __future__ import annotations

from ..verdicts import UNKNOWN, Verdict
from ..workload import Run


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
