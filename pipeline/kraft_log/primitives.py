"""Building blocks of compiled decoders: varints, texts, and the checks that name a fault."""

from __future__ import annotations

import binascii
import math
import struct
from functools import lru_cache

from .errors import UndecodableRecord

UUID_BYTES = 16
_VARINT_BITS_MAX = 35
_VARLONG_BITS_MAX = 70
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


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


@lru_cache(maxsize=1 << 16)
def uuid_text(raw: bytes) -> str:
    """Return a uuid's 16 bytes as Kafka prints them: URL-safe base64 without padding."""
    return binascii.b2a_base64(raw)[:22].translate(_URL_SAFE).decode()


def bytes_text(raw: bytes) -> str:
    """Return bytes as base64."""
    return binascii.b2a_base64(raw, newline=False).decode()


def json_float(value: float) -> float | str:
    """Return a float, or a word if JSON has no number for it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


class _Int32Structs(dict[int, struct.Struct]):
    """Readers of N int32 at once. Short lists, the only ones in clusters, are compiled once."""

    def __missing__(self, count: int) -> struct.Struct:
        plan = struct.Struct(f">{count}i")
        if count < 64:
            self[count] = plan
        return plan


INT32_LISTS = _Int32Structs()


def cut_short(name: str) -> UndecodableRecord:
    return UndecodableRecord(f"the record ends within {name}")


def null_refused(name: str) -> UndecodableRecord:
    return UndecodableRecord(f"{name} is null, which it must not be")


def wrong_tag_size(tag: int, size: int, read: int) -> UndecodableRecord:
    return UndecodableRecord(f"tagged field {tag} has a size of {size} bytes, but its value has {read}")
