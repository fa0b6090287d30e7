"""Kafka's record batch, format v2: headers, checks, stamping, and the uncompressed codec.

A batch is a 61-byte big-endian header and its records::

    base_offset i64 | length i32 | leader_epoch i32 | magic i8 (2) | crc u32 | attributes i16 | last_offset_delta i32 |
    base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16 | base_sequence i32 | record_count i32 | records

`length` counts the bytes after its own field. `crc` is CRC-32C over attributes to end, without base offset and leader epoch: the
leader stamps both in place without reading the records, which stay opaque here, compressed or not. A compacted batch
keeps its offset range and may hold fewer records than the range is wide, even none.

Checked: magic, length, counts, CRC. Not checked: the records themselves, and the sequences of producers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import google_crc32c

from .errors import CorruptBatch

MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
SEQUENCE_MAX = 2**31 - 1
LENGTH_AT = 8
LENGTH_FROM = 12
"""Bytes of a batch that `length` does not count."""
EPOCH_AT = 12
MAGIC_AT = 16
ATTRIBUTES_AT = 21
"""Place of the flags, two bytes with the highest first."""
CRC_FROM = 21
"""First byte that the CRC covers."""
MAX_TIMESTAMP_AT = 35
CRC_PIECE_BYTES = 64 * 1024
MAX_BATCH_BYTES = 12 * 1024 * 1024
"""One batch always fits a peer frame of 16 MiB. Kafka's default limit is 1 MiB."""
CODEC_MASK = 0x07
APPEND_TIME = 1 << 3
"""The leader has set the time: all records have the batch's maximum."""
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
DELETE_HORIZON = 1 << 6
"""Compaction has set the base timestamp to the time at which the batch's tombstones may go."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_EPOCH = -1
INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1

_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_EPOCH = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_CRC = struct.Struct(">I")


class BatchHeader(NamedTuple):
    """Header of one batch. `size_bytes` is the whole batch's size, header included; timestamps are ms since 1970."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """The offset after the batch's last."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which on compaction drops the tombstones of the batch, None if it has none or has not met them yet."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None

    @property
    def codec(self) -> str:
        """Name of the compression codec; an unknown number reads `codec-N`."""
        number = self.attributes & CODEC_MASK
        return CODECS[number] if number < len(CODECS) else f"codec-{number}"

    def __repr__(self) -> str:
        kind = "control" if self.is_control else "data"
        return f"{kind} {self.base_offset}..{self.end_offset}@{self.leader_epoch} {self.record_count} records {self.size_bytes} B"


class Record(NamedTuple):
    """A record from a producer."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class StoredRecord(NamedTuple):
    """A record in a log."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def size_as_written(data: bytes | bytearray | memoryview, position: int = 0) -> int:
    """Return the size of the batch at `position` by its length, which is not checked. At least LENGTH_FROM bytes are there."""
    length: int = _LENGTH.unpack_from(data, position + LENGTH_AT)[0]
    return length + LENGTH_FROM


def read_header(data: bytes | bytearray | memoryview, position: int = 0, *, origin: int = 0) -> BatchHeader:
    """Read the header at `position`, without its CRC check. CorruptBatch; `origin` is the position of `data` in its file."""
    at = origin + position
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatch(at, f"{len(data) - position} bytes are too few for a header of {HEADER_BYTES}")
    base, length, epoch, magic, crc, attributes, delta, first_ms, max_ms, producer, producer_epoch, sequence, count = (
        HEADER.unpack_from(data, position)
    )
    if magic != MAGIC:
        raise CorruptBatch(at, f"magic is {magic}, only record format {MAGIC} is known")
    if not HEADER_BYTES - LENGTH_FROM <= length <= MAX_BATCH_BYTES - LENGTH_FROM:
        raise CorruptBatch(at, f"length {length} is not between {HEADER_BYTES - LENGTH_FROM} and {MAX_BATCH_BYTES - LENGTH_FROM}")
    if base < 0 or delta < 0 or not 0 <= count <= delta + 1:
        raise CorruptBatch(at, f"base offset {base}, last offset delta {delta} and record count {count} contradict each other")
    return BatchHeader(
        base, length + LENGTH_FROM, epoch, crc, attributes, delta, first_ms, max_ms, producer, producer_epoch, sequence, count
    )


def iterate(data: bytes | bytearray | memoryview, position: int = 0, *, origin: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch in `data`, CRCs not checked. CorruptBatch where a batch is cut short."""
    while position < len(data):
        header = read_header(data, position, origin=origin)
        if position + header.size_bytes > len(data):
            raise CorruptBatch(origin + position, f"cut short: {len(data) - position} of {header.size_bytes} bytes")
        yield position, header
        position += header.size_bytes


def check_crc(data: bytes | bytearray | memoryview, position: int, header: BatchHeader, *, origin: int = 0) -> None:
    """CorruptBatch if the CRC of the batch at `position` is wrong."""
    crc = crc_of(data, position + CRC_FROM, position + header.size_bytes)
    if crc != header.crc:
        raise CorruptBatch(
            origin + position,
            f"crc is {crc:08x}, the header says {header.crc:08x} (offsets {header.base_offset}..{header.end_offset})",
        )


def crc_of(data: bytes | bytearray | memoryview, start: int, end: int) -> int:
    """CRC-32C of a range. google_crc32c takes `bytes` only: pieces that stay in the processor's cache cost little to copy."""
    crc = 0
    with memoryview(data) as view:
        for position in range(start, end, CRC_PIECE_BYTES):
            crc = google_crc32c.extend(crc, bytes(view[position : min(position + CRC_PIECE_BYTES, end)]))
    return crc


def validate(data: bytes | bytearray | memoryview, *, origin: int = 0) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of each batch in `data`. CorruptBatch unless it holds whole valid batches only."""
    batches = []
    for position, header in iterate(data, origin=origin):
        check_crc(data, position, header, origin=origin)
        batches.append((position, header))
    return batches


def stamp(data: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at `position`, in place. The CRC stays valid."""
    _OFFSET.pack_into(data, position, base_offset)
    _EPOCH.pack_into(data, position + EPOCH_AT, leader_epoch)


def set_producer(data: bytearray, position: int, header: BatchHeader, producer: tuple[int, int, int]) -> None:
    """Set producer id, epoch and first sequence of the batch at `position`, in place, and its CRC."""
    _PRODUCER.pack_into(data, position + _PRODUCER_AT, *producer)
    crc = crc_of(data, position + CRC_FROM, position + header.size_bytes)
    _CRC.pack_into(data, position + CRC_FROM - _CRC.size, crc)


def mask_epochs(data: bytearray, batches: Iterable[tuple[int, BatchHeader]]) -> None:
    """Zero the leader epoch of `batches` in place, so that equal data compare equal under any leader."""
    for position, _ in batches:
        _EPOCH.pack_into(data, position + EPOCH_AT, 0)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """Build an uncompressed batch of `records` at consecutive offsets. ValueError if it is empty or too large."""
    if not records:
        raise ValueError("a batch needs at least one record")
    first_ms = records[0].timestamp_ms
    body = bytearray()
    for delta, record in enumerate(records):
        encoded = _encode_record(record, delta, record.timestamp_ms - first_ms)
        put_varint(body, len(encoded))
        body += encoded
    size_bytes = HEADER_BYTES + len(body)
    if size_bytes > MAX_BATCH_BYTES:
        raise ValueError(f"a batch of {size_bytes} bytes is over the limit of {MAX_BATCH_BYTES}; send fewer records at once")
    header = BatchHeader(
        base_offset,
        size_bytes,
        leader_epoch,
        0,
        attributes,
        len(records) - 1,
        first_ms,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return encode_batch(header, bytes(body))


def encode_batch(header: BatchHeader, records: bytes) -> bytes:
    """Return a batch of encoded, possibly compressed records. Its size and CRC are computed, not taken from `header`."""
    length = HEADER_BYTES + len(records) - LENGTH_FROM
    fields = HEADER.pack(header.base_offset, length, header.leader_epoch, MAGIC, 0, *header[4:])
    covered = fields[CRC_FROM:] + records
    return fields[: CRC_FROM - 4] + struct.pack(">I", google_crc32c.value(covered)) + covered


def decode_records(data: bytes | bytearray | memoryview) -> Iterator[StoredRecord]:
    """Yield the records of the uncompressed data batches in `data`, CRCs checked; skip control batches.

    ValueError names the codec of a compressed batch: this package does not decompress. CorruptBatch if a batch cannot be read.
    """
    raw = bytes(data)
    for position, header in validate(raw):
        if header.is_control:
            continue
        if header.attributes & CODEC_MASK:
            raise ValueError(
                f"batch at offset {header.base_offset} is compressed ({header.codec}); only uncompressed batches are decoded"
            )
        yield from records_of(header, raw[position + HEADER_BYTES : position + header.size_bytes], position)


def records_of(header: BatchHeader, records: bytes, position: int = 0) -> Iterator[StoredRecord]:
    """Yield the records of one data batch, without its header and decompressed. CorruptBatch names `position`.

    Names of headers that are not UTF-8 have replacement characters, as in Kafka's own consumer.
    """
    at = 0
    try:
        for _ in range(header.record_count):
            length, start = get_varint(records, at)
            record, at = _decode_record(records, start, header)
            if at != start + length:
                raise IndexError(f"a record of {at - start} bytes claims {length}")
            yield record
    except IndexError as error:
        raise CorruptBatch(position, f"its records cannot be read: {error}") from error
    if at != len(records):
        raise CorruptBatch(position, f"its {header.record_count} records take {at} of {len(records)} bytes")


def _encode_record(record: Record, offset_delta: int, timestamp_delta_ms: int) -> bytearray:
    out = bytearray(b"\0")
    put_varint(out, timestamp_delta_ms)
    put_varint(out, offset_delta)
    _put_bytes(out, record.key)
    _put_bytes(out, record.value)
    put_varint(out, len(record.headers))
    for key, value in record.headers:
        _put_bytes(out, key.encode())
        _put_bytes(out, value)
    return out


def _decode_record(data: bytes, at: int, header: BatchHeader) -> tuple[StoredRecord, int]:
    timestamp_delta_ms, at = get_varint(data, at + 1)
    offset_delta, at = get_varint(data, at)
    key, at = _get_bytes(data, at)
    value, at = _get_bytes(data, at)
    count, at = get_varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _get_bytes(data, at)
        content, at = _get_bytes(data, at)
        headers.append(((name or b"").decode(errors="replace"), content))
    check_place(header, offset_delta)
    is_leaders = header.attributes & APPEND_TIME
    timestamp_ms = header.max_timestamp_ms if is_leaders else as_int64(header.base_timestamp_ms + timestamp_delta_ms)
    return StoredRecord(header.base_offset + offset_delta, key, value, timestamp_ms, tuple(headers)), at


def check_place(header: BatchHeader, offset_delta: int) -> None:
    """IndexError if a record has an offset outside its batch."""
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise IndexError(f"a record has offset delta {offset_delta}, which no record of its batch has")


def as_int64(value: int) -> int:
    """Return a sum of timestamps as Kafka's arithmetic has it, which wraps around at 64 bits: what is stored always fits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def put_varint(out: bytearray, value: int) -> None:
    """Append a number: zigzag, then 7 bits a byte, least significant first."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def get_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return (number, position after it). IndexError if `data` ends before, or the number is not an int64."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _UINT64_MAX:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            break
    raise IndexError("a number takes more than 64 bits")


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        put_varint(out, -1)
    else:
        put_varint(out, len(value))
        out += value


def _get_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = get_varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise IndexError(f"{length} bytes extend beyond the end")
    return data[at : at + length], at + length


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence `count` records after (or before) `sequence`."""
    return (sequence + count) % (SEQUENCE_MAX + 1)
