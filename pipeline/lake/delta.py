"""One table of a lake as a Delta table: the only module that calls the library `deltalake`.

A commit is the file `_delta_log/N.json` of the table, which appears whole or not at all. It names the Parquet files that become
part of the table, and those that are no longer part of it. Its commit information has a note under `kraftlab`: the ranges of the
table after this commit. So one commit describes all ranges of a version, and old commits can expire.

A commit is made for the version that its writer read. The library refuses the commit if another process has committed meanwhile.

The library syncs nothing. On a disk of this machine, data files are synced before a commit, and the commit after it appears. A
power cut between the two can leave an incomplete newest commit, which no caller knows as committed: the next writer removes it
(`drop_torn`). Checkpoints are made by `vacuum` alone, which syncs them before old commits expire. Until then the next writer
removes them too.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction
from pyarrow.fs import FileType

from ..errors import CorruptInput, WrongUse
from ..storage import uris
from ..storage.parts import DataFile

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
KEY = "kraftlab"
_CONFIGURATION: dict[str, str | None] = {"delta.logRetentionDuration": "interval 0 seconds"}
"""Commits expire when a vacuum needs them no more."""
COMMITS_PER_CHECKPOINT = 100
STAY_HOURS = 7 * 24
"""Age of files that no version names, before they are removed where other processes may be writing."""
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_FILE = re.compile(r"(\d+)-(\d+)/.+")


class Range(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range [lo, hi) of a table. `number` is the version that brought the range, `content` the one that brought its rows: the
    oldest one if several ranges were merged. `inputs` are versions of other tables from which the rows were made. `details` are
    notes of the command that committed the range. Notes of commits leave out the table and the files.
    """

    number: int
    lo: int
    hi: int
    content: int
    inputs: Mapping[str, int] = {}
    details: Mapping[str, str] = {}
    table: str = ""
    files: tuple[DataFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table after a commit: its ranges, and the number of the newest commit that gave the table other rows. The commit has at
    least `actions` actions beside its information, unless its end was lost.
    """

    changed: int = 0
    ranges: list[Range] = []
    actions: int = 0


class Version(NamedTuple):
    """A version of a table. Paths of files are relative to the lake."""

    number: int
    committed_ms: int
    changed: int
    ranges: tuple[Range, ...]


class Table:
    """A table by its URI and its path in the lake. It need not exist; `prepare` creates it."""

    def __init__(self, uri: str, name: str, path: str) -> None:
        self.uri, self.name, self._path = uri, name, path
        self._system, self._root = uris.file_system(uri)
        self._library_uri = str(uris.local_path(uri)) if uris.is_of_this_machine(uri) else uri
        self._newest: DeltaTable | None = None
        self._known: Version | None = None

    def read(self, number: int | None = None, *, is_known: bool = False) -> Version | None:
        """Return a version, otherwise the newest; None if the table does not exist. `is_known`: no other process has committed
        since the last call. WrongUse; CorruptInput.
        """
        table = self._newest if is_known and self._newest is not None else self._open()
        if table is None:
            return None
        if number is not None and number != table.version():
            return self._earlier(number, table.version())
        if self._known is None or self._known.number != table.version():
            self._known = self._version(table)
        return self._known

    def version_at(self, time_ms: int) -> int | None:
        """Return the newest version that was committed by a time, or None."""
        table = self._open()
        commits = [] if table is None else table.history()
        return max((int(each["version"]) for each in commits if each["timestamp"] <= time_ms), default=None)

    def _open(self) -> DeltaTable | None:
        try:
            if self._newest is None:
                self._newest = DeltaTable(self._library_uri)
            else:
                self._newest.update_incremental()
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise CorruptInput(self._damage(_words(error))) from None
        return self._newest

    def _damage(self, reason: str) -> str:
        return f"{self.name} cannot be read: {reason}; after a power cut, kraftlab pipeline vacuum removes an incomplete commit"

    def _earlier(self, number: int, newest: int) -> Version:
        if not 0 <= number <= newest:
            raise WrongUse(f"{self.name} has no version {number}; the newest is {newest}")
        try:
            found = self._version(DeltaTable(self._library_uri, version=number))
        except (DeltaError, OSError) as error:
            raise WrongUse(f"version {number} of {self.name} has expired ({_words(error)}); the newest is {newest}") from None
        paths = [f"{self._root}/{self._relative(file)}" for each in found.ranges for file in each.files]
        if any(info.type == FileType.NotFound for info in self._system.get_file_info(paths)):
            raise WrongUse(f"version {number} of {self.name} has files that a vacuum removed; the newest is {newest}")
        return found

    def _version(self, table: DeltaTable) -> Version:
        number = table.version()
        # The library's `history` of an earlier version begins with the newest commit.
        with self._system.open_input_stream(f"{self._root}/{_commit_path(number)}") as stream:
            info = _information(stream.read())
        if info is None:
            raise CorruptInput(self._damage(f"commit {number} is incomplete"))
        try:
            note = msgspec.convert(info[KEY], Note)
        except (KeyError, msgspec.ValidationError):
            raise CorruptInput(
                f"version {number} of {self.name} was committed by another program ({info.get('operation')}); to undo that, "
                f"remove {uris.shown(self.uri)}/{_commit_path(number)}; or build the lake again"
            ) from None
        ranges = sorted(note.ranges, key=lambda each: each.lo)
        files: list[list[DataFile]] = [[] for _ in ranges]
        actions = pa.table(table.get_add_actions()).select(["path", "num_records", "size_bytes"])
        for path, rows, size_bytes in sorted(zip(*(column.to_pylist() for column in actions.columns), strict=True)):
            found = _FILE.fullmatch(path)
            lo, hi = (int(found[1]), int(found[2])) if found is not None else (-1, -1)
            at = bisect.bisect_right(ranges, lo, key=lambda each: each.lo) - 1
            if at < 0 or hi > ranges[at].hi:
                raise CorruptInput(f"{self.name} has a file of no range, {path}; was it committed by another program?")
            files[at].append(DataFile(f"{self._path}/{path}", rows, size_bytes))
        whole = (
            msgspec.structs.replace(each, table=self.name, files=tuple(some)) for each, some in zip(ranges, files, strict=True)
        )
        return Version(number, int(info["timestamp"]), note.changed, tuple(whole))

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table without rows as version 0, or add the columns that it lacks."""
        read = self.read()
        if read is None:
            more = self._properties(Note(), 2)
            DeltaTable.create(self._library_uri, schema, mode="ignore", configuration=_CONFIGURATION, **more)
            self._sync(_commit_path(0))
            return
        assert self._newest is not None
        known = {field.name for field in self._newest.schema().fields}
        if missing := [field for field in Schema.from_arrow(schema).fields if field.name not in known]:
            note = Note(read.changed, list(read.ranges))
            self._newest.alter.add_columns(missing, **self._properties(note, 1), post_commithook_properties=_NO_HOOKS)
            self._sync(_commit_path(read.number + 1))

    def commit(
        self,
        read: Version,
        schema: pa.Schema,
        files: Iterable[DataFile],
        gone: Iterable[DataFile],
        note: Note,
        *,
        is_change: bool,
    ) -> None:
        """Commit version `read.number` + 1. `is_change` is false if the rows stay the same. WrongUse if another process
        has made that commit.
        """
        table, now_ms = self._newest, time.time_ns() // 1_000_000
        assert table is not None
        assert table.version() == read.number
        actions: list[AddAction | RemoveAction] = [
            AddAction(self._relative(each), each.size_bytes, {}, now_ms, is_change, f'{{"numRecords":{each.rows}}}')
            for each in files
        ]
        self._sync(*(each.path for each in actions))
        actions += [RemoveAction(self._relative(each), is_change, now_ms, each.size_bytes, {}) for each in gone]
        try:
            more = self._properties(note, len(actions))
            table.create_write_transaction(actions, "append", schema, **more, post_commithook_properties=_NO_HOOKS)
        except DeltaError as error:
            raise WrongUse(
                f"another process committed to {self.name} at the same time ({_words(error)}); run this command again"
            ) from None
        self._sync(_commit_path(read.number + 1))
        table.update_incremental()

    def vacuum(self, keep: int, hours: int) -> list[int]:
        """Remove the files that the last `keep` versions do not use, and return their sizes. Files stay that were part of the
        table, or were written, in the last `hours`.
        """
        table = self._open()
        if table is None:
            return []
        commits = [int(each["version"]) for each in table.history()]
        kept = commits[:keep]
        unused = table.vacuum(
            hours, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=kept if keep > 1 else None
        )
        infos = self._system.get_file_info([f"{self._root}/{path}" for path in unused])
        files = [info for info in infos if info.type == FileType.File]  # others were removed long ago
        for info in files:
            self._system.delete_file(info.path)
        if uris.is_of_this_machine(self.uri):
            for directory in {Path(info.path).parent for info in files}:
                with contextlib.suppress(OSError):
                    directory.rmdir()
        if len(commits) - len(kept) >= COMMITS_PER_CHECKPOINT:
            oldest = table if keep == 1 else DeltaTable(self._library_uri, version=kept[-1])
            oldest.create_checkpoint()
            self._sync(f"{LOG}/{_checkpoint_name(kept[-1])}", f"{LOG}/{LAST_CHECKPOINT}")
            oldest.cleanup_metadata()
        return [info.size for info in files]

    def drop_torn(self) -> None:
        """Remove the newest commit if a power cut left a part of it, and a checkpoint that may be incomplete, since all commits
        that it stands for are still there. The caller is the only writer.
        """
        log = uris.local_path(self.uri) / LOG
        commits = {int(path.stem): path for path in log.glob("*.json")}
        checkpoints = {int(path.name.partition(".")[0]): path for path in log.glob("*.checkpoint.parquet")}
        earlier, newest = [-1, -1, *sorted(checkpoints)][-2:]
        torn = [path for number, path in commits.items() if number == max(commits) and _information(path.read_bytes()) is None]
        if commits.keys() >= set(range(earlier + 1, newest + 1)):
            torn += [log / LAST_CHECKPOINT, *(path for number, path in checkpoints.items() if number == newest)]
        for path in filter(Path.exists, torn):
            path.unlink()
            self._newest = self._known = None

    def _relative(self, file: DataFile) -> str:
        return file.path[len(self._path) + 1 :]

    def _properties(self, note: Note, actions: int) -> Mapping[str, Any]:
        """Return the arguments of a commit."""
        ranges = [msgspec.structs.replace(each, table="", files=()) for each in note.ranges]
        noted = msgspec.to_builtins(Note(note.changed, ranges, actions))
        return {"commit_properties": CommitProperties(custom_metadata={KEY: noted}, max_commit_retries=0)}

    def _sync(self, *relative: str) -> None:
        """Sync files and their directories on a disk of this machine. Other stores do that themselves."""
        if not uris.is_of_this_machine(self.uri):
            return
        table = uris.local_path(self.uri)
        paths = [table / each for each in relative]
        lake = table.parent.parent
        directories = {parent for path in paths for parent in path.parents if parent.is_relative_to(lake)}
        for path in (*paths, *sorted(directories, reverse=True)):
            _fsync(path)


def _words(error: Exception) -> str:
    """Return the message of an error of the library without the stack of its own calls."""
    return str(error).partition("\n")[0]


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _information(commit: bytes) -> dict[str, Any] | None:
    """Return the information of a commit, or None if a power cut left only a part of the commit."""
    try:
        actions = [msgspec.json.decode(line) for line in commit.splitlines()]
        information: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        return information if len(actions) > information.get(KEY, {}).get("actions", 0) else None
    except (ValueError, TypeError, AttributeError):
        return None


def _commit_path(number: int) -> str:
    return f"{LOG}/{number:020d}.json"


def _checkpoint_name(number: int) -> str:
    return f"{number:020d}.checkpoint.parquet"
