"""`kraftlab pipeline logdirs skew`: evenness of log directories."""

from __future__ import annotations

import click

from kraftlab.cli.command_groups import CommandGroup
from kraftlab.common.exit_codes import DONE, FAILED

from .gold_rows import format_options, fresh, print_rows, since_ms
from .options import lake_option

DIRECTORIES, BROKERS = "gold.log_dir_skew", "gold.broker_load"


@click.group(
    "logdirs",
    cls=CommandGroup,
    short_help="Show how evenly log directories are filled.",
    epilog="""\b
Example:
  kraftlab pipeline logdirs skew --lake /data/lake""",
)
def logdirs() -> None:
    """Show samples of log directories (see: kraftlab pipeline samples --help)."""


@logdirs.command(
    "skew",
    short_help="Compare log directories with the mean of their broker.",
    epilog="""\b
Examples:
  kraftlab pipeline samples --lake /data/lake
  kraftlab pipeline logdirs skew --lake /data/lake
  kraftlab pipeline logdirs skew --lake /data/lake --brokers --since 7d --format csv

\b
Exit code 1: some are over the band (1.1 times the mean) or offline.""",
)
@lake_option
@click.option("--brokers", "of_brokers", is_flag=True, help="Compare brokers with the mean of all brokers instead.")
@click.option("--since", metavar="T", help="Show all samples since then (2026-11-21T17:06:35Z, 12h, 7d), not only the newest.")
@format_options
def skew(lake_uri: str, of_brokers: bool, since: str | None, form: str, as_json: bool) -> int:
    """Show bytes, replicas and leaders of each log directory, compared with the mean. Only the newest sample decides the exit
    code.
    """
    from ..errors import WrongUse
    from ..lake.commits import Lake
    from ..tables.log_dir_samples import TABLE

    lake = Lake(lake_uri)
    if not lake.latest(TABLE):
        raise WrongUse(
            f"{lake} holds no samples of log directories; the next step: kraftlab pipeline samples --lake {lake.place()}"
        )
    table = BROKERS if of_brokers else DIRECTORIES
    fresh(lake, [table])
    found = lake.arrow(table)
    rows = sorted(found.to_pylist(), key=lambda row: (row["as_of"], row["broker_id"], row.get("path") or ""))
    newest = max((row["as_of"] for row in rows), default=0)
    moment = since_ms(since)
    shown = [row for row in rows if row["as_of"] >= (newest if moment is None else moment)]
    over = [row for row in rows if row["as_of"] == newest and (row["over_band"] or row["offline"])]
    place = () if of_brokers else ("path",)
    print_rows(
        shown,
        found.column_names,
        ("as_of", "broker_id", "rack", *place, "bytes", "replicas", "leaders", "mean_bytes", "ratio", "over_band", "offline"),
        "json" if as_json else form,
        summary=f"{len(shown)} rows; at the newest sample {len(over)} over the band or offline",
        extra={"as_of": newest, "findings": len(over)},
    )
    return FAILED if over else DONE
