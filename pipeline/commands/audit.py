"""`kraftlab pipeline audit`: the findings in a lake's gold tables, with an exit code for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from kraftlab.common.exit_codes import DONE, FAILED

from .gold_rows import Row, format_options, fresh, print_rows, since_ms
from .options import lake_option


def _any(row: Row) -> bool:
    return True


def _cannot_end(row: Row) -> bool:
    """Return whether an open reassignment has replicas that are to be added and removed at once."""
    return row["status"] == "open" and bool(set(row["adding"] or ()) & set(row["removing"] or ()))


def _is_lost(row: Row) -> bool:
    from ..tables.bronze import is_torn_end

    return row["cause"] != "compacted" and not (row["status"] and is_torn_end(row["status"], row["segment"], row["to_offset"]))


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit: its tables, the displayed columns and their order, and the test for findings.

    `--since` uses the columns `time` and `offset`: a row counts if its time is later. Rows without a time use their offset, and
    always count if they have neither.
    """

    gold: tuple[str, ...]
    tables: tuple[str, ...]
    columns: tuple[str, ...]
    order: str
    time: str | None
    offset: str | None
    is_finding: Callable[[Row], bool]
    about: str


AUDITS = {
    "reassignments": Audit(
        ("gold.reassignments",),
        ("gold.reassignments",),
        (
            "topic", "partition", "status", "start_offset", "end_offset", "start_ms", "duration_ms", "orig", "target", "adding",
            "removing", "leader_changes", "isr_shrinks", "superseded_by",
        ),
        "start_offset",
        "end_ms",
        None,
        _cannot_end,
        "every reassignment with its end; a finding can never end",
    ),
    "rf": Audit(
        ("gold.rf_drift", "gold.reassignments"),
        ("gold.rf_drift",),
        (
            "topic", "partition", "class", "rf", "rf_expected", "rf_mode_of_topic", "offset", "culprit_reassignment_id",
            "confidence",
        ),
        "offset",
        None,
        "offset",
        _any,
        "replication factors that changed or differ; every row is a finding",
    ),
    "divergence": Audit(
        ("gold.log_divergence",),
        ("gold.log_divergence",),
        ("from_offset", "to_offset", "class", "epoch", "controllers", "epochs", "crcs"),
        "from_offset",
        None,
        "from_offset",
        _any,
        "differences of the controllers' logs; every row is a finding",
    ),
    "gaps": Audit(
        (),
        ("bronze.offset_gaps", "bronze.quarantine"),
        ("table", "controller_id", "from_offset", "to_offset", "cause", "segment", "pos", "end_pos", "status", "detail"),
        "from_offset",
        None,
        "to_offset",
        _is_lost,
        "missing offsets and damages; compacted offsets and the end of a segment during a write are not findings",
    ),
    "epochs": Audit(
        ("gold.leader_epochs",),
        ("gold.leader_epochs",),
        ("epoch", "leader", "start_offset", "end_offset", "ms", "leaders"),
        "start_offset",
        None,
        "end_offset",
        lambda row: row["leaders"] > 1,
        "leading controllers by time; a finding is an epoch with two leaders",
    ),
}  # fmt: skip


@click.command(
    "audit",
    short_help="Find faults and anomalies in a lake's logs.",
    epilog="\b\n"
    + "\n".join(f"{name:<14} {audit.about}" for name, audit in AUDITS.items())
    + """

\b
Examples:
  kraftlab pipeline audit reassignments --lake /data/lake --since 12h
  kraftlab pipeline audit rf --lake /data/lake --topic orders --format csv
  kraftlab pipeline audit divergence --lake /data/lake || page-somebody

\b
Stale gold tables are built first; without any, Spark is not started.
Exit code 1: there are findings.""",
)
@click.argument("name", metavar="AUDIT", type=click.Choice(tuple(AUDITS)))
@lake_option
@click.option("--since", metavar="T", help="Only rows since then: 2026-11-21T17:06:35Z, 12h or 7d (ago).")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--findings-only", is_flag=True, help="Show only findings.")
@format_options
def audit(name: str, lake_uri: str, since: str | None, topic: str | None, findings_only: bool, form: str, as_json: bool) -> int:
    """Print the rows of one audit: reassignments, rf, divergence, gaps or epochs."""
    from ..errors import WrongUse
    from ..lake.commits import Lake

    chosen = AUDITS[name]
    if topic is not None and "topic" not in chosen.columns:
        raise WrongUse(f"rows of {name} have no topic; leave out --topic")
    lake = Lake(lake_uri)
    if not lake.exists():
        raise WrongUse(f"{lake} is empty; the next step: kraftlab pipeline ingest LOGDIR... --lake {lake.place()}")
    fresh(lake, chosen.gold)
    rows = [row for table in chosen.tables for row in _rows(lake, table)]
    if topic is not None:
        rows = [row for row in rows if row["topic"] == topic]
    moment = since_ms(since)
    if moment is not None:
        rows = _later(lake, chosen, rows, moment)
    rows.sort(key=lambda row: (row[chosen.order] is None, row[chosen.order] or 0))
    findings = [row for row in rows if chosen.is_finding(row)]
    counts = Counter(str(row["status"]) for row in rows) if name == "reassignments" else Counter()
    by_status = "".join(f", {count:,} {status}" for status, count in counts.most_common())
    print_rows(
        findings if findings_only else rows,
        _known(chosen),
        chosen.columns,
        "json" if as_json else form,
        summary=f"{len(rows):,} rows{by_status}; {len(findings):,} findings",
        extra={"audit": name, "findings": len(findings)},
    )
    return FAILED if findings else DONE


def _rows(lake: Any, table: str) -> list[Row]:
    """Return a table's rows in the shape of their audit."""
    from ..tables.bronze import damages

    found = lake.arrow(table)
    rows: list[Row] = damages(found.drop_columns("raw")) if table == "bronze.quarantine" else found.to_pylist()
    if table == "gold.leader_epochs":
        leaders = Counter(row["epoch"] for row in rows)
        return [{**row, "leaders": leaders[row["epoch"]]} for row in rows]
    if table.startswith("bronze."):
        return [_damage(table, row) for row in rows]
    return rows


def _known(chosen: Audit) -> Sequence[str]:
    """Return the columns of an audit's rows: those of its table, and those that `_rows` adds."""
    from ..storage.schemas import arrow_schema

    (table, *others) = chosen.tables
    names = () if others else tuple(arrow_schema(table).names)
    return (*names, *(name for name in chosen.columns if name not in names))


def _damage(table: str, row: Row) -> Row:
    """Return a gap or a row of quarantine in one shape; the latter with the offsets around it."""
    names: Sequence[str] = AUDITS["gaps"].columns
    if table == "bronze.quarantine":
        last, following = row["prev_offset"], row["next_offset"]
        row = {**row, "from_offset": None if last is None else last + 1, "to_offset": following, "cause": "quarantine"}
    return {name: row.get(name) for name in names} | {"table": table.partition(".")[2]}


def _later(lake: Any, chosen: Audit, rows: list[Row], moment_ms: int) -> list[Row]:
    """Return rows with a later time; for tables without times, rows whose offset is of a batch that was appended later."""
    if chosen.time is not None:
        return [row for row in rows if row[chosen.time] is None or row[chosen.time] >= moment_ms]
    batches = lake.arrow("bronze.batches", ["base_offset", "append_ms"])
    times, offsets = batches.column("append_ms").to_numpy(), batches.column("base_offset").to_numpy()
    recent = offsets[times >= moment_ms]
    if not len(recent):
        return [row for row in rows if chosen.offset is None or row[chosen.offset] is None]
    first = int(recent.min())
    return [row for row in rows if chosen.offset is None or row[chosen.offset] is None or row[chosen.offset] >= first]
