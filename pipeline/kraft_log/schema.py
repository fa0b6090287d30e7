"""Schemas of records as rows of fields, from which decoders are compiled.

The encoding is that of Kafka's generated code in its flexible form (KIP-482): numbers are big-endian; lengths of strings, bytes
and arrays are an unsigned varint of length + 1, with 0 for null; uuids are 16 bytes. Every struct ends with its tagged fields,
each with number and size, so that a reader can skip unknown ones.

Decoded values have the form of Kafka's own JSON: uuids as 22 characters of URL-safe base64, bytes as base64, numbers as numbers,
null as None. A tagged field with its default value is left out.
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
    """One field. `since` is the first record version with the field. A tagged field is left out at its `default`; an array
    without `nullable` is left out when it is empty.
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
    """One record type. Versions 0 to `latest` have the fields whose `since` is not above the version."""

    number: int
    name: str
    latest: int
    fields: tuple[Field, ...] = ()


def fields_of(fields: tuple[Field, ...], version: int) -> tuple[Field, ...]:
    """Return the fields of a version, in the order in which they are shown. On the wire, tagged fields follow all others."""
    return tuple(field for field in fields if field.since <= version)
