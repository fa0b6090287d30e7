"""Run the trials of an experiment that are left, in worker processes or one after the other, and write its page."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kraftlab.checking.workers import done_by
from kraftlab.common.version import VERSION

from .catalogue import MODULES, experiment_named
from .experiment import Experiment, Row, Size, Trial
from .page import write_index, write_page
from .store import BadRows, RowStore

Watch = Callable[[Iterable[Trial], int], Iterator[Trial]]
"""Shows progress: gets finished trials and their number, and yields them."""


class Outcome(NamedTuple):
    """A finished run of an experiment."""

    experiment: Experiment
    rows: list[Row]
    trials: int
    page: Path


def machine() -> Row:
    """Return the columns that say where and by what a trial was run."""
    return {
        "processors": os.cpu_count() or 1,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "version": VERSION,
    }


def run_one(name: str, trial: Trial) -> tuple[Trial, list[Row]]:
    """Run a trial of the named experiment, and add the columns that all rows have."""
    common: Row = {"line": trial.line, "number": trial.number, "seed": trial.seed}
    found = experiment_named(name).run_trial(trial)
    return trial, [{**common, **row, **machine()} for row in found]


def run(name: str, size: Size, seed: int, *, jobs: int, out: Path, watch: Watch | None = None) -> Outcome:
    """Run what is left of an experiment, and write its rows, its page and the index. BadRows, OSError.

    The lines take turns, so that an interrupted run has some trials of each.
    """
    experiment, store = experiment_named(name), RowStore(out, name, size, seed)
    trials = experiment.trials(size, seed)
    left = sorted(store.left(trials), key=lambda trial: trial.number)
    finished = _finished(done_by(1 if experiment.serial else min(jobs, len(left)), partial(run_one, name), left), store)
    for _ in watch(finished, len(left)) if watch is not None else finished:
        pass
    rows = store.finish(trials)
    page = _page(experiment, rows, trials, size, seed, store)
    write_index(out, MODULES)
    return Outcome(experiment, rows, len(trials), page)


def _finished(results: Iterable[tuple[Trial, list[Row]]], store: RowStore) -> Iterator[Trial]:
    for trial, rows in results:
        store.add(trial, rows)
        yield trial


def plot(name: str, size: Size, seed: int, *, out: Path) -> Outcome | None:
    """Write the page again from the rows that are there. None: there are none. OSError; BadRows, also for a run that was cut off
    before every figure had its rows.
    """
    experiment, store = experiment_named(name), RowStore(out, name, size, seed)
    rows = store.rows()
    if not rows:
        return None
    trials = experiment.trials(size, seed)
    page = _page(experiment, rows, trials, size, seed, store)
    write_index(out, MODULES)
    return Outcome(experiment, rows, len(trials), page)


def _page(experiment: Experiment, rows: list[Row], trials: list[Trial], size: Size, seed: int, store: RowStore) -> Path:
    """Write the page of rows that can be too few, or of another version. BadRows, OSError."""
    try:
        return write_page(experiment, rows, len(trials), size, seed, store.directory)
    except (LookupError, TypeError, ValueError) as error:
        if store.left(trials):
            raise BadRows(f"{store.directory} has too few trials for a page; run the experiment again to go on") from error
        others = sorted({str(row.get("version")) for row in rows} - {VERSION})
        if not others:
            raise
        raise BadRows(
            f"{store.directory} has rows of kraftlab {', '.join(others)}, which kraftlab {VERSION} cannot show; show them with "
            "that version, or remove the directory and run the experiment again"
        ) from error
