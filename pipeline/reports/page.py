"""The page: one file that works without a network. Figures are Plotly's; the page contains Plotly's code once."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import plotly.io
from plotly.offline import get_plotlyjs

from .content import LISTED, ReassignmentReport
from .figures import COLOURS, figures


def render(report: ReassignmentReport) -> str:
    """Return the page's HTML. The same report gives the same bytes."""
    plots = {
        name: plotly.io.to_html(
            figure,
            include_plotlyjs=False,
            full_html=False,
            div_id=f"plot-{name}",
            config={"displaylogo": False, "responsive": True},
        )
        for name, figure in figures(report).items()
    }
    return _template().render(report=report, plots=plots, plotly_js=get_plotlyjs(), colours=COLOURS, listed=LISTED)


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
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, package_path="."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, moment=moment, replicas=_replicas, duration=duration)
    return environment.get_template("page.html.j2")


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
