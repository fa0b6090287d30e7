"""`kraftlab pipeline build`: tables of a layer from those of the layer below."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

import click
import msgspec

from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import DONE, FAILED

from ..errors import WrongUse
from .options import OffsetRange, lake_option

LAYERS: Mapping[str, str] = {"silver": "runs.build", "gold": "runs.gold"}
"""Layer → the module with `TABLES` and `build(spark, lake, tables, lo=, hi=, progress=)`. Its report has `lo`, `hi`, `rows`."""


@click.command(
    "build",
    short_help="Build silver or gold tables of a lake.",
    epilog="""\b
Examples:
  kraftlab pipeline build silver --lake /data/lake
  kraftlab pipeline build silver topics partition_changes --lake /data/lake --range 0-5000

\b
Without --range it builds new offsets, and offsets that were ingested again. A repeated range replaces the old one.

\b
Exit code 1: the logs of controllers disagree (the tables are built), or with --strict records have unknown types or versions
(they are in silver.other_records).""",
)
@click.argument("layer", type=click.Choice(tuple(LAYERS)))
@click.argument("tables", metavar="[TABLE...]", nargs=-1)
@lake_option
@click.option("--range", "offsets", metavar="LO-HI", type=OffsetRange(), help="Build offsets from LO up to but not including HI.")
@click.option("--strict", is_flag=True, help="Exit with 1 if a record has an unknown type or version, or does not fit its type.")
@json_option
def build(
    layer: str, tables: tuple[str, ...], lake_uri: str, offsets: tuple[int, int] | None, strict: bool, as_json: bool
) -> int:
    """Build all tables of a layer, or the given ones."""
    from ..lake.commits import Lake
    from .spark import spark_session

    module = importlib.import_module(f"..{LAYERS[layer]}", __package__)
    names = tuple(_full(layer, table, module.TABLES) for table in tables) or module.TABLES
    lo, hi = offsets or (None, None)
    with spark_session() as spark:
        report = module.build(spark, Lake(lake_uri), names, lo=lo, hi=hi, progress=_progress)
    output = Output(as_json)
    if report.lo == report.hi:
        output.lines([f"Nothing new: {layer} has all below {report.lo}."])
    else:
        output.lines([f"offsets {report.lo} to {report.hi - 1}"])
    output.lines(f"{rows:>12,} rows  {table}" for table, rows in report.rows.items())
    output.result(msgspec.to_builtins(report))
    undecodable = getattr(report, "undecodable", {})
    for reason, count in undecodable.items():
        print(f"{count} records could not be decoded: {reason}", file=sys.stderr)
    disagreements = getattr(report, "disagreements", 0)
    if disagreements:
        print(f"the controllers' logs disagree about {disagreements} batches", file=sys.stderr)
    if getattr(report, "open_from", None) is not None:
        print(
            f"a transaction begins at offset {report.open_from} and has not ended; the next build begins there", file=sys.stderr
        )
    if strict and undecodable:
        return FAILED
    return FAILED if disagreements else DONE


def _full(layer: str, table: str, known: tuple[str, ...]) -> str:
    name = table if "." in table else f"{layer}.{table}"
    if name not in known:
        raise WrongUse(f"{table!r} is not a table of {layer} that is built from logs; these are: {', '.join(known)}")
    return name


def _progress(table: str) -> None:
    if sys.stderr.isatty():
        print(f"building {table} …", file=sys.stderr)
