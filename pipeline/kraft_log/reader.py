"""Reads a segment or checkpoint of Kafka's `__cluster_metadata-0`, batch by batch.

A file is a sequence of record batches of format v2. A batch is accepted if its header makes sense and its CRC-32C holds; the
compiled readers then decode its records. A record that cannot be decoded is kept as an `UndecodedRecord` among the others. Other
bytes are reported as a `Damage`, and reading continues at the next place where a whole batch with a good CRC begins. So batches
and damages together cover the file without gap or overlap. A batch that is cut short by the end of the file, and zeros there, are
called torn: a segment ends like that during a write or after a power cut.

Kafka writes the metadata log without compression. A compressed batch is refused as a whole, and reading continues after it.

Not checked: that offsets and epochs of batches follow each other, and that the file has the offsets of its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from kraftlab.records.record_batch import CODEC_MASK, HEADER_BYTES, BatchHeader, read_header

from ..framing import TORN, UNWRITTEN, Frame, walk
from .batches import AnyRecord, Batch, ControlRecord, Damage, Record, UndecodedRecord, up_to_footer
from .errors import UndecodableRecord
from .files import has_footer
from .frames import KafkaFormat
from .records import decode_control, decode_metadata
from .varints import signed_varlong, unsigned_varint

_FORMAT = KafkaFormat()
_BUFFER_BYTES = 1 << 20
_LONG_END = 1 << 63

RecordFrame = tuple[int, int, int, bytes, bytes]
"""A record's (position in its batch, timestamp delta in ms, offset delta, key, value)."""


def read_file(path: Path) -> Iterator[Batch | Damage]:
    """Yield everything in a file, in order, up to its length at the time of opening. A checkpoint without its footer is torn.
    OSError.
    """
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        entries = read_log(file, size_bytes)
        yield from up_to_footer(entries, size_bytes, UNWRITTEN) if has_footer(path) else entries


def read_log(file: BinaryIO, size_bytes: int) -> Iterator[Batch | Damage]:
    """Yield everything in the first `size_bytes` bytes of a seekable file."""

    def read(position: int, size: int) -> bytes:
        file.seek(position)
        return file.read(size)

    for entry in walk(read, size_bytes, _FORMAT):
        if isinstance(entry, Frame):
            yield decode_batch(entry.data, read_header(entry.data), entry.position)
        else:
            yield msgspec.structs.replace(entry, status=TORN) if entry.status == UNWRITTEN else entry


def _offsets(header: BatchHeader) -> str:
    return f"{header.base_offset} to {header.last_offset}"


def decode_batch(data: bytes, header: BatchHeader, position: int) -> Batch | Damage:
    """Decode a batch with a good CRC at `position` in its file. A compressed batch is a Damage."""
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


def record_values(data: bytes) -> Iterator[tuple[int, int, bytes] | UndecodedRecord]:
    """Yield the records of a data batch without decoding them: (offset, time in ms, value), and one UndecodedRecord where the
    framing breaks.
    """
    header = read_header(data)
    broken: list[AnyRecord] = []
    base_offset, base_ms = header.base_offset, header.base_timestamp_ms
    for _, delta_ms, offset_delta, _, value in _frames(data, header, broken):
        yield base_offset + offset_delta, base_ms + delta_ms, value
    for record in broken:
        if isinstance(record, UndecodedRecord):
            yield record


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


def _frames(data: bytes, header: BatchHeader, records: list[AnyRecord]) -> Iterator[RecordFrame]:
    """Yield the records of a batch. If the framing breaks, the rest is appended to `records` as one record that could not be
    decoded.

    A controller's records all begin alike and are recognized by their first bytes. Any other record takes the slow path, which
    also names the fault.
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
            if not offset_delta < frame[2] <= header.last_offset_delta or abs(header.base_timestamp_ms + frame[1]) >= _LONG_END:
                raise UndecodableRecord(f"no record here has offset delta {frame[2]} and timestamp delta {frame[1]}")
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
    """Return the usual beginning of a controller's record after its length: no attributes, the batch's time, its index as offset,
    no key.
    """
    out = bytearray(b"\x00\x00")
    delta = index << 1
    while delta > 0x7F:
        out.append(delta & 0x7F | 0x80)
        delta >>= 7
    return bytes(out) + bytes([delta, 1])


def _read_frame(data: bytes, start: int) -> tuple[RecordFrame, int]:
    """Return any record, and the position after it. UndecodableRecord, IndexError."""
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
