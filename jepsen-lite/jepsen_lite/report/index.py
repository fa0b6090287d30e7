"""The page over all runs of a store: `index.html` in it, which leads to each run's page.

What it says of a run comes from its record, but for the counts of outcomes, which come from its history's column of them; both
are kept by the time of the record, so that a store of thousands is read once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from .. import store
from ..history import FAIL, INFO, OK
from ..store import RunDirectory, RunRecord, StoreError
from . import words
from .page import PAGE, replace, template, write_assets
from .words import Word

ASSETS = ".assets"


class Row(msgspec.Struct, frozen=True):
    """A run as the index shows it."""

    name: str
    record: RunRecord
    counts: dict[str, int]
    word: Word
    reason: str
    has_page: bool


class Index:
    """Of one store; keeps what it has read of runs that did not change. `builds_pages`: whoever follows a link gets the page
    built, so that every run has one.
    """

    def __init__(self, place: Path, *, builds_pages: bool = False) -> None:
        self._place = place
        self._builds_pages = builds_pages
        self._read: dict[Path, tuple[int, RunRecord, dict[str, int]]] = {}

    def write(self) -> Path:
        """StoreError, OSError."""
        write_assets(self._place / ASSETS)
        return replace(self._place / PAGE, self.render().encode())

    def render(self) -> str:
        rows: list[Row] = []
        unreadable: list[str] = []
        for directory in store.all_runs(self._place):
            try:
                rows.append(self._row(directory))
            except StoreError as error:
                unreadable.append(str(error))
        names = {row.name for row in rows}
        counted = Counter(row.word for row in rows)
        return template("index.html.j2").render(
            store=self._place,
            rows=rows,
            unreadable=unreadable,
            unfinished=[name for name in unfinished(self._place) if name not in names],
            counts={word.name: (word, count) for word, count in sorted(counted.items())},
            filters={
                "workload": sorted({row.record.workload for row in rows}),
                "nemesis": sorted({nemesis for row in rows for nemesis in row.record.nemeses or ("none",)}),
                "verdict": sorted({row.word.name for row in rows}),
            },
            version=self.version(),
            assets=ASSETS,
        )

    def version(self) -> str:
        """Another one whenever a run began, was done, was judged anew or got its page."""
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
            known = self._read[directory.path] = (written, directory.record(), counts_of(directory))
        _, record, counts = known
        verdicts = record.verdicts
        has_page = self._builds_pages or (directory.report / PAGE).is_file()
        return Row(directory.name, record, counts, words.word(verdicts), words.reason(verdicts), has_page)


def counts_of(directory: RunDirectory) -> dict[str, int]:
    """How many operations ended in each way, from that one column. StoreError."""
    import pyarrow.parquet as pq

    path = directory.path / "history.parquet"
    try:
        column: Any = pq.ParquetFile(path).read(["outcome"]).column("outcome")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}; run it again") from error
    found = {row["values"]: row["counts"] for row in column.value_counts().to_pylist()}
    return {outcome: found.get(outcome, 0) for outcome in (OK, FAIL, INFO)}


def unfinished(place: Path) -> list[str]:
    """Runs without a record: under way, or cut short; the newest first."""
    found = [path.parent for path in place.glob("*/*/nodes") if path.parent.parent.name != store.LATEST]
    runs = [path for path in found if not (path / "run.json").is_file()]
    return [RunDirectory(path).name for path in sorted(runs, key=lambda path: path.name, reverse=True)]
