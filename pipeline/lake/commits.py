"""Committed files of a lake: only the files that manifests name count.

The unit of work is a range of offsets [lo, hi) of one table. Its files are written into `LAYER/TABLE/range=LO-HI/`, each under a
new name. Then one manifest, `_commits/LAYER.TABLE/N.json`, names them, and from that moment they count. A manifest appears whole
or not at all. So a process that is killed at any moment leaves either the old range or the new one. Files that no manifest names
are garbage, which `vacuum` removes. Committed files are never overwritten: repeating a range writes new files and a new manifest,
which replaces the manifests of the same range and of all ranges within it. A range that overlaps another in part is refused,
because rows would count twice.

`inputs` of a manifest name the manifests of other tables from which its rows were made, so that a range whose input was repeated
is known to be stale.

On a disk of this machine, files are synced before the manifest that names them, and the manifest before it gets its name. So
after a power cut every existing manifest is whole, and so are its files.

One process writes at a time (`lock.py`). Readers need no lock: files of replaced manifests stay until `vacuum`.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kraftlab.config.json_files import BadJson, decode_json

from ..errors import CorruptInput, WrongUse
from . import lock, uris
from .schemas import SPARK_SCHEMAS, arrow_schema, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression
    from pyarrow.fs import FileInfo, FileSystem
    from pyspark.sql import DataFrame, SparkSession

COMMITS = "_commits"
SCHEMA_VERSION = 1
CONTENT, CHANGED = "content", "changed"
"""Details of a manifest that replaces several: the oldest of their numbers, and the newest number with a change of the table's
rows. A manifest that removed all rows has the latter, too.
"""
OFFSET_DIGITS = 20
_HIDDEN = ("_", ".")

Write = Callable[[str], None]
"""Writes Parquet files into the directory with this URI (Spark's spelling), next to its other files."""


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table. `path` is relative to the lake."""

    path: str
    rows: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """One commit. `number` counts per table from 1. `details` are notes of the command that wrote it."""

    number: int
    table: str
    lo: int
    hi: int
    rows: int
    files: tuple[DataFile, ...]
    committed_ms: int
    schema_version: int = SCHEMA_VERSION
    inputs: dict[str, int] = {}
    details: dict[str, str] = {}

    @property
    def content(self) -> int:
        """The number of the commit that brought its rows, the oldest one if several were compacted."""
        return int(self.details.get(CONTENT, self.number))

    @property
    def changed(self) -> int:
        """The number of the newest of these commits that gave the table other rows."""
        return int(self.details.get(CHANGED, self.number))

    @property
    def has_changed(self) -> bool:
        """True if the commit gave the table other rows."""
        return bool(self.rows) or CHANGED in self.details

    def __repr__(self) -> str:
        return f"{self.table}#{self.number} [{self.lo}, {self.hi}) {self.rows} rows in {len(self.files)} files"


class Removed(NamedTuple):
    """The result of `vacuum`."""

    files: int
    size_bytes: int
    manifests: int


class RangeOverlap(WrongUse):
    """A range that overlaps a committed range in part."""


def active(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the manifests that count after all of these were committed, by range."""
    found: list[Manifest] = []
    for manifest in sorted(manifests, key=lambda each: each.number):
        _replace(found, manifest)
    return sorted(found, key=lambda each: each.lo)


def _replace(found: list[Manifest], manifest: Manifest) -> list[Manifest]:
    """Insert a newer manifest among those that count, and return the replaced ones. Most new ranges follow all others."""
    if not found or manifest.lo >= found[-1].hi:
        replaced = []
    else:
        replaced = [each for each in found if manifest.lo <= each.lo and each.hi <= manifest.hi]
        found[:] = sorted((each for each in found if each not in replaced), key=lambda each: each.lo)
    at = bisect.bisect(found, manifest.lo, key=lambda each: each.lo)
    found.insert(at, manifest)
    return replaced


def range_name(lo: int, hi: int) -> str:
    return f"range={lo:0{OFFSET_DIGITS}d}-{hi:0{OFFSET_DIGITS}d}"


def table_path(table: str) -> str:
    """Return the path of a table's ranges in the lake."""
    return table.replace(".", "/", 1)


class Lake:
    """A lake by its URI. It need not exist yet; the first commit creates it."""

    def __init__(self, place: str) -> None:
        self.uri = uris.normalised(place)
        self._system, self._root = uris.file_system(self.uri)
        self._is_held = False
        self._manifests: dict[str, tuple[tuple[int, int | None], Manifest]] = {}
        """Manifests that were read, by path, with the size and time of their file: none is ever written again."""

    def __repr__(self) -> str:
        return f"the lake {self.place()}"

    def place(self) -> str:
        """Return the lake's place as people write it."""
        return uris.shown(self.uri)

    def exists(self) -> bool:
        """Return whether anything was ever committed."""
        return bool(self._list(COMMITS))

    def tables(self) -> list[str]:
        """Return the tables that have a manifest."""
        return sorted({path.split("/")[1] for path, _ in self._list(COMMITS)})

    def manifests(self, table: str) -> list[Manifest]:
        """Return all manifests of a table, oldest first. NoSuchTable; CorruptInput for a manifest that cannot be read."""
        arrow_schema(table)
        while True:
            try:
                return self._read_manifests(table)
            except FileNotFoundError:
                continue  # a vacuum took one away: what replaced it is in the next list

    def _read_manifests(self, table: str) -> list[Manifest]:
        found = []
        for info in self._infos(f"{COMMITS}/{table}"):
            if not info.path.endswith(".json") or info.base_name.startswith(_HIDDEN):
                continue
            version = (info.size, info.mtime_ns)
            known, manifest = self._manifests.get(info.path, (None, None))
            if manifest is None or known != version:
                manifest = self.read_manifest(info.path)
                self._manifests[info.path] = version, manifest
            found.append(manifest)
        return sorted(found, key=lambda each: each.number)

    def read_manifest(self, path: str) -> Manifest:
        with self._system.open_input_stream(path) as stream:
            data = stream.read()
        try:
            return decode_json(data, Manifest)
        except BadJson as error:
            where = uris.joined(uris.shown(self.uri), path[len(self._root) + 1 :])
            raise CorruptInput(f"{where} is not a manifest: {error}; restore it, or remove it and lose its commit") from None

    def active(self, table: str, as_of: int | None = None) -> list[Manifest]:
        """Return the manifests that count, by range. `as_of` is the number of the last manifest to consider."""
        return active(each for each in self.manifests(table) if as_of is None or each.number <= as_of)

    def latest(self, table: str) -> int:
        """Return the number of the newest manifest, or 0."""
        manifests = self.manifests(table)
        return manifests[-1].number if manifests else 0

    def changed(self, table: str) -> int:
        """Return the number of the newest manifest that gave the table other rows, or 0 if it never had any."""
        return max((each.changed for each in self.manifests(table) if each.has_changed), default=0)

    def files(self, table: str) -> list[str]:
        """Return the URIs of the files that count."""
        return [uris.joined(self.uri, data_file.path) for manifest in self.active(table) for data_file in manifest.files]

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return a table as Spark sees it. A table without files is empty and has its columns."""
        schema = spark_schema(table)
        files = [uris.for_spark(uri) for uri in self.files(table)]
        if not files:
            return (
                spark.range(1).where("false").selectExpr(*(f"cast(null as {kind}) as {name}" for name, kind in _columns(schema)))
            )
        return spark.read.schema(schema).parquet(*files)

    def arrow(self, table: str, columns: list[str] | None = None, as_of: int | None = None) -> pa.Table:
        """Return a table without Spark."""
        return self.arrow_of_files(table, (each for manifest in self.active(table, as_of) for each in manifest.files), columns)

    def arrow_of(self, manifest: Manifest, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of one commit without Spark."""
        return self.arrow_of_files(manifest.table, manifest.files, columns)

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
    ) -> Manifest:
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
    ) -> Manifest:
        """Commit files that were written into `directory`; without files, a range without rows. The caller holds `writing()`.
        RangeOverlap.
        """
        self.check_range(table, lo, hi)
        files = tuple(sorted(files, key=lambda each: each.path))
        self._sync(*(each.path for each in files))
        number, rows = self.latest(table) + 1, sum(each.rows for each in files)
        gone = [number if each.rows else each.changed for each in self._within(table, lo, hi) if each.has_changed]
        if gone and not rows:
            details = {CHANGED: str(max(gone)), **details}
        manifest = Manifest(
            number,
            table,
            lo,
            hi,
            rows,
            files,
            time.time_ns() // 1_000_000,
            SCHEMA_VERSION,
            dict(inputs),
            dict(details),
        )
        self.publish(f"{COMMITS}/{table}/{manifest.number}.json", msgspec.json.format(msgspec.json.encode(manifest)))
        return manifest

    def _within(self, table: str, lo: int, hi: int) -> list[Manifest]:
        """Return the manifests that a commit of [lo, hi) replaces."""
        return [each for each in self.active(table) if lo <= each.lo and each.hi <= hi]

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
    ) -> Manifest:
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
                yield
            finally:
                self._is_held = False

    def vacuum(self, keep: int = 1) -> Removed:
        """Remove the files that the last `keep` states of each table do not use: replaced files, manifests, and leftovers of
        killed writers. Takes the lock, unless the lake does not exist.
        """
        from pyarrow.fs import FileType

        if keep < 1:
            raise WrongUse(f"at least the newest state is kept; --keep {keep} would lose it")
        files = size_bytes = gone = 0
        if self._system.get_file_info(self._root).type == FileType.NotFound:
            return Removed(files, size_bytes, gone)
        with self.writing():
            for table in SPARK_SCHEMAS:
                manifests = self.manifests(table)
                states = manifests[-keep:]
                kept = {each.number for state in states for each in self.active(table, state.number)}
                used = {data_file.path for each in manifests if each.number in kept for data_file in each.files}
                for each in manifests:
                    if each.number not in kept:
                        self._system.delete_file(f"{self._root}/{COMMITS}/{table}/{each.number}.json")
                        gone += 1
                for path, size in self._list(table_path(table)):
                    if path not in used:
                        self._system.delete_file(f"{self._root}/{path}")
                        files, size_bytes = files + 1, size_bytes + size
                self._remove_empty(table_path(table))
        return Removed(files, size_bytes, gone)

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
        start = len(self._root) + 1
        return sorted((info.path[start:], info.size) for info in self._infos(relative))

    def _infos(self, relative: str) -> list[FileInfo]:
        from pyarrow.fs import FileSelector, FileType

        found = self._system.get_file_info(FileSelector(f"{self._root}/{relative}", recursive=True, allow_not_found=True))
        return [info for info in found if info.type == FileType.File]

    def publish(self, relative: str, data: bytes) -> None:
        """Write a file that appears whole or not at all."""
        path = f"{self._root}/{relative}"
        directory, _, name = path.rpartition("/")
        self._system.create_dir(directory)
        if self._system.type_name in uris.OBJECT_STORES:
            _write(self._system, path, data)
            return
        temporary = f"{directory}/.{name}.tmp"
        _write(self._system, temporary, data)
        self._sync(f"{relative.rpartition('/')[0]}/.{name}.tmp")
        self._system.move(temporary, path)
        self._sync(relative)

    def _sync(self, *relative: str) -> None:
        """Sync files and their directories on a disk of this machine. Other stores do that themselves."""
        if not uris.is_of_this_machine(self.uri):
            return
        root = uris.local_path(self.uri)
        paths = [root / each for each in relative]
        directories = {parent for path in paths for parent in path.parents if parent.is_relative_to(root)}
        for path in (*paths, *sorted(directories, reverse=True)):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _columns(schema: str) -> Iterator[tuple[str, str]]:
    """Yield (name, type) of a schema text of Spark's."""
    for column in schema.split(", "):
        name, _, kind = column.partition(" ")
        yield name, kind


def _write(system: FileSystem, path: str, data: bytes) -> None:
    with system.open_output_stream(path) as stream:
        stream.write(data)
