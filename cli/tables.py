"""Tables and times in the output of several commands: pure functions."""

from __future__ import annotations

import datetime
from collections.abc import Sequence


def tab_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in the format of Kafka's tools: each cell as wide as its column, then a tab. The header is
    first.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def aligned(rows: Sequence[Sequence[str]], *, numbers_from: int | None = None, width_max: int | None = None) -> list[str]:
    """Return the lines of a table: each cell as wide as its column, two spaces between columns. The header is the first row.
    Columns from `numbers_from` on are flush right. A table that is wider than `width_max` is stacked.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = len(widths) if numbers_from is None else numbers_from
    if width_max is not None and sum(widths) + 2 * len(widths) - 2 > width_max:
        return _stacked(rows, width_max)
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _stacked(rows: Sequence[Sequence[str]], width_max: int) -> list[str]:
    """Return the first cell of each row, then header and value of its other cells, unless empty, as many to a line as fit."""
    header, *others = rows
    margin = max(len(row[0]) for row in rows) + 2
    lines = [header[0]]
    for row in others:
        line = row[0].ljust(margin)
        for name, cell in zip(header[1:], row[1:], strict=True):
            pair = f"{name} {cell}"
            if cell in ("", "-"):
                continue
            if len(line) > margin and len(line) + len(pair) > width_max:
                lines.append(line.rstrip())
                line = " " * margin
            line += f"{pair}  "
        lines.append(line.rstrip())
    return lines


def utc_text(timestamp_ms: int) -> str:
    """Return a time in milliseconds since 1970 as 2026-11-21T17:06:35.222Z."""
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_text(milliseconds: int | None) -> str:
    """Return a duration as 4s, 3m20s or 2h05m; "?" for an unknown or negative duration."""
    if milliseconds is None or milliseconds < 0:
        return "?"
    seconds = (milliseconds + 999) // 1000
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m"
