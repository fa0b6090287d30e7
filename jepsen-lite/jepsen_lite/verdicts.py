"""Verdicts of checkers.

Safety and liveness are judged separately. False beats "unknown" beats True: a run in which one checker found a violation is
invalid, even if others could not decide.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from kraftlab.common.exit_codes import DONE, FAILED, UNFINISHED

Validity = bool | Literal["unknown"]
UNKNOWN: Literal["unknown"] = "unknown"


class Ending(enum.Enum):
    """The ending of a run, worst first; many runs end as the worst of them. HARNESS: the harness itself failed."""

    SAFETY = enum.auto()
    CRASH = enum.auto()
    LIVENESS = enum.auto()
    HARNESS = enum.auto()
    NOT_KNOWN = enum.auto()
    VALID = enum.auto()

    @property
    def exit_code(self) -> int:
        return {Ending.VALID: DONE, Ending.NOT_KNOWN: UNFINISHED}.get(self, FAILED)


SAFETY, CRASH, LIVENESS, HARNESS, NOT_KNOWN, VALID = Ending


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


def ending(verdicts: Iterable[Verdict]) -> Ending:
    """Return the ending of a run with these verdicts."""
    codes = {"safety": SAFETY, "liveness": LIVENESS, "crash": CRASH}
    found = {NOT_KNOWN if verdict.valid == UNKNOWN else codes[verdict.kind] for verdict in verdicts if verdict.valid is not True}
    return worst(found)


def worst(endings: Iterable[Ending]) -> Ending:
    """Return the ending of several runs."""
    return min(endings, key=lambda one: one.value, default=VALID)
