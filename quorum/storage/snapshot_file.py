"""The snapshot file format (KIP-630): the records that make the state at one offset from nothing, as a chain of batches.

A snapshot uses the log's batch format. Offsets count from 0. Every batch carries the snapshot's epoch, the snapshot's end offset
as its high watermark stamp, and the crc of the batch before it (0 for the first). The first batch holds control records and
begins with a SnapshotHeader; data batches follow; the last batch is a SnapshotFooter with the SHA-256 of every byte before its
own batch and the number of data records. The file's name has the end offset and epoch that the batches carry inside their crcs,
so a renamed file is noticed. `SnapshotHeader.last_crc` is the previous crc of the log's next batch: the hash chain continues
through it.

Writing and reading stream: one batch and one buffer are in memory, whatever the size. Nothing is trusted before it was checked.
Digest, count and completeness can only be checked at the end of the file, so a caller must read a snapshot to its end before it
uses any of it. Not checked here: the meaning of the data records.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core import batch
from ..core.batch import Batch, ControlRecord, SnapshotFooter, SnapshotHeader
from ..core.errors import CorruptBatch
from ..core.types import OffsetAndEpoch
from .errors import StorageError
from .file_system import File

BOOTSTRAP_ID = OffsetAndEpoch(0, 0)
"""The id of the checkpoint that formatting writes for a quorum with dynamic voters (KIP-853). It is never served."""
WRITE_BYTES = 1024 * 1024
READ_BYTES = 4 * 1024 * 1024
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotInvalid(StorageError):
    """A snapshot is damaged or mixed up. Names file, position and what was found."""


class SnapshotSummary(NamedTuple):
    """The contents of a whole, valid snapshot. `control` are the control records after its header (voters and their version).

    `record_count` counts data records. `last_crc` and `append_time_ms` are those of the log's batch that ends at `id.offset`.
    """

    id: OffsetAndEpoch
    size_bytes: int
    record_count: int
    cluster_id: str
    generation: int
    last_crc: int
    append_time_ms: int
    control: tuple[ControlRecord, ...]


def snapshot_name(position: OffsetAndEpoch) -> str:
    return f"{position.offset:020d}-{position.epoch:010d}.checkpoint"


def snapshot_id(name: str) -> OffsetAndEpoch | None:
    """Return the id in a file name, None if the name is not a finished snapshot's. The bootstrap checkpoint's id is 0@0."""
    match = _NAME.fullmatch(name)
    return OffsetAndEpoch(int(match.group(1)), int(match.group(2))) if match else None


def id_of_path(path: str) -> OffsetAndEpoch:
    """Return the id in the name of a finished snapshot. SnapshotInvalid if the name is not one."""
    position = snapshot_id(path.rpartition("/")[2])
    if position is None:
        raise SnapshotInvalid(
            f"{path} is not named like a snapshot; expected <end offset, 20 digits>-<epoch, 10 digits>.checkpoint"
        )
    return position


def _summary(
    position: OffsetAndEpoch, size_bytes: int, record_count: int, header: SnapshotHeader, control: tuple[ControlRecord, ...]
) -> SnapshotSummary:
    return SnapshotSummary(
        position,
        size_bytes,
        record_count,
        header.cluster_id,
        header.generation,
        header.last_crc,
        header.append_time_ms,
        control,
    )


class SnapshotEncoder:
    """Writes batches to an empty file: control first, then data, then the footer.

    Worker thread; the caller handles file errors.
    """

    def __init__(self, file: File, position: OffsetAndEpoch, control: Sequence[ControlRecord]) -> None:
        header = control[0] if control else None
        if not isinstance(header, SnapshotHeader):
            raise ValueError(f"a snapshot begins with a SnapshotHeader, not with {header!r}")
        self._file = file
        self._id = position
        self._header = header
        self._rest = tuple(control[1:])
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        self._record_count = 0
        self._next_offset = 0
        self._crc = batch.NO_PREVIOUS_CRC
        self.size_bytes = 0
        self._add(batch.encode_control(list(control)), len(control), batch.CONTROL)

    def append(self, body: bytes, record_count: int) -> None:
        """Add one batch of data records. ValueError if it is too large for a batch."""
        self._add(body, record_count, 0)
        self._record_count += record_count

    def finish(self) -> SnapshotSummary:
        """Write the footer and make the file's bytes durable; the caller names the file."""
        footer = SnapshotFooter(0, self._digest.digest(), self._record_count)
        self._add(batch.encode_control([footer]), 1, batch.CONTROL)
        self._write()
        self._file.fdatasync()
        return _summary(self._id, self.size_bytes, self._record_count, self._header, self._rest)

    def _add(self, body: bytes, record_count: int, attributes: int) -> None:
        data, self._crc = batch.encode(
            body,
            base_offset=self._next_offset,
            epoch=self._id.epoch,
            record_count=record_count,
            append_time_ms=self._header.append_time_ms,
            high_watermark=self._id.offset,
            previous_crc=self._crc,
            attributes=attributes,
        )
        self._next_offset += record_count
        self._digest.update(data)
        self._buffer += data
        if len(self._buffer) >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.pwrite(bytes(self._buffer), self.size_bytes)
        self.size_bytes += len(self._buffer)
        self._buffer.clear()


class SnapshotDecoder:
    """Reads one file from front to end. Worker thread. SnapshotInvalid at the first fault."""

    def __init__(self, file: File, position: OffsetAndEpoch) -> None:
        self._file = file
        self._id = position
        self._digest = hashlib.sha256()
        self._buffer = memoryview(b"")
        self._buffer_position = 0
        self._is_whole_rest = False
        """True if the buffer reaches to the end of the file."""
        self._position = 0
        self._next_offset = 0
        self._crc = batch.NO_PREVIOUS_CRC
        self._record_count = 0
        first = self._next()
        if not first.header.is_control:
            raise self._invalid("the first batch holds no control records")
        header, *rest = self._control(first)
        if not isinstance(header, SnapshotHeader):
            raise self._invalid(f"it begins with {type(header).__name__}, not with a SnapshotHeader")
        self._digest.update(first.data)
        self.header = header
        self.control: tuple[ControlRecord, ...] = tuple(rest)

    def batches(self) -> Iterator[Batch]:
        """Yield the data batches.

        The last `next` has checked the footer, so only an exhausted iterator proves the whole file valid.
        """
        while not (found := self._next()).header.is_control:
            self._digest.update(found.data)
            self._record_count += found.header.record_count
            yield found
        (footer, *rest) = self._control(found)
        if not isinstance(footer, SnapshotFooter) or rest:
            raise self._invalid("a control batch in its middle is no SnapshotFooter")
        if footer.digest != self._digest.digest():
            raise self._invalid("the digest in its footer is not the digest of its bytes")
        if footer.record_count != self._record_count:
            raise self._invalid(f"it holds {self._record_count} records, its footer says {footer.record_count}")
        if self._position != self._file.size():
            raise self._invalid(f"{self._file.size() - self._position} bytes stand behind its footer")

    def summary(self) -> SnapshotSummary:
        """Read the rest of the file; return the summary of the whole."""
        for _ in self.batches():
            pass
        return _summary(self._id, self._position, self._record_count, self.header, self.control)

    def _next(self) -> Batch:
        if self._position == 0 and self._file.size() == 0:
            raise self._invalid("it is empty")
        try:
            found = batch.decode(self._window(batch.HEADER_BYTES), 0)
        except CorruptBatch as error:
            raise self._invalid(str(error)) from error
        header = found.header
        if (header.base_offset, header.previous_crc) != (self._next_offset, self._crc):
            raise self._invalid(f"{header!r} does not follow the batch before it, which ends at {self._next_offset}")
        if (header.high_watermark, header.epoch) != self._id:
            claimed = OffsetAndEpoch(header.high_watermark, header.epoch)
            raise self._invalid(f"it is a snapshot of {claimed} inside, not of {self._id}: it was renamed or mixed up")
        self._position += header.size_bytes
        self._next_offset, self._crc = header.end_offset, header.crc
        return found

    def _window(self, header_bytes: int) -> memoryview:
        """Return the rest of the buffer, refilled so that it holds the whole next batch if the file does."""
        rest = self._buffer[self._position - self._buffer_position :]
        if self._is_whole_rest:
            return rest
        needed = header_bytes
        if len(rest) >= header_bytes:
            needed = batch.read_header(rest).size_bytes
        if len(rest) < needed:
            self._buffer = memoryview(self._file.pread(max(READ_BYTES, needed), self._position))
            self._buffer_position = self._position
            rest = self._buffer
            if len(rest) >= header_bytes and len(rest) < (needed := batch.read_header(rest).size_bytes):
                self._buffer = rest = memoryview(self._file.pread(needed, self._position))
            self._is_whole_rest = self._position + len(rest) == self._file.size()
        return rest

    def _control(self, found: Batch) -> list[ControlRecord]:
        try:
            return batch.decode_control(found.body)
        except CorruptBatch as error:
            raise self._invalid(str(error)) from error

    def _invalid(self, reason: str) -> SnapshotInvalid:
        return SnapshotInvalid(f"{self._file.path} is no valid snapshot: at position {self._position}: {reason}")


def read_summary(file: File, position: OffsetAndEpoch) -> SnapshotSummary:
    """Check the whole file; return its summary. SnapshotInvalid."""
    return SnapshotDecoder(file, position).summary()
