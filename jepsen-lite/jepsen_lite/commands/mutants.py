"""`kraftlab chaos mutants`: plant the field's classic bugs and measure how long each stays hidden."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

import click

from kraftlab.checking.mutant import MutantDoesNotApply
from kraftlab.cli.output import Output, json_option, unknown_name
from kraftlab.common.exit_codes import DONE, FAILED

from ..command import HarnessError, WrongUse
from ..mutants.hunt import KILLED, NOT_HERE, SURVIVED, HuntResult, hunt_all
from ..mutants.smallest_example import Least, Size
from ..mutants.table import CANARY, MUTATIONS, STRETCH, game_of
from .mutant_pairs import hunt_chosen


class Budget(click.ParamType):  # type: ignore[type-arg]
    """A number of seconds: 15, 15s, 2m."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        number, factor = (text[:-1], 60) if text.endswith("m") else (text.removesuffix("s"), 1)
        try:
            seconds = float(number) * factor
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < math.inf:
            self.fail(f"invalid duration {value}: expected e.g. 15s or 2m", param, ctx)
        return seconds


@click.command(
    short_help="Plant bugs and check that they are found.",
    epilog="""\b
Examples:
  kraftlab chaos mutants
  kraftlab chaos mutants --ids R1,R8,C1 --budget 1m
  kraftlab chaos mutants --ids canary
  kraftlab chaos mutants --ids R8,C3 --shrink
  kraftlab chaos mutants --ids M1,M2,M3,M4,M5,M6,M7,M8 --pairs
  kraftlab chaos mutants --jobs 1 --json

\b
Exit code 1 if a bug was not found.""",
)
@click.option("--ids", metavar="ID[,…]", default="", help="Plant only these bugs, for example R1,canary (default: all).")
@click.option(
    "--budget",
    type=Budget(),
    default="15s",
    show_default=True,
    help="Maximum processor time per planted bug, for example 15s or 2m.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=lambda: os.cpu_count() or 1,
    show_default="one per processor",
    metavar="N",
    help="Number of processes.",
)
@click.option("--shrink", "shrinks", is_flag=True, help="Shrink each failing seed, with another --budget of time.")
@click.option(
    "--pairs", "in_pairs", is_flag=True, help="Plant two bugs of the mover (M, X1 to X3) at once, and check all crash images."
)
@json_option
def mutants(ids: str, budget: float, jobs: int, shrinks: bool, in_pairs: bool, as_json: bool) -> int:
    """Plant known bugs in the code under test, one at a time, and play seeds of the simulators until each is found.

    Each line has the bug, the seeds and processor seconds that it took to find it, and what found it: a rule of the simulator, or
    checkers of the clients' history. The canary is a real node whose fsyncs do nothing until its power is cut. With --shrink each
    failing seed is made as small as possible: fewer faults, nodes and operations, less time.
    """
    chosen = _chosen(ids)
    out = Output(as_json)
    if in_pairs:
        return hunt_chosen(chosen if ids else (), jobs, out)
    hunted: list[HuntResult] = []
    ended = DONE
    begun = time.monotonic()
    try:
        for one in hunt_all(chosen, budget_s=budget, jobs=jobs, shrinks=shrinks):
            hunted.append(one)
            out.lines(lines_of(one))
    except MutantDoesNotApply as error:
        text = f"a planted bug no longer fits the code: {error}"
        if not hunted:
            raise HarnessError(text) from error
        out.findings([f"Error: {text}"])
        ended = FAILED
    real_s = time.monotonic() - begun
    out.lines(["", *score_lines(hunted, real_s)])
    out.result(document(hunted, real_s))
    return FAILED if any(one.status == SURVIVED for one in hunted) else ended


def _chosen(ids: str) -> list[str]:
    names = [name.strip().upper() for name in ids.split(",") if name.strip()]
    unknown = sorted(set(names) - MUTATIONS.keys())
    if unknown:
        raise WrongUse(unknown_name("mutation", unknown[0], MUTATIONS))
    return names or list(MUTATIONS)


def lines_of(one: HuntResult) -> list[str]:
    """Return the line of a mutation, and one line per bug if it has several."""
    oracle = ", ".join(one.oracles) or one.status
    lines = [f"{one.id:<4} {one.about:<62} {one.seeds:>5} seeds {one.seconds:>7.2f} s  {oracle}"]
    for finding in one.findings:
        if len(one.findings) > 1:
            row = f"{finding.attempts:>5}       {finding.seconds:>7.2f} s  {finding.rule or 'not found'}"
            lines.append(f"       {finding.id:<59} {row}")
        if finding.evidence is not None:
            lines.append(f"         {_least_line(finding.evidence)}")
    if one.why:
        lines.append(f"       {one.why}")
    return lines


def _least_line(least: Least) -> str:
    size, of = least.size, least.of
    kinds = f" ({', '.join(least.kinds)})" if least.kinds else ""
    besides = f"; but not {', '.join(repr(name) for name in least.weather)}" if least.weather else ""
    end = "" if least.is_least else ", not finished"
    return (
        f"{size.faults} of {of.faults} faults{kinds}, {size.operations} of {of.operations} operations, "
        f"{size.nodes} of {of.nodes} nodes{besides}; {least.replays} replays in {least.seconds:.1f} s{end}"
    )


def score_lines(hunted: Sequence[HuntResult], real_s: float) -> list[str]:
    """Return the number of mutations killed and the time it took."""
    score = document(hunted, real_s)["score"]
    lines = []
    for name, what in (("core", "bugs of Raft, controllers and moves"), ("stretch", "other bugs (X)")):
        if score[name]:
            lines.append(f"{score[f'{name}_killed']} of {score[name]} {what} killed")
    if score["median_s"] is not None:
        lines.append(
            f"a bug took {score['median_s']:.2f} processor s in the median, {score['worst_s']:.1f} s at most; "
            f"all together {score['seconds']:.0f} processor s in {real_s:.0f} s"
        )
    shrunk = score["shrunk"]
    if shrunk is not None:
        lines.append(
            f"{shrunk['bugs']} shrunk in {shrunk['seconds']:.0f} processor s and {shrunk['replays']} replays; "
            f"{shrunk['not_ended']} not finished"
        )
        for name in Size._fields:
            sizes = shrunk[name]
            lines.append(
                f"  {name:<10} {sizes['median']:g} in the median, {sizes['p90']} in 90 %, {sizes['worst']} at most; "
                f"at most {sizes['goal']} in {sizes['within_goal_percent']:g} %"
            )
    for status, what in ((SURVIVED, "survived"), (NOT_HERE, "cannot be hunted here")):
        ids = [one.id for one in hunted if one.status == status]
        if ids:
            lines.append(f"{what}: {', '.join(ids)}")
    return lines


def document(hunted: Sequence[HuntResult], real_s: float) -> dict[str, Any]:
    """Return the document for --json."""
    here = [one for one in hunted if one.status != NOT_HERE]
    core = [one for one in here if one.id != CANARY and not one.id.startswith(STRETCH)]
    stretch = [one for one in here if one.id.startswith(STRETCH)]
    findings = [finding for one in hunted for finding in one.findings]
    seconds = [finding.seconds for finding in findings if finding.found]
    return {
        "score": {
            "killed": sum(one.status == KILLED for one in here),
            "hunted": len(here),
            "core_killed": sum(one.status == KILLED for one in core),
            "core": len(core),
            "stretch_killed": sum(one.status == KILLED for one in stretch),
            "stretch": len(stretch),
            "survived": [one.id for one in hunted if one.status == SURVIVED],
            "not_here": [one.id for one in hunted if one.status == NOT_HERE],
            "median_s": round(statistics.median(seconds), 3) if seconds else None,
            "worst_s": round(max(seconds), 3) if seconds else None,
            "seconds": round(sum(one.seconds for one in hunted), 3),
            "real_s": round(real_s, 3),
            "shrunk": _shrunk_score([finding.evidence for finding in findings if finding.evidence is not None]),
        },
        "mutations": [
            {
                "id": one.id,
                "mutation": one.about,
                "status": one.status,
                "why": one.why,
                "bugs": [
                    {
                        "name": finding.id,
                        "game": game_of(finding.id),
                        "found": finding.found,
                        "oracle": finding.rule,
                        "words": finding.words,
                        "seeds": finding.attempts,
                        "seconds": round(finding.seconds, 3),
                        "least": _least_document(finding.evidence) if finding.evidence is not None else None,
                    }
                    for finding in one.findings
                ],
            }
            for one in hunted
        ],
    }


GOALS = Size(faults=8, operations=10, nodes=5)
"""The size of an example that a person can still read."""


def _shrunk_score(least: Sequence[Least]) -> dict[str, Any] | None:
    if not least:
        return None
    sizes = {name: _spread([getattr(one.size, name) for one in least], getattr(GOALS, name)) for name in Size._fields}
    return {
        "bugs": len(least),
        "not_ended": sum(not one.is_least for one in least),
        "replays": sum(one.replays for one in least),
        "seconds": round(sum(one.seconds for one in least), 3),
        **sizes,
    }


def _spread(numbers: Sequence[int], goal: int) -> dict[str, Any]:
    ordered = sorted(numbers)
    return {
        "median": statistics.median(ordered),
        "p90": ordered[-(-9 * len(ordered) // 10) - 1],
        "worst": ordered[-1],
        "goal": goal,
        "within_goal_percent": round(100 * sum(number <= goal for number in ordered) / len(ordered), 1),
    }


def _least_document(least: Least) -> dict[str, Any]:
    return {
        **{name: getattr(least.size, name) for name in Size._fields},
        "of": least.of._asdict(),
        "kinds": list(least.kinds),
        "weather": list(least.weather),
        "replays": least.replays,
        "seconds": round(least.seconds, 3),
        "is_least": least.is_least,
    }
