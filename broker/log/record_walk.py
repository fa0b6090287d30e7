"""Fast walks over the records of one batch, decompressed: their boundaries, keys and offsets, without decoding them. The records
may lie anywhere in a buffer, so that a batch need not be copied out of the file's bytes: they begin at `at` and end at `end`.

A record is its length, attributes (one byte), timestamp delta, offset delta, key length, key, value length, value, and headers;
all numbers are zigzag varints. Compaction reads every record of a topic, so the walks here are written out: most numbers take one
or two bytes, and a call for each would cost more than all the rest. `records_of` is the readable twin, which the tests compare.

IndexError: the records end before the last one does. The caller knows which batch that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .codecs import decompress
from .record_batch import CODEC_MASK, HEADER_BYTES, BatchHeader, get_varint

_NOTHING = 1
"""Length -1."""


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
