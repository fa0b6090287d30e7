"""Verdicts of checkers.

Safety and liveness are judged separately. False beats "unknown" beats True: a run in which one checker found a violation is
invalid, even if others could not decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

Validity = bool | Literal["unknown"]
UNKNOWN: Literal["unknown"] = "unknown"

VALID, SAFETY, NOT_KNOWN, LIVENESS, CRASH, NOT_DETERMINISTIC, USAGE, HARNESS = 0, 1, 2, 3, 4, 5, 254, 255
"""Exit codes. NOT_DETERMINISTIC: the same seed gave another result. HARNESS: the harness itself failed."""
WORST_FIRST = (SAFETY, CRASH, NOT_DETERMINISTIC, LIVENESS, HARNESS, NOT_KNOWN, VALID)
"""The exit code of many runs is the first of these that any of them has."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one checker. `reason` is one sentence, "" if valid. `ops` are the indices of the operations concerned.
    `details` are JSON values for tables and plots. `lost`: the number of acknowledged writes that are gone.
    """

    checker: str
    valid: Validity
    kind: Literal["safety", "liveness", "crash"] = "safety"
    reason: str = ""
    ops: tuple[int, ...] = ()
    details: dict[str, Any] = {}
    lost: int = 0
    seconds: float = 0.0


def word(valid: Validity) -> str:
    """Return a validity in one word; a violation is in capitals."""
    return UNKNOWN if valid == UNKNOWN else "valid" if valid else "INVALID"


def combined(verdicts: Iterable[Verdict]) -> Validity:
    """Return the validity of all verdicts together."""
    found = [verdict.valid for verdict in verdicts]
    return False if False in found else UNKNOWN if UNKNOWN in found else True


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the exit code of a run with these verdicts."""
    codes = {"safety": SAFETY, "liveness": LIVENESS, "crash": CRASH}
    found = {NOT_KNOWN if verdict.valid == UNKNOWN else codes[verdict.kind] for verdict in verdicts if verdict.valid is not True}
    return worst(found)


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of several runs."""
    return min(codes, key=WORST_FIRST.index, default=VALID)
