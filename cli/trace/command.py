"""`kraftlab trace`: traces of the quorum, held against its TLA+ specification (quorum/spec)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlab.common.exit_codes import DONE, FAILED, MACHINE

from ..command_groups import CommandGroup
from ..completion.values import offer_words
from ..output import CommandFailed, Output, WrongUse, json_option, unknown_name
from ..progress import progress
from ..tables import aligned

if TYPE_CHECKING:
    from kraftlab.quorum.spec.traces import Verdict

TOGETHER = 20
"""Traces that share one run of TLC."""


def _models(context: click.Context) -> Iterable[str]:
    from kraftlab.quorum.spec.models import MODELS

    return MODELS


@click.group(
    "trace",
    cls=CommandGroup,
    epilog="""\b
Examples:
  kraftlab sim --seed 17 --ndjson seed-17.ndjson
  kraftlab trace check seed-17.ndjson
  kraftlab trace check node-1.ndjson node-2.ndjson node-3.ndjson   # one cluster: merged
  kraftlab trace check store/register/latest --json                # the trace of a run of `kraftlab chaos`
  kraftlab trace simulate --seeds 200
  kraftlab trace models                                            # check the specification itself""",
)
def trace() -> None:
    """Check traces of the quorum against its TLA+ specification.

    A trace is accepted if some behaviour of the specification explains every line. Needs Java 11 or newer, and
    Maven, which brings TLC from Maven Central with the first call."""


@trace.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="FILE…")
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Check only the first N lines.")
@json_option
def check(files: tuple[Path, ...], first: int | None, as_json: bool) -> int:
    """Check one trace: a file with all nodes, the files of the nodes of one cluster, or a run's directory of `kraftlab chaos`.

    A node writes its trace to the file of its config kraftlab.trace.file; `kraftlab sim --ndjson` writes all nodes to one file.
    Exit code 1 if no behaviour of the specification explains a line."""
    out = Output(as_json)
    with _tlc():
        from kraftlab.quorum.spec import reading, traces
        from kraftlab.quorum.spec.actions import cut

        lines = cut(reading.read(files), first)
        (verdict,) = traces.check([lines])
    out.lines(_verdict(verdict, lines))
    out.result(
        {
            "accepted": verdict.accepted,
            "events": verdict.events,
            "first_unexplained": verdict.first_unexplained,
            "action": verdict.action or None,
            "broken": verdict.broken or None,
            "line": lines[verdict.first_unexplained - 1] if verdict.first_unexplained else None,
            "before": verdict.before or None,
            "coverage": verdict.coverage,
            "seconds": round(verdict.seconds, 2),
        }
    )
    return DONE if verdict.accepted else FAILED


@trace.command()
@click.option("--seeds", type=click.IntRange(min=1), default=200, show_default=True, metavar="N", help="Number of seeds.")
@click.option("--start", type=click.IntRange(min=0), default=0, show_default=True, metavar="S", help="The first seed.")
@click.option(
    "--lines", "most", type=click.IntRange(min=10), default=300, show_default=True, metavar="N", help="Lines of each trace."
)
@json_option
def simulate(seeds: int, start: int, most: int, as_json: bool) -> int:
    """Play seeds of the simulator, and check the beginning of each trace."""
    out, coverage, taken = Output(as_json), Counter[str](), Counter[str]()
    rejected: list[dict[str, Any]] = []
    total_s, events = 0.0, 0
    with _tlc():
        from kraftlab.quorum.spec import traces
        from kraftlab.simulation.consensus.traced import traced

        numbers = range(start, start + seeds)
        groups = [numbers[at : at + TOGETHER] for at in range(0, len(numbers), TOGETHER)]
        started = time.perf_counter()

        def checked() -> Iterator[tuple[int, Verdict]]:
            for group in groups:
                yield from zip(group, traces.check([traced(seed, most) for seed in group]), strict=True)

        for seed, verdict in progress(checked(), seeds, lambda _: f"{len(rejected)} rejected" if rejected else ""):
            coverage += verdict.coverage
            taken.update(verdict.coverage.keys())
            events += verdict.events
            if not verdict.accepted:
                rejected.append({"seed": seed, "first_unexplained": verdict.first_unexplained, "action": verdict.action})
                out.findings(
                    [f"seed {seed}: line {verdict.first_unexplained} is not explained: {verdict.action} {verdict.broken}"]
                )
        total_s = time.perf_counter() - started
    rows = [("action", "taken", "in traces"), *((do, f"{count:,}", str(taken[do])) for do, count in sorted(coverage.items()))]
    out.lines(aligned(rows, numbers_from=1))
    out.lines(
        [
            f"{seeds - len(rejected)} of {seeds} traces accepted, {events:,} lines in {total_s:.0f} s: "
            f"{1000 * total_s / events:.1f} s per 1,000 lines"
        ]
    )
    document = {"traces": seeds, "rejected": rejected, "events": events, "seconds": round(total_s, 1), "coverage": coverage}
    out.result(document | {"in_traces": taken})
    return FAILED if rejected else DONE


@trace.command()
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=offer_words(_models))
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, metavar="N", help="Threads of TLC.")
@json_option
def models(names: tuple[str, ...], workers: int, as_json: bool) -> int:
    """Check all states of small models of the specification. Without a NAME: all models."""
    out, failed, documents = Output(as_json), False, []
    with _tlc():
        from kraftlab.quorum.spec import models

        unknown = [name for name in names if name not in models.MODELS]
        if unknown:
            raise WrongUse("Error: " + unknown_name("model", unknown[0], models.MODELS))
        for name in names or models.MODELS:
            model, started = models.MODELS[name], time.perf_counter()
            out.lines([f"{name}: {model.about} …"])
            run = models.check(model, workers=workers)
            seconds = time.perf_counter() - started
            failed |= bool(run.violated)
            verdict = f"{run.violated} is broken" if run.violated else "all properties hold"
            out.lines([f"{name}: {verdict}; {run.distinct:,} states, depth {run.depth}, {seconds:.0f} s"])
            out.lines([run.output] if run.violated else [])
            documents.append(
                {"model": name, "violated": run.violated or None, "states": run.distinct, "seconds": round(seconds, 1)}
            )
    out.result(documents)
    return FAILED if failed else DONE


@contextmanager
def _tlc() -> Iterator[None]:
    """Turn the errors of a check into those of a command."""
    from kraftlab.quorum.spec import actions, tlc

    try:
        yield
    except actions.BeyondSpecification as error:
        raise CommandFailed(f"Error: {error}") from error
    except tlc.TlcMissing as error:
        raise CommandFailed(f"Error: {error}", exit_code=MACHINE) from error
    except tlc.TlcFailed as error:
        if found := tlc.TOO_LONG.search(str(error)):
            raise CommandFailed(
                f"Error: this is too long for TLC ({found[0]}): check its beginning with --first N", exit_code=MACHINE
            ) from error
        tail = "\n".join(str(error).splitlines()[-12:])
        raise CommandFailed(f"Error: TLC could not evaluate this:\n{tail}", exit_code=MACHINE) from error


def _verdict(verdict: Verdict, lines: list[dict[str, Any]]) -> list[str]:
    """Return the verdict on one trace as lines for people."""
    if verdict.accepted:
        return [f"accepted: the specification explains all {verdict.events:,} lines ({verdict.seconds:.1f} s)"]
    if verdict.broken:
        return [f"rejected: {verdict.broken} is broken at line {verdict.first_unexplained}", *_around(verdict, lines)]
    return [
        f"rejected: no action of the specification explains line {verdict.first_unexplained} of {verdict.events:,} "
        f"({verdict.action} is not enabled, or leads elsewhere)",
        *_around(verdict, lines),
    ]


def _around(verdict: Verdict, lines: list[dict[str, Any]]) -> list[str]:
    """Return the lines before the one in question, that line, and the node's state before it."""
    at = verdict.first_unexplained or 1
    node = lines[at - 1]["node"]
    earlier = [(number, line) for number, line in enumerate(lines[:at], 1) if line["node"] == node][-4:]
    return [*(_shown(number, line) for number, line in earlier), "before that line the specification has:", verdict.before]


def _shown(number: int, line: dict[str, Any]) -> str:
    about = line.get("about") or line.get("why") or ""
    variables = " ".join(f"{name}={line[name]}" for name in ("epoch", "leader", "voted", "end", "hw", "durable"))
    return f"  {number:6} node {line['node']} {line['event']} {about} | {line['state']} {variables}"
