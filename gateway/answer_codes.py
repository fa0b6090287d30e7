"""Error codes in answers of the Kafka protocol, for metrics.

Each class of answers has a reader, made at its first use: one that visits only the structures that can hold a code. An entry that
is bytes already, kept from an answer before, counts for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kraftlab.messages.catalog import response_class
from kraftlab.messages.schema import Message, Structure
from kraftlab.wire.parts import InMemory

from .client_codec import MalformedResponse, decode_response
from .codec import Header

LEVELS_MAX = 9
"""Four structures within one another, two levels of indentation each; no answer has codes further down."""
_LENGTH_BYTES = 4

Read = Callable[[Message, list[int]], None]


def codes_in(answer: Message) -> list[int]:
    """Return every `error_code` of an answer, NONE too."""
    codes: list[int] = []
    _reader(type(answer))(answer, codes)
    return codes


def codes_in_frame(head: Header, frame: InMemory) -> list[int]:
    """As `codes_in`, for the frame that answers a request. [] if it cannot be read."""
    try:
        return codes_in(decode_response(bytes(frame[_LENGTH_BYTES:]), response_class(head.key), head.version))
    except MalformedResponse:
        return []


@functools.cache
def _reader(kind: type[Message]) -> Read:
    """Return a function that adds the codes of an answer to a list: one function for all levels, as calls would take longer."""
    body = _steps(kind, "answer", 1) or ["    pass"]
    scope: dict[str, Any] = {"Structure": Structure}
    exec("\n".join(["def read(answer, codes):", *body]), scope)  # the text is made of Kafka's schemas alone
    read: Read = scope["read"]
    return read


def _steps(kind: type[Structure], value: str, level: int) -> list[str]:
    """Return the lines that visit a structure, named `value`; none if it cannot have a code."""
    indent = " " * 4 * level
    lines = [f"{indent}codes.append({value}.error_code)"] if any(field.name == "error_code" for field in kind.FIELDS) else []
    for field in kind.FIELDS if level < LEVELS_MAX else ():
        inner = f"value_{level}"
        steps = _steps(field.kind, inner, level + 2) if isinstance(field.kind, type) else []
        if steps:
            entries = f"{value}.{field.name} or ()" if field.is_array else f"({value}.{field.name},)"
            lines += [f"{indent}for {inner} in {entries}:", f"{indent}    if isinstance({inner}, Structure):", *steps]
    return lines
