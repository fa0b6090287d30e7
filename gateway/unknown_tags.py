"""Tagged fields that kio does not know, left out.

Theory of operation. Clients newer than kio may add tagged fields to any structure of a request (KIP-482), and servers skip tags
that they do not know. kio refuses such a request as a whole. Then this module copies the bytes, structure by structure, along the
fields of kio's classes, without the unknown tags, and kio reads the copy. Requests without unknown tags are read once, by kio
alone. Values are not looked into: kio judges them.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, NamedTuple, TypeVar

from kio.serial import entity_reader
from kio.static.protocol import Entity

from kraftlab.wire.parts import InMemory

from .primitives import Reader, tag_section

E = TypeVar("E", bound=Entity)
_UNKNOWN_TAG = "Unknown tagged field tag"
ELEMENTS_MAX = 10_000
"""Copying so many elements takes about 20 ms."""
_KINDS = {
    1: ("bool", "int8", "uint8"),
    2: ("int16", "uint16", "error_code"),
    4: ("int32", "uint32", "timedelta_i32"),
    8: ("int64", "uint64", "float64", "timedelta_i64", "datetime_i64"),
    16: ("uuid",),
}
_SIZES = {kind: size for size, kinds in _KINDS.items() for kind in kinds}
"""Kafka type → number of bytes. The other types have a length in front."""


class _Field(NamedTuple):
    """A field of a kio class. `nested`: class of the structures in the field; `tag`: -1 if the field is not tagged."""

    kafka_type: str
    is_array: bool
    is_nullable: bool
    nested: type[Entity] | None
    tag: int
    is_compact: bool


def read_entity(schema: type[E], frame: InMemory, at: int) -> tuple[E, int]:
    """Return the entity at byte `at` of a frame, and its number of bytes there. Errors are those of kio, and ValueError."""
    read = entity_reader(schema)
    try:
        return read(frame, at)
    except KeyError as error:
        if not str(error.args[0]).startswith(_UNKNOWN_TAG):
            raise
    reader = Reader(frame, schema.__name__, at)
    entity, _ = read(_Copy().structure(schema, reader), 0)
    return entity, reader.at - at


def strip_unknown_tags(schema: type[Entity], frame: InMemory, at: int) -> bytes:
    """Return the bytes of the entity at byte `at` of a frame, without unknown tagged fields. ValueError for malformed bytes, and
    for more than ELEMENTS_MAX elements of arrays.
    """
    return _Copy().structure(schema, Reader(frame, schema.__name__, at))


class _Copy:
    """Copies structures; bounded, because it runs on the event loop."""

    def __init__(self) -> None:
        self._elements_left = ELEMENTS_MAX

    def structure(self, kind: type[Entity], reader: Reader) -> bytes:
        fields = _fields(kind)
        out = bytearray()
        for field in fields:
            if field.tag == -1:
                out += self._value(field, reader)
        if kind.__flexible__:
            known = {field.tag: field for field in fields if field.tag != -1}
            tags = [(tag, self._value(known[tag], data)) for tag, data in reader.tagged_fields() if tag in known]
            out += tag_section(tags)
        return bytes(out)

    def _value(self, field: _Field, reader: Reader) -> bytes:
        start = reader.at
        count = 1
        if field.is_array:
            count = _length(field, reader, is_wide=True)
            self._elements_left -= max(0, count)
            if self._elements_left < 0:
                raise ValueError(f"an unknown tagged field in a request with more than {ELEMENTS_MAX} elements")
        elif field.nested is not None and field.is_nullable and reader.int8() < 0:
            count = 0
        if field.nested is None:
            for _ in range(count):
                reader.take(_SIZES.get(field.kafka_type) or max(0, _length(field, reader, field.kafka_type != "string")))
            return reader.since(start)
        return reader.since(start) + b"".join([self.structure(field.nested, reader) for _ in range(count)])


def _length(field: _Field, reader: Reader, is_wide: bool) -> int:
    """Return the length of an array, bytes or a string; -1 is null."""
    if field.is_compact:
        return reader.uvarint() - 1
    return reader.int32() if is_wide else reader.int16()


@functools.cache
def _fields(kind: type[Entity]) -> tuple[_Field, ...]:
    found = []
    for field in dataclasses.fields(kind):
        options = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
        inner = next(option for option in options if option is not types.NoneType)
        is_array = typing.get_origin(inner) is tuple
        item = typing.get_args(inner)[0] if is_array else inner
        tag = field.metadata.get("tag", -1)
        # The client id is never compact (KIP-482).
        is_compact = kind.__flexible__ and not (kind.__name__ == "RequestHeader" and field.name == "client_id")
        nested: Any = item if dataclasses.is_dataclass(item) else None
        is_nullable = len(options) > 1 and tag == -1  # A tagged field is null by its absence.
        found.append(_Field(field.metadata.get("kafka_type", ""), is_array, is_nullable, nested, tag, is_compact))
    return tuple(found)
