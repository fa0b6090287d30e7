"""What checkers say.

Safety and liveness are judged apart. False beats "unknown" beats True: a run in which one checker found a violation is invalid,
whatever the others could not decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

Validity = bool | Literal["unknown"]
UNKNOWN: Literal["unknown"] = "unknown"

VALID, SAFETY, NOT_KNOWN, LIVENESS, CRASH, NOT_DETERMINISTIC, USAGE, HARNESS = 0, 1, 2, 3, 4, 5, 254, 255
"""Exit codes: valid; safety violated; unknown; liveness; a node crashed by itself; the same seed did something else; wrong use;
the harness itself failed."""
WORST_FIRST = (SAFETY, CRASH, NOT_DETERMINISTIC, LIVENESS, HARNESS, NOT_KNOWN, VALID)
"""Of many runs, which exit code stands for all."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Of one checker. `reason` is one sentence, "" if all is well; `ops` are the indices of the operations that it is about;
    `details` are numbers and lists for tables and plots, JSON values. `lost`: acknowledged writes that are gone.
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
    """Return a validity in one word; a violation stands out."""
    return UNKNOWN if valid == UNKNOWN else "valid" if valid else "INVALID"


def combined(verdicts: Iterable[Verdict]) -> Validity:
    """The validity of all together."""
    found = [verdict.valid for verdict in verdicts]
    return False if False in found else UNKNOWN if UNKNOWN in found else True


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """The exit code of a run that was judged so."""
    codes = {"safety": SAFETY, "liveness": LIVENESS, "crash": CRASH}
    found = {NOT_KNOWN if verdict.valid == UNKNOWN else codes[verdict.kind] for verdict in verdicts if verdict.valid is not True}
    return worst(found)


def worst(codes: Iterable[int]) -> int:
    """The exit code that stands for those of several runs."""
    return min(codes, key=WORST_FIRST.index, default=VALID)
