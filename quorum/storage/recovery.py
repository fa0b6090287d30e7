"""What a log directory holds after any crash: a clean end, a torn tail, or damage to committed data.

The walk follows the chain from the first segment: a batch counts if its crc holds, it starts where the one before ended and
carries that one's crc. Where the walk stops in anything but zeros, the question is whether the rest was ever promised. D is
the largest high watermark stamp in any valid batch, also behind the stop (found by its magic):

- stop at or above D: **torn**. Nothing there was committed; cut the log there, zero the rest, even with valid batches behind
  (a power cut keeps unsynced pages in any order).
- stop below D: **corrupt**. Committed data is damaged. LogCorrupt, and nothing is modified.

Stale batches behind a cut can do no harm: their stamps were committed offsets of this very log's prefix, and a log is never cut
below what is committed, so they never lift D above the cut.

**Seals** keep a power cut from looking like damage. A batch whose stamp reaches beyond what this node has on disk (a
follower that catches up) is first written with the complement of the magic, fsynced, and only then given its real magic. So
a batch with a true magic never stands on disk before everything below its stamp does; and an unsealed batch (or one whose
sealing was torn at a sector's edge) that is otherwise valid is simply sealed now. D ignores unsealed batches. Whatever is kept
is fsynced before anyone may rely on it: after a mere kill the page cache can show bytes that no disk holds yet.

Not checked here: record bodies, and rot in the tail above the last stamp, which is taken for a torn tail.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from ..core import batch
from ..core.batch import BatchHeader
from ..core.errors import CorruptBatch
from .batch_index import BatchIndex
from .errors import LogCorrupt
from .file_system import File, FileSystem
from .identity import LogIdentity
from .segment import HEADER_PAGE_BYTES, Segment, SegmentHeader, segment_base_offset

SEALED = struct.pack(">I", batch.MAGIC)
UNSEALED = struct.pack(">I", batch.MAGIC ^ 0xFFFFFFFF)
_NOT_SEALED = frozenset(
    magic for cut in range(4) for magic in (UNSEALED[:cut] + SEALED[cut:], SEALED[:cut] + UNSEALED[cut:]) if magic != SEALED
)
"""A sector's edge may run through the magic, and a power cut then leave either half of the sealing."""


class RecoveredLog(NamedTuple):
    """Open segments (at least one unless the directory was empty), the index of their batches, and what was mended."""

    segments: list[Segment]
    batches: BatchIndex
    notes: list[str]


class _Image(NamedTuple):
    """A segment as found: `header` is None if its creation was cut short."""

    file: File
    name_offset: int
    header: SegmentHeader | None
    size_bytes: int

    def read(self) -> bytes:
        """The whole file; only one segment at a time is in memory."""
        return self.file.pread(self.size_bytes, 0)


class _Walk(NamedTuple):
    """How far the chain goes: it stopped in segment `stop_segment` at file position `stop_position` because of `reason`."""

    batches: BatchIndex
    starts: list[int]
    unsealed: list[tuple[int, int]]
    stop_segment: int
    stop_position: int
    reason: str


def parse(data: bytes, position: int) -> tuple[BatchHeader, bool]:
    """The valid batch at `position` and whether it is sealed; CorruptBatch says why there is none."""
    magic = data[position : position + 4]
    sealed = magic == SEALED
    if sealed:
        header = batch.read_header(data, position)
    elif magic in _NOT_SEALED:
        header = batch.read_header(SEALED + data[position + 4 : position + batch.HEADER_BYTES])
    else:
        raise CorruptBatch(f"no batch at position {position}: it starts with {magic.hex() or 'nothing'}")
    end = position + header.size_bytes
    if end > len(data):
        raise CorruptBatch(f"batch at position {position} is cut: {len(data) - position} of {header.size_bytes} bytes")
    crc = zlib.crc32(data[position + batch.LENGTH_FROM : end])
    if crc != header.crc:
        raise CorruptBatch(f"batch at position {position} does not hold: crc {crc:08x}, its header says {header.crc:08x}")
    if not header.record_count:
        raise CorruptBatch(f"batch at position {position} says it has no records")
    return header, sealed


def scan(data: bytes, position: int) -> Iterator[BatchHeader]:
    """Every valid sealed batch at or behind `position`, found by its magic, chained or not."""
    while (position := data.find(SEALED, position)) >= 0:
        try:
            header, _ = parse(data, position)
        except CorruptBatch:
            position += 1
            continue
        yield header
        position += header.size_bytes


def recover(file_system: FileSystem, directory: str, identity: LogIdentity) -> RecoveredLog:
    """Recover the segments in `directory`. LogCorrupt and WrongIdentity leave everything as it was found."""
    images = _load(file_system, directory, identity)
    try:
        walk = _walk(images)
        mark = _committed_mark(images, walk)
        if walk.batches.end_offset < mark:
            raise _corrupt(directory, images, walk, mark)
    except LogCorrupt:
        for image in images:
            image.file.close()
        raise
    return _mend(file_system, directory, images, walk)


def _load(file_system: FileSystem, directory: str, identity: LogIdentity) -> list[_Image]:
    images: list[_Image] = []
    try:
        for name in file_system.names(directory):
            offset = segment_base_offset(name)
            if offset is None:
                continue
            file = file_system.open(f"{directory}/{name}")
            images.append(_Image(file, offset, None, 0))
            images[-1] = _load_one(file, offset, identity)
    except Exception:
        for image in images:
            image.file.close()
        raise
    return images


def _load_one(file: File, name_offset: int, identity: LogIdentity) -> _Image:
    size_bytes = file.size()
    try:
        header = SegmentHeader.decode(file.pread(HEADER_PAGE_BYTES, 0))
    except CorruptBatch as error:
        first = next(scan(file.pread(size_bytes, 0), 0), None)
        if first is not None:
            raise LogCorrupt(
                f"{file.path} position 0: {error}, yet the segment holds valid batches from offset {first.base_offset} on. "
                + _NEXT_STEP
            ) from error
        return _Image(file, name_offset, None, size_bytes)
    identity.check(header.identity, file.path)
    if header.base_offset != name_offset:
        raise LogCorrupt(
            f"{file.path} says inside that it starts at offset {header.base_offset}: it was renamed. Rename it back."
        )
    return _Image(file, name_offset, header, size_bytes)


def _walk(images: list[_Image]) -> _Walk:
    first = images[0].header if images else None
    index = BatchIndex()
    starts: list[int] = []
    unsealed: list[tuple[int, int]] = []
    if images and first is None:
        return _Walk(index, starts, unsealed, 0, 0, "the header page does not hold")
    if first is not None and (first.base_offset, first.previous_crc) != (0, batch.NO_PREVIOUS_CRC):
        return _Walk(
            index, starts, unsealed, 0, 0, f"the log starts at offset {first.base_offset}, segments before it are missing"
        )
    for number, image in enumerate(images):
        header = image.header
        if header is None:
            return _Walk(index, starts, unsealed, number, 0, "the header page does not hold")
        if (header.base_offset, header.previous_epoch, header.previous_crc) != (
            index.end_offset,
            index.last_epoch,
            index.last_crc,
        ):
            return _Walk(
                index, starts, unsealed, number, 0, f"the segment does not follow the batch that ends at {index.end_offset}"
            )
        starts.append(index.end_position)
        position, reason = _walk_segment(image.read(), number, index, unsealed)
        following = images[number + 1].header if number + 1 < len(images) else None
        if following is not None and following.base_offset == index.end_offset and following.previous_crc == index.last_crc:
            continue
        if reason or number + 1 < len(images):
            return _Walk(index, starts, unsealed, number, position, reason or f"the segment ends at offset {index.end_offset}")
    return _Walk(index, starts, unsealed, len(images), 0, "")


def _walk_segment(data: bytes, number: int, index: BatchIndex, unsealed: list[tuple[int, int]]) -> tuple[int, str]:
    """Add the segment's batches to the index; where the chain stopped, and why unless only zeros follow."""
    headers: list[BatchHeader] = []
    position, reason = HEADER_PAGE_BYTES, ""
    offset, epoch, crc = index.end_offset, index.last_epoch, index.last_crc
    while position < len(data):
        try:
            header, sealed = parse(data, position)
        except CorruptBatch as error:
            reason = "" if _is_blank(data, position) else str(error)
            break
        if header.base_offset != offset or header.previous_crc != crc or header.epoch < epoch:
            reason = f"{header!r} does not follow the batch that ends at {offset}@{epoch}"
            break
        if not sealed:
            unsealed.append((number, position))
        headers.append(header)
        position += header.size_bytes
        offset, epoch, crc = offset + header.record_count, header.epoch, header.crc
    index.extend(headers)
    return position, reason


def _is_blank(data: bytes, position: int) -> bool:
    """Whether only zeros follow."""
    return not any(data[position : position + 4]) and data[position:] == bytes(len(data) - position)


def _committed_mark(images: list[_Image], walk: _Walk) -> int:
    """D: the largest high watermark stamp in any valid sealed batch, in front of the stop and behind it."""
    if walk.unsealed:
        mark = 0
        scanned = list(enumerate(images))
    else:
        mark = max(walk.batches.high_watermarks, default=0)
        scanned = list(enumerate(images))[walk.stop_segment :]
    for number, image in scanned:
        start = walk.stop_position if number == walk.stop_segment and not walk.unsealed else 0
        mark = max(mark, max((header.high_watermark for header in scan(image.read(), start)), default=0))
    return mark


_NEXT_STEP = (
    "Nothing was changed. If the other controllers have a leader, move this metadata directory aside and format it anew with "
    "'kraftlab storage format': the node fetches the log from the leader. With no other copy, restore the segment from a backup."
)


def _corrupt(directory: str, images: list[_Image], walk: _Walk, mark: int) -> LogCorrupt:
    if walk.stop_segment < len(images):
        place = f"{images[walk.stop_segment].file.path} position {walk.stop_position}"
    else:
        place = f"the end of {images[-1].file.path if images else directory}"
    return LogCorrupt(
        f"{place}: the log is damaged at offset {walk.batches.end_offset} ({walk.reason}), below offset {mark} which was "
        "committed. " + _NEXT_STEP
    )


def _mend(file_system: FileSystem, directory: str, images: list[_Image], walk: _Walk) -> RecoveredLog:
    """Make what was kept durable, seal it, then drop and zero the rest. A crash in between leads here again."""
    notes: list[str] = []
    kept = len(walk.starts)
    for image in images[:kept]:
        image.file.fdatasync()
    for number, position in walk.unsealed:
        images[number].file.pwrite(SEALED, position)
    for number in sorted({number for number, _ in walk.unsealed}):
        images[number].file.fdatasync()
    for image in reversed(images[kept:]):
        notes.append(f"removed {image.file.path}: {walk.reason}")
        image.file.close()
        file_system.remove(image.file.path)
    if walk.stop_segment < kept:
        torn = images[walk.stop_segment]
        if not _is_blank(torn.read(), walk.stop_position):
            place = f"{torn.file.path} at position {walk.stop_position}, offset {walk.batches.end_offset}"
            notes.append(f"cut {place}: {walk.reason}")
            torn.file.pwrite(bytes(torn.size_bytes - walk.stop_position), walk.stop_position)
            torn.file.fdatasync()
    if images:
        file_system.sync_directory(directory)
    ends = [*walk.starts[1:], walk.batches.end_position]
    segments = [
        Segment(image.file, image.name_offset, start, end - start + HEADER_PAGE_BYTES, image.size_bytes)
        for image, start, end in zip(images, walk.starts, ends, strict=False)
    ]
    return RecoveredLog(segments, walk.batches, notes)
