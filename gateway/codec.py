"""Frames of the Kafka protocol: bytes of requests to Kafka's messages, and responses to bytes.

A request has an int32 length, then a header: API key, version, correlation id and client id; in flexible versions, tagged fields.
Bytes after the body are ignored: librdkafka writes three too many in Metadata.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from kraftlab.messages.catalog import API_VERSIONS, request_class
from kraftlab.messages.generated.request_header import RequestHeader
from kraftlab.messages.reading import ELEMENTS_MAX, MalformedMessage, TooManyElements, read
from kraftlab.messages.schema import Message
from kraftlab.messages.writing import write
from kraftlab.wire.parts import InMemory, Part, part_bytes

_PREFIX = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")


class MalformedRequest(ValueError):
    """The bytes are not a request of the Kafka protocol. The text gives the reason."""


class LargeRequest(MalformedRequest):
    """The request has more elements than the caller wanted to decode."""


class Header(NamedTuple):
    """The first eight bytes of every request."""

    key: int
    version: int
    correlation_id: int


class KafkaRequest(NamedTuple):
    """A decoded request: its header, the client's name for itself, the message, whose class the key gives, and its frame."""

    header: Header
    client_id: str
    body: Any
    frame: InMemory = b""
    is_large: bool = False
    """True for a request with so many elements that no step over all of them may hold the event loop."""


def peek(frame: InMemory) -> Header:
    """Return the first fields of a request, without its length. MalformedRequest if the frame is too short."""
    if len(frame) < _PREFIX.size:
        raise MalformedRequest(f"a request of {len(frame)} bytes is shorter than its header")
    return Header(*_PREFIX.unpack_from(frame))


def decode_request(frame: InMemory, elements_max: int = ELEMENTS_MAX) -> KafkaRequest:
    """Decode a request in a version that is served. MalformedRequest for bytes that do not fit its schema; LargeRequest for more
    than `elements_max` elements.
    """
    head = peek(frame)
    kind = request_class(head.key)
    if head.version < kind.OLDEST:  # Produce before version 3: clients look for version 0 among the offers
        raise MalformedRequest(f"API {head.key} version {head.version} is no longer served; use a newer version")
    try:
        header, at = read(RequestHeader, 2 if head.version >= kind.FLEXIBLE else 1, frame, 0, elements_max)
        body, _ = read(kind, head.version, frame, at, elements_max)
    except MalformedMessage as error:
        refusal = LargeRequest if isinstance(error, TooManyElements) else MalformedRequest
        raise refusal(f"{kind.__name__} version {head.version}: {error}") from error
    return KafkaRequest(head, header.client_id or "", body, frame)


def encode_response(head: Header, response: Message) -> list[Part]:
    """Encode a response as the frame of the answer to a request, with its length."""
    body = write(response, head.version)
    flexible = has_tags(type(response), head.version)
    size_bytes = 4 + flexible + part_bytes(body)
    return [_LENGTH.pack(size_bytes) + _LENGTH.pack(head.correlation_id) + bytes(flexible), *body]


def with_length(token: bytes) -> list[Part]:
    """Return bytes without a header as a frame."""
    return [_LENGTH.pack(len(token)), token]


def has_tags(response: type[Message], version: int) -> bool:
    """Return True if the header of a response has tagged fields. That of ApiVersions never has: a client reads it before it knows
    the broker's versions.
    """
    return version >= response.FLEXIBLE and response.KEY != API_VERSIONS
