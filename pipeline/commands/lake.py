"""`kraftlab pipeline vacuum` and `sql`: maintenance of a lake, and queries."""

from __future__ import annotations

import sys
from typing import Any

import click

from kraftlab.cli.output import Output, json_option
from kraftlab.cli.tables import aligned
from kraftlab.common.exit_codes import DONE

from .gold_rows import csv_text
from .options import as_of_option, lake_as_of, lake_option, version_option

ROWS_MAX = (1 << 31) - 2


@click.command(
    "vacuum",
    short_help="Remove unused files of a lake.",
    epilog="""\b
Example:
  kraftlab pipeline vacuum --lake /data/lake --keep 3

\b
This removes files of replaced ranges, leftovers of killed runs, and a commit that a power cut left incomplete. A reader that is
still running may need files of replaced ranges: wait for it, or use a larger --keep.""",
)
@lake_option
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of latest versions of each table that stay readable.",
)
@json_option
def vacuum(lake_uri: str, keep: int, as_json: bool) -> int:
    """Remove files that the latest versions of the tables do not use."""
    from ..errors import WrongUse
    from ..lake.commits import Lake

    lake = Lake(lake_uri)
    removed = lake.vacuum(keep)  # which also makes a table right that a power cut damaged
    if not lake.exists():
        raise WrongUse(f"{lake.place()} is not a lake: nothing was ever committed there; the next step: kraftlab pipeline ingest")
    output = Output(as_json)
    output.lines([f"removed {removed.files} files of {removed.size_bytes:,} bytes"])
    output.result(removed._asdict())
    return DONE


@click.command(
    "sql",
    short_help="Query a lake in SQL.",
    epilog="""\b
Examples:
  kraftlab pipeline sql "select name, count(*) from silver.other_records group by name" --lake /data/lake
  kraftlab pipeline sql "select * from silver.partition_changes where topic = 'orders' order by offset" --lake lake --csv
  kraftlab pipeline sql "select count(*) from silver.topics" --lake lake --version 3

\b
Tables have the names of the documentation (silver.topics), or with an underscore (silver_topics).""",
)
@click.argument("query")
@lake_option
@version_option
@as_of_option
@click.option("--limit", type=click.IntRange(1, ROWS_MAX), default=1000, show_default=True, help="Maximum number of rows.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
def sql(query: str, lake_uri: str, version: int | None, as_of: str | None, limit: int, as_csv: bool, as_json: bool) -> int:
    """Run a query over the tables of a lake."""
    from ..errors import WrongUse
    from ..lake.commits import Lake
    from ..runs.query import query as run
    from ..runs.query import tables_of
    from .spark import spark_session

    lake, tables = Lake(lake_uri), tables_of(query)
    if version is not None and len(tables) != 1:
        raise WrongUse(f"--version needs a query of one table, not of {', '.join(tables) or 'none'}; use --as-of TIME")
    lake_as_of(lake, tables, version, as_of)
    with spark_session() as spark:
        names, rows = run(spark, lake, query, limit + 1)
    is_cut, rows = len(rows) > limit, rows[:limit]
    output = Output(as_json)
    cells = [["" if as_csv and value is None else _text(value) for value in row] for row in rows]
    output.lines([csv_text(names, cells).rstrip("\n")] if as_csv else aligned([names, *cells]))
    output.result([dict(zip(names, (_plain(value) for value in row), strict=True)) for row in rows])
    if is_cut:
        print(f"only the first {limit} rows; --limit shows more", file=sys.stderr)
    return DONE


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes | bytearray) else value


def _text(value: Any) -> str:
    value = _plain(value)
    if value is None:
        return "null"
    return "[" + ",".join(map(_text, value)) + "]" if isinstance(value, list) else str(value)
