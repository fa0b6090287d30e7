"""Bugs of the disk: what is written, synced, cut and recovered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.checking.mutant import Mutant
from kraftlab.quorum.core.batch import BatchHeader
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.storage import recovery
from kraftlab.quorum.storage.batch_index import BatchIndex
from kraftlab.quorum.storage.election_store import ElectionStateStore
from kraftlab.quorum.storage.errors import FsyncFailed
from kraftlab.quorum.storage.metadata_log import MetadataLog, Taken
from kraftlab.quorum.storage.tail_cache import TailCache

from ..simulated_file_system import SimulatedFile, SimulatedFileSystem


def _cut_forgotten(_original: object) -> Callable[[MetadataLog, int, int], None]:
    def mutated(self: MetadataLog, position: int, offset: int) -> None:
        self.durable_end_offset = min(self.durable_end_offset, offset)

    return mutated


def _no_fsync(_original: object) -> Callable[[SimulatedFile], None]:
    def mutated(self: SimulatedFile) -> None:
        return

    return mutated


def _no_directory_fsync(_original: object) -> Callable[[SimulatedFileSystem, str], None]:
    def mutated(self: SimulatedFileSystem, path: str) -> None:
        return

    return mutated


def _half_flush(finish: Callable[[MetadataLog, Taken], None]) -> Callable[[MetadataLog, Taken], None]:
    def mutated(self: MetadataLog, taken: Taken) -> None:
        cut_only = msgspec.structs.replace(taken, data=b"", batches=[], end_offset=taken.cut_offset)
        finish(self, cut_only if taken.cut_position is not None else taken)

    return mutated


def _fsync_error_swallowed(finish: Callable[[MetadataLog, Taken], None]) -> Callable[[MetadataLog, Taken], None]:
    def mutated(self: MetadataLog, taken: Taken) -> None:
        try:
            finish(self, taken)
        except FsyncFailed:
            self._failure = None

    return mutated


def _full_disk_forgets(_original: object) -> Callable[[MetadataLog, Taken], None]:
    def mutated(self: MetadataLog, taken: Taken) -> None:
        """What a full disk refused is not tried again."""

    return mutated


def _cut_segment_kept(_original: object) -> Callable[[MetadataLog], None]:
    def mutated(self: MetadataLog) -> None:
        self._unwanted.clear()

    return mutated


def _cache_not_truncated(_original: object) -> Callable[[TailCache, int], None]:
    def mutated(self: TailCache, position: int) -> None:
        self.end_position = position
        self.start_position = min(self.start_position, position)

    return mutated


def _one_batch_too_many(truncate: Callable[[BatchIndex, int], None]) -> Callable[[BatchIndex, int], None]:
    def mutated(self: BatchIndex, count: int) -> None:
        truncate(self, count + 1)

    return mutated


def _vote_file_not_synced(
    store: Callable[[ElectionStateStore, ElectionState], None],
) -> Callable[[ElectionStateStore, ElectionState], None]:
    def mutated(self: ElectionStateStore, state: ElectionState) -> None:
        file_system: Any = self._file_system
        file_system.sync_directory = lambda path: None
        try:
            store(self, state)
        finally:
            del file_system.sync_directory

    return mutated


def _vote_written_in_place(rename: Callable[..., None]) -> Callable[[SimulatedFileSystem, str, str], None]:
    def mutated(self: SimulatedFileSystem, source: str, target: str) -> None:
        data = self.open(source).pread(1 << 20, 0)
        file = self.open(target, create=True)
        file._inode.write(data, 0)
        del file._inode.data[len(data) :]

    return mutated


def _crc_ignored(parse: Callable[[bytes, int], tuple[BatchHeader, bool]]) -> Callable[[bytes, int], tuple[BatchHeader, bool]]:
    from kraftlab.quorum.core import batch

    def mutated(data: bytes, position: int) -> tuple[BatchHeader, bool]:
        if data[position : position + 4] == recovery.SEALED and position + batch.HEADER_BYTES <= len(data):
            header = batch.read_header(data, position)
            if header.record_count and position + header.size_bytes <= len(data):
                return header, True
        return parse(data, position)

    return mutated


MUTANTS = (
    Mutant(
        "cut-forgotten",
        "a truncation never reaches the disk",
        MetadataLog,
        "_cut",
        _cut_forgotten,
        rules=("D1", "LogCorrupt"),
        seeds_max=300,
    ),
    Mutant("no-fsync", "fdatasync does nothing", SimulatedFile, "fdatasync", _no_fsync, rules=("D1", "S2", "LogCorrupt")),
    Mutant(
        "no-directory-fsync",
        "fsync of a directory does nothing",
        SimulatedFileSystem,
        "sync_directory",
        _no_directory_fsync,
        rules=("D1", "S2", "LogCorrupt"),
    ),
    Mutant(
        "half-flush", "a flush that cuts forgets to append", MetadataLog, "finish_flush", _half_flush, rules=("D1", "LogCorrupt")
    ),
    Mutant(
        "fsync-error-swallowed",
        "a failed fsync passes for a success",
        MetadataLog,
        "finish_flush",
        _fsync_error_swallowed,
        rules=("D1", "LogCorrupt"),
        seeds_max=300,
    ),
    Mutant(
        "full-disk-forgets",
        "what a full disk refused is lost",
        MetadataLog,
        "_put_back",
        _full_disk_forgets,
        rules=("S17", "S8", "D1", "LogCorrupt"),
    ),
    Mutant(
        "cut-segment-kept",
        "a segment that was cut off stays on disk",
        MetadataLog,
        "_remove_unwanted",
        _cut_segment_kept,
        rules=("D1", "D2", "LogCorrupt"),
        seeds_max=300,
        faults=("kill", "partition"),
    ),
    Mutant(
        "cache-not-truncated",
        "the cache keeps what was cut off",
        TailCache,
        "truncate",
        _cache_not_truncated,
        rules=("CorruptBatch", "InvariantViolation", "D1", "S4"),
        seeds_max=300,
        faults=("partition", "resign"),
    ),
    Mutant(
        "one-batch-too-many",
        "a truncation leaves one batch too many",
        BatchIndex,
        "truncate",
        _one_batch_too_many,
        rules=("InvariantViolation",),
    ),
    Mutant(
        "vote-file-not-synced",
        "the name of a new election state is not synced",
        ElectionStateStore,
        "store",
        _vote_file_not_synced,
        rules=("S2",),
    ),
    Mutant(
        "vote-written-in-place",
        "the election state is overwritten instead of replaced",
        SimulatedFileSystem,
        "rename",
        _vote_written_in_place,
        rules=("LogCorrupt", "S2"),
    ),
    Mutant(
        "crc-ignored",
        "recovery takes batches whose crc does not hold",
        recovery,
        "parse",
        _crc_ignored,
        rules=("LogCorrupt", "D1", "S4", "S14"),
        seeds_max=300,
    ),
)
