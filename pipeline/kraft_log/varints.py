"""Varints of record batches."""

from __future__ import annotations

from .errors import UndecodableRecord

_VARINT_BITS_MAX = 35
_VARLONG_BITS_MAX = 70


def unsigned_varint(data: bytes, position: int, bits_max: int = _VARINT_BITS_MAX) -> tuple[int, int]:
    """Return (value, position after it). UndecodableRecord if it is too long, IndexError if the data end."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift >= bits_max:
            raise UndecodableRecord(f"a varint is longer than {bits_max // 7} bytes")


def signed_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Return (zigzag value, position after it), up to 64 bits."""
    value, position = unsigned_varint(data, position, _VARLONG_BITS_MAX)
    return (value >> 1) ^ -(value & 1), position
