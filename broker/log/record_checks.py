"""Checks of a producer's batches before the leader appends them. Pure; errors as recorded from Apache Kafka 4.3.

For each batch: magic 2, CRC, base offset 0, as many records as offsets, a known codec, no control batch, no transaction, a
sequence if there is a producer id, at most max.message.bytes. For each record: it can be read; a key on a compacted topic; a
timestamp within message.timestamp.before.max.ms and after.max.ms. With LogAppendTime the leader sets the batch's timestamp
instead.

Records that cannot be read would stop each consumer forever, so every batch is decompressed, to `DECOMPRESSED_BYTES_MAX` at
most, and its records are walked once (`check_records`). That is most of the work here. Keys and timestamps cost far more, so they
are read only on compacted topics and where `before.max.ms` is set; otherwise the largest timestamp of the header counts for all.

Not checked: the parts of records after the first `READ_WHOLE` of a batch, but for their lengths; the header's largest timestamp
against the records'; offset deltas within records; and batches that keep their offsets (an import), but for CRC, counts and keys:
they were in a log before.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from kraftlab.records.codecs import DECOMPRESSED_BYTES_MAX, CodecError, decompress
from kraftlab.records.errors import BatchTooLarge, CorruptBatch, InvalidRecords
from kraftlab.records.recompression import recompressed
from kraftlab.records.record_batch import (
    APPEND_TIME,
    ATTRIBUTES_AT,
    CODEC_MASK,
    CODECS,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    INT64_MAX,
    LENGTH_FROM,
    MAGIC,
    MAGIC_AT,
    MAX_BATCH_BYTES,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    BatchHeader,
    as_int64,
    check_crc,
    check_place,
    crc_of,
    get_varint,
    sequence_after,
    size_as_written,
    stamp,
    validate,
)
from kraftlab.records.record_walk import check_records

from .errors import InvalidTimestamps, NoTransactions, UnexpectedOffset, UnknownCodec
from .log_config import NO_LIMIT, LogConfig
from .producer_state import BATCHES_KEPT

NO_TIMESTAMP = -1
NAMED_MAX = 10
"""Number of records that an error names."""
BESIDE_OTHERS_BYTES_MAX = 16 * 1024 * 1024
"""Larger batches, decompressed, are checked one at a time: a few bytes may become very many, in each thread of each directory."""
_one_large = threading.Lock()
_MAX_TIMESTAMP = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")


class _RecordInfo(NamedTuple):
    timestamp_ms: int
    has_key: bool


def check_request(data: bytes | memoryview) -> None:
    """Check that a produce request begins with a whole batch of format 2. InvalidRecords, CorruptBatch."""
    if len(data) > MAGIC_AT and data[MAGIC_AT] != MAGIC:
        magic = struct.unpack_from("b", data, MAGIC_AT)[0]
        if 0 <= magic < MAGIC:
            raise InvalidRecords(f"the batch has format {magic}; only format {MAGIC} may be produced")
        raise CorruptBatch(0, f"Invalid magic found in record: {magic}")
    size_bytes = size_as_written(data) if len(data) >= HEADER_BYTES else 0
    if not HEADER_BYTES <= size_bytes <= len(data):
        raise InvalidRecords(f"a produce request holds whole batches; these are {len(data)} bytes without one")


def check_produced(data: bytes | memoryview, config: LogConfig, now_ms: int) -> list[BatchHeader]:
    """Return the headers of new batches that the topic accepts.

    CorruptBatch, BatchTooLarge, InvalidRecords, InvalidTimestamps, UnknownCodec, NoTransactions.
    """
    headers: list[BatchHeader] = []
    position = 0
    while position < len(data):
        header = _read(data, position)
        if header.base_offset:
            raise InvalidRecords(f"the base offset of a new batch is 0; this one has {header.base_offset}")
        if header.size_bytes > config.max_message_bytes:
            raise BatchTooLarge(
                f"the batch has {header.size_bytes} bytes, more than max.message.bytes={config.max_message_bytes} of the topic"
            )
        check_crc(data, position, header)
        _check_header(header)
        _check_records(header, data[position + HEADER_BYTES : position + header.size_bytes], config, now_ms)
        headers.append(header)
        position += header.size_bytes
    return headers


def check_imported(data: bytes | memoryview, config: LogConfig) -> list[BatchHeader]:
    """Return the headers of batches that keep their offsets. CorruptBatch; InvalidRecords without keys on a compacted topic."""
    batches = validate(data)
    if config.is_compacted:
        for position, header in batches:
            if not header.is_control:
                records = data[position + HEADER_BYTES : position + header.size_bytes]
                _check_keys(_infos(header, _plain(header, records)))
    return [header for _, header in batches]


def prepare(
    data: bytes | memoryview, config: LogConfig, now_ms: int, *, keep_offsets: bool
) -> tuple[bytearray | memoryview, list[BatchHeader], int]:
    """Check batches for the leader and give them the topic's codec: return them to be stamped, their headers, and the leader's
    time on them (-1: none).

    A writable memoryview is stamped in place, other bytes are copied. Errors of `check_produced`, or with `keep_offsets` those of
    `check_imported`.
    """
    if keep_offsets:
        return _writable(data), check_imported(data, config), NO_TIMESTAMP
    prepared: bytearray | memoryview
    headers = check_produced(data, config, now_ms)
    _check_sequences(headers)
    if config.compression is not None and any(header.codec != config.compression.codec for header in headers):
        prepared, headers = recompressed(data, headers, config.compression, config.max_message_bytes)
    else:
        prepared = _writable(data)
    if not config.uses_append_time:
        return prepared, headers, NO_TIMESTAMP
    position = 0
    for index, header in enumerate(headers):
        headers[index] = stamp_append_time(prepared, position, header, now_ms)
        position += header.size_bytes
    return prepared, headers, now_ms


def _writable(data: bytes | memoryview) -> bytearray | memoryview:
    return data if isinstance(data, memoryview) and not data.readonly else bytearray(data)


def stamp_places(
    data: bytearray | memoryview, headers: Sequence[BatchHeader], next_offset: int | None, leader_epoch: int, log_name: str
) -> list[BatchHeader]:
    """Stamp batches with the offsets from `next_offset` on (None: each keeps its own) and the epoch. Return the stamped headers.

    UnexpectedOffset beyond the largest offset.
    """
    stamped: list[BatchHeader] = []
    position = 0
    for header in headers:
        base_offset = header.base_offset if next_offset is None else next_offset
        if base_offset + header.last_offset_delta + 1 >= INT64_MAX:
            raise UnexpectedOffset(f"{log_name} would reach offset {INT64_MAX}, the largest there is")
        stamp(data, position, base_offset=base_offset, leader_epoch=leader_epoch)
        stamped.append(header._replace(base_offset=base_offset, leader_epoch=leader_epoch))
        position += header.size_bytes
        next_offset = None if next_offset is None else stamped[-1].end_offset
    return stamped


def check_copied(data: bytes | memoryview) -> list[BatchHeader]:
    """Return the headers of batches that a leader has stored. CorruptBatch."""
    return [header for _, header in validate(data)]


def stamp_append_time(data: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Set the leader's time on the batch at `position`, in place, and its CRC; return its header."""
    attributes = header.attributes | APPEND_TIME
    _ATTRIBUTES.pack_into(data, position + ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(data, position + MAX_TIMESTAMP_AT, now_ms)
    crc = crc_of(data, position + CRC_FROM, position + header.size_bytes)
    _CRC.pack_into(data, position + CRC_FROM - _CRC.size, crc)
    return header._replace(attributes=attributes, max_timestamp_ms=now_ms, crc=crc)


def _read(data: bytes | memoryview, position: int) -> BatchHeader:
    """Read a header. Its counts may be wrong."""
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatch(position, f"{len(data) - position} bytes are too few for a header of {HEADER_BYTES}")
    base_offset, length, epoch, magic, *rest = HEADER.unpack_from(data, position)
    if magic != MAGIC:
        raise CorruptBatch(position, f"Invalid magic found in record: {magic}")
    header = BatchHeader(base_offset, length + LENGTH_FROM, epoch, *rest)
    if not HEADER_BYTES <= header.size_bytes <= min(len(data) - position, MAX_BATCH_BYTES):
        raise CorruptBatch(
            position, f"{len(data) - position} bytes do not hold its {header.size_bytes}; the limit is {MAX_BATCH_BYTES}"
        )
    return header


def _check_header(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecords("clients may not write control batches")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecords(
            f"the batch has {header.record_count} records and a last offset delta of {header.last_offset_delta}; "
            "it needs a record, and the delta is the number of records less one"
        )
    if header.attributes & TRANSACTIONAL:
        raise NoTransactions("this cluster coordinates no transactions; send the batch without the transactional attribute")
    if header.attributes & CODEC_MASK >= len(CODECS):
        raise UnknownCodec(f"the batch is compressed with {header.codec}; known are {', '.join(CODECS)}")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecords(f"a batch of producer {header.producer_id} needs a sequence; this one has {header.base_sequence}")


def _check_sequences(headers: list[BatchHeader]) -> None:
    """All batches of a request have no producer id, or one producer id and consecutive sequences."""
    if all(header.producer_id < 0 for header in headers):
        return
    if len(headers) > BATCHES_KEPT:
        raise InvalidRecords(
            f"a producer sends at most {BATCHES_KEPT} batches at once, so that they are found again; these are {len(headers)}"
        )
    for before, after in pairwise(headers):
        follows = (before.producer_id, before.producer_epoch, sequence_after(before.base_sequence, before.record_count))
        if (after.producer_id, after.producer_epoch, after.base_sequence) != follows:
            raise InvalidRecords("the batches of one request have to follow each other in the sequences of one producer")


def _check_records(header: BatchHeader, records: bytes | memoryview, config: LogConfig, now_ms: int) -> None:
    """Check that the records can be read, and their keys and timestamps where the topic asks for it."""
    latest_ms = now_ms + min(config.message_timestamp_after_max_ms, NO_LIMIT - now_ms)
    is_created = not config.uses_append_time
    if is_created and header.attributes & APPEND_TIME:
        raise InvalidTimestamps("the timestamps claim to be the leader's (LogAppendTime); producers set those of creation")
    has_bound = is_created and (config.message_timestamp_before_max_ms != NO_LIMIT or header.max_timestamp_ms > latest_ms)
    bounds_ms = (now_ms - config.message_timestamp_before_max_ms, latest_ms) if has_bound else None
    compressed = bytes(records)
    try:
        plain = decompress(header.codec, compressed, BESIDE_OTHERS_BYTES_MAX)
    except CodecError:
        with _one_large:
            _check_plain(header, _plain(header, compressed), config, bounds_ms)
    else:
        _check_plain(header, plain, config, bounds_ms)


def _check_plain(header: BatchHeader, plain: bytes, config: LogConfig, bounds_ms: tuple[int, int] | None) -> None:
    """Check the decompressed records of a batch. `bounds_ms`: earliest and latest timestamp, None if they need no check."""
    try:
        check_records(plain, header.record_count)
    except IndexError as error:
        raise InvalidRecords(f"the batch's {header.record_count} records cannot be read: {error}") from error
    if config.is_compacted:
        _check_keys(_infos(header, plain))
    if bounds_ms is not None:
        _check_timestamps(header, _infos(header, plain), *bounds_ms)


def _check_keys(infos: Iterator[_RecordInfo]) -> None:
    keyless = (index for index, info in enumerate(infos) if not info.has_key)
    named = list(islice(keyless, NAMED_MAX))
    if named:
        reason = "Compacted topic cannot accept message without key"
        count = len(named) + sum(1 for _ in keyless)
        raise InvalidRecords(f"{count} records: {reason}", tuple((index, reason) for index in named))


def _check_timestamps(header: BatchHeader, infos: Iterator[_RecordInfo], earliest_ms: int, latest_ms: int) -> None:
    """Records without a timestamp are accepted."""
    wrong = (
        (index, info.timestamp_ms)
        for index, info in enumerate(infos)
        if info.timestamp_ms != NO_TIMESTAMP and not earliest_ms <= info.timestamp_ms <= latest_ms
    )
    bounds = f"out of range. The timestamp should be within [{max(earliest_ms, 0)}, {latest_ms}]"
    named = tuple((index, f"Timestamp {at} of message with offset {index} is {bounds}") for index, at in islice(wrong, NAMED_MAX))
    if named:
        raise InvalidTimestamps("One or more records have been rejected due to invalid timestamp", named)
    if header.max_timestamp_ms > latest_ms:
        raise InvalidTimestamps(f"the largest timestamp of the batch, {header.max_timestamp_ms}, is after {latest_ms}")


def _plain(header: BatchHeader, records: bytes | memoryview) -> bytes:
    """Return the records of a batch, decompressed. InvalidRecords."""
    try:
        return decompress(header.codec, bytes(records), DECOMPRESSED_BYTES_MAX)
    except CodecError as error:
        raise InvalidRecords(str(error)) from error


def _infos(header: BatchHeader, plain: bytes) -> Iterator[_RecordInfo]:
    """Yield timestamp and key of each record, decompressed. InvalidRecords if they cannot be read."""
    at = 0
    try:
        for _ in range(header.record_count):
            length, start = get_varint(plain, at)
            timestamp_delta_ms, after = get_varint(plain, start + 1)
            offset_delta, after = get_varint(plain, after)
            key_bytes, after = get_varint(plain, after)
            check_place(header, offset_delta)
            at = start + length
            if length < 0 or not after <= at <= len(plain):
                raise IndexError
            yield _RecordInfo(as_int64(header.base_timestamp_ms + timestamp_delta_ms), key_bytes >= 0)
        if at != len(plain):
            raise IndexError
    except IndexError:
        raise InvalidRecords(f"the batch's {header.record_count} records cannot be read") from None
