"""Recovery of a metadata directory after any crash: a clean end, a torn tail, leftovers, or damage to committed data.

**Start of the log.** The end of the oldest valid snapshot from which the chain of batches leads through the newest valid one;
without a snapshot, 0. If no older one leads there, the log starts at the newest: an interrupted install has left parts of an old
log beside it, or damage has hit data that the snapshot makes superfluous. Everything that does not belong is removed.

**End of the log.** The walk follows the chain: a batch counts if its crc is right, it starts where the one before ended, and it
carries that one's crc. Where the walk stops in anything but zeros, the rest may have been acknowledged or not. D is the largest
offset that was certainly committed: high watermark stamps of all valid batches, also after the stop (found by their magic), the
ends of all snapshots, valid or not, and the log's start.

- stop at or above D: **torn**. Nothing there was committed; cut the log there, zero the rest, even with valid batches after it
  (a power cut keeps unsynced pages in any order).
- stop below D: **damaged**. Committed data is gone here, and other nodes have it. The unusable part is set aside (repair.py), and
  the node must not vote until it holds everything again that it ever acknowledged: D, and the end of the last valid batch seen.
  The only voter has no node to fetch from: LogCorrupt, and nothing is modified.

Stale batches after a cut are harmless: their stamps were committed offsets of this very log's prefix, and a log is never cut
below its committed part, so they never lift D above the cut.

**Seals** keep a power cut from looking like damage. A batch whose stamp is beyond this node's durable end (a follower that
catches up) is first written with the complement of the magic, fsynced, and only then given its real magic. So a batch with a true
magic is never on disk before everything below its stamp is. An unsealed batch (or one whose sealing was torn at a sector's edge)
that is otherwise valid is sealed now. D ignores unsealed batches. Everything that is kept is fsynced before anyone may rely on
it: after a mere kill the page cache can show bytes that no disk holds yet.

A snapshot that the disk cannot read is treated as damaged: its name gives its position. A segment that cannot be read is not:
nobody knows its length and what this node has acknowledged, so the node does not start.

Not checked here: data record bodies, and damage in the tail above the last stamp, which is treated as a torn tail.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from ..core import batch
from ..core.batch import BatchHeader, ControlRecord, KRaftVoters
from ..core.errors import CorruptBatch
from ..core.types import OffsetAndEpoch, VoterSet
from .batch_index import BatchIndex
from .errors import DiskFailed, LogCorrupt
from .file_system import File, FileSystem
from .identity import LogIdentity
from .segment import HEADER_PAGE_BYTES, Segment, SegmentHeader, segment_base_offset
from .snapshot_file import BOOTSTRAP_ID, SnapshotInvalid, SnapshotSummary, read_summary, snapshot_id, snapshot_name

SEALED = struct.pack(">I", batch.MAGIC)
UNSEALED = struct.pack(">I", batch.MAGIC ^ 0xFFFFFFFF)
_NOT_SEALED = frozenset(
    magic for cut in range(4) for magic in (UNSEALED[:cut] + SEALED[cut:], SEALED[:cut] + UNSEALED[cut:]) if magic != SEALED
)
"""Magics of unsealed batches, including those where a power cut at a sector's edge left either half of the sealing."""
NEXT_STEP = (
    "Nothing was changed. If the other controllers have a leader, move this metadata directory aside and format it anew with "
    "'kraftlab storage format': the node fetches the log from the leader. With no other copy, restore the segment from a backup."
)


class Image(NamedTuple):
    """A segment as found. Without a `header` its page is invalid.

    `fault` then says why that is damage, not an interrupted creation: valid batches follow, up to offset `fault_end`.
    """

    file: File
    name_offset: int
    header: SegmentHeader | None
    size_bytes: int
    fault: str = ""
    fault_end: int = 0

    def read(self) -> bytes:
        """Return the whole file; only one segment at a time is in memory."""
        return self.file.pread(self.size_bytes, 0)


class Walk(NamedTuple):
    """The chain from segment `first` on; `starts[0]` is the place of that segment's first byte in the stream.

    The walk stopped in segment `stop_segment` at file position `stop_position` because of `reason`. `control` are its control
    records with their offsets.
    """

    batches: BatchIndex
    first: int
    starts: list[int]
    unsealed: list[tuple[int, int]]
    control: list[tuple[int, ControlRecord]]
    stop_segment: int
    stop_position: int
    reason: str

    def passes(self, position: OffsetAndEpoch, crc: int) -> bool:
        """Return True if a batch of this epoch and crc ends at `position` (or the walk starts there)."""
        index = self.batches
        if position.offset == index.start_offset:
            return (position.epoch, crc) == (index.start_epoch, index.start_crc)
        if not index.start_offset < position.offset <= index.end_offset:
            return False
        number = index.number_at(position.offset - 1)
        end = index.base_offsets[number + 1] if number + 1 < len(index) else index.end_offset
        return end == position.offset and (position.epoch, crc) == (index.epoch(number), index.crc(number))


class Findings(NamedTuple):
    """The contents of a directory, before any change. `snapshots` are those to keep, oldest first: the log starts at the first.

    `committed` is D. `repair_until` > 0: `damage` names the data that is missing below that offset. `unusable_snapshots` are
    damaged; `surplus_snapshots` are valid but belong to no log that is here.
    """

    images: list[Image]
    walk: Walk
    snapshots: tuple[SnapshotSummary, ...]
    surplus_snapshots: tuple[OffsetAndEpoch, ...]
    unusable_snapshots: tuple[tuple[OffsetAndEpoch, str], ...]
    committed: int
    repair_until: int
    damage: str

    def close(self) -> None:
        for image in self.images:
            image.file.close()

    def control(self) -> tuple[tuple[int, ControlRecord], ...]:
        """Return the control records in force in the log: those of the snapshot it starts at (offset -1), then its own."""
        base = self.snapshots[0].control if self.snapshots else ()
        return (*((-1, record) for record in base), *self.walk.control)

    def latest_voters(self) -> VoterSet | None:
        """Return the newest voter set in anything readable, damaged parts included; None if there is none."""
        found = [(offset, record.voters) for offset, record in self.control() if isinstance(record, KRaftVoters)]
        for image in self.images:
            found += _voters_in(image.read())
        found += [
            (summary.id.offset - 1, record.voters)
            for summary in self.snapshots
            for record in summary.control
            if isinstance(record, KRaftVoters)
        ]
        return max(found, key=lambda entry: entry[0])[1] if found else None


class RecoveredLog(NamedTuple):
    """Open segments (at least one unless the directory was empty), the index of their batches, and notes of all repairs."""

    segments: list[Segment]
    batches: BatchIndex
    snapshots: tuple[SnapshotSummary, ...]
    notes: list[str]


def parse(data: bytes, position: int) -> tuple[BatchHeader, bool]:
    """Return the valid batch at `position`, and True if it is sealed. CorruptBatch says why there is none."""
    magic = data[position : position + 4]
    if magic == SEALED:
        return batch.check(data, position), True
    if magic not in _NOT_SEALED:
        raise CorruptBatch(f"no batch at position {position}: it starts with {magic.hex() or 'nothing'}")
    header = batch.read_header(SEALED + data[position + 4 : position + batch.HEADER_BYTES])
    end = position + header.size_bytes
    if end > len(data):
        raise CorruptBatch(f"batch at position {position} is cut: {len(data) - position} of {header.size_bytes} bytes")
    crc = zlib.crc32(data[position + batch.LENGTH_FROM : end])
    if crc != header.crc:
        raise CorruptBatch(f"batch at position {position} does not hold: crc {crc:08x}, its header says {header.crc:08x}")
    if not header.record_count:
        raise CorruptBatch(f"batch at position {position} says it has no records")
    return header, False


def scan(data: bytes, position: int) -> Iterator[BatchHeader]:
    """Return every valid sealed batch at or after `position`, found by its magic, chained or not."""
    return (header for _, header in scan_positions(data, position))


def scan_positions(data: bytes, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield every batch of `scan` with its position."""
    while (position := data.find(SEALED, position)) >= 0:
        try:
            header, _ = parse(data, position)
        except CorruptBatch:
            position += 1
            continue
        yield position, header
        position += header.size_bytes


def _voters_in(data: bytes) -> list[tuple[int, VoterSet]]:
    found: list[tuple[int, VoterSet]] = []
    for position, header in scan_positions(data, 0):
        if header.is_control:
            records = _decode_control(data[position + batch.HEADER_BYTES : position + header.size_bytes], header)
            found += [(header.base_offset, record.voters) for record in records if isinstance(record, KRaftVoters)]
    return found


def analyse(file_system: FileSystem, directory: str, identity: LogIdentity) -> Findings:
    """Return the findings of a partition directory; change nothing. WrongIdentity; LogCorrupt for damage beyond repair."""
    valid, unusable = _load_snapshots(file_system, directory, identity)
    images = _load(file_system, directory, identity)
    try:
        return _judge(directory, images, valid, unusable)
    except Exception:
        for image in images:
            image.file.close()
        raise


def _judge(
    directory: str, images: list[Image], valid: list[SnapshotSummary], unusable: list[tuple[OffsetAndEpoch, str]]
) -> Findings:
    walk, kept = _choose_start(images, valid)
    marks, ends = _seen(images, walk)
    promised = [summary.id.offset for summary in valid] + [position.offset for position, _ in unusable]
    if not valid and images:
        promised.append(images[0].name_offset)
    committed = max(marks, max(promised, default=0))
    has_fault = any(image.fault_end > walk.batches.end_offset for image in images[walk.stop_segment :])
    repair_until, damage = 0, ""
    if walk.batches.end_offset < committed or has_fault:
        repair_until = max(committed, ends)
        damage = _describe(directory, images, walk, committed, repair_until, unusable)
    surplus = tuple(summary.id for summary in valid if summary not in kept)
    return Findings(images, walk, kept, surplus, tuple(unusable), committed, repair_until, damage)


def _load_snapshots(
    file_system: FileSystem, directory: str, identity: LogIdentity
) -> tuple[list[SnapshotSummary], list[tuple[OffsetAndEpoch, str]]]:
    valid: list[SnapshotSummary] = []
    unusable: list[tuple[OffsetAndEpoch, str]] = []
    for name in file_system.names(directory):
        position = snapshot_id(name)
        if position is None or position == BOOTSTRAP_ID:
            continue
        with closing(file_system.open(f"{directory}/{name}")) as file:
            try:
                summary = read_summary(file, position)
            except (SnapshotInvalid, DiskFailed) as error:
                unusable.append((position, str(error)))
            else:
                identity.check(identity._replace(cluster_id=summary.cluster_id, generation=summary.generation), file.path)
                valid.append(summary)
    return valid, unusable


def _load(file_system: FileSystem, directory: str, identity: LogIdentity) -> list[Image]:
    images: list[Image] = []
    try:
        for name in file_system.names(directory):
            offset = segment_base_offset(name)
            if offset is None:
                continue
            file = file_system.open(f"{directory}/{name}")
            images.append(Image(file, offset, None, 0))
            images[-1] = _load_one(file, offset, identity)
    except Exception:
        for image in images:
            image.file.close()
        raise
    return images


def _load_one(file: File, name_offset: int, identity: LogIdentity) -> Image:
    size_bytes = file.size()
    try:
        header = SegmentHeader.decode(file.pread(HEADER_PAGE_BYTES, 0))
    except CorruptBatch as error:
        end = max((header.end_offset for header in scan(file.pread(size_bytes, 0), 0)), default=0)
        fault = f"{error}, yet the segment holds valid batches up to offset {end}" if end else ""
        return Image(file, name_offset, None, size_bytes, fault, end)
    identity.check(header.identity, file.path)
    if header.base_offset != name_offset:
        raise LogCorrupt(
            f"{file.path} says inside that it starts at offset {header.base_offset}: it was renamed. Rename it back."
        )
    return Image(file, name_offset, header, size_bytes)


def _choose_start(images: list[Image], valid: list[SnapshotSummary]) -> tuple[Walk, tuple[SnapshotSummary, ...]]:
    """Return the walk from the right start, and the snapshots on it."""
    if not valid:
        return _walk_from_zero(images), ()
    newest = valid[-1]
    for summary in valid:
        walk = _walk_from(images, summary)
        if summary is newest or walk.passes(newest.id, newest.last_crc):
            break
    return walk, tuple(other for other in valid if walk.passes(other.id, other.last_crc))


def _walk_from_zero(images: list[Image]) -> Walk:
    index = BatchIndex()
    if images and images[0].name_offset > 0:
        reason = f"the log starts at offset {images[0].name_offset}, the snapshot and the segments before it are missing"
        return Walk(index, 0, [], [], [], 0, 0, reason)
    return _walk(images, 0, HEADER_PAGE_BYTES, index)


def _walk_from(images: list[Image], start: SnapshotSummary) -> Walk:
    """Walk from the end of a snapshot, anywhere in a segment. The log is empty if that place is not found."""
    index = BatchIndex(start.id.offset, start.id.epoch, start.last_crc)
    numbers = [number for number, image in enumerate(images) if image.name_offset <= start.id.offset]
    if numbers:
        image = images[numbers[-1]]
        position = _find(image, start)
        if position is not None:
            return _walk(images, numbers[-1], position, index)
    return Walk(index, 0, [], [], [], 0, 0, f"no batch follows the snapshot that ends at offset {start.id.offset}")


def _find(image: Image, start: SnapshotSummary) -> int | None:
    """Return the file position in a segment at which the log continues after a snapshot."""
    header = image.header
    if header is not None and image.name_offset == start.id.offset:
        follows = (header.previous_epoch, header.previous_crc) == (start.id.epoch, start.last_crc)
        return HEADER_PAGE_BYTES if follows else None
    data = image.read()
    for position, found in scan_positions(data, HEADER_PAGE_BYTES):
        if (found.base_offset, found.previous_crc) == (start.id.offset, start.last_crc):
            return position
        if (found.end_offset, found.epoch, found.crc) == (*start.id, start.last_crc):
            return position + found.size_bytes
    return None


def _walk(images: list[Image], first: int, position: int, index: BatchIndex) -> Walk:
    walk = Walk(index, first, [], [], [], 0, 0, "")
    for number in range(first, len(images)):
        header = images[number].header
        if number > first or position == HEADER_PAGE_BYTES:
            if header is None:
                reason = images[number].fault or "the header page does not hold"
                return walk._replace(stop_segment=number, stop_position=0, reason=reason)
            ending = (index.end_offset, index.last_epoch, index.last_crc)
            if (header.base_offset, header.previous_epoch, header.previous_crc) != ending:
                reason = f"the segment does not follow the batch that ends at {index.end_offset}"
                return walk._replace(stop_segment=number, stop_position=0, reason=reason)
            position = HEADER_PAGE_BYTES
        walk.starts.append(index.end_position - (position - HEADER_PAGE_BYTES))
        position, reason = _walk_segment(images[number].read(), number, position, walk)
        following = images[number + 1].header if number + 1 < len(images) else None
        if following is not None and following.base_offset == index.end_offset and following.previous_crc == index.last_crc:
            continue
        if reason or number + 1 < len(images):
            reason = reason or f"the segment ends at offset {index.end_offset}"
            return walk._replace(stop_segment=number, stop_position=position, reason=reason)
    return walk._replace(stop_segment=len(images))


def _walk_segment(data: bytes, number: int, position: int, walk: Walk) -> tuple[int, str]:
    """Add the segment's batches to the index. Return where the chain stopped, and why unless only zeros follow."""
    headers: list[BatchHeader] = []
    reason, index = "", walk.batches
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
            walk.unsealed.append((number, position))
        if header.attributes & batch.CONTROL:
            records = _decode_control(data[position + batch.HEADER_BYTES : position + header.size_bytes], header)
            walk.control.extend(enumerate(records, header.base_offset))
        headers.append(header)
        position += header.size_bytes
        offset, epoch, crc = offset + header.record_count, header.epoch, header.crc
    index.extend(headers)
    return position, reason


def _decode_control(body: bytes, header: BatchHeader) -> list[ControlRecord]:
    try:
        return batch.decode_control(body)
    except CorruptBatch as error:
        raise LogCorrupt(
            f"the log at offset {header.base_offset}: {error}. Nothing was changed; start the newer version."
        ) from error


def _is_blank(data: bytes, position: int) -> bool:
    """Return True if only zeros follow."""
    return not any(data[position : position + 4]) and data[position:] == bytes(len(data) - position)


def _seen(images: list[Image], walk: Walk) -> tuple[int, int]:
    """Return the largest high watermark stamp and the largest end of any valid sealed batch, on the walk and off it."""
    mark, end = 0, walk.batches.end_offset
    scanned = list(range(len(images)))
    if not walk.unsealed:
        mark = max(walk.batches.high_watermarks, default=0)
        scanned = [*range(walk.first), *range(walk.stop_segment, len(images))]
    for number in scanned:
        start = walk.stop_position if number == walk.stop_segment and not walk.unsealed else 0
        for header in scan(images[number].read(), start):
            mark, end = max(mark, header.high_watermark), max(end, header.end_offset)
    return mark, end


def _describe(
    directory: str,
    images: list[Image],
    walk: Walk,
    committed: int,
    seen: int,
    unusable: Sequence[tuple[OffsetAndEpoch, str]],
) -> str:
    end = walk.batches.end_offset
    if walk.stop_segment < len(images):
        place = f"{images[walk.stop_segment].file.path} position {walk.stop_position}"
    else:
        place = f"the end of {images[-1].file.path if images else directory}"
    reason = "; ".join([*(reason for _, reason in unusable), *([walk.reason] if walk.reason else [])]) or "the rest is missing"
    below = f"offset {committed} which was committed" if end < committed else f"offset {seen} up to which there are valid batches"
    return f"{place}: the log is damaged at offset {end} ({reason}), below {below}."


def apply_findings(file_system: FileSystem, directory: str, found: Findings) -> RecoveredLog:
    """Make the kept part durable, seal it, then remove everything that does not belong and zero a torn tail.

    For findings without damage. After a crash, analyse and repeat.
    """
    notes: list[str] = []
    images, walk = found.images, found.walk
    kept = images[walk.first : walk.first + len(walk.starts)]
    for image in kept:
        image.file.fdatasync()
    for number, position in walk.unsealed:
        images[number].file.pwrite(SEALED, position)
    for number in sorted({number for number, _ in walk.unsealed}):
        images[number].file.fdatasync()
    if images or found.snapshots:
        file_system.sync_directory(directory)
    notes += _remove_snapshots(file_system, directory, found)
    for image in reversed([image for image in images if image not in kept]):
        is_below = bool(found.snapshots) and image.name_offset < found.snapshots[-1].id.offset
        reason = "a snapshot stands for it" if is_below else walk.reason
        notes.append(f"removed {image.file.path}: {reason}")
        image.file.close()
        file_system.remove(image.file.path)
    if walk.starts and walk.stop_segment < walk.first + len(walk.starts):
        torn = images[walk.stop_segment]
        if not _is_blank(torn.read(), walk.stop_position):
            place = f"{torn.file.path} at position {walk.stop_position}, offset {walk.batches.end_offset}"
            notes.append(f"cut {place}: {walk.reason}")
            torn.file.pwrite(bytes(torn.size_bytes - walk.stop_position), walk.stop_position)
            torn.file.fdatasync()
    if images:
        file_system.sync_directory(directory)
    ends = [*walk.starts[1:], walk.batches.end_position][: len(kept)]
    segments = [
        Segment(image.file, image.name_offset, start, end - start + HEADER_PAGE_BYTES, image.size_bytes)
        for image, start, end in zip(kept, walk.starts, ends, strict=True)
    ]
    return RecoveredLog(segments, walk.batches, found.snapshots, notes)


def _remove_snapshots(file_system: FileSystem, directory: str, found: Findings) -> list[str]:
    """Remove useless snapshots: their contents are in the log, or in a newer one. Return notes."""
    unusable = dict(found.unusable_snapshots)
    notes = [f"removed {directory}/{snapshot_name(position)}: {reason}" for position, reason in unusable.items()]
    for position in (*unusable, *found.surplus_snapshots):
        file_system.remove(f"{directory}/{snapshot_name(position)}")
    if unusable or found.surplus_snapshots:
        file_system.sync_directory(directory)
    return notes
