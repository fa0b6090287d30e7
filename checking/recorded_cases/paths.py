"""Paths into a recording, and patterns of them.

A path is a tuple of field names and list indexes, `("steps", 3, "response", "topics", 0, "name")`, written
`steps[3].response.topics[0].name`. In a pattern, `[*]` is any index, `*` any one name, `**` any number of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Value = Any
"""A value of a recording, as `json` reads it, or a message with its fields: of protobuf, or of kio."""
Part = str | int
Path = tuple[Part, ...]

ANY_DEPTH = "**"
ANY_NAME = "*"
ANY_INDEX = "[*]"
_PART = re.compile(r"\[(\d+|\*)\]|([^.\[\]]+)")


def write(path: Iterable[Part]) -> str:
    """Return a path as text: the inverse of `parse` for paths without wildcards."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part == ANY_INDEX:
            text += part
        else:
            text += f".{part}" if text else part
    return text


def parse(text: str) -> Path:
    """Return the parts of a path or a pattern. ValueError names an invalid text."""
    parts: list[Part] = []
    at = 0
    while at < len(text):
        if text[at] == "." and parts:
            at += 1
        found = _PART.match(text, at)
        if found is None:
            raise ValueError(f"{text!r} is not a path: nothing that begins at character {at} is a name or an index")
        index, name = found.groups()
        parts.append(ANY_INDEX if index == "*" else int(index) if index is not None else name)
        at = found.end()
    return tuple(parts)


def matches(pattern: Path, path: Path) -> bool:
    """Return whether the pattern matches this path."""
    if not pattern:
        return not path
    first, rest = pattern[0], pattern[1:]
    if first == ANY_DEPTH:
        return any(matches(rest, path[skipped:]) for skipped in range(len(path) + 1))
    return bool(path) and _is_one(first, path[0]) and matches(rest, path[1:])


def covers(pattern: Path, path: Path) -> bool:
    """Return whether the pattern matches this path or a prefix of it."""
    return any(matches(pattern, path[:length]) for length in range(len(path) + 1))


def _is_one(wanted: Part, part: Part) -> bool:
    if wanted == ANY_INDEX:
        return isinstance(part, int)
    if wanted == ANY_NAME:
        return isinstance(part, str)
    return wanted == part


def value_at(document: Value, path: Path) -> Value:
    """Return the value at a path. LookupError if there is none."""
    for part in path:
        if not isinstance(document, list if isinstance(part, int) else dict):
            raise LookupError(f"nothing stands at {write(path)}")
        document = document[part]  # type: ignore[index]
    return document
