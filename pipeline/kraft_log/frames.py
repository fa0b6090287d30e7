"""Kafka's record batch of format v2 as a frame of a log file."""

from __future__ import annotations

import google_crc32c

from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import (
    ATTRIBUTES_AT,
    CONTROL,
    CRC_FROM,
    EPOCH_AT,
    HEADER_BYTES,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
)

from ..framing import NO_STAMP, TORN, Fault, Frame

_LONG_END = (1 << 63) - 1
"""The offset after a batch has to fit 64 bits, too."""


class KafkaFormat:
    """Headers of 61 bytes. The CRC-32C covers the bytes after it, but not the offset and the epoch before it."""

    header_bytes = HEADER_BYTES
    magic = bytes([MAGIC])
    magic_at = MAGIC_AT

    def size_bytes(self, data: bytes, at: int, left_bytes: int) -> int | Fault:
        have_bytes = len(data) - at
        if have_bytes > MAGIC_AT and data[at + MAGIC_AT] != MAGIC:
            return Fault("bad_magic", f"magic is {data[at + MAGIC_AT]}, only record format {MAGIC} is known")
        if have_bytes < HEADER_BYTES:
            return Fault(TORN, f"{have_bytes} bytes are too few for a batch's header of {HEADER_BYTES}")
        try:
            header = read_header(data, at)
        except CorruptBatch as error:
            return Fault("bad_length" if error.reason.startswith("length") else "bad_header", error.reason)
        if header.last_offset >= _LONG_END:
            return Fault("bad_header", f"no batch has offsets {_offsets(header)}")
        if header.size_bytes > left_bytes:
            return Fault(
                TORN, f"the batch of offsets {_offsets(header)} has {header.size_bytes} bytes, the file only {left_bytes} more"
            )
        return header.size_bytes

    def frame(self, data: bytes, at: int, size_bytes: int, position: int) -> Frame | Fault:
        header = read_header(data, at)
        own = data[at : at + size_bytes]
        crc = google_crc32c.value(own[CRC_FROM:])
        if crc != header.crc:
            return Fault("bad_crc", f"crc is {crc:08x}, the header has {header.crc:08x}, offsets {_offsets(header)}")
        attributes = header.attributes
        return Frame(
            position,
            size_bytes,
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.max_timestamp_ms,
            header.record_count,
            crc,
            header.codec,
            bool(attributes & CONTROL),
            NO_STAMP,
            own,
        )

    def is_plausible(self, data: bytes, at: int) -> bool:
        """Test what holds of every batch: the first length byte is 0, the epoch is not negative, no attribute
        bit is that high.
        """
        return (
            data[at + LENGTH_AT] == 0
            and data[at + EPOCH_AT] < 0x80
            and data[at + ATTRIBUTES_AT] == 0
            and data[at + ATTRIBUTES_AT + 1] < 0x80
        )


def _offsets(header: BatchHeader) -> str:
    return f"{header.base_offset} to {header.last_offset}"
