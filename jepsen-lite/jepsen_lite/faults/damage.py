"""Damage to the metadata log of a node that is down. The choice of the damage is pure.

Theory of operation. A node can tell corruption from a torn tail only below the largest high watermark that another batch of its
log carries. There it must notice the corruption, must not vote, and must repair itself from the others. Corruption above it looks
like a torn tail and would lose acknowledged data; no node could do better, so this harness does not do it. A crash tears only
unsynced data, so a torn tail is added after the existing data: the beginning of an unfinished batch.

Damage is repairable only while the others are whole. So a node counts as damaged until its bytes have changed again and no repair
is in progress, and a majority of the controllers is whole at any time (the fault atlas of TigerBeetle's simulator, for whole
logs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from kraftlab.quorum.core.batch import BatchHeader, decode
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.storage.errors import StorageError
from kraftlab.quorum.storage.file_system import FileSystem, RealFileSystem
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES, segment_base_offset

REPAIR_FILE = "repair"
THIS_MACHINE: FileSystem = RealFileSystem()


class PlacedBatch(NamedTuple):
    """A batch of a file, and the position of its first byte."""

    position: int
    header: BatchHeader


class Damage(NamedTuple):
    """Bytes of a file before and after the damage."""

    path: Path
    position: int
    before: bytes
    after: bytes
    files: FileSystem = THIS_MACHINE

    def inflict(self) -> None:
        """Write the damaged bytes. StorageError, FileNotFoundError."""
        file = self.files.open(str(self.path))
        try:
            file.pwrite(self.after, self.position)
            file.fdatasync()
        finally:
            file.close()

    def is_there(self) -> bool:
        """Return True if the file still has the damaged bytes, or cannot be read."""
        try:
            file = self.files.open(str(self.path))
            try:
                return file.pread(len(self.after), self.position) == self.after
            finally:
                file.close()
        except FileNotFoundError:
            return False
        except (OSError, StorageError):
            return True


def log_directory(metadata_directory: Path) -> Path:
    return Path(partition_directory(str(metadata_directory)))


def segments(metadata_directory: Path, files: FileSystem = THIS_MACHINE) -> dict[Path, bytes]:
    """Return the segments of a log that no process writes, by path in the order of their offsets."""
    directory = log_directory(metadata_directory)
    names = [name for name in files.names(str(directory)) if segment_base_offset(name) is not None]
    return {directory / name: files.read(str(directory / name)) for name in names}


def is_repairing(metadata_directory: Path, files: FileSystem = THIS_MACHINE) -> bool:
    return REPAIR_FILE in files.names(str(log_directory(metadata_directory)))


def batches(segment: bytes) -> Iterator[PlacedBatch]:
    """Yield the valid batches of a segment, up to the first invalid one."""
    position = HEADER_PAGE_BYTES
    while position < len(segment):
        try:
            header = decode(segment, position).header
        except CorruptBatch:
            return
        yield PlacedBatch(position, header)
        position += header.size_bytes


def rot(log: Mapping[Path, bytes], random: Random) -> Damage | None:
    """Flip a few bits of a batch that is certainly committed; None if there is no such batch yet."""
    found = [(path, placed) for path, segment in log.items() for placed in batches(segment)]
    candidates = []
    for path, placed in found:
        if placed.header.base_offset < _stamp_of_others(placed, (other for _, other in found)):
            candidates.append((path, placed))
    if not candidates:
        return None
    path, (position, header) = random.choice(candidates)
    before = log[path][position : position + header.size_bytes]
    after = bytearray(before)
    for place in random.sample(range(len(before)), min(random.choice((1, 1, 3)), len(before))):
        after[place] ^= 1 << random.randrange(8)
    return Damage(path, position, before, bytes(after))


def _stamp_of_others(batch: PlacedBatch, found: Iterable[PlacedBatch]) -> int:
    return max((other.header.high_watermark for other in found if other.header != batch.header), default=0)


def torn(log: Mapping[Path, bytes], random: Random) -> Damage | None:
    """Add the beginning of a batch after the last one of the log; None if the log has no batch."""
    for path, segment in reversed(list(log.items())):
        found = list(batches(segment))
        if found:
            position, header = found[-1]
            end = position + header.size_bytes
            whole = segment[position:end]
            after = whole[: random.randrange(4, len(whole))]
            return Damage(path, end, segment[end : end + len(after)], after)
    return None
