"""Matrices of coloured cells, side by side and one above the other, and tables. Markup like that of plots.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

SIDE, WIDTH, LEFT, TOP, TITLE = 14, 400, 12, 16, 20
"""A cell, the plot, the place of the first matrix, and the height of the title above a row of matrices."""


class Look(NamedTuple):
    """The colour of a kind of cell, and its letter, for readers who cannot distinguish the colours."""

    colour: str
    letter: str


def matrices(
    columns: Sequence[str],
    rows: Sequence[str],
    lines: Sequence[str],
    cells: Mapping[tuple[str, str, str], Sequence[str]],
    looks: Mapping[str, Look],
) -> str:
    """Return a matrix for each of `rows` and `columns`, and the legend. `cells` are kinds, by column, row and line.

    The cells of a line are numbered at the bottom.
    """
    parts = []
    bottom = TOP + len(rows) * (TITLE + len(lines) * SIDE)
    numbers = range(max(len(kinds) for kinds in cells.values()))
    pitch = (WIDTH - LEFT) / len(columns)
    for across, column in enumerate(columns):
        left = LEFT + across * pitch
        parts.append(f'<text class="inked" x="{left:g}" y="{TOP - 4}" style="fill:var(--ink)">{escape(column)}</text>')
        middles = [left + (number + 0.5) * SIDE for number in numbers]
        parts += [f'<text x="{x:g}" y="{bottom + 12}" text-anchor="middle">{n}</text>' for n, x in enumerate(middles)]
        for down, row in enumerate(rows):
            top = TOP + down * (TITLE + len(lines) * SIDE) + TITLE
            if not across:
                parts.append(f'<text x="{LEFT}" y="{top - 4}">{escape(row)}</text>')
            for place, line in enumerate(lines):
                y = top + place * SIDE
                parts.append(f'<text x="{left - 2:g}" y="{y + 11}" text-anchor="end">{escape(line)}</text>')
                parts += [_cell(left + number * SIDE, y, looks[kind]) for number, kind in enumerate(cells[column, row, line])]
    inside = "\n".join(parts)
    svg = f'<svg class="plot" viewBox="0 0 {WIDTH} {bottom + SIDE + 2}" role="img" aria-label="matrices">\n{inside}\n</svg>'
    keys = "".join(
        f'<span><b style="color:{look.colour}">{look.letter}</b> {escape(kind)}</span>' for kind, look in looks.items()
    )
    return f'{svg}<div class="legend">{keys}</div>'


def _cell(x: float, y: float, look: Look) -> str:
    at = f'x="{x + (SIDE - 1) / 2:g}" y="{y + 10:g}"'
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{SIDE - 1}" height="{SIDE - 1}" style="fill:{look.colour}"/>'
        f'<text {at} text-anchor="middle" style="fill:var(--card);font-size:10px">{look.letter}</text>'
    )


def table(head: Iterable[str], rows: Iterable[tuple[str, Iterable[float | str]]]) -> str:
    """Return a table. Each row has a name and a value for each column of the head. A phone shows a line for each value."""
    labels = [escape(label) for label in head]
    columns = "".join(f'<th scope="col" class="n">{label}</th>' for label in labels)
    lines = "".join(f'<tr><th scope="row">{escape(name)}</th>{_row(labels, values)}</tr>\n' for name, values in rows)
    return (
        f'<div class="scroll"><table class="stack"><thead><tr><th></th>{columns}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _row(labels: Sequence[str], values: Iterable[float | str]) -> str:
    return "".join(f'<td class="n" data-of="{label}">{_text(value)}</td>' for label, value in zip(labels, values, strict=True))


def _text(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.3g}"
