"""Kafka's message schemas: messages, their structures, and the fields of each, from the JSON files in `message/`.

The types of fields are Kafka's. A type that starts with an upper-case letter is a structure.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any, NamedTuple

MESSAGES = pathlib.Path(__file__).resolve().parent / "message"


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


NEVER = Versions(0, -1)


class Field(NamedTuple):
    """A field of a structure. `tag`: -1 if the field is not tagged. `default`: None if the schema gives none."""

    attribute: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    is_compact: bool
    default: Any

    @property
    def is_structure(self) -> bool:
        return self.kind[0].isupper()

    @property
    def is_nullable(self) -> bool:
        return self.nullable != NEVER


class Structure(NamedTuple):
    """A structure of a message, after the structures within it. `parent`: the field that holds it, None for the message."""

    name: str
    fields: tuple[Field, ...]
    parent: Field | None


class Message(NamedTuple):
    """A schema. `structures`: the message itself is the last one. `kind`: request, response, metadata or another one."""

    name: str
    kind: str
    key: int
    versions: Versions
    flexible: Versions
    structures: tuple[Structure, ...]


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def read(name: str) -> Message:
    """Read a schema: JSON with comments, which have lines of their own."""
    text = (MESSAGES / f"{name}.json").read_text()
    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    common = {each["name"]: each for each in schema.get("commonStructs", ())}
    structures: dict[str, Structure] = {}

    def add(name: str, fields: list[dict[str, Any]], parent: Field | None) -> None:
        found = tuple(_field(each) for each in fields)
        for field, each in zip(found, fields, strict=True):
            if field.is_structure:
                add(field.kind, each.get("fields") or common[field.kind]["fields"], field)
        if structures.setdefault(name, Structure(name, found, parent)).fields != found:
            sys.exit(f"{schema['name']} has two structures {name}")

    add(schema["name"], schema["fields"], None)
    versions, flexible = Versions.parse(schema["validVersions"]), Versions.parse(schema["flexibleVersions"])
    return Message(schema["name"], schema["type"], schema.get("apiKey", -1), versions, flexible, tuple(structures.values()))


def _field(schema: dict[str, Any]) -> Field:
    versions = Versions.parse(schema["versions"])
    if schema.get("taggedVersions", schema["versions"]) != schema["versions"]:
        sys.exit(f"field {schema['name']} is tagged in some versions only; extend messages/schema.py")
    return Field(
        snake_case(schema["name"]),
        schema["type"].removeprefix("[]"),
        schema["type"].startswith("[]"),
        versions,
        Versions.parse(schema.get("nullableVersions", "none")),
        schema.get("tag", -1),
        schema.get("flexibleVersions") != "none",
        schema.get("default"),
    )
