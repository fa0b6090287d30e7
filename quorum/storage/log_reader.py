"""Reading a metadata log's files beside the node that writes them: the state at an offset, as a snapshot and the batches
behind it.

Read-only: what is committed does not change any more, and nothing above `end_offset` is looked at. The node may remove old
files meanwhile, which raises FileNotFoundError: read again then. For worker threads, since whole segments are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.batch import NO_PREVIOUS_CRC, Batch, decode
from ..core.errors import CorruptBatch
from ..core.types import OffsetAndEpoch
from .file_system import FileReader, RealFileSystem
from .identity import partition_directory
from .segment import HEADER_PAGE_BYTES, segment_base_offset
from .snapshot_file import snapshot_name
from .snapshot_store import SnapshotReader, list_snapshots


def read_batches(
    directory: str, end_offset: int, files: FileReader | None = None
) -> tuple[SnapshotReader | None, Iterator[Batch]]:
    """What a metadata.log.dir holds up to `end_offset`: the newest snapshot that ends there or before, None without one, and the
    batches behind it, in order, up to that offset or the end of what is on disk.
    """
    files, partition = files or RealFileSystem(), partition_directory(directory)
    for position in reversed(list_snapshots(files, partition)):
        if position.offset <= end_offset:
            reader = SnapshotReader(files.open(f"{partition}/{snapshot_name(position)}"), position)
            return reader, _batches(files, partition, position.offset, reader.last_crc, end_offset)
    return None, _batches(files, partition, 0, NO_PREVIOUS_CRC, end_offset)


def oldest_snapshot(directory: str, files: FileReader | None = None) -> OffsetAndEpoch | None:
    """The oldest finished snapshot in a metadata.log.dir."""
    return next(iter(list_snapshots(files or RealFileSystem(), partition_directory(directory))), None)


def _batches(files: FileReader, partition: str, start_offset: int, crc: int, end_offset: int) -> Iterator[Batch]:
    """Those that chain on from `start_offset`, the end of a batch with this crc; none if the log does not go back that far."""
    segments = [(base, name) for name in files.names(partition) if (base := segment_base_offset(name)) is not None]
    first = max((base for base, _ in segments if base <= start_offset), default=0)
    expected = start_offset
    for base, name in segments:
        if base not in (first, expected):
            continue
        data = files.read(f"{partition}/{name}")
        position = HEADER_PAGE_BYTES
        while position < len(data):
            try:
                batch = decode(data, position)
            except CorruptBatch:
                break
            header = batch.header
            position += header.size_bytes
            if header.end_offset <= start_offset:
                continue
            if header.base_offset != expected or header.previous_crc != crc or header.end_offset > end_offset:
                break
            yield batch
            expected, crc = header.end_offset, header.crc
