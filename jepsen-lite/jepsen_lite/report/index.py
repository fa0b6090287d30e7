"""The page over all runs of a store: `index.html`, with links to the pages of the runs.

The data of a run come from its record, except the outcomes of operations, which come from two columns of its history, and the
pairs of faults and states. All are cached by the time of the record, so a store of thousands of runs is read once. The grid has a
row per workload and a column per set of nemeses; a cell lists the runs of both, newest first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kraftlab.common.pages import replace_file

from .. import store
from ..store import RunDirectory, RunRecord, StoreError
from ..verdicts import ending, worst
from . import words
from .coverage import OUTCOMES, RunPairs, coverage, growth, states_struck
from .page import PAGE, template, write_assets
from .words import Word

ASSETS = ".assets"


class Row(msgspec.Struct, frozen=True):
    """A run in the index."""

    name: str
    record: RunRecord
    pairs: RunPairs
    counts: dict[str, int]
    word: Word
    reason: str
    has_page: bool

    @property
    def nemeses(self) -> str:
        return ", ".join(self.record.nemeses) or "none"


class Cell(msgspec.Struct, frozen=True):
    """The runs of one workload under the same nemeses, newest first; `word` is the worst of their verdicts, None if there are no
    runs.
    """

    rows: tuple[Row, ...]
    word: Word | None


class Grid(msgspec.Struct, frozen=True):
    """A line per workload, a column per set of nemeses."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]


class Index:
    """The index of one store; caches runs that did not change. `builds_pages`: pages are built when they are opened, so every run
    has one.
    """

    def __init__(self, place: Path, *, builds_pages: bool = False) -> None:
        self._place = place
        self._builds_pages = builds_pages
        self._read: dict[Path, tuple[int, RunRecord, RunPairs]] = {}

    def write(self) -> Path:
        """Write the index. StoreError, OSError."""
        write_assets(self._place / ASSETS)
        return replace_file(self._place / PAGE, self.render().encode())

    def rows(self) -> tuple[list[Row], list[str]]:
        """Return the runs, newest first, and the errors of those that cannot be read."""
        rows: list[Row] = []
        unreadable: list[str] = []
        for directory in store.all_runs(self._place):
            try:
                rows.append(self._row(directory))
            except StoreError as error:
                unreadable.append(str(error))
        return rows, unreadable

    def render(self) -> str:
        version = self.version()  # first, so that changes during the reading count as news
        rows, unreadable = self.rows()
        names = {row.name for row in rows}
        total = coverage([row.pairs for row in reversed(rows)])
        counted = Counter(row.word for row in rows)
        return template("index.html.j2").render(
            store=self._place,
            rows=rows,
            grid=grid(rows),
            coverage=total,
            growth=growth(total.pairs) if len(rows) > 1 else None,
            unreadable=unreadable,
            unfinished=[name for name in unfinished(self._place) if name not in names],
            counts={word.name: (word, count) for word, count in sorted(counted.items())},
            filters={
                "workload": sorted({row.record.workload for row in rows}),
                "nemesis": sorted({nemesis for row in rows for nemesis in row.record.nemeses or ("none",)}),
                "verdict": sorted({row.word.name for row in rows}),
            },
            version=version,
            is_served=self._builds_pages,
            assets=ASSETS,
        )

    def version(self) -> str:
        """Return a hash that changes when a run begins, ends, is judged again or gets its page."""
        text = hashlib.sha256()
        for directory in store.all_runs(self._place):
            written = (directory.path / "run.json").stat().st_mtime_ns
            text.update(f"{directory.name} {written} {(directory.report / PAGE).is_file()}\n".encode())
        text.update("\n".join(unfinished(self._place)).encode())
        return text.hexdigest()[:16]

    def _row(self, directory: RunDirectory) -> Row:
        written = (directory.path / "run.json").stat().st_mtime_ns
        known = self._read.get(directory.path)
        if known is None or known[0] != written:
            known = self._read[directory.path] = (written, directory.record(), pairs_of(directory))
        _, record, pairs = known
        counts: dict[str, int] = {
            outcome: sum(pairs.outcomes[pair] for pair in pairs.outcomes if pair[1] == outcome) for outcome in OUTCOMES
        }
        verdicts = record.verdicts
        has_page = self._builds_pages or (directory.report / PAGE).is_file()
        return Row(directory.name, record, pairs, counts, words.word(verdicts), words.short_reason(verdicts), has_page)


def grid(rows: Sequence[Row]) -> Grid:
    """Return the grid. Columns are sorted by name, single nemeses before sets of several."""
    columns = sorted({row.nemeses for row in rows}, key=lambda nemeses: (nemeses.count(","), nemeses))
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.record.workload, row.nemeses), []).append(row)
    workloads = sorted({row.record.workload for row in rows})
    lines = [(workload, tuple(_cell(cells.get((workload, nemeses), [])) for nemeses in columns)) for workload in workloads]
    return Grid(tuple(columns), tuple(lines))


def _cell(rows: Sequence[Row]) -> Cell:
    judged = [ending(row.record.verdicts) for row in rows if row.record.verdicts]
    return Cell(tuple(rows), words.WORDS[worst(judged)] if judged else words.NOT_JUDGED if rows else None)


def pairs_of(directory: RunDirectory) -> RunPairs:
    """Return the pairs that a run covers, from its strikes, its observations, and two columns of its history. StoreError."""
    table = store.history_columns(directory, ("f", "outcome"))
    counted = table.group_by(["f", "outcome"]).aggregate([([], "count_all")]).to_pylist()
    outcomes = {(row["f"], row["outcome"]): row["count_all"] for row in counted}
    return RunPairs(states_struck(directory.strikes(), directory.observations()), outcomes)


def unfinished(place: Path) -> list[str]:
    """Return the names of runs without a record, newest first: they are in progress or were cut short."""
    found = [path.parent for path in place.glob("*/*/nodes") if store.LATEST not in path.parts[-3:-1]]
    runs = [path for path in found if not (path / "run.json").is_file()]
    return [RunDirectory(path).name for path in sorted(runs, key=lambda path: path.name, reverse=True)]
