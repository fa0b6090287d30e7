"""Files that Spark's tasks write themselves.

A task's rows are Arrow batches in a Python worker. If Spark wrote them, every row would go through a socket into the JVM and be
encoded there one by one, which costs more than everything else. So the task writes one file per table itself, under a new name,
and returns only descriptions: one row of `PARTS` per file, and one with its notes. The driver then commits these files
(`Lake.commit_parts`).

A task can run more than once. A failed task that is repeated writes other files, and no commit names the files of the first
attempt: they are garbage, like the leftovers of killed runs. A file's size is bounded by its task's rows, a task's memory by one
row group of each of its tables.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from . import buckets, uris
from .schemas import arrow_of, arrow_schema

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter
    from pyspark.sql import DataFrame

PARTS = "table string, path string, rows bigint, size_bytes bigint, notes binary"
"""A file of a table; or, without a table, a task's notes as MessagePack."""
_PARTS_SCHEMA = arrow_of(PARTS)
GROUP_ROWS_MAX = 1 << 19
GROUP_BYTES_MAX = 48 << 20
_DIFFERENT = frozenset({"payload", "raw", "reassignment_id"})
"""Columns with hardly two equal values, as offsets and times: a dictionary of them would be wasted."""


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table. `path` is relative to the lake."""

    path: str
    rows: int
    size_bytes: int


class WrittenFiles(NamedTuple):
    """Files that the tasks of a job wrote, by table, and their notes."""

    files: dict[str, list[DataFile]]
    notes: list[Any]


class _Part:
    """One file. It exists from the first row group on."""

    def __init__(self, uri: str, directory: str, table: str) -> None:
        self.path = f"{directory}/part-{uuid.uuid4().hex}.zstd.parquet"
        self._system, self._root = uris.file_system(uri)
        self._schema = arrow_schema(table)
        self._is_bucketed = table in buckets.BUCKETED
        self._groups: list[int] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._writer: ParquetWriter | None = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= GROUP_ROWS_MAX or self._waiting_bytes >= GROUP_BYTES_MAX:
            self._write()

    def close(self) -> DataFile:
        if self._waiting:
            self._write()
        if self._writer is not None:
            if self._groups:
                self._writer.add_key_value_metadata(buckets.metadata(self._groups))
            self._writer.close()
        return DataFile(self.path, self.rows, self._system.get_file_info(f"{self._root}/{self.path}").size)

    def abandon(self) -> None:
        """Remove what was written, if possible: it belongs to no table."""
        with contextlib.suppress(OSError):
            if self._writer is not None:
                self._writer.close()
                self._system.delete_file(f"{self._root}/{self.path}")

    def _write(self) -> None:
        if self._writer is None:
            self._writer = self._opened()
        rows = pa.Table.from_batches(self._waiting, self._schema)
        if self._is_bucketed:
            for bucket, some in buckets.cut(rows):
                self._writer.write_table(some, row_group_size=some.num_rows)
                self._groups.append(bucket)
        else:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self.rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _opened(self) -> ParquetWriter:
        from pyarrow import parquet

        path = f"{self._root}/{self.path}"
        self._system.create_dir(path.rpartition("/")[0])
        named = [field.name for field in self._schema if field.name not in _DIFFERENT and field.type != pa.int64()]
        writer: ParquetWriter = parquet.ParquetWriter(
            path, self._schema, filesystem=self._system, compression="zstd", use_dictionary=named
        )
        return writer


class TaskFiles:
    """The files of one task: one for each table that has a directory and rows. A context manager; a task that fails leaves no
    files.
    """

    def __init__(self, uri: str, directories: Mapping[str, str]) -> None:
        self._uri, self._directories = uri, directories
        self._parts: dict[str, _Part] = {}
        self.notes: Any = None

    def __enter__(self) -> TaskFiles:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            for part in self._parts.values():
                part.abandon()

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Add rows of a table. Rows of a table without a directory are dropped."""
        directory = self._directories.get(table)
        if directory is None or not batch.num_rows:
            return
        part = self._parts.get(table)
        if part is None:
            part = self._parts[table] = _Part(self._uri, directory, table)
        part.add(batch)

    def add_all(self, batches: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        for table, batch in batches:
            self.add(table, batch)

    def report(self) -> Iterator[pa.RecordBatch]:
        """Finish all files. Yields rows of `PARTS`."""
        closed = {table: part.close() for table, part in self._parts.items()}
        rows: list[dict[str, object]] = [
            {"table": table, "path": file.path, "rows": file.rows, "size_bytes": file.size_bytes}
            for table, file in closed.items()
        ]
        if self.notes is not None:
            rows.append({"notes": msgspec.msgpack.encode(self.notes)})
        yield pa.RecordBatch.from_pylist(rows, schema=_PARTS_SCHEMA)


def written(job: DataFrame | Iterable[pa.RecordBatch]) -> WrittenFiles:
    """Run a job whose rows are `PARTS`, here or in Spark."""
    found = job.toArrow().to_batches() if hasattr(job, "toArrow") else job
    files: dict[str, list[DataFile]] = {}
    notes = []
    for row in (row for batch in found for row in batch.to_pylist()):
        if row["table"] is None:
            notes.append(msgspec.msgpack.decode(row["notes"]))
        else:
            files.setdefault(row["table"], []).append(DataFile(row["path"], row["rows"], row["size_bytes"]))
    return WrittenFiles(files, notes)


def write_here(uri: str, directory: str, table: str, rows: Iterable[pa.Table]) -> list[DataFile]:
    """Write rows of a table into one file of a directory, without Spark. Without rows, no file is made."""
    with TaskFiles(uri, {table: directory}) as files:
        for some in rows:
            files.add_all((table, batch) for batch in some.cast(arrow_schema(table)).to_batches())
        return written(files.report()).files.get(table, [])
