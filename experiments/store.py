"""Rows on disk, and what an interrupted run has finished.

    OUT/index.html                      all experiments
    OUT/NAME/SIZE-SEED/index.html       the page of one run
    OUT/NAME/SIZE-SEED/rows.parquet     a row per trial, when all trials are there
    OUT/NAME/SIZE-SEED/rows.jsonl       until then: a line per finished trial, written as soon as that trial ends

A run that was interrupted goes on where the journal ends. Its last line can be torn; that trial is run again.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow
import pyarrow.parquet

from kraftlab.common.pages import replace_file

from .experiment import Row, Rows, Size, Trial

PARQUET = "rows.parquet"
JOURNAL = "rows.jsonl"


class BadRows(ValueError):
    """A file of rows that cannot be read. The text names the file and the next step."""


class JournalLine(msgspec.Struct, frozen=True):
    """A line of the journal: the rows of a finished trial."""

    line: str
    number: int
    rows: list[Row]


class RowStore:
    """The rows of one run: an experiment in one size with one seed."""

    def __init__(self, out: Path, name: str, size: Size, seed: int) -> None:
        self.directory = out / name / f"{size}-{seed}"

    def rows(self) -> list[Row]:
        """Return the rows that are there, of a finished run or of an interrupted one. BadRows, OSError."""
        path = self.directory / PARQUET
        found: list[Row] = []
        if path.is_file():
            try:
                found = pyarrow.parquet.read_table(path).to_pylist()
            except pyarrow.ArrowException as error:
                raise BadRows(f"{path} is damaged: {error}; remove it and run the experiment again") from error
        found += [row for trial in self._journal() for row in trial.rows]
        if not all({"line", "number"} <= row.keys() for row in found):
            raise BadRows(f"{self.directory} has rows of no trial; remove the directory and run the experiment again")
        return found

    def _journal(self) -> Iterable[JournalLine]:
        path = self.directory / JOURNAL
        lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                yield msgspec.json.decode(line, type=JournalLine)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise BadRows(
                    f"line {number} of {path} is damaged: {error}; remove that line and run the experiment again to go on"
                ) from error

    def left(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that have not been run so far, and cut a torn line off the journal. BadRows."""
        path = self.directory / JOURNAL
        if path.is_file():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        done = {(row["line"], row["number"]) for row in self.rows()} | {(trial.line, trial.number) for trial in self._journal()}
        return [trial for trial in trials if trial.key not in done]

    def add(self, trial: Trial, rows: Rows) -> None:
        """Append a finished trial to the journal."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / JOURNAL).open("ab") as file:
            file.write(msgspec.json.encode(JournalLine(trial.line, trial.number, list(rows))) + b"\n")

    def finish(self, trials: Iterable[Trial]) -> list[Row]:
        """Write the Parquet file with the rows in the order of the trials, remove the journal, and return the rows. BadRows."""
        order = {trial.key: place for place, trial in enumerate(trials)}
        rows = [row for row in self.rows() if (row["line"], row["number"]) in order]
        rows.sort(key=lambda row: order[str(row["line"]), int(row["number"])])
        file = io.BytesIO()
        names = dict.fromkeys(name for row in rows for name in row)
        try:
            table = pyarrow.Table.from_pydict({name: [row.get(name) for row in rows] for name in names})
            pyarrow.parquet.write_table(table, file)
        except pyarrow.ArrowException as error:
            raise BadRows(
                f"the rows in {self.directory} do not go together: {error}; remove the directory and run the experiment again"
            ) from error
        self.directory.mkdir(parents=True, exist_ok=True)
        replace_file(self.directory / PARQUET, file.getvalue())
        (self.directory / JOURNAL).unlink(missing_ok=True)
        return rows
