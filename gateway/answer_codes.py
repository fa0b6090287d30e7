"""Error codes in answers of the Kafka protocol, for metrics.

Each class of answers has a reader, made at its first use: one that visits only the structures that can hold a code. An entry that
is bytes already, kept from an answer before, counts for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from kraftlab.messages.catalog import response_class
from kraftlab.messages.schema import Message, Structure
from kraftlab.wire.parts import InMemory

from .client_codec import MalformedResponse, decode_response
from .codec import Header

DEPTH_MAX = 4
"""Structures within structures; no answer has codes further down."""
_LENGTH_BYTES = 4

Read = Callable[[Structure, list[int]], None]


def codes_in(answer: Message) -> list[int]:
    """Return every `error_code` of an answer, NONE too."""
    codes: list[int] = []
    read = _reader(type(answer))
    if read is not None:
        read(answer, codes)
    return codes


def codes_in_frame(head: Header, frame: InMemory) -> list[int]:
    """As `codes_in`, for the frame that answers a request. [] if it cannot be read."""
    try:
        return codes_in(decode_response(bytes(frame[_LENGTH_BYTES:]), response_class(head.key), head.version))
    except MalformedResponse:
        return []


@functools.cache
def _reader(kind: type[Structure], depth: int = DEPTH_MAX) -> Read | None:
    """Return a function that adds the codes of a structure to a list; None if the structure cannot have one."""
    has_code = any(field.name == "error_code" for field in kind.FIELDS)
    inner: list[tuple[str, bool, Read]] = []
    for field in kind.FIELDS if depth else ():
        read_inner = _reader(field.kind, depth - 1) if isinstance(field.kind, type) else None
        if read_inner is not None:
            inner.append((field.name, field.is_array, read_inner))
    if not has_code and not inner:
        return None

    def read(value: Structure, codes: list[int]) -> None:
        if has_code:
            codes.append(value.error_code)  # type: ignore[attr-defined]  # FIELDS has it
        for name, is_array, read_inner in inner:
            below = getattr(value, name)
            if is_array:
                for each in below or ():
                    if isinstance(each, Structure):
                        read_inner(each, codes)
            elif below is not None:
                read_inner(below, codes)

    return read
