"""`kraftlab pipeline state`: partitions as they were."""

from __future__ import annotations

import click

from kraftlab.common.exit_codes import DONE

from .gold_rows import format_options, print_rows, time_ms
from .options import as_of_option, lake_as_of, lake_option, version_option

COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "adding", "removing", "rf_settled", "since_offset")


@click.command(
    "state",
    short_help="Show partitions as they were at an offset or a time.",
    epilog="""\b
Examples:
  kraftlab pipeline state --lake /data/lake --at-offset 4711
  kraftlab pipeline state --lake /data/lake --at-time 2026-11-21T14:05:00Z --topic orders
  kraftlab pipeline state --lake /data/lake --as-of 2026-11-21T14:05:00Z
  kraftlab pipeline state --lake /data/lake --json | jq '.rows[] | select(.leader < 0)'

--at-offset and --at-time choose a place in the log, --as-of and --version (of silver.partition_changes) a state of the lake.""",
)
@lake_option
@click.option(
    "--at-offset", "offset", metavar="N", type=click.IntRange(min=0), help="Show the state after the record at this offset."
)
@click.option(
    "--at-time", "time", metavar="T", help="Show the state at this time: 2026-11-21T14:05:00Z or milliseconds since 1970."
)
@click.option("--topic", metavar="NAME", help="Only this topic.")
@version_option
@as_of_option
@format_options
def state(
    lake_uri: str,
    offset: int | None,
    time: str | None,
    topic: str | None,
    version: int | None,
    as_of: str | None,
    form: str,
    as_json: bool,
) -> int:
    """Show every partition as it was at an offset or a time; by default at the end of the lake."""
    from ..errors import WrongUse
    from ..lake.commits import Lake
    from ..runs.build import CHANGES, TOPICS
    from ..runs.states import states_at
    from .spark import spark_session

    if offset is not None and time is not None:
        raise WrongUse("give --at-offset or --at-time, not both")
    moment = None if time is None else time_ms(time)
    lake = Lake(lake_uri)
    lake_as_of(lake, (CHANGES, TOPICS), version, as_of)
    with spark_session() as spark:
        at, states = states_at(spark, lake, offset=offset, time_ms=moment, topic=topic)
        found = states.toArrow()
    rows = found.to_pylist()
    summary = f"{len(rows):,} partitions after the record at offset {at}"
    print_rows(rows, found.column_names, COLUMNS, "json" if as_json else form, summary=summary, extra={"at_offset": at})
    return DONE
