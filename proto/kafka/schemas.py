"""Kafka's message schemas: messages, their structures, and the fields of each, from the JSON files in `message/`.

The types of fields are Kafka's. `FORMATS` has those of a fixed size; an upper-case first letter is a structure.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any, NamedTuple

MESSAGES = pathlib.Path(__file__).resolve().parent / "message"
FORMATS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?", "uuid": "16s", "no tags": "x"}
"""Kind → format in `struct`, of fields with a fixed size. "no tags" is an empty section of tagged fields."""


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read "3", "3-5", "3+" or "none"."""
        if text == "none":
            return NEVER
        lowest, _, highest = text.partition("-")
        if text.endswith("+"):
            return cls(int(text[:-1]), sys.maxsize)
        return cls(int(lowest), int(highest or lowest))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def overlap(self, other: Versions) -> bool:
        return self.lowest <= other.highest and other.lowest <= self.highest


NEVER = Versions(0, -1)


class Field(NamedTuple):
    """A field of a structure. `tag`: -1 if the field is not tagged."""

    attribute: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: object

    @property
    def is_structure(self) -> bool:
        return self.kind[0].isupper()

    @property
    def is_fixed(self) -> bool:
        return self.kind in FORMATS and not self.is_array

    @property
    def is_tagged(self) -> bool:
        return self.tagged.highest >= 0

    @property
    def is_nullable(self) -> bool:
        return self.nullable.highest >= 0 or self.kind == "records"


class Structure(NamedTuple):
    """A structure of a message, after the structures within it. `parent`: the field that holds it, None for the message."""

    name: str
    fields: tuple[Field, ...]
    parent: Field | None

    @property
    def is_repeated(self) -> bool:
        return self.parent is not None and self.parent.is_array


class Message(NamedTuple):
    """A schema. `structures`: the message itself is the last one."""

    name: str
    key: int
    versions: Versions
    flexible: Versions
    structures: tuple[Structure, ...]

    @property
    def with_records(self) -> set[str]:
        """Names of the structures that hold record batches, at any depth."""
        found: set[str] = set()
        for structure in self.structures:
            if any(field.kind == "records" or field.kind in found for field in structure.fields):
                found.add(structure.name)
        return found


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def read(name: str) -> Message:
    """Read a schema: JSON with comments, which have lines of their own."""
    text = (MESSAGES / f"{name}.json").read_text()
    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    common = {each["name"]: each for each in schema.get("commonStructs", ())}
    structures: list[Structure] = []

    def add(name: str, fields: list[dict[str, Any]], parent: Field | None) -> None:
        found = tuple(_field(each) for each in fields)
        for field, each in zip(found, fields, strict=True):
            if field.is_structure:
                add(field.kind, each.get("fields") or common[field.kind]["fields"], field)
        structures.append(Structure(name, found, parent))

    add(name, schema["fields"], None)
    versions, flexible = Versions.parse(schema["validVersions"]), Versions.parse(schema["flexibleVersions"])
    return Message(name, schema["apiKey"], versions, flexible, tuple(structures))


def _field(schema: dict[str, Any]) -> Field:
    def versions(name: str) -> Versions:
        return Versions.parse(schema.get(name, "none"))

    is_array, kind = schema["type"].startswith("[]"), schema["type"].removeprefix("[]")
    if is_array and kind != "int32" and not kind[0].isupper():
        sys.exit(f"field {schema['name']}: arrays of {kind} are not supported; extend proto/kafka/generate.py")
    return Field(
        snake_case(schema["name"]),
        kind,
        is_array,
        versions("versions"),
        versions("nullableVersions"),
        versions("taggedVersions"),
        schema.get("tag", -1),
        schema.get("default"),
    )
