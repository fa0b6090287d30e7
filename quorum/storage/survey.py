"""Reading a metadata log's files as they are, whole or broken, for people who inspect them.

Nothing is changed, no lock is taken, and nothing is believed unchecked. A damaged place is reported with its position and reason,
and reading continues at the next valid batch (found by its magic). `survey_file` looks at one file. `read_chain` follows the log
through the segments of a directory from one place on, while each batch follows the one before.

A node may run on the directory: it removes old files (FileNotFoundError: look again) and writes at the log's end, where a batch
can be read half-written. Nothing here knows the committed part; the high watermark stamps in the batches do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..core import batch
from ..core.batch import BatchHeader
from ..core.errors import CorruptBatch
from ..core.types import OffsetAndEpoch
from .errors import WrongIdentity
from .file_system import FileReader, RealFileReader, without_waiting
from .identity import PARTITION_DIRECTORY
from .recovery import parse, scan_positions
from .segment import HEADER_PAGE_BYTES, SegmentHeader, segment_base_offset
from .snapshot_file import BOOTSTRAP_ID, snapshot_id


class FoundBatch(NamedTuple):
    """A batch with a valid crc. `fault`: why it does not follow the batch before it in the file, "" if it does."""

    path: str
    position: int
    header: BatchHeader
    body: bytes
    is_sealed: bool
    fault: str = ""


class BrokenPlace(NamedTuple):
    """`size_bytes` bytes from `position` on that are not a batch. `offset`: the offset of the log's next record there."""

    path: str
    position: int
    size_bytes: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} position {self.position}: {self.reason}; offset {self.offset} and what follows it is not readable"


class FileSurvey(NamedTuple):
    """One file. `segment` is its valid header page, if it is a segment; `snapshot` is the id in a snapshot's name.

    `entries` can be read once. Bytes after the last batch are reported only if they are not blank.
    """

    path: str
    size_bytes: int
    segment: SegmentHeader | None
    snapshot: OffsetAndEpoch | None
    header_fault: str
    entries: Iterator[FoundBatch | BrokenPlace]


def metadata_partition(directory: str) -> str:
    """Return the partition directory of a metadata.log.dir, or of itself. FileNotFoundError if there is none."""
    path = Path(directory)
    partition = path if path.name == PARTITION_DIRECTORY else path / PARTITION_DIRECTORY
    if not partition.is_dir():
        raise FileNotFoundError(2, "there is no metadata log; give a node's metadata.log.dir", directory)
    return str(partition)


def survey_file(path: str, max_bytes: int | None = None) -> FileSurvey:
    """Read a segment or a snapshot, distinguished by name; at most `max_bytes` of it. OSError."""
    size_bytes = os.stat(path).st_size
    with open(path, "rb", opener=without_waiting) as file:
        data = file.read() if max_bytes is None else file.read(max_bytes)
    is_cut = len(data) < size_bytes
    position = snapshot_id(Path(path).name)
    if position is not None:
        return FileSurvey(path, size_bytes, None, position, "", _entries(path, data, 0, 0, batch.NO_PREVIOUS_CRC, is_cut))
    header, fault = _segment_header(data)
    offset, crc = (segment_base_offset(Path(path).name), None) if header is None else (header.base_offset, header.previous_crc)
    return FileSurvey(path, size_bytes, header, None, fault, _entries(path, data, HEADER_PAGE_BYTES, offset, crc, is_cut))


def _segment_header(data: bytes) -> tuple[SegmentHeader | None, str]:
    try:
        return SegmentHeader.decode(data[:HEADER_PAGE_BYTES]), ""
    except (CorruptBatch, WrongIdentity, UnicodeDecodeError) as error:
        return None, str(error)


def _entries(
    path: str, data: bytes, position: int, offset: int | None, crc: int | None, is_cut: bool
) -> Iterator[FoundBatch | BrokenPlace]:
    """Yield every valid batch, and the places between. The first must follow `offset` and `crc`, None if unknown."""
    while position < len(data):
        try:
            header, is_sealed = parse(data, position)
        except CorruptBatch as error:
            following = next((at for at, _ in scan_positions(data, position + 1)), None)
            end = len(data) if following is None else following
            if data.count(0, position, end) != end - position and not (is_cut and following is None):
                yield BrokenPlace(path, position, end - position, offset or 0, str(error))
                offset = crc = None
            position = end
            continue
        body = data[position + batch.HEADER_BYTES : position + header.size_bytes]
        fault = ""
        if offset is not None and header.base_offset != offset:
            fault = f"it begins at offset {header.base_offset}, the batch before it ends at {offset}"
        elif crc is not None and header.previous_crc != crc:
            fault = f"it follows a batch with crc {header.previous_crc:08x}, the one before it has {crc:08x}"
        yield FoundBatch(path, position, header, body, is_sealed, fault)
        position += header.size_bytes
        offset, crc = header.end_offset, header.crc


def snapshots_in(partition: str, files: FileReader | None = None) -> list[tuple[OffsetAndEpoch, str]]:
    """Return (id, path) of the finished snapshots by their names, newest first, unchecked."""
    names = (files or RealFileReader()).names(partition)
    found = [(position, f"{partition}/{name}") for name in names if (position := snapshot_id(name)) is not None]
    return sorted((entry for entry in found if entry[0] != BOOTSTRAP_ID), reverse=True)


def segments_in(partition: str, files: FileReader | None = None) -> list[tuple[int, str]]:
    """Return (base offset, path) of the segments by their names, oldest first."""
    names = (files or RealFileReader()).names(partition)
    return [(base, f"{partition}/{name}") for name in names if (base := segment_base_offset(name)) is not None]


def read_chain(partition: str, offset: int, crc: int, files: FileReader | None = None) -> Iterator[FoundBatch | BrokenPlace]:
    """Yield the batches after the one that ends at `offset` with that crc, in order, while they follow each other.

    Ends with a BrokenPlace if anything but blanks is at the place of the next batch, or before it.
    """
    files = files or RealFileReader()
    segments = segments_in(partition, files)
    while True:
        base, path = max((entry for entry in segments if entry[0] <= offset), default=(-1, ""))
        if base < 0:
            if segments:
                yield BrokenPlace(partition, 0, 0, offset, f"the log starts at offset {segments[0][0]}")
            return
        found_any = False
        stop: BrokenPlace | None = None
        for entry in _chained(path, files.read(path), offset, crc, is_first=base < offset):
            if isinstance(entry, BrokenPlace):
                stop = entry
                break
            yield entry
            found_any = True
            offset, crc = entry.header.end_offset, entry.header.crc
        if any(base == offset and other != path for base, other in segments) and found_any:
            continue
        if stop is None and segments[-1][1] != path:
            following = next(other for base, other in segments if base > offset or other > path)
            stop = BrokenPlace(path, 0, 0, offset, f"the log ends here, and {Path(following).name} does not follow it")
        if stop is not None:
            yield stop
        return


def _chained(path: str, data: bytes, offset: int, crc: int, *, is_first: bool) -> Iterator[FoundBatch | BrokenPlace]:
    """Yield one segment's part of the chain. `is_first`: the segment may hold batches before it."""
    position = HEADER_PAGE_BYTES
    if is_first:
        for at, header in scan_positions(data, HEADER_PAGE_BYTES):
            if (header.base_offset, header.previous_crc) == (offset, crc):
                position = at
                break
            if (header.end_offset, header.crc) == (offset, crc):
                position = at + header.size_bytes
        else:
            if position == HEADER_PAGE_BYTES:
                yield BrokenPlace(path, position, len(data) - position, offset, f"no batch here ends at offset {offset}")
                return
    for entry in _entries(path, data, position, offset, crc, is_cut=False):
        if isinstance(entry, FoundBatch) and entry.fault:
            yield BrokenPlace(path, entry.position, len(data) - entry.position, offset, f"{entry.header!r}: {entry.fault}")
            return
        yield entry
        if isinstance(entry, BrokenPlace):
            return
        offset = entry.header.end_offset
