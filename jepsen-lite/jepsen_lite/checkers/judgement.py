"""Has a run judged by all its checkers, and says how long each took."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable

import msgspec

from ..verdicts import UNKNOWN, Verdict
from ..workload import Checker, Run


def judge(run: Run, checkers: Iterable[Checker]) -> list[Verdict]:
    """One verdict for each checker, in their order. A checker that fails has found nothing out: "unknown", with where."""
    verdicts = []
    for checker in checkers:
        begun = time.perf_counter()
        try:
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
