"""`kraftlab chaos mutants --pairs`: two bugs of the mover at once, in every image that a crash may leave."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kraftlab.broker.crash_images.mutants import BUGS, Hunted
from kraftlab.broker.crash_images.pairs import hunt_pairs, pairs, shows
from kraftlab.cli.output import Output

from ..command import WrongUse
from ..verdicts import SAFETY, VALID


def hunt_chosen(ids: Sequence[str], jobs: int, out: Output) -> int:
    """The exit code: SAFETY if a pair does not show that has to. WrongUse if there are no two bugs of these mutations."""
    names = pairs(ids)
    if not names:
        known = ", ".join(dict.fromkeys(name.partition("-")[0] for name in BUGS))
        raise WrongUse(f"{', '.join(ids)} has no two bugs that can be paired; pairs are of bugs of the mover: {known}")
    hunted: list[Hunted] = []
    begun = time.monotonic()
    for one in hunt_pairs(names, jobs):
        hunted.append(one)
        out.lines([line_of(one)])
    score = document(hunted, time.monotonic() - begun)
    out.lines(["", *score_lines(score)])
    out.result(score)
    return SAFETY if score["missed"] else VALID


def line_of(one: Hunted) -> str:
    """A pair's line."""
    what = f"{one.script}: {one.crash}" if one.found else "no image shows it"
    news = "" if one.found == shows(one.name) else ", which is news" if one.found else ", and one should"
    return f"{one.name:<28} {one.images:>6,} images {one.seconds:>7.2f} s  {what}{news}"


def score_lines(score: dict[str, Any]) -> list[str]:
    lines = [
        f"{score['shown']} of {score['pairs']} pairs show; {score['images']:,} images, {score['seconds']:.0f} s of a core, "
        f"in {score['real_s']:.0f} s"
    ]
    for name, what in (("hidden", "in no image"), ("missed", "should show, and do not"), ("news", "were not known to show")):
        if score[name]:
            lines.append(f"{what}: {', '.join(score[name])}")
    return lines


def document(hunted: Sequence[Hunted], real_s: float) -> dict[str, Any]:
    """For --json."""
    return {
        "pairs": len(hunted),
        "shown": sum(one.found for one in hunted),
        "hidden": [one.name for one in hunted if not one.found],
        "missed": [one.name for one in hunted if not one.found and shows(one.name)],
        "news": [one.name for one in hunted if one.found and not shows(one.name)],
        "images": sum(one.images for one in hunted),
        "seconds": round(sum(one.seconds for one in hunted), 3),
        "real_s": round(real_s, 3),
        "each": [one._asdict() for one in hunted],
    }
