"""`kraftlab delete-records`: let partitions begin at later offsets (kafka-delete-records)."""

from __future__ import annotations

from pathlib import Path

import click

from kraftlab.common.exit_codes import DONE, FAILED

from ..connection import bootstrap_option, caller_options, connect
from ..output import Output, json_option
from ..partition_files import read_partitions

_EXAMPLE = '{"partitions":[{"topic":"t","partition":0,"offset":3}],"version":1}'


@click.command(
    "delete-records",
    epilog="""\b
Examples:
  kraftlab delete-records --offset-json-file offsets.json

\b
offsets.json: {"partitions":[{"topic":"t","partition":0,"offset":3}],"version":1}
Records below the offset are deleted; offset -1 deletes all committed records.""",
)
@bootstrap_option
@click.option(
    "--offset-json-file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON file with partitions and the new first offset of each; see below.",
)
@caller_options
@json_option
def delete_records(offset_json_file: Path, as_json: bool) -> int:
    """Delete the records below given offsets, permanently."""
    from kraftlab.client import answer_of

    out = Output(as_json)
    offsets = read_partitions(offset_json_file, _EXAMPLE, with_offsets=True)
    out.lines(["Executing records delete operation"])
    with connect(changes=True) as client:
        results = answer_of(lambda: client.delete_records(offsets))
    out.lines(["Records delete operation completed:"])
    out.lines(
        f"partition: {topic}-{partition}\tlow_watermark: {result.low_watermark}"
        if result.error is None
        else f"partition: {topic}-{partition}\terror: {result.error.code.name}: {result.error.message}"
        for (topic, partition), result in results.items()
    )
    out.result(
        {
            "partitions": [
                {
                    "topic": topic,
                    "partition": partition,
                    "low_watermark": result.low_watermark,
                    "error": None if result.error is None else result.error.code.name,
                    "message": None if result.error is None else result.error.message,
                }
                for (topic, partition), result in results.items()
            ]
        }
    )
    return FAILED if any(result.error is not None for result in results.values()) else DONE
