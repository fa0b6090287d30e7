"""`kraftlab import`: import captured segment files into a running cluster."""

from __future__ import annotations

import time
from pathlib import Path

import click

from kraftlab.common.exit_codes import DONE
from kraftlab.common.sizes import bytes_text

from ..completion.values import complete_topics
from ..connection import bootstrap_option, caller_options, connect
from ..output import Output, json_option


@click.command(
    "import",
    epilog="""\b
Example:
  kraftlab import --directory examples/capture/segments

\b
The topics must exist. A partition must be empty, or end where its files begin.
Brokers soon delete records that are older than the topic's retention.ms (default: 7 days). To keep captured records, create the
topic with --config retention.ms=-1.""",
)
@bootstrap_option
@caller_options
@click.option("--directory", required=True, metavar="DIR", help="Directory with TOPIC-N/*.log, like a broker's log directory.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_topics,
    help="Only this topic; repeatable.",
)
@json_option
def import_segments(directory: str, topics: tuple[str, ...], as_json: bool) -> int:
    """Write the records of segment files (record batch v2) to the leaders, with their offsets; followers replicate them."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from kraftlab.client import DataClient

    from .segments import find_partitions, import_partition

    out = Output(as_json)
    started = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    sources = find_partitions(Path(directory), topics)
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, disable=as_json or not console.is_terminal, transient=True)
    with connect(changes=True) as admin, DataClient(admin) as data, bar:
        task = bar.add_task("importing", total=sum(source.size_bytes for source in sources))
        imported = []
        for source in sources:
            bar.update(task, description=f"{source.topic}-{source.partition}")
            imported.append(import_partition(data, source, lambda size: bar.advance(task, size)))
    seconds = time.monotonic() - started
    records = sum(entry.records for entry in imported)
    size_bytes = sum(entry.size_bytes for entry in imported)
    out.lines([f"Imported {records} records ({bytes_text(size_bytes)}) into {len(imported)} partitions in {seconds:.1f} s."])
    out.result({"seconds": round(seconds, 3), "records": records, "bytes": size_bytes, "partitions": imported})
    return DONE
