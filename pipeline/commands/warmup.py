"""`kraftlab pipeline warmup`: halves the start of every later command."""

from __future__ import annotations

import time

import click
import msgspec

from kraftlab.cli.output import Output, json_option


class WarmupReport(msgspec.Struct, frozen=True):
    """The document of `--json`."""

    archive: str
    size_bytes: int
    built: bool
    seconds: float


@click.command(
    "warmup",
    short_help="Make Spark start faster from now on.",
    epilog="""\b
Example:
  kraftlab pipeline warmup""",
)
@json_option
def warmup(as_json: bool) -> None:
    """Archive the classes that Spark's JVM loads, so that later sessions start in about half the time. This takes half a
    minute, and 200 MB under ~/.cache/kraftlab. Run it again after updating Java or PySpark.
    """
    from ..session.warmup import warm_up

    began = time.monotonic()
    warmed = warm_up(progress=lambda line: click.echo(line, err=True))
    output = Output(as_json)
    megabytes = f"{warmed.size_bytes / 1e6:.0f} MB"
    output.lines([f"{'Written' if warmed.built else 'There already'}: {warmed.archive.directory} ({megabytes})"])
    seconds = round(time.monotonic() - began, 1)
    output.result(WarmupReport(str(warmed.archive.directory), warmed.size_bytes, warmed.built, seconds))
