"""Bytes of the Kafka protocol to request entities of kio, and response entities to bytes.

A request has an int32 length, then a header: API key, version, correlation id and client id; in flexible versions, tagged fields.
The client id is never compact (KIP-482). Bytes after the body are ignored: librdkafka writes three too many in Metadata.
"""

from __future__ import annotations

import functools
import io
import struct
from typing import Any, NamedTuple

import msgspec
from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.serial import entity_writer
from kio.static.protocol import ResponsePayload

from kraftlab.wire.parts import InMemory, Part, part_bytes

from .frame_check import REQUEST_ELEMENTS_MAX, TooManyElements, read_entity
from .generated import ENCODERS

_PREFIX = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")
API_VERSIONS = 18


Entity = Any
"""A request, response or part of one, of kio. Its class, and so its fields, depend on the version."""


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
    """A decoded request: its header, the client's name for itself, and kio's entity."""

    header: Header
    client_id: str
    body: Entity
    is_large: bool = False
    """True for a request with so many elements that no step over all of them may hold the event loop."""


def peek(frame: InMemory) -> Header:
    """Return the first fields of a request, without its length. MalformedRequest if the frame is too short."""
    if len(frame) < _PREFIX.size:
        raise MalformedRequest(f"a request of {len(frame)} bytes is shorter than its header")
    return Header(*_PREFIX.unpack_from(frame))


def decode_request(frame: InMemory, elements_max: int = REQUEST_ELEMENTS_MAX) -> KafkaRequest:
    """Decode a request in a version that is served. MalformedRequest for bytes that do not fit its schema; LargeRequest for more
    than `elements_max` elements.
    """
    head = peek(frame)
    try:
        schema: Any = _request_schema(head.key, head.version)
    except UnknownEntity as error:  # Produce before version 3: clients look for version 0 among the offers
        raise MalformedRequest(f"API {head.key} version {head.version} is no longer served; use a newer version") from error
    try:
        header, size = read_entity(schema.__header_schema__, frame, 0, elements_max)
        body, _ = read_entity(schema, frame, size, elements_max)
    except Exception as error:  # kio raises errors of several kinds for bytes that do not fit
        refusal = LargeRequest if isinstance(error, TooManyElements) else MalformedRequest
        raise refusal(f"{schema.__name__} version {head.version}: {type(error).__name__}: {error}") from error
    return KafkaRequest(head, header.client_id or "", body)


_request_schema = functools.cache(load_request_schema)


@functools.cache
def response_schema(key: int, version: int) -> type[ResponsePayload]:
    """Return the class of a response, whose fields are those of that version."""
    return load_response_schema(key, version)


def encode_entity(correlation_id: int, response: ResponsePayload) -> list[Part]:
    """Encode a response entity as a frame with its length."""
    buffer = io.BytesIO()
    header: Any = type(response).__header_schema__
    entity_writer(header)(buffer, header(correlation_id=correlation_id))
    entity_writer(type(response))(buffer, response)
    body = buffer.getvalue()
    return [_LENGTH.pack(len(body)) + body]


def encode_value(head: Header, response: msgspec.Struct) -> list[Part]:
    """Encode a value of `generated` as the frame of the answer to a request, with its length."""
    body = ENCODERS[head.key](response, head.version)
    flexible = response_schema(head.key, head.version).__flexible__
    size_bytes = 4 + flexible + part_bytes(body)
    return [_LENGTH.pack(size_bytes) + _LENGTH.pack(head.correlation_id) + bytes(flexible), *body]
