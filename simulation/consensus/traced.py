"""The beginnings of traces of seeds, for the check against the specification (quorum/spec)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from kraftlab.checking.mutant import planted
from kraftlab.quorum.spec.actions import Line, cut

from .faults import FAULTS
from .mutants import MUTANTS
from .options import SimulationOptions, draw_options
from .runner import WorldFactory, play

UNKNOWN_FAULTS = ("replace-disk", "rot")
"""Faults that the specification does not know: it has one disk per node, and no damage."""


class _Enough(BaseException):
    """A trace is long enough. Ends the run as Ctrl-C does, and is not a violation."""


def traced(seed: int, most: int) -> list[Line]:
    """Return the first lines of the trace of a seed, at most so many, without faults that the specification does not know."""
    return traced_options(draw_options(seed, known_faults(None)), most)


def known_faults(names: Iterable[str] | None) -> list[str]:
    """Return those of the faults, None for all, that the specification knows."""
    return [name for name in (FAULTS if names is None else names) if name not in UNKNOWN_FAULTS]


def traced_options(
    options: SimulationOptions, most: int, mutant: str | None = None, make_world: WorldFactory | None = None
) -> list[Line]:
    """Return the first lines of the trace of a run with these options, with a bug planted."""
    lines: list[str] = []

    def take(line: str) -> None:
        lines.append(line)
        if len(lines) > most:
            raise _Enough

    with suppress(_Enough), planted(MUTANTS[mutant] if mutant else None):
        play(options, trace=take, make_world=make_world, with_tail=False)
    return _known_part(cut([msgspec.json.decode(line) for line in lines], most))


def _known_part(lines: list[Line]) -> list[Line]:
    """Return the lines before a node starts on another or a damaged disk: the end of a run replaces disks that are gone."""
    directories: dict[int, str] = {}
    for at, line in enumerate(lines):
        is_known = line["event"] != "boot" or directories.setdefault(line["node"], line["directory"]) == line["directory"]
        if not is_known or line.get("repairing"):
            return lines[:at]
    return lines
