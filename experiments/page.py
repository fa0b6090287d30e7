"""The page of a run, and the index of all runs. Static: the plots are markup, and the only script is the theme.

A page depends on the rows alone, so the same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jinja2
import msgspec

from kraftlab.common.pages import replace_file, shared_assets, write_assets
from kraftlab.common.templates import template_of

from .experiment import Estimate, Experiment, Published, Rows, Size

PAGE = "index.html"
ASSETS = ".assets"
CARD = "card.json"
"""The run's entry in the index, beside its page."""
MACHINE = ("processors", "python", "platform", "version")


class Comparison(NamedTuple):
    """A line of the table: a published number and ours. None: there is no such number, or this run has none."""

    what: str
    published: Published | None
    ours: Estimate | None


class Card(msgspec.Struct, frozen=True):
    """A run in the index."""

    name: str
    question: str
    source: str
    size: Size
    seed: int
    trials: int
    of_trials: int


def compared(experiment: Experiment, rows: Rows) -> list[Comparison]:
    """Return each published number beside ours, and then our other numbers."""
    ours, published = experiment.measured(rows), {number.what: number for number in experiment.published}
    return [Comparison(what, published.get(what), ours.get(what)) for what in {**published, **ours}]


def render(experiment: Experiment, rows: Rows, trials: int, size: Size, seed: int) -> str:
    """Return the page of a run. The same rows give the same text."""
    return _template("page.html.j2").render(
        experiment=experiment,
        figures=experiment.figures(rows),
        table=compared(experiment, rows),
        remarks=experiment.remarks(rows),
        machines=[_machine(rows, name) for name in MACHINE],
        names=MACHINE,
        done=_trials(rows),
        trials=trials,
        size=size,
        seed=seed,
    )


def write_page(experiment: Experiment, rows: Rows, trials: int, size: Size, seed: int, directory: Path) -> Path:
    """Write the page of a run, and the card that the index shows. OSError."""
    write_assets(directory.parents[1] / ASSETS, shared_assets())
    card = Card(experiment.name, experiment.question, experiment.source, size, seed, _trials(rows), trials)
    replace_file(directory / CARD, msgspec.json.encode(card))
    return replace_file(directory / PAGE, render(experiment, rows, trials, size, seed).encode())


def write_index(out: Path, names: Iterable[str]) -> Path:
    """Write the index: the runs that are in `out`, in the order of `names`. OSError."""
    found = [
        (path.parent.relative_to(out).as_posix(), msgspec.json.decode(path.read_bytes(), type=Card))
        for name in names
        for path in sorted((out / name).glob(f"*/{CARD}"))
    ]
    write_assets(out / ASSETS, shared_assets())
    return replace_file(out / PAGE, _template("index.html.j2").render(runs=found).encode())


def _trials(rows: Rows) -> int:
    return len({(row["line"], row["number"]) for row in rows})


def _machine(rows: Rows, name: str) -> str:
    return ", ".join(dict.fromkeys(str(row[name]) for row in rows))


def number(value: float) -> str:
    """Format a number of the table with three or four digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def estimate(ours: Estimate) -> str:
    """Format our number with its interval."""
    if ours.low == ours.high:
        return number(ours.value)
    return f"{number(ours.value)} ({number(ours.low)} – {number(ours.high)})"


@cache
def _template(name: str) -> jinja2.Template:
    return template_of(__package__, name, {"number": number, "estimate": estimate})
