"""An experiment as data: a question, a method, published numbers, trials, and functions from the rows of trials to figures.

Theory of operation. `trials` lists the trials, from the size and a seed alone. `run_trial` runs one of them, in a worker process,
or in this one if `serial`. A trial returns rows, plain values by the name of a column. All rows of an experiment have the same
columns. The runner adds the line, number and seed of the trial, and the machine (runner.py). Rows go to Parquet (store.py).
`figures`, `measured` and `remarks` see nothing but rows: a page can be made again from the file, and is the same to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

Size = Literal["small", "full"]
Value = str | int | float | bool
Row = dict[str, Value]
Rows = Sequence[Row]


class Published(NamedTuple):
    """A number of the paper. `what` is its key in `measured`, and `source` says where it stands, or that it is from memory."""

    what: str
    value: float
    unit: str
    source: str


class Estimate(NamedTuple):
    """Our number, with its 95 % interval."""

    value: float
    low: float
    high: float


class Trial(msgspec.Struct, frozen=True):
    """One run. `line` is the curve that the run belongs to, `number` the place among the runs of that line."""

    line: str
    number: int
    seed: str
    parameters: dict[str, Value] = {}

    @property
    def key(self) -> tuple[str, int]:
        return self.line, self.number


class Figure(NamedTuple):
    """A plot: `svg` is markup of plots.py, and `caption` says how to read it."""

    title: str
    svg: str
    caption: str


class Experiment(NamedTuple):
    """An experiment. Its functions are those of a module, so that a worker process finds them by name."""

    name: str
    question: str
    method: str
    source: str
    published: tuple[Published, ...]
    trials: Callable[[Size, int], list[Trial]]
    run_trial: Callable[[Trial], list[Row]]
    figures: Callable[[Rows], list[Figure]]
    measured: Callable[[Rows], Mapping[str, Estimate]]
    """Our numbers, by `Published.what`. Published numbers that this run cannot be compared with are left out."""
    remarks: Callable[[Rows], list[str]]
    """Sentences on the differences from the paper, computed or chosen from what was measured."""
    serial: bool = False
    """True for trials on real processes: one after the other, on an otherwise idle machine."""


def trial(line: str, number: int, seed: int, **parameters: Value) -> Trial:
    """Return a trial. Its own seed follows from the seed of the run, the line and the number."""
    return Trial(line, number, f"{seed}/{line}/{number}", parameters)


def lines_of(rows: Rows) -> list[str]:
    """Return the lines in the order of their rows."""
    return list(dict.fromkeys(str(row["line"]) for row in rows))


def column(rows: Rows, name: str, line: str | None = None) -> list[float]:
    """Return a column's numbers, of one line or of all, in the order of the rows."""
    return [float(row[name]) for row in rows if line is None or row["line"] == line]
