"""How the schema of a record is written down: rows of fields, from which decoders are compiled.

The encoding is Kafka's generated one in its flexible form (KIP-482): numbers big-endian; lengths of strings, bytes and arrays as
unsigned varint of length + 1, 0 meaning null; uuids as 16 bytes; every struct ends with its tagged fields, each with number and
size, so that a reader skips those that it does not know.

What a decoder makes of a value is what Kafka's own JSON shows: uuids as 22 characters of URL-safe base64, bytes as base64,
numbers as numbers, null as None; a tagged field that holds its default is left out.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.Enum):
    """Kinds of values. Those with a `struct` format have a fixed width."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    STRUCT = "struct"


FIXED_KINDS = frozenset(Kind) - {Kind.STRING, Kind.BYTES, Kind.STRUCT}


class Field(NamedTuple):
    """One field. `since` is the first record version that has it. `default` says at which value a tagged field is left out; an
    array without `nullable` is left out when it is empty.
    """

    name: str
    kind: Kind
    since: int = 0
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    default: int | None = None
    fields: tuple[Field, ...] = ()


class Schema(NamedTuple):
    """One record type: versions 0 to `latest` have the fields whose `since` is not above the version."""

    number: int
    name: str
    latest: int
    fields: tuple[Field, ...] = ()


def fields_of(fields: tuple[Field, ...], version: int) -> tuple[Field, ...]:
    """The fields of a version, in the order in which they are shown; tagged ones stand on the wire after all others."""
    return tuple(field for field in fields if field.since <= version)
