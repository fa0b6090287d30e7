"""`kraftlab pipeline report`: the gold tables as a page, as text and as JSON."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import DONE, FAILED

if TYPE_CHECKING:
    from ..lake.commits import Lake
    from ..reports.content import ReassignmentReport


@click.command(
    "report",
    short_help="Write one page with plots of moves, catch-up, skew and drift.",
    epilog="""\b
Examples:
  kraftlab pipeline report /tmp/lab/controller-*/metadata --out report.html      # from logs to the page; no lake is kept
  kraftlab pipeline report examples/metadata-log      # a recording; files packed with xz are unpacked
  kraftlab pipeline report --lake /tmp/lake --out report.html
  kraftlab pipeline report --lake /tmp/lake --json | jq .statuses

\b
Exit code 1: there are findings (drift, log dirs over the band, damage, divergence).""",
)
@click.argument("logs", metavar="[LOGDIR...]", nargs=-1)
@click.option(
    "--lake",
    "place",
    metavar="URI",
    help="Lake with the gold tables; LOGDIRs are ingested into it (default with LOGDIRs: a temporary lake).",
)
@click.option(
    "--out",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="Write the page to FILE.",
)
@json_option
def report(logs: tuple[str, ...], place: str | None, path: Path, as_json: bool) -> int:
    """Report on the gold tables as they were built last. Needs neither Spark nor Java.

    With LOGDIRs, ingest these logs first. Silver and gold tables that the lake lacks are built from its batches; both need Spark.
    """
    from ..errors import WrongUse
    from ..reports import content, page

    with _lake(place, logs) as lake:
        if logs or (set(content.BUILT_OF_LOGS) - set(lake.tables()) and content.BATCHES in lake.tables()):
            _build(lake, logs)
        found = content.gather(lake)
    if place is None:
        found = msgspec.structs.replace(found, lake=" ".join(logs))
    if not found.rows:
        raise WrongUse(
            f"the lake {found.lake} holds no tables; the next step: kraftlab pipeline ingest LOGDIR... --lake {found.lake}"
        )
    try:
        page.write(found, path)
    except OSError as error:
        raise WrongUse(f"{path} cannot be written: {error.strerror}; give another file with --out") from error
    output = Output(as_json)
    output.lines(_lines(found, path))
    output.result({**msgspec.to_builtins(found), "findings": found.findings, "page": str(path)})
    return FAILED if found.findings else DONE


@contextmanager
def _lake(place: str | None, logs: Sequence[str]) -> Iterator[Lake]:
    """Yield the lake at `place`, otherwise a temporary one for logs. WrongUse without both."""
    from ..errors import WrongUse
    from ..lake.commits import Lake

    if place is not None:
        yield Lake(place)
    elif logs:
        with tempfile.TemporaryDirectory(prefix="kraftlab-lake-") as directory:
            yield Lake(directory)
    else:
        raise WrongUse("nothing to report on; give a lake with --lake, or directories with metadata logs")


def _build(lake: Lake, logs: Sequence[str]) -> None:
    """Ingest the logs and build silver and gold, with progress on stderr."""
    from ..runs import build, gold, ingest
    from ..sources.packed import unpacked
    from .spark import spark_session

    with tempfile.TemporaryDirectory(prefix="kraftlab-unpacked-") as directory:
        places = unpacked(logs, Path(directory))
        form = ingest.detect(places).name if logs else None  # before Spark starts, which takes seconds
        with spark_session() as spark:
            if logs:
                _progress(f"ingesting {len(logs)} logs …")
                ingest.ingest(spark, lake, places, format_name=form)
            for layer in (build, gold):
                layer.build(spark, lake, progress=lambda table: _progress(f"building {table} …"))


def _progress(text: str) -> None:
    print(text, file=sys.stderr)


def _lines(found: ReassignmentReport, path: Path) -> Iterator[str]:
    from ..reports import content
    from ..reports.page import duration, moment

    def known(table: str, text: str) -> str:
        return "not built" if table in found.missing else text

    yield f"Reassignments: {known(content.REASSIGNMENTS, f'{found.moves_total or 0:,}{_counted(found.statuses)}')}"
    if found.duration_ms:
        yield "Took:          " + ", ".join(f"{name} {duration(ms)}" for name, ms in found.duration_ms.items())
    if found.catch_up:
        yield "Catch-up:      broker  replicas       median  99 % within      slowest  never"
        for each in found.catch_up:
            spans = (each.quartiles_ms[1], each.p99_ms, each.max_ms)
            yield (
                f"               {each.broker_id:>6}  {each.replicas:>8,}"
                + "".join(f"  {duration(ms):>11}" for ms in spans)
                + f"  {each.never:>5,}"
            )
    for as_of, loads in found.dirs:
        worst = max(loads, key=lambda load: load.ratio)
        over = sum(load.over_band for load in loads)
        most = f"{worst.broker_id}:{worst.path} {worst.ratio:.2f} of the mean"
        yield f"Log dirs:      {len(loads)} at {moment(as_of)}: {over} over the band; the fullest is {most}"
    yield f"RF drift:      {known(content.DRIFT, f'{found.drift_total or 0:,}{_counted(found.drift_kinds)}')}"
    yield (
        f"Leader epochs: {known(content.EPOCHS, f'{len(found.epochs):,}')}; "
        f"divergences: {known(content.DIVERGENCE, _summed(found.divergences))}"
    )
    yield f"Quarantined:   {known(content.QUARANTINE, _summed(found.quarantined))}"
    yield f"Offset gaps:   {known(content.GAPS, _summed(found.gaps))}"
    if found.missing:
        yield f"Not built:     {', '.join(found.missing)}"
    yield f"Page:          {path}"


def _summed(counts: dict[str, int]) -> str:
    return f"{sum(counts.values()):,}{_counted(counts)}"


def _counted(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {kind}' for kind, count in counts.items())})" if counts else ""
