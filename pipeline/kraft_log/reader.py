"""Reads a segment or checkpoint of Kafka's `__cluster_metadata-0`, batch by batch.

A file is a row of record batches of format v2. Each is taken if its header makes sense and its CRC-32C holds; its records are
then decoded by the compiled plans. A record that cannot be decoded is kept as an `UndecodedRecord` among the others. Bytes that
are no batch are reported as a `Damage`, and reading goes on at the next place where a whole batch with a good CRC stands; so
batches and damages together cover the file without gap or overlap. If the bytes at the end are a batch that the file cuts short,
or zeros, they are called torn: a segment that is being written, or whose node lost power, ends so.

Kafka writes the metadata log without compression; a compressed batch is refused as a whole, and reading goes on behind it.

What is not checked: that offsets and epochs of batches follow each other, and that the file is the one that its name says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from kraftlab.broker.log.errors import CorruptBatch
from kraftlab.broker.log.record_batch import CODEC_MASK, CRC_FROM, HEADER_BYTES, BatchHeader, read_header

from .batches import AnyRecord, Batch, ControlRecord, Damage, Record, UndecodedRecord
from .errors import UndecodableRecord
from .plans import decode_control, decode_metadata
from .primitives import signed_varlong, unsigned_varint

_BUFFER_BYTES = 1 << 20
_MAGIC_FROM = 16
_MAGIC = b"\x02"
_LENGTH_AT = 8

Frame = tuple[int, int, int, bytes, bytes]
"""A record's (position in its batch, timestamp delta in ms, offset delta, key, value)."""


def read_file(path: Path) -> Iterator[Batch | Damage]:
    """Everything in a file, in order, as long as the file was when it was opened. OSError."""
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        yield from read_log(file, os.fstat(file.fileno()).st_size)


def read_log(file: BinaryIO, size_bytes: int) -> Iterator[Batch | Damage]:
    """The first `size_bytes` bytes of a seekable file."""
    position = 0
    while position < size_bytes:
        file.seek(position)
        header, fault = _next_header(file.read(min(HEADER_BYTES, size_bytes - position)), size_bytes - position)
        if header is not None:
            file.seek(position)
            data = file.read(header.size_bytes)
            crc = google_crc32c.value(data[CRC_FROM:])
            if crc == header.crc:
                yield decode_batch(data, header, position)
                position += header.size_bytes
                continue
            fault = ("bad_crc", f"crc is {crc:08x}, the header says {header.crc:08x}, offsets {_offsets(header)}")
        end = _next_batch(file, position + 1, size_bytes)
        yield _damage(file, position, end, size_bytes, *fault)
        position = end


def _next_header(data: bytes, left_bytes: int) -> tuple[BatchHeader | None, tuple[str, str]]:
    """(header, -) of a batch that fits the file; else (None, (status, why))."""
    if len(data) > _MAGIC_FROM and data[_MAGIC_FROM] != _MAGIC[0]:
        return None, ("bad_magic", f"magic is {data[_MAGIC_FROM]}, only record format {_MAGIC[0]} is known")
    if len(data) < HEADER_BYTES:
        return None, ("torn", f"{len(data)} bytes are too few for a batch's header of {HEADER_BYTES}")
    try:
        header = read_header(data)
    except CorruptBatch as error:
        return None, ("bad_length" if error.reason.startswith("length") else "bad_header", error.reason)
    if header.size_bytes > left_bytes:
        return None, (
            "torn",
            f"the batch of offsets {_offsets(header)} has {header.size_bytes} bytes, the file only {left_bytes} more",
        )
    return header, ("", "")


def _next_batch(file: BinaryIO, position: int, size_bytes: int) -> int:
    """Where the next whole batch with a good CRC begins, or the end of the file."""
    while position + HEADER_BYTES <= size_bytes:
        file.seek(position)
        window = file.read(min(_BUFFER_BYTES, size_bytes - position))
        at = window.find(_MAGIC, _MAGIC_FROM)
        while at >= 0 and at - _MAGIC_FROM + HEADER_BYTES <= len(window):
            start = at - _MAGIC_FROM
            plausible = window[start + _LENGTH_AT] == 0  # no batch is so long that its length needs the first of four bytes
            if plausible and _is_batch(file, position + start, size_bytes, window[start : start + HEADER_BYTES]):
                return position + start
            at = window.find(_MAGIC, at + 1)
        position += len(window) - HEADER_BYTES + 1
    return size_bytes


def _is_batch(file: BinaryIO, position: int, size_bytes: int, head: bytes) -> bool:
    header, _ = _next_header(head, size_bytes - position)
    if header is None or header.attributes >> 7 or header.leader_epoch < 0:
        return False
    file.seek(position)
    crc: int = google_crc32c.value(file.read(header.size_bytes)[CRC_FROM:])
    return crc == header.crc


def _damage(file: BinaryIO, position: int, end: int, size_bytes: int, status: str, reason: str) -> Damage:
    size = end - position
    if end < size_bytes:
        status = "bad_length" if status == "torn" else status
        return Damage(position, size, status, f"{reason}; {size} bytes are skipped, reading goes on at {end}")
    if status == "torn":
        return Damage(position, size, status, f"the file ends within a batch: {reason}")
    if _only_zeros(file, position, end):
        return Damage(position, size, "torn", f"the file ends with {size} zero bytes, space that was not written yet")
    return Damage(position, size, status, f"{reason}; no batch follows in the last {size} bytes")


def _only_zeros(file: BinaryIO, position: int, end: int) -> bool:
    file.seek(position)
    while position < end:
        chunk = file.read(min(_BUFFER_BYTES, end - position))
        if chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


def _offsets(header: BatchHeader) -> str:
    return f"{header.base_offset} to {header.last_offset}"


def decode_batch(data: bytes, header: BatchHeader, position: int) -> Batch | Damage:
    """A batch with a good CRC; `position` is where it stands in its file. A Damage if it is compressed."""
    if header.attributes & CODEC_MASK:
        reason = f"offsets {_offsets(header)} are compressed with {header.codec}, which no metadata log of Kafka's is"
        return Damage(position, header.size_bytes, "compressed", reason)
    records = _control_records(data, header) if header.is_control else _data_records(data, header)
    return Batch(
        header.base_offset,
        header.last_offset,
        header.record_count,
        header.leader_epoch,
        header.is_control,
        position,
        header.max_timestamp_ms,
        header.size_bytes,
        header.crc,
        records,
    )


def _data_records(data: bytes, header: BatchHeader) -> list[AnyRecord]:
    records: list[AnyRecord] = []
    base_offset, base_ms = header.base_offset, header.base_timestamp_ms
    for start, delta_ms, offset_delta, _, value in _frames(data, header, records):
        try:
            name, version, fields = decode_metadata(value)
        except UndecodableRecord as error:
            records.append(_undecoded(base_offset + offset_delta, base_ms + delta_ms, value, error, start))
        else:
            records.append(Record(base_offset + offset_delta, base_ms + delta_ms, name, version, fields))
    return records


def _control_records(data: bytes, header: BatchHeader) -> list[AnyRecord]:
    records: list[AnyRecord] = []
    base_offset, base_ms = header.base_offset, header.base_timestamp_ms
    for start, delta_ms, offset_delta, key, value in _frames(data, header, records):
        try:
            name, fields = decode_control(key, value)
        except UndecodableRecord as error:
            records.append(_undecoded(base_offset + offset_delta, base_ms + delta_ms, key + value, error, start))
        else:
            records.append(ControlRecord(base_offset + offset_delta, base_ms + delta_ms, name, fields))
    return records


def _undecoded(offset: int, timestamp_ms: int, raw: bytes, error: UndecodableRecord, start: int) -> UndecodedRecord:
    return UndecodedRecord(
        offset, timestamp_ms, f"{error.reason}, {start} bytes into the batch", raw, error.type_number, error.version
    )


def _frames(data: bytes, header: BatchHeader, records: list[AnyRecord]) -> Iterator[Frame]:
    """The records of a batch. Where the framing breaks, the rest is put into `records` as one that could not be decoded.

    A controller's records all begin alike, so that they are recognised by their first bytes; whatever looks different takes the
    long way, which alone says what is wrong.
    """
    position, end = HEADER_BYTES, len(data)
    offset_delta = -1
    try:
        for index in range(header.record_count):
            start = position
            size = data[position]
            if size < 0x80:
                position += 1
            elif data[position + 1] < 0x80:
                size += (data[position + 1] << 7) - 0x80
                position += 2
            else:
                size, position = unsigned_varint(data, position)
            stop = position + (size >> 1)
            usual = _usual_start(index)
            if stop <= end and data.startswith(usual, position):
                position += len(usual)
                size = data[position]
                if size < 0x80:
                    position += 1
                elif data[position + 1] < 0x80:
                    size += (data[position + 1] << 7) - 0x80
                    position += 2
                else:
                    size, position = unsigned_varint(data, position)
                if size == (stop - 1 - position) << 1 and data[stop - 1] == 0:
                    offset_delta = index
                    yield start, 0, index, b"", data[position : stop - 1]
                    position = stop
                    continue
            frame, position = _read_frame(data, start)
            offset_delta = frame[2]
            yield frame
        start = position
        if position != end:
            raise UndecodableRecord(
                f"{end - position} bytes are left after the {header.record_count} records that the header counts"
            )
    except IndexError:
        broken = UndecodableRecord("the batch ends within a record")
    except UndecodableRecord as error:
        broken = error
    else:
        return
    offset = header.base_offset + offset_delta + 1
    records.append(_undecoded(offset, header.max_timestamp_ms, data[start:], broken, start))


@lru_cache(maxsize=1 << 14)
def _usual_start(index: int) -> bytes:
    """How a controller's record begins after its length: no attributes, the time of its batch, its index as offset, no key."""
    out = bytearray(b"\x00\x00")
    delta = index << 1
    while delta > 0x7F:
        out.append(delta & 0x7F | 0x80)
        delta >>= 7
    return bytes(out) + bytes([delta, 1])


def _read_frame(data: bytes, start: int) -> tuple[Frame, int]:
    """Any record, and the position after it. UndecodableRecord, IndexError."""
    length, position = signed_varlong(data, start)
    stop = position + length
    if length < 0 or stop > len(data):
        raise UndecodableRecord(f"a record of {length} bytes does not fit the {len(data) - position} that are left")
    delta_ms, position = signed_varlong(data, position + 1)
    offset_delta, position = signed_varlong(data, position)
    size, position = signed_varlong(data, position)
    key = data[position : position + max(size, 0)]
    size, position = signed_varlong(data, position + len(key))
    value_end = position + max(size, 0)
    headers, after = signed_varlong(data, value_end)
    if headers or after != stop:
        raise UndecodableRecord(f"the lengths of a record of {length} bytes contradict each other, or it has headers")
    return (start, delta_ms, offset_delta, key, data[position:value_end]), stop
