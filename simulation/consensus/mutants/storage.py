"""Bugs of storage: writes, syncs, truncations and recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.checking.mutant import Table
from kraftlab.quorum.core import batch
from kraftlab.quorum.core.batch import BatchHeader
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.storage import election_store, recovery
from kraftlab.quorum.storage.batch_index import BatchIndex
from kraftlab.quorum.storage.election_store import ElectionStateStore
from kraftlab.quorum.storage.errors import FsyncFailed
from kraftlab.quorum.storage.metadata_log import FlushWork, MetadataLog
from kraftlab.quorum.storage.tail_cache import TailCache

from ..simulated_file_system import SimulatedFile, SimulatedFileSystem
from .seeds import Seeds

MUTANTS: Table[Seeds] = Table()


@MUTANTS.row(MetadataLog, "_cut", Seeds("D1", "LogCorrupt", most=300))
def cut_forgotten(_: object, self: MetadataLog, position: int, offset: int) -> None:
    """A truncation never reaches the disk."""
    self.durable_end_offset = min(self.durable_end_offset, offset)


@MUTANTS.row(SimulatedFile, "fdatasync", Seeds("D1", "S2", "LogCorrupt"))
def no_fsync(_: object, self: SimulatedFile) -> None:
    """fdatasync does nothing."""


@MUTANTS.row(SimulatedFileSystem, "sync_directory", Seeds("D1", "S2", "LogCorrupt"))
def no_directory_fsync(_: object, self: SimulatedFileSystem, path: str) -> None:
    """fsync of a directory does nothing."""


@MUTANTS.row(MetadataLog, "finish_flush", Seeds("D1", "LogCorrupt"))
def half_flush(finish: Callable[..., None], self: MetadataLog, taken: FlushWork) -> None:
    """A flush that cuts forgets to append."""
    cut_only = msgspec.structs.replace(taken, data=b"", batches=[], end_offset=taken.cut_offset)
    finish(self, cut_only if taken.cut_position is not None else taken)


@MUTANTS.row(MetadataLog, "finish_flush", Seeds("D1", "LogCorrupt", most=300))
def fsync_error_swallowed(finish: Callable[..., None], self: MetadataLog, taken: FlushWork) -> None:
    """A failed fsync passes for a success."""
    try:
        finish(self, taken)
    except FsyncFailed:
        self._failure = None


@MUTANTS.row(MetadataLog, "_put_back", Seeds("S17", "S8", "D1", "LogCorrupt"))
def full_disk_forgets(_: object, self: MetadataLog, taken: FlushWork) -> None:
    """A write that a full disk refused is lost."""


@MUTANTS.row(MetadataLog, "_remove_unwanted", Seeds("D1", "D2", "LogCorrupt", most=300, faults=("kill", "partition")))
def cut_segment_kept(_: object, self: MetadataLog) -> None:
    """A segment that was cut off stays on disk."""
    self._unwanted.clear()


@MUTANTS.row(
    TailCache, "truncate", Seeds("CorruptBatch", "InvariantViolation", "D1", "S4", most=300, faults=("partition", "resign"))
)
def cache_not_truncated(_: object, self: TailCache, position: int) -> None:
    """The cache keeps what was cut off."""
    self.end_position = position
    self.start_position = min(self.start_position, position)


@MUTANTS.row(BatchIndex, "truncate", Seeds("InvariantViolation"))
def one_batch_too_many(truncate: Callable[..., None], self: BatchIndex, count: int) -> None:
    """A truncation leaves one batch too many."""
    truncate(self, count + 1)


@MUTANTS.row(ElectionStateStore, "store", Seeds("S2"))
def vote_file_not_synced(store: Callable[..., None], self: ElectionStateStore, state: ElectionState) -> None:
    """The name of a new election state is not synced."""
    file_system: Any = self._file_system
    file_system.sync_directory = lambda path: None
    try:
        store(self, state)
    finally:
        del file_system.sync_directory


@MUTANTS.row(SimulatedFileSystem, "rename", Seeds("LogCorrupt", "S2"))
def vote_written_in_place(rename: Callable[..., None], self: SimulatedFileSystem, source: str, target: str) -> None:
    """The election state is overwritten instead of replaced."""
    if not target.endswith(f"/{election_store.FILE_NAME}"):
        rename(self, source, target)
        return
    data = self.open(source).pread(1 << 20, 0)
    file = self.open(target, create=True)
    file._inode.write(data, 0)
    del file._inode.data[len(data) :]


@MUTANTS.row(recovery, "parse", Seeds("LogCorrupt", "D1", "S4", "S14", most=300))
def crc_ignored(parse: Callable[..., tuple[BatchHeader, bool]], data: bytes, position: int) -> tuple[BatchHeader, bool]:
    """Recovery takes batches whose crc does not hold."""
    if data[position : position + 4] == recovery.SEALED and position + batch.HEADER_BYTES <= len(data):
        header = batch.read_header(data, position)
        if header.record_count and position + header.size_bytes <= len(data):
            return header, True
    return parse(data, position)
