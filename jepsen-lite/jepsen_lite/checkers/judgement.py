"""Run the checkers of a run and measure the time of each."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable

import msgspec

from kraftlab.common.garbage import without_gc

from ..verdicts import UNKNOWN, Verdict
from ..workload import Checker, Run


def judge(run: Run, checkers: Iterable[Checker]) -> list[Verdict]:
    """Return one verdict per checker, in their order. A checker that raises gives "unknown" and the place of the error."""
    verdicts = []
    for checker in checkers:
        begun = time.perf_counter()
        try:
            with without_gc():
                verdict = checker.check(run)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            verdict = Verdict(
                checker=checker.name,
                valid=UNKNOWN,
                reason=f"the checker itself failed: {type(error).__name__}: {error} ({where.name}, line {where.lineno})",
                details={"traceback": traceback.format_exc()},
            )
        verdicts.append(msgspec.structs.replace(verdict, seconds=time.perf_counter() - begun))
    return verdicts
