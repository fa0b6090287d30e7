"""`kraftlab chaos test --seeds N`: one verdict for many seeds, and a kept run for each seed that is not valid."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kraftlab.cli.output import CommandFailed, Output

from ..command import HarnessError
from ..history import FAIL, INFO, OK
from ..runs import Trial, TrialResult
from ..seeds import Seed, Sum, play_seeds, sum_of
from ..store import StoreError
from ..verdicts import CRASH, HARNESS, LIVENESS, NOT_KNOWN, SAFETY, UNKNOWN, VALID, Ending, worst

KEPT_MAX = 10
"""At most so many runs that are not valid are played again for a page; the others get a line."""
_WORDS = {
    VALID: "all valid",
    SAFETY: "INVALID",
    CRASH: "INVALID",
    LIVENESS: "INVALID",
    HARNESS: "not all seeds were played and kept",
    NOT_KNOWN: "unknown",
}


def play_many(trials: Sequence[Trial], jobs: int, output: Output, keep: Callable[[Trial], TrialResult]) -> int:
    """Play the trials and report; return the exit code. `keep` plays a trial again and keeps the run; a run that cannot be kept
    is reported and does not stop the others. Ctrl-C ends early.
    """
    played: list[Seed] = []
    kept: list[TrialResult] = []
    more: list[Ending] = []
    progress = _Progress(len(trials))
    try:
        for seed in play_seeds(trials, jobs):
            played.append(seed)
            progress.shows(len(played))
            if seed.ending is VALID:
                continue
            progress.clear()
            output.findings([_finding(seed)])
            if not seed.failure and len(kept) + len(more) < KEPT_MAX:
                try:
                    kept.append(keep(seed.trial))
                except (CommandFailed, HarnessError, StoreError) as error:
                    more.append(HARNESS)
                    output.findings([f"seed {seed.trial.options.seed} was not kept: {error}"])
    except KeyboardInterrupt:
        more.append(NOT_KNOWN)
    progress.clear()
    total = sum_of(played)
    ending = worst([total.ending, *more])
    output.lines(_lines(total, ending, len(trials)))
    output.result(_document(played, total, ending, kept))
    return ending.exit_code


class _Progress:
    """The number of finished seeds, on a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._is_shown = sys.stderr.isatty()
        self._shown_s = 0.0
        self._width = 0

    def shows(self, done: int) -> None:
        now_s = time.monotonic()
        if self._is_shown and now_s - self._shown_s >= 1.0:
            self._shown_s = now_s
            line = f"{done} of {self._total} seeds"
            self._width = len(line)
            sys.stderr.write(f"\r{line}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            self._width = 0


def _finding(seed: Seed) -> str:
    reason = seed.failure or "; ".join(f"{verdict.checker}: {verdict.reason}" for verdict in seed.verdicts)
    return f"seed {seed.trial.options.seed} of {seed.trial.workload}: {reason}\n  {seed.trial.command}"


def _lines(total: Sum, ending: Ending, planned: int) -> list[str]:
    counts = total.counts
    left = f" of {planned}" if total.seeds < planned else ""
    return [
        f"{total.seeds:,}{left} seeds, {_WORDS[ending]}: "
        f"{counts.get(OK, 0):,} ok, {counts.get(FAIL, 0):,} fail, {counts.get(INFO, 0):,} info",
        f"{total.simulated_s:,.0f} simulated s in {total.processor_s:,.1f} processor s: "
        f"{total.seeds_per_s:.1f} seeds/s and {total.simulated_s_per_s:,.0f} simulated s/s on one core",
    ]


def _document(played: Sequence[Seed], total: Sum, ending: Ending, kept: Sequence[TrialResult]) -> dict[str, Any]:
    return {
        "valid": True if ending is VALID else UNKNOWN if ending in (NOT_KNOWN, HARNESS) else False,
        "ops": {outcome: total.counts.get(outcome, 0) for outcome in (OK, FAIL, INFO)},
        "lost": sum(verdict.lost for seed in played for verdict in seed.verdicts),
        "run": str(kept[0].directory.path) if kept else "",
        "runs": [str(tried.directory.path) for tried in kept],
        "seeds": total.seeds,
        "not_valid": [seed.trial.options.seed for seed in played if seed.ending is not VALID],
        "steps": total.steps,
        "simulated_s": total.simulated_s,
        "processor_s": round(total.processor_s, 3),
        "seeds_per_s": round(total.seeds_per_s, 3),
        "simulated_per_real": round(total.simulated_s_per_s, 1),
    }
