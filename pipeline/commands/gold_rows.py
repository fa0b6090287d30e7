"""Common code of commands that print gold tables: builds of stale tables, and rows as text, CSV or JSON."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kraftlab.cli.output import CommandFailed, print_json
from kraftlab.cli.tables import aligned, utc_text

if TYPE_CHECKING:
    from ..lake.commits import Lake

Row = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., object])

TABLE, JSON, CSV = "table", "json", "csv"


def format_options(function: Function) -> Function:
    """Add `--format`, and `--json` for `--format json`."""
    form = click.option(
        "--format", "form", type=click.Choice((TABLE, JSON, CSV)), default=TABLE, show_default=True, help="Output format."
    )
    return form(click.option("--json", "as_json", is_flag=True, help="Same as --format json.")(function))


def fresh(lake: Lake, tables: Sequence[str]) -> None:
    """Build the stale ones of the gold tables. WrongUse if there is nothing to build from."""
    from ..runs import gold
    from .spark import spark_session

    stale = gold.stale(lake, tables)
    if stale:
        with spark_session() as spark:
            gold.build(spark, lake, stale, progress=_progress)


def _progress(table: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"building {table} …", err=True)


def since_ms(text: str | None) -> int | None:
    """Parse `--since`: a time, or how long ago (30m, 12h, 7d)."""
    import re

    if text is None:
        return None
    ago = re.fullmatch(r"(\d+)([mhd])", text)
    if ago is None:
        return time_ms(text)
    unit_ms = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}[ago.group(2)]
    return time_ms("now") - int(ago.group(1)) * unit_ms


def time_ms(text: str) -> int:
    """Return milliseconds since 1970 of an ISO time, of milliseconds, or of `now`. WrongUse."""
    import time

    from kraftlab.cli.metadata.sources import NOW, parse_time

    from ..errors import WrongUse

    if text == NOW:
        return time.time_ns() // 1_000_000
    try:
        return parse_time(text)
    except CommandFailed as error:
        raise WrongUse(error.text.removeprefix("Error: ")) from None


def print_rows(
    rows: Iterable[Row], known: Sequence[str], columns: Sequence[str], form: str, *, summary: str, extra: Row | None = None
) -> None:
    """Print rows on stdout. Rows have the columns `known`; people get `columns` alone, and then the line `summary`."""
    rows = list(rows)
    if form == JSON:
        print_json({**(extra or {}), "rows": rows})
    elif form == CSV:
        click.echo(csv_text(known, ([_cell(name, row[name], "") for name in known] for row in rows)), nl=False)
    else:
        cells = [columns, *([_cell(name, row[name], "-", times=True) for name in columns] for row in rows)]
        for line in aligned(cells) if rows else ():
            click.echo(line)
        click.echo(summary)


def csv_text(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return CSV with a heading."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def _cell(name: str, value: Any, null: str, *, times: bool = False) -> str:
    if value is None:
        return null
    if isinstance(value, list | tuple):
        return "[" + ",".join("null" if item is None else str(item) for item in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if times and (name in ("as_of", "sampled_ms") or name.endswith("_ms")) and value > 1_000_000_000_000:
        with contextlib.suppress(ValueError, OverflowError):  # a year that no calendar has
            return utc_text(value)
    return str(value)
