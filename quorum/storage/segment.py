"""One segment file of the metadata log: a 4,096-byte header page, batches, and zeros up to the preallocated end.

The header page names the owner of the log and the end of the segment before (`previous_epoch`, `previous_crc`), so a segment can
be checked against its neighbours without reading them. The page and its name are fsynced before the first batch is written: an
invalid page before valid batches is therefore damage, never an unfinished creation. All integers are big-endian::

    magic u32 | format version u16 | cluster id length u16 | cluster id 64 bytes | directory id 16 bytes | generation u32 |
    base offset u64 | previous epoch u32 | previous crc u32 | zeros | crc u32 (the page's last four bytes, over all before)
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

from ..core.errors import CorruptBatch
from .errors import WrongIdentity
from .file_system import File
from .identity import CLUSTER_ID_MAX_BYTES, LogIdentity

HEADER_PAGE_BYTES = 4096
FORMAT_VERSION = 1
SEGMENT_MAGIC = 0x4B4C5331  # "KLS1"
_HEADER = struct.Struct(">IHH64s16sIQII")
_CRC = struct.Struct(">I")
_NAME = re.compile(r"(\d{20})\.log")


class SegmentHeader(NamedTuple):
    """The contents of a segment's header page."""

    identity: LogIdentity
    base_offset: int
    previous_epoch: int
    previous_crc: int

    def encode(self) -> bytes:
        """Return the whole page. ValueError if the cluster id is too long."""
        cluster_id = self.identity.cluster_id.encode()
        if len(cluster_id) > CLUSTER_ID_MAX_BYTES:
            raise ValueError(f"cluster id {self.identity.cluster_id!r} is longer than {CLUSTER_ID_MAX_BYTES} bytes")
        page = _HEADER.pack(
            SEGMENT_MAGIC,
            FORMAT_VERSION,
            len(cluster_id),
            cluster_id,
            self.identity.directory_id,
            self.identity.generation,
            self.base_offset,
            self.previous_epoch,
            self.previous_crc,
        ).ljust(HEADER_PAGE_BYTES - _CRC.size, b"\0")
        return page + _CRC.pack(zlib.crc32(page))

    @classmethod
    def decode(cls, page: bytes) -> SegmentHeader:
        """Return the header of a page. CorruptBatch says what is wrong with it; WrongIdentity if a newer program wrote it."""
        if len(page) < HEADER_PAGE_BYTES:
            raise CorruptBatch(f"the header page is cut: {len(page)} of {HEADER_PAGE_BYTES} bytes")
        body, (crc,) = page[: HEADER_PAGE_BYTES - _CRC.size], _CRC.unpack_from(page, HEADER_PAGE_BYTES - _CRC.size)
        magic, version, length, cluster_id, directory_id, generation, base, epoch, previous = _HEADER.unpack_from(body)
        if magic != SEGMENT_MAGIC or crc != zlib.crc32(body):
            raise CorruptBatch(f"the header page does not hold: magic {magic:08x}, crc {crc:08x}")
        if version != FORMAT_VERSION:
            raise WrongIdentity(
                f"a segment has format version {version}, this program reads {FORMAT_VERSION}: start the newer program "
                "that wrote it."
            )
        return cls(LogIdentity(cluster_id[:length].decode(), directory_id, generation), base, epoch, previous)


class Segment:
    """An open segment. `start_position` is the place of its first batch in the log's continuous byte stream.

    After `written_bytes` the file holds only zeros; `allocated_bytes` is its length.
    """

    __slots__ = ("allocated_bytes", "base_offset", "file", "start_position", "written_bytes")

    def __init__(self, file: File, base_offset: int, start_position: int, written_bytes: int, allocated_bytes: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.start_position = start_position
        self.written_bytes = written_bytes
        self.allocated_bytes = allocated_bytes

    def file_position(self, position: int) -> int:
        """Return the position in this file of byte `position` of the log's stream."""
        return position - self.start_position + HEADER_PAGE_BYTES


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def segment_base_offset(name: str) -> int | None:
    """Return the base offset in a file name, None if the name is not a segment's."""
    match = _NAME.fullmatch(name)
    return int(match.group(1)) if match else None
