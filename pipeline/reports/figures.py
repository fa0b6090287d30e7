"""The plots of a report. Each arranges numbers from `content` and computes none of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from .content import BAND, CatchUp, DirLoad, Drift, Epoch, ReassignmentReport, ReassignmentRow

COLOURS = {
    "completed": "#2a7f62",
    "cancelled": "#c8553d",
    "superseded": "#d9a441",
    "open": "#4464ad",
    "deleted": "#7d4e57",
    "unknown": "#627d98",
    "instant": "#9aa5b1",
}
_DRIFT_COLOURS = {"union_race": "#c8553d", "rf_change": "#d9a441", "sibling_mismatch": "#4464ad"}
_LANES = 40
"""Maximum number of lanes into which bars are packed; thinner bars could not be distinguished."""


def figures(report: ReassignmentReport) -> dict[str, go.Figure]:
    """Return name of a section → its plot, for sections with data."""
    found: dict[str, go.Figure] = {}
    if report.moves:
        found["moves"] = timeline(report.moves, report.under_way)
    if report.catch_up:
        found["catch_up"] = catch_up(report.catch_up)
    if report.dirs:
        found["skew"] = skew(report.dirs)
    if report.drift:
        found["drift"] = drift(report.drift)
    if report.epochs:
        found["epochs"] = epochs(report.epochs)
    return found


def timeline(moves: Sequence[ReassignmentRow], under_way: Sequence[tuple[int, int]]) -> go.Figure:
    """Plot the number of running reassignments over time, and below it a bar for each listed one."""
    figure = make_subplots(rows=2, shared_xaxes=True, row_heights=[0.3, 0.7], vertical_spacing=0.04)
    figure.add_trace(
        go.Scatter(
            x=[_moment(at_ms) for at_ms, _ in under_way],
            y=[running for _, running in under_way],
            mode="lines",
            line={"shape": "hv", "color": "#334e68", "width": 1.5},
            fill="tozeroy",
            fillcolor="rgba(51,78,104,0.12)",
            showlegend=False,
            hovertemplate="%{x}<br>%{y} under way<extra></extra>",
        ),
        row=1,
        col=1,
    )
    end_ms = max((ms for move in moves for ms in (move.start_ms, move.end_ms) if ms is not None), default=0)
    begin_ms = min((ms for move in moves for ms in (move.start_ms, move.end_ms) if ms is not None), default=0)
    lanes = lanes_of(moves, begin_ms, end_ms)
    for status, colour in COLOURS.items():
        chosen = [(lane, move) for lane, move in zip(lanes, moves, strict=True) if move.status == status]
        if not chosen:
            continue
        spans = [(_or(move.start_ms, begin_ms), _or(move.end_ms, end_ms)) for _, move in chosen]
        figure.add_trace(
            go.Bar(
                y=[lane for lane, _ in chosen],
                base=[_moment(start) for start, _ in spans],
                x=[max(1, end - start) for start, end in spans],
                orientation="h",
                name=status,
                marker={"color": colour, "line": {"width": 0}},
                customdata=[_label(move) for _, move in chosen],
                hovertemplate="%{customdata}<extra></extra>",
            ),
            row=2,
            col=1,
        )
    figure.update_yaxes(title_text="under way", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(showticklabels=False, title_text="one bar each", row=2, col=1)
    figure.update_xaxes(type="date")
    return _styled(figure, height=560, barmode="overlay", bargap=0.25)


def catch_up(brokers: Sequence[CatchUp]) -> go.Figure:
    """Plot a box per broker: quartiles, whiskers at the 99th percentile, and a diamond for the slowest replica."""
    known = [each for each in brokers if each.replicas > each.never]
    names = [f"broker {each.broker_id}" for each in known]
    figure = go.Figure()
    figure.add_trace(
        go.Box(
            x=names,
            q1=[each.quartiles_ms[0] for each in known],
            median=[each.quartiles_ms[1] for each in known],
            q3=[each.quartiles_ms[2] for each in known],
            lowerfence=[each.quartiles_ms[0] for each in known],
            upperfence=[each.p99_ms for each in known],
            marker={"color": "#4464ad"},
            name="quartiles, 99 %",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=names,
            y=[each.max_ms for each in known],
            mode="markers",
            marker={"symbol": "diamond", "color": "#c8553d", "size": 8},
            name="slowest",
            hovertemplate="%{x}: %{y} ms<extra></extra>",
        )
    )
    figure.update_yaxes(title_text="ms until in sync", type="log" if _spread(known) > 100 else "linear", rangemode="tozero")
    return _styled(figure, height=360)


def skew(dirs: Sequence[tuple[int, Sequence[DirLoad]]]) -> go.Figure:
    """Plot the bytes of each log dir relative to its broker's mean, at the first and the last sample, with the allowed band."""
    figure = go.Figure()
    for (as_of, loads), colour in zip(dirs, ("#9fb3c8", "#2a7f62")[-len(dirs) :], strict=True):
        figure.add_trace(
            go.Bar(
                x=[[f"broker {load.broker_id}" for load in loads], [load.path for load in loads]],
                y=[load.ratio for load in loads],
                name=_time(as_of),
                marker={"color": colour, "line": {"color": "#c8553d", "width": [2 if load.over_band else 0 for load in loads]}},
                customdata=[load.bytes for load in loads],
                hovertemplate="%{x}<br>%{y:.2f} of the mean, %{customdata:,} bytes<extra></extra>",
            )
        )
    figure.add_hrect(y0=1 - BAND, y1=1 + BAND, fillcolor="#2a7f62", opacity=0.10, line_width=0)
    figure.update_yaxes(title_text="bytes / mean of the broker", rangemode="tozero")
    return _styled(figure, height=380, barmode="group")


def drift(found: Sequence[Drift]) -> go.Figure:
    """Plot each finding at the offset of the record that caused it; the height is the difference of the factors."""
    figure = go.Figure()
    for kind, colour in _DRIFT_COLOURS.items():
        chosen = [each for each in found if each.kind == kind and each.offset is not None]
        if chosen:
            figure.add_trace(
                go.Scatter(
                    x=[each.offset for each in chosen],
                    y=[each.rf - _or(each.rf_expected, each.rf) for each in chosen],
                    mode="markers",
                    name=kind,
                    marker={"color": colour, "size": 9},
                    text=[f"{each.topic}-{each.partition}: {each.rf} instead of {each.rf_expected}" for each in chosen],
                    hovertemplate="offset %{x}<br>%{text}<extra></extra>",
                )
            )
    figure.update_xaxes(title_text="offset in the metadata log")
    figure.update_yaxes(title_text="replicas too many / few", zeroline=True)
    return _styled(figure, height=320)


def epochs(found: Sequence[Epoch]) -> go.Figure:
    """Plot the leading controllers by offset."""
    end = max((each.end_offset for each in found if each.end_offset is not None), default=found[-1].start_offset + 1)
    figure = go.Figure()
    figure.add_trace(
        go.Bar(
            y=["unknown" if each.leader is None else f"controller {each.leader}" for each in found],
            base=[each.start_offset for each in found],
            x=[max(1, _or(each.end_offset, end) - each.start_offset) for each in found],
            orientation="h",
            marker={"color": ["#4464ad" if each.epoch % 2 else "#9fb3c8" for each in found]},
            text=[str(each.epoch) for each in found],
            textposition="inside",
            hovertemplate="epoch %{text}, from offset %{base}<extra></extra>",
            showlegend=False,
        )
    )
    figure.update_xaxes(title_text="offset in the metadata log")
    return _styled(figure, height=120 + 40 * len({each.leader for each in found}), bargap=0.3)


def lanes_of(moves: Sequence[ReassignmentRow], begin_ms: int, end_ms: int) -> list[int]:
    """Return a lane for each move in which nothing else runs; if all lanes are taken, the lane that is free first."""
    free_from: list[int] = []
    lanes = []
    for move in moves:
        start, end = _or(move.start_ms, begin_ms), _or(move.end_ms, end_ms)
        lane = next((lane for lane, free_ms in enumerate(free_from) if free_ms <= start), None)
        if lane is None:
            if len(free_from) < _LANES:
                free_from.append(end)
                lanes.append(len(free_from) - 1)
                continue
            lane = free_from.index(min(free_from))
        free_from[lane] = max(free_from[lane], end)
        lanes.append(lane)
    return lanes


def _label(move: ReassignmentRow) -> str:
    took = "" if move.duration_ms is None else f", {move.duration_ms:,} ms"
    return f"<b>{move.topic}-{move.partition}</b> {move.status}{took}<br>{_list(move.orig)} → {_list(move.target)}"


def _list(replicas: list[int] | None) -> str:
    return "?" if replicas is None else f"[{','.join(map(str, replicas))}]"


def _spread(brokers: Sequence[CatchUp]) -> float:
    lowest = min((each.quartiles_ms[0] for each in brokers), default=0)
    return max((each.max_ms for each in brokers), default=0) / lowest if lowest > 0 else 0.0


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _moment(at_ms: int) -> datetime:
    """Return the time, or the nearest time that a calendar can show."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return datetime.max if at_ms > 0 else datetime.min


def _time(at_ms: int) -> str:
    return f"{_moment(at_ms):%Y-%m-%d %H:%M:%S} UTC"


def _styled(figure: go.Figure, **layout: Any) -> go.Figure:
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13},
        margin={"l": 60, "r": 20, "t": 20, "b": 40},
        legend={"orientation": "h", "y": 1.04, "yanchor": "bottom"},
        **layout,
    )
    return figure
