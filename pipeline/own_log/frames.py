"""Our batch (`quorum.core.batch`) as a frame of a log file, and the header page before the batches of a segment."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kraftlab.quorum.core.batch import CONTROL, HEADER, HEADER_BYTES, LENGTH_FROM, MAGIC, MAX_BATCH_BYTES
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.storage.errors import WrongIdentity
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES, SegmentHeader

from ..framing import TORN, UNWRITTEN, Fault, Frame, ReadAt, Window, next_frame
from ..kraft_log.batches import Damage

_LENGTH_AT = 4
_LENGTH_MIN = HEADER_BYTES - LENGTH_FROM + 1
_LENGTH_MAX = MAX_BATCH_BYTES - LENGTH_FROM
_LONG_END = 1 << 62
_EPOCH_END = 1 << 31


class OwnFormat:
    """Headers of 48 bytes. The CRC-32 covers everything after itself, including offset and epoch."""

    header_bytes = HEADER_BYTES
    magic = MAGIC.to_bytes(4, "big")
    magic_at = 0

    def size_bytes(self, data: bytes, at: int, left_bytes: int) -> int | Fault:
        have_bytes = len(data) - at
        if have_bytes < HEADER_BYTES:
            return Fault(TORN, f"{have_bytes} bytes are too few for a batch's header of {HEADER_BYTES}")
        magic, length, _, base_offset, *_ = HEADER.unpack_from(data, at)
        if magic != MAGIC:
            return Fault("bad_magic", f"magic is {magic:08x}, that of a batch is {MAGIC:08x}")
        if not _LENGTH_MIN <= length <= _LENGTH_MAX:
            return Fault("bad_length", f"length {length} is not between {_LENGTH_MIN} and {_LENGTH_MAX}")
        if length + LENGTH_FROM > left_bytes:
            size = length + LENGTH_FROM
            return Fault(TORN, f"the batch from offset {base_offset} has {size} bytes, the file only {left_bytes} more")
        size_bytes: int = length + LENGTH_FROM
        return size_bytes

    def frame(self, data: bytes, at: int, size_bytes: int, position: int) -> Frame | Fault:
        own = data[at : at + size_bytes]
        _, _, crc, base_offset, epoch, attributes, count, append_ms, mark, _ = HEADER.unpack_from(own)
        found = zlib.crc32(memoryview(own)[LENGTH_FROM:])
        if found != crc:
            return Fault("bad_crc", f"crc is {found:08x}, the header has {crc:08x}, from offset {base_offset}")
        if not count:
            return Fault("bad_header", f"the batch at offset {base_offset} counts no records")
        if max(base_offset, append_ms, mark) >= _LONG_END or epoch >= _EPOCH_END:
            return Fault("bad_header", f"no batch has offset {base_offset}, epoch {epoch}, time {append_ms} or mark {mark}")
        return Frame(
            position,
            size_bytes,
            base_offset,
            base_offset + count - 1,
            epoch,
            append_ms,
            count,
            crc,
            "none",
            bool(attributes & CONTROL),
            mark,
            own,
        )

    def is_plausible(self, data: bytes, at: int) -> bool:
        """Test what holds of every batch: the first of the four length bytes is 0."""
        return data[at + _LENGTH_AT] == 0


FORMAT = OwnFormat()


class Opening(NamedTuple):
    """The beginning of a segment: its header page, or the damage in its place, and the start of the batches."""

    header: SegmentHeader | None
    damage: Damage | None
    batches_at: int


def open_segment(read: ReadAt, size_bytes: int) -> Opening:
    """Read the header page of a segment. A page that does not hold is a damage up to the first batch: status `bad_header`,
    `unknown_version` if a newer program wrote it, `torn` or `unwritten` if the file ends with it.
    """
    page = read(0, min(HEADER_PAGE_BYTES, size_bytes))
    try:
        return Opening(SegmentHeader.decode(page), None, HEADER_PAGE_BYTES)
    except CorruptBatch as error:
        status, reason = TORN if len(page) < HEADER_PAGE_BYTES else "bad_header", str(error)
    except WrongIdentity as error:
        status, reason = "unknown_version", str(error)
    except UnicodeDecodeError:
        status, reason = "bad_header", "the cluster id on the header page is not UTF-8"
    window = Window(read, size_bytes)
    following = next_frame(window, FORMAT, 0)
    if following < size_bytes:
        status = "bad_header" if status == TORN else status
    elif page.count(0) == len(page):
        status, reason = UNWRITTEN, "the file holds only zeros, space that was not written yet"
    return Opening(None, Damage(0, following, status, f"{reason}; batches are read from position {following} on"), following)
