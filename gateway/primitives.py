"""Kafka's primitive types: bytes of one value, and a reader that takes values from bytes.

Theory of operation. Generated encoders append to one bytearray per message. Values of a fixed size are packed by the encoders
themselves; this module has the rest. "Compact" is the form of flexible versions (KIP-482): the length is an unsigned varint, one
more than the number of bytes or elements, and 0 is null. Record batches are never copied: `cuts` holds the position at which a
batch belongs into the bytearray, and `in_parts` puts both together.

The reader checks every length against the bytes that are left, so that malformed bytes are a ValueError, and memory is bounded by
the bytes that are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from kraftlab.wire.parts import InMemory, Part

NO_ID = bytes(16)
"""The absent uuid."""
_KEPT_LISTS_MAX = 20_000
_VARINT_BYTES_MAX = 5
_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "bhiq")
_ONE_BYTE = tuple(bytes([value]) for value in range(0x80))


# --- bytes of values ------------------------------------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    """Return an unsigned varint: seven bits a byte, the lowest first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def string(text: str | None) -> bytes:
    """Return a string or null, with an int16 length."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _INT16.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    """Return a compact string or null."""
    if text is None:
        return b"\x00"
    data = text.encode()
    return uvarint(len(data) + 1) + data


def byte_string(data: bytes) -> bytes:
    """Return bytes with an int32 length."""
    return _INT32.pack(len(data)) + data


def compact_byte_string(data: bytes) -> bytes:
    """Return compact bytes."""
    return uvarint(len(data) + 1) + data


def array_length(values: Sequence[object] | None) -> bytes:
    """Return the int32 length of an array or null."""
    return b"\xff\xff\xff\xff" if values is None else _INT32.pack(len(values))


def compact_array_length(values: Sequence[object] | None) -> bytes:
    """Return the length of a compact array or null."""
    return b"\x00" if values is None else uvarint(len(values) + 1)


class _Int32Lists(dict[tuple[int, ...] | None, bytes]):
    """Array of int32, or null → its bytes. They are kept, because lists of replicas repeat."""

    def __init__(self, length: Callable[[tuple[int, ...] | None], bytes]) -> None:
        super().__init__()
        self._length = length

    def __missing__(self, values: tuple[int, ...] | None) -> bytes:
        if len(self) >= _KEPT_LISTS_MAX:
            self.clear()
        encoded = self[values] = self._length(values) + struct.pack(f">{len(values or ())}i", *(values or ()))
        return encoded


INT32_LISTS = _Int32Lists(array_length)
COMPACT_INT32_LISTS = _Int32Lists(compact_array_length)


def tag_section(fields: Sequence[tuple[int, bytes | bytearray]]) -> bytes:
    """Return the tagged fields of a structure, in the order of their tags."""
    if not fields:
        return b"\x00"
    found = bytearray(uvarint(len(fields)))
    for tag, data in fields:
        found += uvarint(tag) + uvarint(len(data)) + data
    return bytes(found)


# --- record batches in a message ------------------------------------------------------------------------------------------


Cut = tuple[int, Part]
"""A position in the bytes of a message, and the part that belongs there."""


def add_records(out: bytearray, records: Part | None, cuts: list[Cut]) -> None:
    """Add record batches or null, with an int32 length."""
    out += _INT32.pack(_size(records))
    if records is not None and _size(records):
        cuts.append((len(out), records))


def add_compact_records(out: bytearray, records: Part | None, cuts: list[Cut]) -> None:
    """Add compact record batches or null."""
    out += uvarint(_size(records) + 1)
    if records is not None and _size(records):
        cuts.append((len(out), records))


def _size(records: Part | None) -> int:
    """Return the number of bytes; -1 is null."""
    if records is None:
        return -1
    return len(records) if isinstance(records, InMemory) else records.size_bytes


def in_parts(out: bytearray, cuts: Sequence[Cut]) -> list[Part]:
    """Return a message as parts: its bytes, without copies, with each cut's part at its position."""
    if not cuts:
        return [out]
    parts: list[Part] = []
    view, start = memoryview(out), 0
    for position, part in cuts:
        parts += [view[start:position], part]
        start = position
    if start < len(out):
        parts.append(view[start:])
    return parts


# --- values from bytes ----------------------------------------------------------------------------------------------------


class Reader:
    """Takes values from bytes, one after another. Every method raises ValueError for malformed bytes."""

    def __init__(self, data: InMemory, name: str, at: int = 0) -> None:
        """`name`: of the value, for the texts of errors."""
        self._data = data
        self._name = name
        self.at = at

    @property
    def left(self) -> int:
        """Number of bytes that are not read yet."""
        return len(self._data) - self.at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if not 0 <= size <= self.left:
            raise self._malformed(f"a field of {size} bytes at byte {self.at}, where {self.left} bytes are left")
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def since(self, start: int) -> bytes:
        """Return the bytes from `start` to here."""
        return bytes(self._data[start : self.at])

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> bytes:
        return self.take(16)

    def _number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack(self.take(kind.size))[0]
        return value

    def uvarint(self) -> int:
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise self._malformed(f"a varint of more than {_VARINT_BYTES_MAX} bytes before byte {self.at}")

    def string(self) -> str:
        return self._present(self.nullable_string())

    def compact_string(self) -> str:
        return self._present(self.compact_nullable_string())

    def nullable_string(self) -> str | None:
        return self._text(self.int16())

    def compact_nullable_string(self) -> str | None:
        return self._text(self.uvarint() - 1)

    def byte_string(self) -> bytes:
        return self.take(self.int32())

    def compact_byte_string(self) -> bytes:
        return self.take(self.uvarint() - 1)

    def array_length(self) -> int:
        return self._length(self.int32())

    def compact_array_length(self) -> int:
        return self._length(self.uvarint() - 1)

    def _length(self, length: int) -> int:
        if not 0 <= length <= self.left:
            raise self._malformed(f"an array of {length} elements at byte {self.at}, where {self.left} bytes are left")
        return length

    def tagged_fields(self) -> Iterator[tuple[int, Reader]]:
        """Yield each tag of the tagged fields that follow, with a reader of its bytes."""
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            yield tag, Reader(self.take(self.uvarint()), f"{self._name}, tagged field {tag}")

    def skip_tagged_fields(self) -> None:
        for _ in self.tagged_fields():
            pass

    def version(self, highest: int) -> int:
        """Return the version in front of a record, from 0 to `highest`."""
        version = self.int16()
        if not 0 <= version <= highest:
            raise ValueError(f"{self._name} has version {version}, expected 0 to {highest}; run the software that wrote it")
        return version

    def expect_end(self) -> None:
        if self.left:
            raise self._malformed(f"{self.left} bytes after the last field, at byte {self.at}")

    def _text(self, size: int) -> str | None:
        if size == -1:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise self._malformed(f"text before byte {self.at} is not UTF-8 ({error.reason})") from error

    def _present(self, value: str | None) -> str:
        if value is None:
            raise self._malformed(f"null before byte {self.at}, where a string was expected")
        return value

    def _malformed(self, reason: str) -> ValueError:
        return ValueError(f"malformed {self._name}: {reason}")
