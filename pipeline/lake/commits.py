"""A lake of Delta tables whose unit of work is a range.

Each table is a Delta table at `LAKE/LAYER/TABLE` (`delta.py`), which any reader of Delta can read. A table consists of ranges
of offsets [lo, hi), whose files are in `LO-HI/` or, after a merge, in the directories of the merged ranges. A commit adds one
range, and replaces the same range and all ranges within it. A range that overlaps another in part is refused, because rows would
count twice. So a process that is killed at any moment leaves either the old range or the new one. Files that no version names
are garbage, which `vacuum` removes.

A range's `number` is the version of the table that brought the range. `inputs` name the versions of other tables from which its
rows were made, so that a range whose input was repeated is known to be stale.

On a disk of this machine, one process writes at a time (`lock.py`). Elsewhere the second of two commits for one version is
refused. Readers need no lock: files of replaced ranges stay until `vacuum`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import dataset
from pyarrow.fs import FileType

from ..errors import CorruptInput, WrongUse
from ..storage import uris
from ..storage.parts import DataFile, write_here
from ..storage.schemas import SPARK_SCHEMAS, arrow_schema, spark_schema
from . import lock
from .delta import STAY_HOURS, Note, Range, Table, Version

if TYPE_CHECKING:
    from pyarrow.compute import Expression
    from pyspark.sql import DataFrame, SparkSession

OLD_FORMAT = "_commits"
NOTHING = Version(0, 0, 0, ())
"""The version of a table that does not exist."""


class VacuumResult(NamedTuple):
    """The result of `vacuum`."""

    files: int
    size_bytes: int


class RangeOverlap(WrongUse):
    """A range that overlaps a committed range in part."""


def range_name(lo: int, hi: int) -> str:
    return f"{lo:020d}-{hi:020d}"


def table_path(table: str) -> str:
    """Return the path of a table in the lake."""
    return table.replace(".", "/", 1)


class Lake:
    """A lake by its URI. It need not exist yet; the first commit creates it."""

    def __init__(self, place: str) -> None:
        self.uri = uris.normalised(place)
        self._system, self._root = uris.file_system(self.uri)
        self._is_local = uris.is_of_this_machine(self.uri)
        self._is_held = False
        self._tables: dict[str, Table] = {}
        self._fresh: set[str] = set()
        """Tables that were read since the lake was locked, to which nobody else can have committed."""
        self._pinned: dict[str, int | None] = {}
        """Versions to read; None for a table that did not exist at the time."""

    def __repr__(self) -> str:
        return f"the lake {self.place()}"

    def place(self) -> str:
        """Return the lake's place as people write it."""
        return uris.shown(self.uri)

    def exists(self) -> bool:
        """Return whether anything was ever committed."""
        return bool(self.tables())

    def tables(self) -> list[str]:
        """Return the tables to which anything was ever committed."""
        return sorted(table for table in SPARK_SCHEMAS if self.latest(table))

    # -- versions -------------------------------------------------------------------------------------------------------------

    def pin(self, table: str, version: int) -> None:
        """Read this version of a table from now on. WrongUse if the table does not have the version."""
        if self._table(table).read(version) is None:
            raise WrongUse(f"{self} has no {table}")
        self._pinned[table] = version

    def pin_time(self, time_ms: int, tables: Iterable[str] = tuple(SPARK_SCHEMAS)) -> None:
        """Read tables as of a time from now on; a table that was created later has no rows. WrongUse if all of them are later."""
        versions = {table: self._table(table).version_at(time_ms) for table in tables}
        if all(version is None for version in versions.values()):
            raise WrongUse(f"{self} has no version from before {time_ms} (ms since 1970)")
        for table, version in versions.items():
            self._pinned[table] = None
            if version is not None:
                self.pin(table, version)

    def committed_ms(self, table: str) -> int:
        """Return the time of the version that is read."""
        return self._version(table).committed_ms

    def latest(self, table: str) -> int:
        """Return the number of the version that is read, or 0 if nothing was ever committed to the table."""
        return self._version(table).number

    def changed(self, table: str) -> int:
        """Return the number of the newest version that gave the table other rows, or 0 if it never had any."""
        return self._version(table).changed

    def active(self, table: str) -> list[Range]:
        """Return the ranges of a table, in order. CorruptInput if another program has committed to the table."""
        return list(self._version(table).ranges)

    def files(self, table: str) -> list[str]:
        """Return the URIs of the table's files."""
        return [uris.joined(self.uri, data_file.path) for each in self.active(table) for data_file in each.files]

    def _version(self, table: str) -> Version:
        if table in self._pinned:
            pinned = self._pinned[table]
            found = None if pinned is None else self._table(table).read(pinned)
        else:
            found = self._table(table).read(is_known=table in self._fresh)
            if self._is_held and self._is_local:
                self._fresh.add(table)
        return found or NOTHING

    def _table(self, table: str) -> Table:
        arrow_schema(table)
        if not self._tables and self._system.get_file_info(f"{self._root}/{OLD_FORMAT}").type != FileType.NotFound:
            raise WrongUse(
                f"{self} has the format of an earlier version, which is no longer read; remove it, and build it again: "
                f"kraftlab pipeline ingest LOGDIR... --lake {self.place()}"
            )
        if table not in self._tables:
            path = table_path(table)
            self._tables[table] = Table(uris.joined(self.uri, path), table, path)
        return self._tables[table]

    # -- rows -----------------------------------------------------------------------------------------------------------------

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return a table as Spark sees it. A table without files is empty and has its columns."""
        schema = spark_schema(table)
        files = [uris.for_spark(uri) for uri in self.files(table)]
        return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)

    def arrow(self, table: str, columns: list[str] | None = None) -> pa.Table:
        """Return a table without Spark."""
        return self.arrow_of_files(table, (each for part in self.active(table) for each in part.files), columns)

    def arrow_of(self, part: Range, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of one range without Spark."""
        return self.arrow_of_files(part.table, part.files, columns)

    def arrow_of_files(
        self, table: str, files: Iterable[DataFile], columns: list[str] | None = None, where: Expression | None = None
    ) -> pa.Table:
        """Return the rows of files of a table, committed or not, without Spark; with `where`, only the matching rows. Columns
        that a file does not have are null. CorruptInput if a file is gone or damaged.
        """
        paths = [f"{self._root}/{each.path}" for each in files]
        try:
            return dataset.dataset(paths, arrow_schema(table), "parquet", self._system).to_table(columns, where)
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise CorruptInput(
                f"{self} has a file of {table} that cannot be read ({error}); restore it, or build the lake again"
            ) from None

    # -- commits --------------------------------------------------------------------------------------------------------------

    def directory(self, table: str, lo: int, hi: int) -> str:
        """Return the directory of a range's files, relative to the lake."""
        return f"{table_path(table)}/{range_name(lo, hi)}"

    def commit_parts(
        self,
        table: str,
        lo: int,
        hi: int,
        files: Iterable[DataFile],
        *,
        inputs: Mapping[str, int] = {},
        details: Mapping[str, str] = {},
        merged: int | None = None,
    ) -> Range:
        """Commit files that were written into `directory`; without files, a range without rows. `merged` is the `content` of a
        range that has the rows of the replaced ranges, and may have their files. The caller holds `writing()`. RangeOverlap.
        """
        self.check_range(table, lo, hi)
        self._table(table).prepare(arrow_schema(table))
        version = self._version(table)
        number, files = version.number + 1, tuple(sorted(files, key=lambda each: each.path))
        kept = [each for each in version.ranges if each.hi <= lo or hi <= each.lo]
        gone = {file for each in version.ranges if lo <= each.lo and each.hi <= hi for file in each.files}
        is_change = merged is None and any(each.rows for each in (*files, *gone))
        content = number if merged is None else merged
        committed = Range(number, lo, hi, content, dict(inputs), dict(details), table, files)
        note = Note(number if is_change else version.changed, [*kept, committed])
        added = [each for each in files if each not in gone]
        self._table(table).commit(version, arrow_schema(table), added, gone - set(files), note, is_change=is_change)
        return committed

    def commit_arrow(
        self,
        rows: pa.Table,
        table: str,
        lo: int,
        hi: int,
        *,
        inputs: Mapping[str, int] = {},
        details: Mapping[str, str] = {},
    ) -> Range:
        """Write and commit rows in memory, without Spark. The caller holds `writing()`. RangeOverlap."""
        self.check_range(table, lo, hi)
        files = write_here(self.uri, self.directory(table, lo, hi), table, [rows])
        return self.commit_parts(table, lo, hi, files, inputs=inputs, details=details)

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove written files that will not be committed."""
        for each in files:
            self._system.delete_file(f"{self._root}/{each.path}")

    def check_range(self, table: str, lo: int, hi: int) -> None:
        """Raise RangeOverlap if [lo, hi) could not be committed, WrongUse if it is empty."""
        if not 0 <= lo < hi:
            raise WrongUse(f"[{lo}, {hi}) is not a range of offsets; the first must be at least 0 and below the second")
        for each in self.active(table):
            if lo < each.hi and each.lo < hi and not (lo <= each.lo and each.hi <= hi):
                raise RangeOverlap(
                    f"{table} has the range [{each.lo}, {each.hi}), which [{lo}, {hi}) covers only in part; "
                    f"do [{min(lo, each.lo)}, {max(hi, each.hi)}) instead, or a range next to it"
                )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lake for this process alone; nested calls are allowed. LakeLocked names the other holder."""
        if self._is_held:
            yield
            return
        with lock.writing(self.uri):
            if self._is_local:
                for table in SPARK_SCHEMAS:
                    self._table(table).drop_torn()
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
                self._fresh.clear()

    def vacuum(self, keep: int = 1, hours: int = 0) -> VacuumResult:
        """Remove the files that the last `keep` versions of each table do not use, except those of the last `hours`: replaced
        files, and leftovers of killed writers. Takes the lock, unless the lake does not exist.
        """
        if keep < 1:
            raise WrongUse(f"at least the newest state is kept; --keep {keep} would lose it")
        infos = self._system.get_file_info([f"{self._root}/{table_path(table)}" for table in SPARK_SCHEMAS])
        tables = [table for table, info in zip(SPARK_SCHEMAS, infos, strict=True) if info.type != FileType.NotFound]
        if not tables:
            return VacuumResult(0, 0)
        sizes: list[int] = []
        with self.writing():
            for table in tables:
                # A writer that was killed before the first commit of a table left files without a table.
                self._table(table).prepare(arrow_schema(table))
                sizes += self._table(table).vacuum(keep, hours if self._is_local else max(hours, STAY_HOURS))
        return VacuumResult(len(sizes), sum(sizes))
