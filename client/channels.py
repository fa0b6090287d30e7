"""gRPC channels to nodes, one per endpoint, made when first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import Message

from kraftlab.access.users import PASSWORD_HEADER, USER_HEADER
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc.methods import CLIENT_ID_HEADER, METHODS, SERVICE, STREAM_METHOD, AdminRequest

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# A node that hangs keeps its sockets open: pings distinguish it from a slow node.
_PING_AFTER_MS = 1000
_PING_TIMEOUT_MS = 1000
# The same for a new connection, which the kernel accepts for a node that hangs. gRPC calls this timeout a backoff.
_CONNECT_TIMEOUT_MS = 1000
_OPTIONS = (
    ("grpc.keepalive_time_ms", _PING_AFTER_MS),
    ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", _CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_UnaryCall = Callable[..., Message]


class Transport(Protocol):
    """Connections of one client to the nodes of a cluster: `Channels`, or `KafkaChannels` for the Kafka protocol."""

    def unary(self, endpoint: Endpoint, api: str) -> _UnaryCall: ...

    def check(self, request: AdminRequest) -> None: ...

    def close(self) -> None: ...


class Channels:
    """The channels of one client. Thread-safe. Every call carries `user` and `password` if there is a user, and the `client_id`.

    ValueError for other characters than printable ASCII, which gRPC cannot send.
    """

    def __init__(self, user: str | None = None, password: str | None = None, client_id: str = "") -> None:
        for what, value in (("user", user), ("password", password), ("client id", client_id)):
            if value is not None and not (value.isascii() and value.isprintable()):
                raise ValueError(f"the {what} has characters that are not printable ASCII; no node accepts such a {what}")
        credentials = () if user is None else ((USER_HEADER, user), (PASSWORD_HEADER, password or ""))
        self.metadata = (*credentials, (CLIENT_ID_HEADER, client_id)) if client_id else credentials
        self._lock = threading.Lock()
        self._channels: dict[Endpoint, grpc.Channel] = {}
        self._calls: dict[tuple[Endpoint, str], _UnaryCall] = {}

    def unary(self, endpoint: Endpoint, api: str) -> _UnaryCall:
        """Return the callable `(request, timeout=seconds) -> response` of a method at a node. It raises grpc.RpcError."""
        call = self._calls.get((endpoint, api))
        if call is None:
            method = METHODS[api]
            call = self._channel(endpoint).unary_unary(
                f"/{SERVICE}/{api}", method.request.SerializeToString, method.response.FromString
            )
            if self.metadata:
                call = partial(call, metadata=self.metadata)
            self._calls[endpoint, api] = call
        return call

    def check(self, request: AdminRequest) -> None:
        """Refuse a request that the protocol cannot carry: none."""

    def stream(self, endpoint: Endpoint) -> Any:
        """Return the callable `(iterator of CallRequests) -> iterator of CallResponses` of the pipelined API at a node."""
        call = self._channel(endpoint).stream_stream(
            f"/{SERVICE}/{STREAM_METHOD}", admin_pb2.CallRequests.SerializeToString, admin_pb2.CallResponses.FromString
        )
        return partial(call, metadata=self.metadata) if self.metadata else call

    def _channel(self, endpoint: Endpoint) -> grpc.Channel:
        with self._lock:
            channel = self._channels.get(endpoint)
            if channel is None:
                channel = self._channels[endpoint] = grpc.insecure_channel(str(endpoint), options=_OPTIONS)
            return channel

    def close(self) -> None:
        with self._lock:
            channels, self._channels = self._channels, {}
            self._calls.clear()
        for channel in channels.values():
            channel.close()


def authentication_error(error: grpc.RpcError) -> ApiError | None:
    """Return the ApiError for a failed authentication, None for another error."""
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, error.details())
    return None
