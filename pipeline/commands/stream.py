"""`kraftlab pipeline stream`: a lake that follows a log during its writing."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.cli.connection import command_config, command_config_option
from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import DONE

from .options import lake_option

if TYPE_CHECKING:
    from ..runs.stream import Step


@click.command(
    "stream",
    short_help="Follow a running quorum or a growing log, and ingest it into a lake.",
    epilog="""\b
Examples:
  kraftlab pipeline stream quorum://127.0.0.1:9092 --lake /data/lake
  kraftlab pipeline stream /tmp/lab/controller-3000/metadata --lake /data/lake --once

\b
A quorum is followed as an observer, up to the high watermark; its leader is found through the gRPC endpoints of any nodes
(quorum://HOST:PORT[,HOST:PORT]). Under TLS, Spark processes on other machines need the files of --command-config too. When a
micro-batch's line is printed, its rows are in bronze, silver and gold. Ctrl-C ends the command after the current micro-batch.
However it ends, the next run continues without losing or repeating a row.

\b
Exit code 1: no controller answered at the start or with --once, or the log differs from the lake's.""",
)
@click.argument("place", metavar="LOGDIR|quorum://HOST:PORT")
@lake_option
@click.option("--once", is_flag=True, help="Stop after the records that are committed now; default: keep following.")
@click.option("--max-records", metavar="N", type=click.IntRange(min=1), help="Approximate number of records of a micro-batch.")
@click.option(
    "--trigger",
    "trigger",
    metavar="TIME",
    default="5s",
    show_default=True,
    help="Interval between checks for new records: 5s, 500ms.",
)
@command_config_option()
@json_option
def stream(place: str, lake_uri: str, once: bool, max_records: int | None, trigger: str, as_json: bool) -> int:
    """Ingest new records in micro-batches, and update the tables of all layers after each."""
    from ..lake.commits import Lake
    from ..runs.stream import followed
    from ..runs.stream import stream as run
    from .spark import spark_session

    output = Output(as_json)
    trigger_s = _seconds(trigger)

    def show(step: Step) -> None:
        gold = ", ".join(f"{rows:,} {table.removeprefix('gold.')}" for table, rows in step.rows.items() if rows)
        took = f"{step.batches} batches, {step.seconds:.1f} s"
        output.lines([f"batch {step.number}: offsets {step.lo} to {step.hi - 1}, {took}; gold: {gold or 'nothing yet'}"])
        output.result(msgspec.to_builtins(step))
        sys.stdout.flush()

    def warn(text: str) -> None:
        click.echo(text, err=True)

    lake = Lake(lake_uri)
    config = command_config()
    source = followed(lake, place, None if config is None else str(Path(config).absolute()))
    with lake.writing(), spark_session() as spark:
        steps = run(spark, lake, source, once=once, max_records=max_records, trigger_s=trigger_s, on_step=show, on_warning=warn)
    if not steps:
        output.lines(["Nothing new."])
    return DONE


def _seconds(text: str) -> float:
    """Parse `5s`, `500ms`, `5`."""
    number, scale = (text[:-2], 1000.0) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        seconds = float(number) / scale
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise click.BadParameter(f"invalid duration {text!r}: expected e.g. 500ms, 5s", param_hint="--trigger")
    return seconds
