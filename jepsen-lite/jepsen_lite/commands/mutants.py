"""`kraftlab mutants`: plant known bugs in the code under test, and see that each is found."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence

import click

from kraftlab.checking.mutant import Finding
from kraftlab.checking.workers import ends_with_its_workers
from kraftlab.cli.completion.values import offer_words
from kraftlab.cli.output import Output, WrongUse, json_option, unknown_name
from kraftlab.cli.progress import progress
from kraftlab.cli.tables import aligned
from kraftlab.common.exit_codes import DONE, FAILED

from ..mutants.rooms import ROOMS, hunt_all, room_of


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


def _ids(room: str | None) -> list[str]:
    return [id for name, bugs in ROOMS.items() if room in (None, name) for id in bugs]


def _offered(context: click.Context) -> Iterable[str]:
    """Return the bugs of the room on the line: click keeps it among the arguments while it completes an option."""
    return _ids(next((word for word in context.args if word in ROOMS), None))


@click.command(
    epilog="""\b
Rooms:
  consensus  elections, replication, voters, snapshots and storage: seeds of `kraftlab sim`
  metadata   the controller, with brokers as its clients: seeds of the workload admin in the simulated world
  clients    what only clients see: a workload's history in the simulated world, a real node whose fsyncs do nothing
  disks      moves between log directories, and compaction: every image that a crash can leave

\b
Examples:
  kraftlab mutants
  kraftlab mutants consensus --list
  kraftlab mutants --only vote-forgotten --only answer-before-commit
  kraftlab mutants metadata --seeds 10 --jobs 2
  kraftlab mutants disks --budget 1m --json

\b
Exit code 1 if a bug was not found.""",
)
@click.argument("room", required=False, type=click.Choice(tuple(ROOMS)))
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    shell_complete=offer_words(_offered),
    help="Plant only this bug; repeatable (default: all of the room, or of all rooms).",
)
@click.option("--list", "lists", is_flag=True, help="Show the planted bugs without hunting them.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Number of processes (default: one per core).")
@click.option("--budget", type=Budget(), help="Maximum processor time per bug, for example 15s or 2m (default: none).")
@click.option(
    "--seeds", type=click.IntRange(min=1), metavar="N", help="Give up after N seeds per bug (default: the limit of each bug)."
)
@json_option
def mutants(
    room: str | None,
    only: tuple[str, ...],
    lists: bool,
    jobs: int | None,
    budget: float | None,
    seeds: int | None,
    as_json: bool,
) -> int:
    """Plant known bugs in the code under test, one at a time, and make attempts until a rule breaks. ROOM: all without it.

    Each line has the bug, the attempts (seeds, or crash images) and processor seconds until it was found, and the rule that
    broke.
    """
    known = _ids(room)
    unknown = [id for id in only if id not in known]
    if unknown:
        raise WrongUse("Error: " + unknown_name(f"planted bug{f' of {room}' if room else ''}", unknown[0], known))
    chosen = list(dict.fromkeys(only)) or known
    out = Output(as_json)
    if lists:
        out.lines(aligned([["planted bug", "room", "what it is"], *([id, room_of(id), _why(id)] for id in chosen)]))
        out.result([{"id": id, "room": room_of(id), "why": _why(id)} for id in chosen])
        return DONE
    begun = time.monotonic()
    processes = jobs or min(os.cpu_count() or 1, len(chosen))
    hunted = hunt_all(chosen, seeds=seeds, budget_s=math.inf if budget is None else budget, processes=processes)
    findings: list[Finding] = []
    width = max(map(len, chosen))
    out.lines([_row("planted bug".ljust(width), "room", "attempts", "rule", "seconds", "what it is")])
    with ends_with_its_workers():
        for finding in progress(hunted, len(chosen), lambda finding: finding.id):
            findings.append(finding)
            out.lines([line_of(finding, width)])
    out.lines(summary(findings, time.monotonic() - begun))
    out.result([_document(finding) for finding in findings])
    return FAILED if any(finding.found is False for finding in findings) else DONE


def _why(id: str) -> str:
    return ROOMS[room_of(id)][id].why


def line_of(finding: Finding, width: int) -> str:
    """Return the line of a bug, with so many columns for names."""
    attempts = f"{finding.attempts:,}" if finding.found else "-" if finding.found is None else f"not in {finding.attempts:,}"
    seconds = f"{finding.seconds:.1f}"
    return _row(finding.id.ljust(width), room_of(finding.id), attempts, finding.rule or "-", seconds, _why(finding.id))


def _row(name: str, room: str, attempts: str, rule: str, seconds: str, why: str) -> str:
    return f"{name}  {room:<9}  {attempts:>10}  {rule:<24}  {seconds:>7}  {why}"


def summary(findings: Sequence[Finding], real_s: float) -> list[str]:
    """Return the number of bugs found and the effort, and what happened to the others."""
    found = [finding for finding in findings if finding.found]
    here = [finding for finding in findings if finding.found is not None]
    effort = ""
    if found:
        attempts = statistics.median(finding.attempts for finding in found)
        effort = f", after {attempts:g} attempts in the median"
    seconds = sum(finding.seconds for finding in findings)
    lines = [f"{len(found)} of {len(here)} found{effort}; {seconds:.0f} processor s in {real_s:.0f} s"]
    lines += [f"not found: {each.id}{f': {each.words}' if each.words else ''}" for each in here if not each.found]
    return [*lines, *(f"cannot be hunted here: {each.id}: {each.words}" for each in findings if each.found is None)]


def _document(finding: Finding) -> dict[str, object]:
    return {
        "id": finding.id,
        "room": room_of(finding.id),
        "why": _why(finding.id),
        "found": finding.found,
        "attempts": finding.attempts,
        "steps": finding.steps or None,
        "rule": finding.rule,
        "words": finding.words,
        "seconds": round(finding.seconds, 3),
    }
