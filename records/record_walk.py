"""Fast walks over the records of one batch, decompressed: their boundaries, keys and offsets, without decoding them. The records
may lie anywhere in a buffer, so that a batch need not be copied out of the file's bytes: they begin at `at` and end at `end`.

A record is its length, attributes (one byte), timestamp delta, offset delta, key length, key, value length, value, and headers;
all numbers are zigzag varints. A leader reads every record that is produced, compaction every record of a topic, so the walks
here are written out: most numbers take one or two bytes, and a call for each would cost more than all the rest. `records_of` is
the readable twin, which the tests compare.

`check_records` is for records of a producer. The other walks are for records in a log.

IndexError: the records end before the last one does. The caller knows which batch that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .codecs import decompress
from .record_batch import CODEC_MASK, HEADER_BYTES, BatchHeader, get_varint

_NOTHING = 1
"""Length -1."""
READ_WHOLE = 500
"""Number of records of a batch that a producer's batch is judged by."""
_RECORD_BYTES_MIN = 7
"""Bytes of the shortest record: its size, and six parts of one byte each."""
_SIZE_MIN = 12
"""Size of the shortest record, in zigzag."""
_INT_BYTES_MAX = 5
"""Bytes of the longest number of 32 bits."""
_USUAL_DELTAS_BYTES = 5
"""Deltas of timestamp and offset that take no more bytes together are surely not too long."""
_USUAL_MAX = 0x3FFF
"""Largest number of two bytes, in zigzag: the size of a record that none of whose lengths needs more."""


class Records(NamedTuple):
    """Records of a batch, decompressed, from position `start` to `end` of `data`."""

    data: bytes
    start: int
    end: int


def records_in(header: BatchHeader, data: bytes, position: int = 0) -> Records:
    """Find the records of the batch at `position`; only compressed ones are copied. CodecError."""
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if not header.attributes & CODEC_MASK:
        return Records(data, start, end)
    records = decompress(header.codec, data[start:end])
    return Records(records, 0, len(records))


def check_records(records: bytes, count: int) -> None:
    """Check that a consumer can read the records, and that they are `count`. IndexError with the reason.

    The first `READ_WHOLE` records are read whole. Of the others only the lengths are: they have to be lengths of records, and to
    lead to the end. To read everything would take four times as long, and is what a batch of many small records would spend its
    time on.
    """
    if count * _RECORD_BYTES_MIN > len(records):
        raise IndexError(f"they are {len(records)} bytes, and each takes at least {_RECORD_BYTES_MIN}")
    at = signs = 0
    for _ in range(min(count, READ_WHOLE)):
        at = _after_usual(records, at) or _after_record(records, at)
    for _ in range(count - READ_WHOLE):
        size = records[at]
        if size > 127:
            size = size & 127 | records[at + 1] << 7
            at += 1
            if size > _USUAL_MAX:
                size, at = _long(records, at - 1)
                at -= 1
        if size < _SIZE_MIN:
            raise IndexError(f"a record has a size below {_SIZE_MIN >> 1}")
        at += 1 + (size >> 1)
        signs |= size
    if signs & 1:
        raise IndexError("a record has a negative size")
    if at != len(records):
        raise IndexError(f"they take {at} of {len(records)} bytes")


def boundaries(records: bytes, count: int, at: int, end: int) -> list[int]:
    """Return the positions at which the records begin, and the position after the last."""
    found = [at]
    note = found.append
    for _ in range(count):
        size = records[at]
        at += 1
        if size > 127:
            size = size & 127 | records[at] << 7
            at += 1
            if size > 0x3FFF:
                size, at = _long(records, at - 2)
        at += size >> 1
        note(at)
    _check_end(at, end)
    return found


def keys_of(records: bytes, count: int, at: int, end: int) -> list[bytes | None]:
    """Return the key of every record."""
    found: list[bytes | None] = []
    note = found.append
    for _ in range(count):
        size = records[at]
        at += 1
        if size > 127:
            size = size & 127 | records[at] << 7
            at += 1
            if size > 0x3FFF:
                size, at = _long(records, at - 2)
        following = at + (size >> 1)
        at += 1
        while records[at] > 127:  # timestamp
            at += 1
        at += 1
        while records[at] > 127:  # offset
            at += 1
        length = records[at + 1]
        at += 2
        if length > 127:
            length = length & 127 | records[at] << 7
            at += 1
            if length > 0x3FFF:
                length, at = _long(records, at - 2)
        note(None if length & 1 else records[at : at + (length >> 1)])
        at = following
    _check_end(at, end)
    return found


def offset_deltas(records: bytes, starts: Sequence[int]) -> list[int]:
    """Return the offset delta of each record that begins at one of `starts`."""
    deltas = []
    for at in starts:
        at = _skip(records, _skip(records, at) + 1)
        delta, _ = get_varint(records, at)
        deltas.append(delta)
    return deltas


def timestamp_delta(records: bytes, start: int) -> tuple[int, int]:
    """Return the timestamp delta of the record that begins at `start`, and the position after it."""
    return get_varint(records, _skip(records, start) + 1)


def time_and_value(records: bytes, start: int) -> tuple[int, bool]:
    """Return the timestamp delta of the record that begins at `start`, and False if it is a tombstone: without a value."""
    at = start
    while records[at] > 127:  # length
        at += 1
    delta, at = get_varint(records, at + 2)
    while records[at] > 127:  # offset
        at += 1
    length = records[at + 1]
    at += 2
    if length > 127:
        length, at = _long(records, at - 1)
    if not length & 1:
        at += length >> 1
    return delta, records[at] != _NOTHING


def _after_usual(records: bytes, at: int) -> int:
    """Return the position after the record that begins at `at` if its numbers have a usual size, it has no headers, and its parts
    fill it; 0 if it is another one, readable or not. IndexError if the records end before.
    """
    size = records[at]
    at += 1
    if size > 127:
        size = size & 127 | records[at] << 7
        at += 1
    end = at + (size >> 1)
    if size & 1 or size > _USUAL_MAX or end > len(records):
        return 0
    at += 1
    deltas_at = at
    while records[at] > 127:  # timestamp
        at += 1
    at += 1
    while records[at] > 127:  # offset
        at += 1
    if at - deltas_at >= _USUAL_DELTAS_BYTES:
        return 0
    length = records[at + 1]
    at += 2
    if length > 127:
        length = length & 127 | records[at] << 7
        at += 1
    if length != _NOTHING:
        at += length >> 1
        if length & 1 or at >= end:
            return 0
    length = records[at]
    at += 1
    if length > 127:
        length = length & 127 | records[at] << 7
        at += 1
    if length != _NOTHING:
        at += length >> 1
        if length & 1:
            return 0
    return end if at + 1 == end and not records[at] else 0


def _after_record(records: bytes, start: int) -> int:
    """Return the position after the record that begins at `start`, every part of which is checked. IndexError."""
    size, at = _number(records, start)
    end = at + size
    if size < 0 or end > len(records):
        raise IndexError(f"a record claims {size} bytes where {len(records) - at} are left in its batch")
    _, at = get_varint(records, at + 1)  # timestamp
    _, at = _number(records, at)  # offset
    at = _after_bytes(records, at)  # key
    at = _after_bytes(records, at)  # value
    headers, at = _number(records, at)
    if not 0 <= headers <= end - at:
        raise IndexError(f"a record of {size} bytes claims {headers} headers")
    for _ in range(headers):
        at = _after_bytes(records, at, may_be_null=False)
        at = _after_bytes(records, at)
    if at != end:
        raise IndexError(f"the parts of a record take {at - end + size} bytes, and the record claims {size}")
    return end


def _number(records: bytes, at: int) -> tuple[int, int]:
    """Return a number of 32 bits and the position after it. IndexError."""
    value, after = get_varint(records, at)
    if after - at > _INT_BYTES_MAX:
        raise IndexError(f"a number takes more than {_INT_BYTES_MAX} bytes")
    return value, after


def _after_bytes(records: bytes, at: int, *, may_be_null: bool = True) -> int:
    """Return the position after a length and so many bytes; length -1 stands for null. IndexError."""
    length, at = _number(records, at)
    if length < (-1 if may_be_null else 0):
        raise IndexError(f"a part of a record has length {length}")
    return at + max(length, 0)


def _skip(records: bytes, at: int) -> int:
    while records[at] > 127:
        at += 1
    return at + 1


def _long(records: bytes, at: int) -> tuple[int, int]:
    """Return a number of any size, still in zigzag, and the position after it."""
    value, at = get_varint(records, at)
    return (value << 1) ^ (value >> 63), at


def _check_end(at: int, end: int) -> None:
    if at != end:
        raise IndexError(f"they reach to position {at} instead of {end}")
