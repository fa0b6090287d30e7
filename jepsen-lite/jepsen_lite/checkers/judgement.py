"""Has a run judged by all its checkers, and says how long each took."""

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
    """No search for garbage meanwhile: checkers make millions of values and no circles of them, and walking through a long
    history again and again takes longer than to judge it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def judge(run: Run, checkers: Iterable[Checker]) -> list[Verdict]:
    """One verdict for each checker, in their order. A checker that fails has found nothing out: "unknown", with where."""
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
