"""A lake of Delta tables whose unit of work is a range.

Each table is a Delta table at `LAKE/LAYER/TABLE` (`delta.py`), which any reader of Delta can read. A table consists of ranges
of offsets [lo, hi), whose files are in `LO-HI/`. A commit adds one range, and replaces the same range and all ranges within it. A
range that overlaps another in part is refused, because rows would count twice. So a process that is killed at any moment leaves
either the old range or the new one. Files that no version names are garbage, which `vacuum` removes.

A range's `number` is the version of the table that brought the range. `inputs` name the versions of other tables from which its
rows were made, so that a range whose input was repeated is known to be stale.

On a disk of this machine, one process writes at a time (`lock.py`). Elsewhere the second of two commits for one version is
refused. Readers need no lock: files of replaced ranges stay until `vacuum`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..errors import CorruptInput, WrongUse
from . import lock, uris
from .delta import DataFile, Note, RangeNote, Table, Version
from .schemas import SPARK_SCHEMAS, arrow_schema, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression
    from pyspark.sql import DataFrame, SparkSession

OLD_FORMAT = "_commits"
OFFSET_DIGITS = 20
_HIDDEN = ("_", ".")

Write = Callable[[str], None]
"""Writes Parquet files into the directory with this URI (Spark's spelling), next to its other files."""


class Range(NamedTuple):
    """A range of a table. `content` is the version that brought its rows, the oldest one if several ranges were merged. `details`
    are notes of the command that committed the range.
    """

    table: str
    number: int
    lo: int
    hi: int
    content: int
    files: tuple[DataFile, ...]
    inputs: Mapping[str, int]
    details: Mapping[str, str]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    def __repr__(self) -> str:
        return f"{self.table}#{self.number} [{self.lo}, {self.hi}) {self.rows} rows in {len(self.files)} files"


class Removed(NamedTuple):
    """The result of `vacuum`."""

    files: int
    size_bytes: int


class RangeOverlap(WrongUse):
    """A range that overlaps a committed range in part."""


def range_name(lo: int, hi: int) -> str:
    return f"{lo:0{OFFSET_DIGITS}d}-{hi:0{OFFSET_DIGITS}d}"


def table_path(table: str) -> str:
    """Return the path of a table in the lake."""
    return table.replace(".", "/", 1)


class Lake:
    """A lake by its URI. It need not exist yet; the first commit creates it."""

    def __init__(self, place: str) -> None:
        self.uri = uris.normalised(place)
        self._system, self._root = uris.file_system(self.uri)
        self._is_held = False
        self._tables: dict[str, Table] = {}
        self._pinned: dict[str, int] = {}

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

    def pin(self, table: str, version: int) -> None:
        """Read this version of a table from now on. WrongUse if the table does not have the version."""
        if self._table(table).read(version) is None:
            raise WrongUse(f"{self} has no {table}")
        self._pinned[table] = version

    def pin_time(self, time_ms: int, tables: Iterable[str] = tuple(SPARK_SCHEMAS)) -> None:
        """Read tables as of a time from now on; a table that was created later has no rows. WrongUse if all of them are later."""
        versions = {table: self._table(table).at_time(time_ms) for table in tables}
        if all(version is None for version in versions.values()):
            raise WrongUse(f"{self} has no version from before {time_ms} (ms since 1970)")
        for table, version in versions.items():
            self._pinned[table] = -1
            if version is not None:
                self.pin(table, version)

    def committed_ms(self, table: str) -> int:
        """Return the time of the version that is read."""
        version = self._version(table)
        return 0 if version is None else version.committed_ms

    def _table(self, table: str) -> Table:
        from pyarrow.fs import FileType

        arrow_schema(table)
        if not self._tables and self._system.get_file_info(f"{self._root}/{OLD_FORMAT}").type != FileType.NotFound:
            raise WrongUse(
                f"{self} has the format of an earlier version, which is not read any more; remove it, and build it again: "
                f"kraftlab pipeline ingest LOGDIR... --lake {self.place()}"
            )
        if table not in self._tables:
            self._tables[table] = Table(uris.joined(self.uri, table_path(table)), table)
        return self._tables[table]

    def _version(self, table: str) -> Version | None:
        pinned = self._pinned.get(table)
        return None if pinned == -1 else self._table(table).read(pinned)

    def active(self, table: str) -> list[Range]:
        """Return the ranges of a table, in order. CorruptInput if another program has committed to the table."""
        version = self._version(table)
        if version is None:
            return []
        files: dict[str, list[DataFile]] = {range_name(each.lo, each.hi): [] for each in version.note.ranges}
        for file in version.files:
            name = file.path.partition("/")[0]
            if name not in files:
                raise CorruptInput(f"{table} has a file of no range, {file.path}; was it committed by another program?")
            files[name].append(msgspec.structs.replace(file, path=f"{table_path(table)}/{file.path}"))
        return [
            Range(
                table,
                each.number,
                each.lo,
                each.hi,
                each.content,
                tuple(files[range_name(each.lo, each.hi)]),
                each.inputs,
                each.details,
            )
            for each in sorted(version.note.ranges, key=lambda each: each.lo)
        ]

    def latest(self, table: str) -> int:
        """Return the number of the version that is read, or 0 if nothing was ever committed to the table."""
        version = self._version(table)
        return 0 if version is None else version.number

    def changed(self, table: str) -> int:
        """Return the number of the newest version that gave the table other rows, or 0 if it never had any."""
        version = self._version(table)
        return 0 if version is None else version.note.changed

    def files(self, table: str) -> list[str]:
        """Return the URIs of the table's files."""
        return [uris.joined(self.uri, data_file.path) for each in self.active(table) for data_file in each.files]

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return a table as Spark sees it. A table without files is empty and has its columns."""
        schema = spark_schema(table)
        files = [uris.for_spark(uri) for uri in self.files(table)]
        if not files:
            return (
                spark.range(1).where("false").selectExpr(*(f"cast(null as {kind}) as {name}" for name, kind in _columns(schema)))
            )
        return spark.read.schema(schema).parquet(*files)

    def arrow(self, table: str, columns: list[str] | None = None) -> pa.Table:
        """Return a table without Spark."""
        return self.arrow_of_files(table, (each for part in self.active(table) for each in part.files), columns)

    def arrow_of(self, part: Range, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of one range without Spark."""
        return self.arrow_of_files(part.table, part.files, columns)

    def arrow_of_files(
        self, table: str, files: Iterable[DataFile], columns: list[str] | None = None, where: Expression | None = None
    ) -> pa.Table:
        """Return the rows of files of a table, committed or not, without Spark; with `where`, only the matching rows."""
        import pyarrow as pa
        from pyarrow import parquet

        schema = arrow_schema(table)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        parts = []
        for data_file in files:
            with self._system.open_input_file(f"{self._root}/{data_file.path}") as stream:
                rows = parquet.read_table(stream, columns=schema.names, filters=where)
                parts.append(rows.select(schema.names).cast(schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def commit(
        self,
        table: str,
        lo: int,
        hi: int,
        write: Write,
        *,
        inputs: Mapping[str, int] = {},
        details: Mapping[str, str] = {},
    ) -> Range:
        """Write the range [lo, hi) of a table and commit it. The caller holds `writing()`. RangeOverlap."""
        self.check_range(table, lo, hi)
        relative = self.directory(table, lo, hi)
        before = {path for path, _ in self._data_files(relative)}
        write(uris.for_spark(uris.joined(self.uri, relative)))
        files = [DataFile(path, self._rows(path), size) for path, size in self._data_files(relative) if path not in before]
        return self.commit_parts(table, lo, hi, files, inputs=inputs, details=details)

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
        range that has the rows of the replaced ranges. The caller holds `writing()`. RangeOverlap.
        """
        self.check_range(table, lo, hi)
        self._table(table).create(arrow_schema(table))
        version = self._version(table)
        assert version is not None
        number, files = version.number + 1, tuple(sorted(files, key=lambda each: each.path))
        gone = [each for each in self.active(table) if lo <= each.lo and each.hi <= hi]
        is_change = merged is None and bool(sum(each.rows for each in files) + sum(each.rows for each in gone))
        committed = RangeNote(number, lo, hi, number if merged is None else merged, dict(inputs), dict(details))
        replaced = {each.number for each in gone}
        kept = [each for each in version.note.ranges if each.number not in replaced]
        self._table(table).commit(
            version,
            arrow_schema(table),
            map(_in_table, files),
            [_in_table(file) for each in gone for file in each.files],
            Note(number if is_change else version.note.changed, [*kept, committed]),
            is_change=is_change,
        )
        return Range(table, number, lo, hi, committed.content, files, committed.inputs, committed.details)

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove written files that will not be committed."""
        for each in files:
            self._system.delete_file(f"{self._root}/{each.path}")

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
        """Commit rows in memory, without Spark. The caller holds `writing()`."""
        from pyarrow import parquet

        def write(directory: str) -> None:
            system, path = uris.file_system(uris.normalised(directory))
            system.create_dir(path)
            name = f"part-{time.time_ns()}.zstd.parquet"
            parquet.write_table(rows.cast(arrow_schema(table)), f"{path}/{name}", filesystem=system, compression="zstd")

        return self.commit(table, lo, hi, write, inputs=inputs, details=details)

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
            self._is_held = True
            try:
                if self._is_alone():
                    for table in SPARK_SCHEMAS:
                        self._table(table).drop_torn_commit()
                yield
            finally:
                self._is_held = False

    def _is_alone(self) -> bool:
        """Return whether the lock keeps all other writers out."""
        return uris.is_of_this_machine(self.uri)

    def vacuum(self, keep: int = 1) -> Removed:
        """Remove the files that the last `keep` versions of each table do not use: replaced files, and leftovers of killed
        writers. Takes the lock, unless the lake does not exist.
        """
        from pyarrow.fs import FileType

        if keep < 1:
            raise WrongUse(f"at least the newest state is kept; --keep {keep} would lose it")
        files = size_bytes = 0
        if self._system.get_file_info(self._root).type == FileType.NotFound:
            return Removed(files, size_bytes)
        with self.writing():
            for table in SPARK_SCHEMAS:
                path = table_path(table)
                for file in self._table(table).vacuum(keep, is_alone=self._is_alone()):
                    files, size_bytes = files + 1, size_bytes + file.size_bytes
                self._remove_empty(path)
        return Removed(files, size_bytes)

    def _remove_empty(self, relative: str) -> None:
        """Remove empty directories, the deepest first."""
        from pyarrow.fs import FileSelector, FileType

        found = self._system.get_file_info(FileSelector(f"{self._root}/{relative}", recursive=True, allow_not_found=True))
        full = {info.path for info in found if info.type == FileType.File}
        for info in sorted(found, key=lambda each: -len(each.path)):
            if info.type == FileType.Directory and not any(path.startswith(f"{info.path}/") for path in full):
                self._system.delete_dir(info.path)

    def _rows(self, path: str) -> int:
        from pyarrow import parquet

        with self._system.open_input_file(f"{self._root}/{path}") as stream:
            rows: int = parquet.read_metadata(stream).num_rows
        return rows

    def _data_files(self, relative: str) -> list[tuple[str, int]]:
        """Return Parquet files in a range's directory: (path relative to the lake, size)."""
        depth = relative.count("/") + 1
        return [
            (path, size)
            for path, size in self._list(relative)
            if path.count("/") == depth and not path.rpartition("/")[2].startswith(_HIDDEN)
        ]

    def _list(self, relative: str) -> list[tuple[str, int]]:
        from pyarrow.fs import FileSelector, FileType

        found = self._system.get_file_info(FileSelector(f"{self._root}/{relative}", recursive=True, allow_not_found=True))
        start = len(self._root) + 1
        return sorted((info.path[start:], info.size) for info in found if info.type == FileType.File)


def _in_table(file: DataFile) -> DataFile:
    """Return a file with its path relative to its table instead of the lake."""
    return msgspec.structs.replace(file, path=file.path.split("/", 2)[2])


def _columns(schema: str) -> Iterator[tuple[str, str]]:
    """Yield (name, type) of a schema text of Spark's."""
    for column in schema.split(", "):
        name, _, kind = column.partition(" ")
        yield name, kind
