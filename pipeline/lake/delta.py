"""One table of a lake as a Delta table: the only module that calls the library `deltalake`.

A commit is the file `_delta_log/N.json` of the table, which appears whole or not at all. It names the Parquet files that become
part of the table, and those that are no longer part of it. Its commit information has a note under `kraftlab`: the ranges of the
table after this commit. So one commit describes all ranges of a version, and old commits can expire.

A commit is made for the version that its writer read. The library refuses the commit if another process has committed meanwhile.

The library syncs nothing. On a disk of this machine, data files are synced before a commit, and the commit after it appears. A
power cut between the two can leave an incomplete newest commit, which no caller knows as committed: the next writer removes it
(`drop_torn_commit`). Checkpoints are made by `vacuum` alone, which syncs them before old commits expire.
"""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..errors import CorruptInput, WrongUse
from . import uris

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import CommitProperties, PostCommitHookProperties

LOG = "_delta_log"
KEY = "kraftlab"
VERSION_DIGITS = 20
_CONFIGURATION: dict[str, str | None] = {"delta.logRetentionDuration": "interval 0 seconds"}
"""Commits expire when a vacuum needs them no more."""
_ACTIONS_OF_CREATION = 2
COMMITS_PER_CHECKPOINT = 32
STAY_S = 7 * 86_400
"""Age of files that no version names, before they are removed where other processes may be writing."""


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table. `path` is relative to the lake."""

    path: str
    rows: int
    size_bytes: int


class RangeNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range [lo, hi) as commits note it. `commits.Range` explains the fields."""

    number: int
    lo: int
    hi: int
    content: int
    inputs: dict[str, int] = {}
    details: dict[str, str] = {}


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table after a commit: its ranges, and the number of the newest commit that gave the table other rows. The commit has at
    least `actions` actions beside its information, unless its end was lost.
    """

    changed: int = 0
    ranges: list[RangeNote] = []
    actions: int = 0


class _CommitInfo(msgspec.Struct, frozen=True):
    timestamp: int = 0
    operation: str = ""
    kraftlab: Note | None = None


class _Removal(msgspec.Struct, frozen=True):
    path: str


class _Action(msgspec.Struct, frozen=True, rename="camel"):
    commit_info: _CommitInfo | None = None
    remove: _Removal | None = None


class Version(NamedTuple):
    """A version of a table, with its files relative to the table."""

    number: int
    committed_ms: int
    note: Note
    files: tuple[DataFile, ...]


class Table:
    """A table by its URI. It need not exist; the first commit creates it."""

    def __init__(self, uri: str, name: str) -> None:
        self.uri, self.name = uri, name
        self._system, self._root = uris.file_system(uri)
        self._newest: DeltaTable | None = None
        self._known: Version | None = None

    def read(self, version: int | None = None) -> Version | None:
        """Return a version, otherwise the newest; None if the table does not exist. WrongUse; CorruptInput."""
        table = self._open()
        if table is None:
            return None
        number = table.version()
        if version is not None and version != number:
            return self._earlier(version, number)
        if self._known is None or self._known.number != number:
            self._known = self._version(table)
        return self._known

    def at_time(self, time_ms: int) -> int | None:
        """Return the newest version that was committed by a time, or None."""
        numbers = self._numbers()
        at = bisect.bisect_right(numbers, time_ms, key=lambda number: self._info(number).timestamp)
        return numbers[at - 1] if at else None

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
        from pyarrow.fs import FileType

        try:
            if self._newest is not None:
                following = self._system.get_file_info(f"{self._root}/{_commit_path(self._newest.version() + 1)}")
                if following.type != FileType.NotFound:
                    self._newest.update_incremental()
            elif self._numbers():
                self._newest = DeltaTable(self._library_uri())
        except (DeltaError, OSError) as error:
            raise CorruptInput(
                f"{self.name} cannot be read: {error}; after a power cut, kraftlab pipeline vacuum removes an incomplete commit"
            ) from None
        return self._newest

    def _earlier(self, number: int, newest: int) -> Version:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
        from pyarrow.fs import FileType

        if not 0 <= number <= newest:
            raise WrongUse(f"{self.name} has no version {number}; the newest is {newest}")
        try:
            found = self._version(DeltaTable(self._library_uri(), version=number))
        except (DeltaError, OSError) as error:
            raise WrongUse(f"version {number} of {self.name} has expired ({error}); the newest is {newest}") from None
        infos = self._system.get_file_info([f"{self._root}/{file.path}" for file in found.files])
        if any(info.type == FileType.NotFound for info in infos):
            raise WrongUse(f"version {number} of {self.name} has files that a vacuum removed; the newest is {newest}")
        return found

    def _version(self, table: DeltaTable) -> Version:
        import pyarrow as pa

        number = table.version()
        try:
            info = self._info(number)
        except msgspec.DecodeError as error:
            raise CorruptInput(f"commit {number} of {self.name} cannot be read: {error}") from None
        if info.kraftlab is None:
            raise CorruptInput(
                f"version {number} of {self.name} was committed by another program ({info.operation}); "
                f"restore version {number - 1}, or build the lake again"
            )
        actions = pa.table(table.get_add_actions()).select(["path", "num_records", "size_bytes"]).to_pylist()
        files = (DataFile(each["path"], each["num_records"], each["size_bytes"]) for each in actions)
        return Version(number, info.timestamp, info.kraftlab, tuple(sorted(files, key=lambda each: each.path)))

    def _info(self, number: int) -> _CommitInfo:
        return next((each.commit_info for each in self._actions(number) if each.commit_info is not None), _CommitInfo())

    def _actions(self, number: int) -> list[_Action]:
        with self._system.open_input_stream(f"{self._root}/{_commit_path(number)}") as stream:
            return msgspec.json.Decoder(_Action).decode_lines(stream.read())

    def _numbers(self) -> list[int]:
        """Return the numbers of all commits that have not expired."""
        from pyarrow.fs import FileSelector

        infos = self._system.get_file_info(FileSelector(f"{self._root}/{LOG}", allow_not_found=True))
        names = (info.base_name.removesuffix(".json") for info in infos if info.base_name.endswith(".json"))
        return sorted(int(name) for name in names if name.isdigit())

    def create(self, schema: pa.Schema) -> None:
        """Create the table without rows as version 0, unless it exists."""
        from deltalake import DeltaTable

        if self.read() is None:
            properties = self._properties(Note(actions=_ACTIONS_OF_CREATION))
            DeltaTable.create(
                self._library_uri(), schema, mode="ignore", configuration=_CONFIGURATION, commit_properties=properties
            )
            self._sync(_commit_path(0))

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
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        files, now_ms = list(files), time.time_ns() // 1_000_000
        self._sync(*(each.path for each in files))
        actions: list[AddAction | RemoveAction] = [
            AddAction(each.path, each.size_bytes, {}, now_ms, is_change, f'{{"numRecords":{each.rows}}}') for each in files
        ]
        actions += [RemoveAction(each.path, is_change, now_ms, each.size_bytes, {}) for each in gone]
        properties = self._properties(msgspec.structs.replace(note, actions=len(actions)))
        table = self._newest
        assert table is not None
        assert table.version() == read.number
        try:
            table.create_write_transaction(
                actions, "append", schema, commit_properties=properties, post_commithook_properties=_no_hooks()
            )
        except DeltaError as error:
            raise WrongUse(
                f"another process committed to {self.name} at the same time ({error}); run this command again"
            ) from None
        self._sync(_commit_path(read.number + 1))

    def vacuum(self, keep: int, *, is_alone: bool) -> list[DataFile]:
        """Remove the files that the last `keep` versions do not use, and return them. Unless this process is alone, files
        that are younger than a week stay, since another process may be about to commit them.
        """
        from pyarrow.fs import FileSelector, FileType

        newest = self.read()
        used = {file.path for file in newest.files} if newest is not None else set()
        kept = self._numbers()[-keep:]
        used.update(each.remove.path for number in kept[1:] for each in self._actions(number) if each.remove is not None)
        before = time.time() - STAY_S
        removed = []
        for info in self._system.get_file_info(FileSelector(self._root, recursive=True, allow_not_found=True)):
            path = info.path[len(self._root) + 1 :]
            is_data = info.type == FileType.File and not path.startswith(f"{LOG}/")
            if is_data and path not in used and (is_alone or info.mtime.timestamp() < before):
                self._system.delete_file(info.path)
                removed.append(DataFile(path, 0, info.size))
        if kept:
            self._expire(kept[0])
        return removed

    def _expire(self, oldest: int) -> None:
        """Make a checkpoint of the oldest version that is kept, if many commits are older, and remove these."""
        from deltalake import DeltaTable

        if sum(number < oldest for number in self._numbers()) >= COMMITS_PER_CHECKPOINT:
            table = DeltaTable(self._library_uri(), version=oldest)
            table.create_checkpoint()
            self._sync(f"{LOG}/{oldest:0{VERSION_DIGITS}d}.checkpoint.parquet", f"{LOG}/_last_checkpoint")
            table.cleanup_metadata()

    def drop_torn_commit(self) -> None:
        """Remove the newest commit if a power cut left a part of it. The caller is the only writer."""
        numbers = self._numbers()
        if not numbers:
            return
        try:
            info, count = self._info(numbers[-1]), len(self._actions(numbers[-1]))
            is_whole = bool(info.operation) and (info.kraftlab is None or count > info.kraftlab.actions)
        except msgspec.DecodeError:
            is_whole = False
        if not is_whole:
            self._system.delete_file(f"{self._root}/{_commit_path(numbers[-1])}")

    def _properties(self, note: Note) -> CommitProperties:
        from deltalake.transaction import CommitProperties

        return CommitProperties(custom_metadata={KEY: msgspec.to_builtins(note)}, max_commit_retries=0)

    def _library_uri(self) -> str:
        return str(uris.local_path(self.uri)) if uris.is_of_this_machine(self.uri) else self.uri

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


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _commit_path(number: int) -> str:
    return f"{LOG}/{number:0{VERSION_DIGITS}d}.json"


def _no_hooks() -> PostCommitHookProperties:
    from deltalake.transaction import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
