"""The client's side of `codec.py`: request entities to bytes, and bytes to response entities."""

from __future__ import annotations

import io
import struct
from typing import Any, TypeVar

from kio.index import load_request_schema
from kio.serial import entity_writer
from kio.static.protocol import RequestPayload, ResponsePayload

from .frame_check import RESPONSE_ELEMENTS_MAX, read_entity

_LENGTH = struct.Struct(">i")
Answer = TypeVar("Answer", bound=ResponsePayload)


class MalformedResponse(ValueError):
    """The bytes are not the response of the Kafka protocol that was expected. The text gives the reason."""


def request_schema(key: int, version: int) -> type[RequestPayload]:
    """Return the class of a request, whose fields are those of that version."""
    return load_request_schema(key, version)


def encode_request(correlation_id: int, client_id: str, request: RequestPayload) -> bytes:
    """Encode a request entity as a frame with its length."""
    buffer = io.BytesIO()
    kind: Any = type(request)
    header = kind.__header_schema__(
        request_api_key=kind.__api_key__,
        request_api_version=kind.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    entity_writer(kind.__header_schema__)(buffer, header)
    entity_writer(kind)(buffer, request)
    body = buffer.getvalue()
    return _LENGTH.pack(len(body)) + body


def decode_response(frame: bytes, kind: type[Answer]) -> Answer:
    """Decode a response, without its length, as an entity of class `kind`. Tagged fields of newer brokers are left out.

    MalformedResponse for bytes that do not fit.
    """
    schema: Any = kind
    try:
        _, size = read_entity(schema.__header_schema__, frame, 0, RESPONSE_ELEMENTS_MAX)
        body: Answer = read_entity(kind, frame, size, RESPONSE_ELEMENTS_MAX)[0]
    except Exception as error:  # kio raises errors of several kinds for bytes that do not fit
        raise MalformedResponse(f"{kind.__name__} version {schema.__version__}: {type(error).__name__}: {error}") from error
    return body
