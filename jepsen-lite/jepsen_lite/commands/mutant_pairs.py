"""`kraftlab chaos mutants --pairs`: two bugs of the mover at once, in every possible crash image."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kraftlab.checking.mutant import Finding
from kraftlab.cli.output import Output
from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.simulation.crash_images.mutants import BUGS
from kraftlab.simulation.crash_images.pairs import hunt_pairs, pairs, shows

from ..command import WrongUse


def hunt_chosen(ids: Sequence[str], jobs: int, out: Output) -> int:
    """Hunt the pairs of these mutations; return SAFETY if a pair that must show does not. WrongUse if no two of their bugs can be
    paired.
    """
    names = pairs(ids)
    if not names:
        known = ", ".join(dict.fromkeys(name.partition("-")[0] for name in BUGS))
        raise WrongUse(f"{', '.join(ids)} has no two bugs that can be paired; only bugs of the mover can: {known}")
    hunted: list[Finding[str]] = []
    begun = time.monotonic()
    for one in hunt_pairs(names, jobs):
        hunted.append(one)
        out.lines([line_of(one)])
    score = document(hunted, time.monotonic() - begun)
    out.lines(["", *score_lines(score)])
    out.result(score)
    return FAILED if score["missed"] else DONE


def line_of(one: Finding[str]) -> str:
    """Return the line of a pair."""
    what = f"{one.evidence}: {one.rule}" if one.found else "no image shows it"
    news = "" if one.found == shows(one.id) else " (unexpected)" if one.found else " (one should)"
    return f"{one.id:<28} {one.attempts:>6,} images {one.seconds:>7.2f} s  {what}{news}"


def score_lines(score: dict[str, Any]) -> list[str]:
    lines = [
        f"{score['shown']} of {score['pairs']} pairs show; {score['images']:,} images, {score['seconds']:.0f} processor s "
        f"in {score['real_s']:.0f} s"
    ]
    for name, what in (("hidden", "shown by no image"), ("missed", "should show but do not"), ("news", "unexpectedly show")):
        if score[name]:
            lines.append(f"{what}: {', '.join(score[name])}")
    return lines


def document(hunted: Sequence[Finding[str]], real_s: float) -> dict[str, object]:
    """Return the document for --json."""
    return {
        "pairs": len(hunted),
        "shown": sum(one.found for one in hunted),
        "hidden": [one.id for one in hunted if not one.found],
        "missed": [one.id for one in hunted if not one.found and shows(one.id)],
        "news": [one.id for one in hunted if one.found and not shows(one.id)],
        "images": sum(one.attempts for one in hunted),
        "seconds": round(sum(one.seconds for one in hunted), 3),
        "real_s": round(real_s, 3),
        "each": [
            {
                "name": one.id,
                "found": one.found,
                "images": one.attempts,
                "script": one.evidence or "",
                "crash": one.rule,
                "fault": one.words,
                "seconds": one.seconds,
            }
            for one in hunted
        ],
    }
