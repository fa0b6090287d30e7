"""Elements of a protobuf message, counted before protobuf makes them.

Theory of operation. An empty entry takes two bytes of a message and more than sixty of memory, and protobuf decodes a message in
one go, during which no other thread runs. So one walk over a large message comes first. Each string, each nested message and each
8 bytes of packed numbers are an element. Protobuf itself refuses bytes that do not parse.
"""

from __future__ import annotations

import functools
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

ELEMENTS_MAX = 2_000_000
"""Elements of one message. A reassignment of 200,000 partitions has about 600,000."""
SMALL_BYTES = 256 * 1024
"""A message of this size is not counted."""
_VARINT, _EIGHT_BYTES, _WITH_LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_NUMBER_BYTES = 8
_VARINT_BITS_MAX = 70
_NOT_PACKED = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)


def has_too_many_elements(kind: type[Message], data: bytes) -> bool:
    if len(data) <= SMALL_BYTES:
        return False
    try:
        return _elements_left(cast(Descriptor, kind.DESCRIPTOR), data, 0, len(data), ELEMENTS_MAX) < 0
    except IndexError:  # a message that ends too early
        return False


def _elements_left(kind: Descriptor, data: bytes, at: int, end: int, left: int) -> int:
    """Return what the elements from `at` to `end` leave of `left`; some negative number if they are more."""
    nested, packed = _fields(kind)
    while at < end and left >= 0:
        key, at = _varint(data, at)
        wire_type = key & 7
        if wire_type == _WITH_LENGTH:
            size, at = _varint(data, at)
            number, stop, left = key >> 3, at + size, left - 1
            if stop > end:
                return left
            if number in nested:
                left = _elements_left(nested[number], data, at, stop, left)
            elif number in packed:
                left -= size // _NUMBER_BYTES
            at = stop
        elif wire_type == _VARINT:
            _, at = _varint(data, at)
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if wire_type == _EIGHT_BYTES else 4
    return left


@functools.cache
def _fields(kind: Descriptor) -> tuple[dict[int, Descriptor], frozenset[int]]:
    """Return the message's fields that are messages, and those that are lists of numbers."""
    nested = {field.number: field.message_type for field in kind.fields if field.message_type is not None}
    numbers = (field.number for field in kind.fields if field.is_repeated and field.cpp_type not in _NOT_PACKED)
    return nested, frozenset(numbers)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    shift = 7
    while shift < _VARINT_BITS_MAX:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise IndexError("a varint that is too long")
