"""The page: one file below 1 MB that works without a network and without scripts."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from kraftlab.common.templates import template_of

from ..audits.life_cycles import OPEN
from .content import LISTED, ReassignmentReport
from .figures import COLOURS, figures

TERMS = {
    "completed": "all replicas of the target list are in sync, and the old ones are removed",
    "cancelled": "the partition went back to its former replicas",
    "superseded": "another target replaced this one before it was reached",
    "instant": "the list changed at once: another order, or replicas that were in sync already",
    "deleted": "the topic was deleted meanwhile",
    "unknown": "the beginning is not in the log",
    "open": "still under way where the log ends",
    "union_race": "a tool read the replicas during a move and requested old and new ones together (KIP-860)",
    "rf_change": "a move ended with another number of replicas than the partition had",
    "sibling_mismatch": "the partition has another number of replicas than most of its topic",
    "bad_magic": "bytes that do not begin like a batch",
    "bad_crc": "a batch that does not match its checksum",
    "bad_length": "a batch with an impossible length",
    "bad_header": "a header that contradicts itself",
    "truncated": "a file that ends within a batch, or a snapshot without its footer",
    "undecodable": "a batch that is compressed, which metadata logs never are",
    "unknown_version": "a file of a newer program",
    "quarantine": "offsets beside a quarantined region",
    "compacted": "offsets before the first segment, which a snapshot replaces; no damage",
    "missing_segment": "a segment is missing between two others",
    "log_matching": "different batches at one offset in one epoch, which is impossible in a correct quorum",
    "tail": "uncommitted batches of a former leader at the end of one log; no damage",
}
"""Sentences for the terms of a page, which stand where a term does."""


def render(report: ReassignmentReport) -> str:
    """Return the page's HTML. The same report gives the same bytes."""
    open_moves = [move for move in report.moves if move.status == OPEN]
    return _template().render(
        report=report, plots=figures(report), colours=COLOURS, listed=LISTED, open_moves=open_moves, terms=TERMS
    )


def write(report: ReassignmentReport, path: Path) -> None:
    """Write the page whole or not at all. OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_text(render(report), encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@cache
def _template() -> jinja2.Template:
    return template_of(
        __package__, "page.html.j2", {"number": _number, "moment": moment, "replicas": _replicas, "duration": duration}
    )


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:,}"


def moment(at_ms: int | None) -> str:
    """Format a time in UTC, to the second, or in ms if a calendar cannot show it."""
    if at_ms is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return f"{at_ms} ms"


def _replicas(values: list[int] | None) -> str:
    return "–" if values is None else ", ".join(map(str, values))


def duration(ms: float | None) -> str:
    """Format a duration: `12 ms`, `3.4 s`, `2 min 5 s`, `1 h 3 min`."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
