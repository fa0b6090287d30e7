"""Start offsets of leader epochs: a follower finds with them where its log diverges from the leader's (KIP-101, KIP-320).

Entries rise in both columns. They are stored in `leader-epoch-checkpoint` (text: version 0, count, `epoch start` lines). The file
need only be durable up to the recovery point: entries above it are read from the batches after a crash, and a lost or corrupt
file is rebuilt from all batches. An epoch that begins at the log's end has no record yet. Opening the log drops it, so the file
need not be written for it: a new leader costs no write, also for thousands of new replicas.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kraftlab.records.record_batch import NO_EPOCH

from .errors import CorruptFile
from .files import TABLE_MAX_BYTES, read_small, write_durably

FILE_NAME = "leader-epoch-checkpoint"


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int

    def __repr__(self) -> str:
        return f"{self.epoch}@{self.start_offset}"


class LeaderEpochs:
    """The table in memory. Its owner (one partition log) serialises changes and writes them to disk. Any thread may read it at
    any time, since a change replaces the entries as a whole.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: tuple[EpochEntry, ...] = tuple(entries)
        self._written: tuple[EpochEntry, ...] = self._entries

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    def restore(self, entries: tuple[EpochEntry, ...]) -> None:
        """Bring former entries back; the file may have been written since."""
        self._replace(entries)

    def is_dirty_below(self, end_offset: int) -> bool:
        """Return True if the file differs from the table for records below `end_offset`."""
        if self._entries is self._written:
            return False
        return _below(self._entries, end_offset) != _below(self._written, end_offset)

    @property
    def latest_epoch(self) -> int:
        """NO_EPOCH (-1) for a table without entries."""
        entries = self._entries
        return entries[-1].epoch if entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`, unless it is known already. True if the table changed.

        Entries without a record (their start is not below the new one's) are dropped. An epoch below the latest changes nothing.
        """
        if epoch < 0 or epoch <= self.latest_epoch:
            return False
        kept = bisect_left(self._entries, start_offset, key=lambda entry: entry.start_offset)
        self._replace((*self._entries[:kept], EpochEntry(epoch, start_offset)))
        return True

    def end_offset_for(self, epoch: int, *, log_start_offset: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end): the start of the next epoch, or the log's end for the latest.

        (NO_EPOCH, start of the known epochs) if every known epoch is larger.
        """
        entries = self._entries
        index = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if index == 0:
            return NO_EPOCH, entries[0].start_offset if entries else log_start_offset
        return entries[index - 1].epoch, entries[index].start_offset if index < len(entries) else log_end_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`; NO_EPOCH below the known epochs."""
        entries = self._entries
        index = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        return entries[index - 1].epoch if index else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after the new log end."""
        self._replace(self._entries[: bisect_left(self._entries, end_offset, key=lambda entry: entry.start_offset)])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the new log start; the one that covers it begins there now."""
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if index:
            self._replace((EpochEntry(self._entries[index - 1].epoch, start_offset), *self._entries[index:]))

    def clear(self) -> None:
        self._replace(())

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        self._entries = entries

    def write(self, directory: Path) -> None:
        """Make the table durable in `directory`."""
        entries = self._entries
        lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        write_durably(directory / FILE_NAME, "\n".join(lines) + "\n")
        self._written = entries


def _below(entries: tuple[EpochEntry, ...], end_offset: int) -> tuple[EpochEntry, ...]:
    return entries[: bisect_left(entries, end_offset, key=lambda entry: entry.start_offset)]


def read(directory: Path) -> LeaderEpochs | None:
    """The table in `directory`, None if there is no file. CorruptFile if it cannot be understood."""
    path = directory / FILE_NAME
    try:
        lines = read_small(path, TABLE_MAX_BYTES).decode().split("\n")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CorruptFile(path, f"not text: {error}") from error
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [EpochEntry(*map(int, line.split(" "))) for line in lines[2:] if line]
    except (ValueError, IndexError, TypeError) as error:
        raise CorruptFile(path, f"expected a version, a count and lines of `epoch start`: {error}") from error
    if version != 0 or count != len(entries):
        raise CorruptFile(path, f"version {version} with {len(entries)} of {count} entries; expected version 0 and all of them")
    if any(not (0 <= epoch < 2**31 and 0 <= start < 2**63) for epoch, start in entries):
        raise CorruptFile(path, f"epochs are int32 and offsets int64, from 0 on: {entries}")
    if any(a.epoch >= b.epoch or a.start_offset >= b.start_offset for a, b in itertools.pairwise(entries)):
        raise CorruptFile(path, f"entries do not rise: {entries}")
    return LeaderEpochs(entries)
