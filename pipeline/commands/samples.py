"""`kraftlab pipeline samples`: the brokers' descriptions of their log directories, into the lake."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from kraftlab.cli.connection import caller_options, connect, named_servers, server_option
from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import DONE, FAILED

from ..errors import WrongUse
from .options import cluster_to_ask, lake_option

if TYPE_CHECKING:
    import pyarrow as pa

    from ..lake.commits import Lake

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""


@click.command(
    "samples",
    short_help="Sample brokers' log directories into a lake.",
    epilog="""\b
Examples:
  kraftlab pipeline samples --lake /data/lake
  kafka-log-dirs.sh --bootstrap-server kafka:9092 --describe | kraftlab pipeline samples --input - --lake /data/lake

\b
Needs no Spark. Exit code 1: a directory is offline (the sample is taken).""",
)
@lake_option
@server_option()
@click.option(
    "--input",
    "file",
    metavar="FILE",
    type=click.File("rb"),
    help="Read this output of log-dirs --describe, kraftlab's or Kafka's, instead of asking a cluster; -: stdin.",
)
@click.option(
    "--at",
    "sampled_ms",
    metavar="MS",
    type=click.IntRange(0, LATEST_MS),
    help="Time of the sample, in milliseconds since 1970 (default: now).",
)
@caller_options
@json_option
def samples(lake_uri: str, file: BinaryIO | None, sampled_ms: int | None, as_json: bool) -> int:
    """Add one sample of all log directories to silver.log_dir_samples."""
    from ..lake.commits import Lake
    from ..tables.log_dir_samples import samples as rows_of

    if named_servers() is not None and file is not None:
        raise WrongUse("--bootstrap-server and --input both name a source of the sample; give one of them")
    document = file.read() if file is not None else _describe()
    at_ms = time.time_ns() // 1_000_000 if sampled_ms is None else sampled_ms
    lake = Lake(lake_uri)
    topics = lake.arrow("silver.topics", ["topic_id", "name", "offset"]).sort_by("offset").to_pylist()
    rows = rows_of(document, at_ms, {row["name"]: row["topic_id"] for row in topics if row["name"]})
    add(lake, rows, at_ms)
    offline = sum(error is not None for error in rows.column("error").to_pylist())
    output = Output(as_json)
    output.lines([f"{rows.num_rows} rows of {len(set(rows.column('broker_id').to_pylist()))} brokers, sampled at {at_ms}"])
    output.lines([f"{offline} of them of offline directories"] if offline else [])
    output.result({"rows": rows.num_rows, "sampled_ms": at_ms, "offline": offline})
    return FAILED if offline else DONE


def add(lake: Lake, rows: pa.Table, at_ms: int) -> None:
    """Commit the sample of a moment, in place of an earlier one of that moment."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ..lake.compaction import compact
    from ..tables.log_dir_samples import TABLE

    lo, hi, details = at_ms, at_ms + 1, dict[str, str]()
    with lake.writing():
        for part in lake.active(TABLE):
            if part.lo <= at_ms < part.hi:  # samples of several moments were merged
                others = lake.arrow_of(part)
                rows = pa.concat_tables([others.filter(pc.not_equal(others["sampled_ms"], at_ms)), rows])
                lo, hi, details = part.lo, part.hi, dict(part.details)
        lake.commit_arrow(rows, TABLE, lo, hi, details=details)
        compact(lake, [TABLE])


def _describe() -> bytes:
    from kraftlab.cli.partitions.log_dir_text import document

    with connect(cluster_to_ask()) as client:
        brokers = sorted(broker.broker_id for broker in client.describe_cluster().brokers)
        described = {broker: client.describe_log_dirs(broker) for broker in brokers}
    return msgspec.json.encode(document(described, extended=True))
