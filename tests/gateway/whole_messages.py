"""Messages of every Kafka schema, written field by field from kio's classes, with the place of each number, count and length.

Each array has one element, each structure is there, and each tagged field is set: so every field of a schema has a place.
"""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema

from kraftlab.gateway.door import CONTROLLERS_OFFERS, OFFERS
from kraftlab.messages.writing import uvarint

FORMATS = {
    "bool": "b",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "error_code": "h",
    "int32": "i",
    "uint32": "I",
    "timedelta_i32": "i",
    "int64": "q",
    "uint64": "Q",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "float64": "d",
}
COUNTS = {"int16": -1, "int32": -1, "varint": 0}
"""Kind of a count or length → what null is."""
NULL = object()
"""Value of a string, bytes or an array."""
OLDEST = {0: 3}
"""Produce is offered from version 0, for clients that look for that, and served from version 3."""
UINT32_MAX, INT32_MAX, INT16_MAX = 2**32 - 1, 2**31 - 1, 2**15 - 1


class Place(NamedTuple):
    """The place of a number in a message. `kind`: the format of a number, or int16, int32 and varint for a count or length."""

    field: str
    at: int
    size: int
    kind: str


class Message:
    """The bytes of a message, which grow field by field, and the places in them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.data = bytearray()
        self.places: list[Place] = []
        self._values = values

    def structure(self, kind: Any, path: str) -> None:
        fields = [(field, field.metadata.get("tag", -1)) for field in dataclasses.fields(kind)]
        for field, tag in fields:
            if tag == -1:
                self.field(field, kind, path)
        if kind.__flexible__:
            tagged = sorted(((tag, field) for field, tag in fields if tag != -1), key=lambda pair: pair[0])
            self._count(len(tagged), "varint", f"{path}.tags")
            for tag, field in tagged:
                inside = Message(self._values)
                inside.field(field, kind, path)
                self.data += uvarint(tag)
                self._count(len(inside.data), "varint", f"{path}.{field.name}.size")
                start = len(self.data)
                self.places += [place._replace(at=place.at + start) for place in inside.places]
                self.data += inside.data

    def field(self, field: Any, kind: Any, path: str) -> None:
        options = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
        inner = next(option for option in options if option is not types.NoneType)
        is_array = typing.get_origin(inner) is tuple
        item: Any = typing.get_args(inner)[0] if is_array else inner
        is_compact = kind.__flexible__ and path != "header"
        path = f"{path}.{field.name}"
        if is_array and (given := self._values.get(path.partition(".")[2])) in ((), NULL):
            self._count(is_compact - (given is NULL), "varint" if is_compact else "int32", path)
            return
        if is_array:
            self._count(1 + is_compact, "varint" if is_compact else "int32", path)
        elif dataclasses.is_dataclass(item) and len(options) > 1 and "tag" not in field.metadata:
            self.data += b"\x01"
        if dataclasses.is_dataclass(item):
            self.structure(item, path)
        else:
            self._value(field, path, is_compact)

    def _value(self, field: Any, path: str, is_compact: bool) -> None:
        kafka_type = field.metadata["kafka_type"]
        value = self._values.get(path.partition(".")[2], self._values.get(field.name))
        if kafka_type in FORMATS:
            self.places.append(Place(path, len(self.data), struct.calcsize(FORMATS[kafka_type]), FORMATS[kafka_type]))
            self.data += struct.pack(">" + FORMATS[kafka_type], value or 0)
        elif kafka_type == "uuid":
            self.data += value or bytes(range(16))
        else:
            kind = "varint" if is_compact else "int16" if kafka_type == "string" else "int32"
            if value is NULL:
                self._count(COUNTS[kind], kind, path)
                return
            data = value.encode() if isinstance(value, str) else b"text" if value is None else value
            self._count(len(data) + is_compact, kind, path)
            self.data += data

    def _count(self, count: int, kind: str, path: str) -> None:
        data = uvarint(count) if kind == "varint" else struct.pack(">h" if kind == "int16" else ">i", count)
        self.places.append(Place(path, len(self.data), len(data), kind))
        self.data += data


def request(key: int, version: int, values: Mapping[str, Any] = types.MappingProxyType({})) -> Message:
    """Return a whole request, without its length. `values` by name or path ("topics.name"); () is an array without elements."""
    schema: Any = load_request_schema(key, version)
    message = Message({"request_api_key": key, "request_api_version": version, "correlation_id": 5, **values})
    message.structure(schema.__header_schema__, "header")
    message.structure(schema, schema.__name__)
    return message


def response(key: int, version: int) -> Message:
    """Return a whole response, without its length."""
    schema: Any = load_response_schema(key, version)
    message = Message({"correlation_id": 5})
    message.structure(schema.__header_schema__, "header")
    message.structure(schema, schema.__name__)
    return message


def replaced(data: bytes | bytearray, place: Place, new: bytes) -> bytes:
    return bytes(data[: place.at]) + new + bytes(data[place.at + place.size :])


def lies(message: Message, place: Place) -> Iterator[tuple[int, bytes]]:
    """Yield each impossible or surprising count or length for a place, and the message with it."""
    left = len(message.data) - place.at - place.size
    for count in (-1, 0, left + 1, INT32_MAX, UINT32_MAX):
        if place.kind == "varint":
            yield count, replaced(message.data, place, uvarint(min(count + 1, UINT32_MAX)))
        elif place.kind == "int16":
            yield count, replaced(message.data, place, struct.pack(">h", min(count, INT16_MAX)))
        elif count <= INT32_MAX:
            yield count, replaced(message.data, place, struct.pack(">i", count))


def ends(place: Place) -> list[int]:
    """Return the least and the greatest number of a place, and those that often mean something."""
    bits = 8 * place.size
    signed = place.kind.islower()
    least = -(1 << bits - 1) if signed else 0
    greatest = (1 << (bits - 1 if signed else bits)) - 1
    return [least, -1, 0, greatest] if signed else [0, greatest]


def offered(*, all_versions: bool) -> list[tuple[int, int]]:
    """Return (key, version) of the requests that are served: every version, or the oldest and the newest of each."""
    found = []
    for offer in (OFFERS | CONTROLLERS_OFFERS).values():
        oldest = max(offer.lowest, OLDEST.get(offer.key, 0))
        versions = range(oldest, offer.highest + 1) if all_versions else sorted({oldest, offer.highest})
        found += [(offer.key, version) for version in versions]
    return found
