"""Value classes of Kafka's messages, and the rows of their fields.

A value has the fields of all versions. A field that a version lacks has its default after reading, and is left out in writing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import msgspec

EVER = 1 << 15
"""Above every version."""
NO_ID = bytes(16)
"""The absent uuid."""
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kind → format in `struct`, of values with a fixed size. Other kinds are string, bytes, records, and value classes."""


class Field(NamedTuple):
    """A field of a structure in the versions `since` to `until`. `null_since`: first version in which the field can be null.
    `tag`: -1 if the field is not tagged. `is_compact`: its length is a varint in flexible versions.
    """

    name: str
    kind: str | type[Structure]
    is_array: bool = False
    since: int = 0
    until: int = EVER
    null_since: int = EVER
    tag: int = -1
    is_compact: bool = True

    @property
    def is_fixed(self) -> bool:
        """True if the field always has the same number of bytes."""
        return self.kind in FORMATS and not self.is_array

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until


class Structure(msgspec.Struct, frozen=True, gc=False):
    """A structure of a message."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()


class Message(Structure, frozen=True, gc=False):
    """A whole message. `KEY`: of the API or record type, -1 if there is none. Versions from `FLEXIBLE` on have tagged fields."""

    KEY: ClassVar[int] = -1
    OLDEST: ClassVar[int] = 0
    NEWEST: ClassVar[int] = 0
    FLEXIBLE: ClassVar[int] = EVER


def fields_of(kind: type[Structure], version: int) -> tuple[Sequence[Field], Sequence[Field]]:
    """Return the fields of a version in the order of their bytes: plain ones, and tagged ones."""
    fields = [field for field in kind.FIELDS if field.is_in(version)]
    tagged = sorted((field for field in fields if field.tag >= 0), key=lambda field: field.tag)
    return [field for field in fields if field.tag < 0], tagged


@functools.cache
def defaults(kind: type[Structure]) -> dict[str, object]:
    """Return the value that each field has in versions without it."""
    return {field.name: getattr(kind(), field.name) for field in kind.FIELDS}
