"""Run the checkers of a run and measure the time of each."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from ..verdicts import UNKNOWN, Verdict
from ..workload import Checker, Run


@contextmanager
def undisturbed() -> Iterator[None]:
    """Pause garbage collection: checkers make millions of values without cycles, and repeated collections of a long history take
    longer than judging it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def judge(run: Run, checkers: Iterable[Checker]) -> list[Verdict]:
    """Return one verdict per checker, in their order. A checker that raises gives "unknown" and the place of the error."""
    verdicts = []
    for checker in checkers:
        begun = time.perf_counter()
        try:
            with undisturbed():
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
