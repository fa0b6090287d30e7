"""The beginnings of traces of seeds, for the check against the specification (quorum/spec)."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from kraftlab.quorum.spec.actions import Line, cut

from .faults import FAULTS
from .runner import run_seed

UNKNOWN_FAULTS = ("replace-disk", "rot")
"""Faults that the specification does not know: it has one disk per node, and no damage."""


class _Enough(Exception):
    """A trace is long enough."""


def traced(seed: int, most: int, *, mutant: str | None = None) -> list[Line]:
    """Return the first lines of the trace of a seed, at most so many, without faults that the specification does not know."""
    lines: list[str] = []

    def take(line: str) -> None:
        lines.append(line)
        if len(lines) > most:
            raise _Enough

    with suppress(_Enough):
        run_seed(seed, faults=[name for name in FAULTS if name not in UNKNOWN_FAULTS], trace=take, mutant=mutant)
    return cut([msgspec.json.decode(line) for line in lines], most)
