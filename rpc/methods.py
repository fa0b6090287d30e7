"""The methods of the Admin service as a table, read from the service's own descriptor.

Servers, clients and forwarders share it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kraftlab.admin.v1 import admin_pb2

SERVICE = "kraftlab.admin.v1.Admin"
STREAM_METHOD = "Call"
CLIENT_ID_HEADER = "kraftlab-client-id"
"""The gRPC metadata key of a client's name for itself; quotas can refer to it."""


class AdminRequest(Protocol):
    """Any request message of the Admin service."""

    @property
    def header(self) -> admin_pb2.RequestHeader: ...

    def HasField(self, name: str, /) -> bool: ...


class AdminResponse(Protocol):
    """Any response message of the Admin service."""

    @property
    def header(self) -> admin_pb2.ResponseHeader: ...


Response = TypeVar("Response", bound=AdminResponse)
LocalCall = Callable[[Any], Awaitable[Message]]
"""A method that a node executes itself: request → response without the header."""


class Method(NamedTuple):
    """One unary call. `field` is its name in CallRequest and CallResponse."""

    api: str
    field: str
    request: type[Message]
    response: type[Message]


def _methods() -> dict[str, Method]:
    fields = {field.message_type: field.name for field in admin_pb2.CallRequest.DESCRIPTOR.oneofs_by_name["request"].fields}
    return {
        method.name: Method(
            method.name, fields[method.input_type], GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        )
        for method in admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods
        if method.name != STREAM_METHOD
    }


METHODS: dict[str, Method] = _methods()
METHOD_OF_FIELD: dict[str, Method] = {method.field: method for method in METHODS.values()}
API_OF_RESPONSE: Mapping[type, str] = {method.response: method.api for method in METHODS.values()}


def header_of(request: object) -> admin_pb2.RequestHeader:
    """Return the header that every request of the Admin service has."""
    header: admin_pb2.RequestHeader = getattr(request, "header")  # noqa: B009 - `Message` does not say so
    return header
