"""gRPC channels to nodes, one per endpoint, made when first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.quorum.core.types import Endpoint
from kraftlab.rpc.methods import METHODS, SERVICE, STREAM_METHOD

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# A node that hangs keeps its sockets: only pings tell it from one that is slow to answer.
_PING_AFTER_MS = 1000
_PING_TIMEOUT_MS = 1000
_OPTIONS = (
    ("grpc.keepalive_time_ms", _PING_AFTER_MS),
    ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_UnaryCall = Callable[..., Message]


class Channels:
    """The channels of one client. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[Endpoint, grpc.Channel] = {}
        self._calls: dict[tuple[Endpoint, str], _UnaryCall] = {}

    def unary(self, endpoint: Endpoint, api: str) -> _UnaryCall:
        """The callable `(request, timeout=seconds) -> response` of a method at a node; raises grpc.RpcError."""
        call = self._calls.get((endpoint, api))
        if call is None:
            method = METHODS[api]
            call = self._channel(endpoint).unary_unary(
                f"/{SERVICE}/{api}", method.request.SerializeToString, method.response.FromString
            )
            self._calls[endpoint, api] = call
        return call

    def stream(self, endpoint: Endpoint) -> Any:
        """The callable `(iterator of CallRequests) -> iterator of CallResponses` of the pipelined door at a node."""
        return self._channel(endpoint).stream_stream(
            f"/{SERVICE}/{STREAM_METHOD}", admin_pb2.CallRequests.SerializeToString, admin_pb2.CallResponses.FromString
        )

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
