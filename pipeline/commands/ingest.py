"""`kraftlab pipeline ingest`: logs into bronze."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import DONE, FAILED

from .options import lake_option

if TYPE_CHECKING:
    from ..runs.ingest import IngestReport

SHOWN = 20


@click.command(
    "ingest",
    short_help="Ingest metadata logs into a lake.",
    epilog="""\b
Examples:
  kraftlab pipeline ingest /var/lib/kraftlab/controller-*/metadata --lake /data/lake
  kraftlab pipeline ingest /var/lib/kafka/metadata --lake s3://bucket/lake
  kraftlab pipeline ingest controller-0/metadata --lake lake --from 0 --to 5000

\b
Give the directories of all controllers (or brokers) of one cluster, ours or Kafka's, in one run. Segments
and snapshots are read; those packed with xz (FILE.xz) are unpacked. Without --from it
continues after the last run; without --to it stops where the logs are known
to be committed. A repeated range replaces the old one.

\b
Exit code 1: there are damages or gaps. Nothing is ingested for logs of several clusters or of a cluster other than the lake's,
and for damage with --mode failfast.""",
)
@click.argument("places", metavar="LOGDIR...", nargs=-1, required=True)
@lake_option
@click.option(
    "--from", "lo", metavar="N", type=click.IntRange(min=0), help="First offset to ingest (default: continue after the last run)."
)
@click.option(
    "--to",
    "hi",
    metavar="N",
    type=click.IntRange(min=1),
    help="Offset after the last one; must be committed (default: the known committed end).",
)
@click.option(
    "--mode",
    type=click.Choice(("permissive", "failfast")),
    default="permissive",
    show_default=True,
    help="permissive: skip and report damage; failfast: stop at the first damage.",
)
@click.option("--format", "format_name", type=click.Choice(("kraftlab", "kafka")), help="Format of the logs (default: detected).")
@click.option("--cluster-id", metavar="ID", help="Accept only logs of the cluster with this id.")
@json_option
def ingest(
    places: tuple[str, ...],
    lake_uri: str,
    lo: int | None,
    hi: int | None,
    mode: str,
    format_name: str | None,
    cluster_id: str | None,
    as_json: bool,
) -> int:
    """Read segments and snapshots of the metadata log into bronze.batches, bronze.quarantine and bronze.offset_gaps."""
    from ..lake.commits import Lake
    from ..runs.ingest import detect
    from ..runs.ingest import ingest as run
    from ..sources.packed import unpacked
    from ..sources.survey import find_files
    from .spark import spark_session

    lake = Lake(lake_uri)
    with tempfile.TemporaryDirectory(prefix="kraftlab-unpacked-") as directory:
        logs = unpacked(places, Path(directory))
        find_files(logs)
        form = format_name or detect(logs).name  # before Spark starts, which takes seconds
        with spark_session() as spark:
            report = run(spark, lake, logs, format_name=form, lo=lo, hi=hi, mode=mode, cluster_id=cluster_id)
    output = Output(as_json)
    output.lines(_lines(report, is_first_given=lo is not None))
    output.lines([f"next: kraftlab pipeline report --lake {lake_uri}      # builds silver and gold, and writes a page"])
    output.result(msgspec.to_builtins(report))
    _print_report(report)
    return FAILED if report.faults or _lost(report) else DONE


def _lost(report: IngestReport) -> int:
    return sum(gap.cause != "compacted" for gap in report.gaps)


def _lines(report: IngestReport, *, is_first_given: bool) -> Iterator[str]:
    cluster = report.cluster_id or "with unknown id"
    nodes = ", ".join(str(controller) for controller in report.controllers)
    if report.lo == report.hi:
        what = f"Nothing from offset {report.lo} on" if is_first_given else f"Nothing new: the lake has all below {report.lo}"
        yield f"{what}, and the logs are committed up to {report.committed_end}."
        return
    yield f"{report.format} cluster {cluster}, logs of nodes {nodes}"
    yield f"offsets {report.lo} to {report.hi - 1}: {report.records} records in {report.batches} batches"
    yield f"committed up to {report.committed_end} ({report.how}), the logs end at {report.log_end}"
    for gap in report.gaps:
        yield f"gap: node {gap.controller_id} lacks offsets {gap.from_offset} to {gap.to_offset - 1} ({gap.cause})"


def _print_report(report: IngestReport) -> None:
    """Print damages, for people, on stderr."""
    for damage in report.damages[:SHOWN]:
        note = " (the usual end of a segment during a write)" if damage.is_harmless else ""
        where = f"{damage.segment} of node {damage.controller_id}, position {damage.pos}"
        print(f"{where}: {damage.status}: {damage.detail}{note}", file=sys.stderr)
    if report.damage_count > SHOWN:
        print(f"… and {report.damage_count - SHOWN} more, in bronze.quarantine", file=sys.stderr)
