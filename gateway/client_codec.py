"""The client's side of `codec.py`: requests to bytes, and bytes to responses."""

from __future__ import annotations

import struct
from typing import TypeVar

from kraftlab.messages.generated.request_header import RequestHeader
from kraftlab.messages.generated.response_header import ResponseHeader
from kraftlab.messages.reading import MalformedMessage, read
from kraftlab.messages.schema import Message
from kraftlab.messages.writing import write
from kraftlab.wire.parts import Part, part_bytes

from .codec import has_tags

_LENGTH = struct.Struct(">i")
Answer = TypeVar("Answer", bound=Message)
RESPONSE_ELEMENTS_MAX = 8_000_000
"""Elements of all arrays of a response, and its tagged fields."""


class MalformedResponse(ValueError):
    """The bytes are not the response of the Kafka protocol that was expected. The text gives the reason."""


def encode_request(correlation_id: int, client_id: str, request: Message, version: int) -> bytes:
    """Encode a request as a frame with its length. Unwritable for a value that does not fit its field."""
    header = RequestHeader(request.KEY, version, correlation_id, client_id)
    parts: list[Part] = [*write(header, 2 if version >= request.FLEXIBLE else 1), *write(request, version)]
    return b"".join([_LENGTH.pack(part_bytes(parts)), *parts])  # type: ignore[list-item]  # a client has its records in memory


def decode_response(frame: bytes, kind: type[Answer], version: int) -> Answer:
    """Decode a response of class `kind`, without its length. Tagged fields of newer brokers are left out.

    MalformedResponse for bytes that do not fit.
    """
    try:
        _, at = read(ResponseHeader, int(has_tags(kind, version)), frame)
        return read(kind, version, frame, at, RESPONSE_ELEMENTS_MAX)[0]
    except MalformedMessage as error:
        raise MalformedResponse(f"{kind.__name__} version {version}: {error}") from error
