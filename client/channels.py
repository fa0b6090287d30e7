"""gRPC channels to nodes, one per endpoint, made when first needed.

A channel keeps the keys and authorities that it was made with: gRPC cannot change them. When a connection fails and the files
have changed, the next call makes a new channel.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import Message

from kraftlab.access.users import PASSWORD_HEADER, USER_HEADER
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.errors import ConfigError
from kraftlab.rpc.methods import CLIENT_ID_HEADER, METHODS, SERVICE, STREAM_METHOD, AdminRequest

from .attempts import closed, failed_to_connect, hung_up, not_secured
from .security import NO_SECURITY, OAUTHBEARER, ClientSecurity

if TYPE_CHECKING:
    from kraftlab.certificates.contexts import LoadedTls

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
_Headers = tuple[tuple[str, str], ...]


class Transport(Protocol):
    """Connections of one client to the nodes of a cluster: `Channels`, or `KafkaChannels` for the Kafka protocol."""

    def unary(self, endpoint: Endpoint, api: str) -> _UnaryCall: ...

    def check(self, request: AdminRequest) -> None: ...

    def explained(self, endpoint: Endpoint, error: grpc.RpcError) -> grpc.RpcError: ...

    def last_look(self, endpoint: Endpoint, fault: str) -> str: ...

    def close(self) -> None: ...


class _Channel(NamedTuple):
    """A channel, with the keys and authorities that it was made with."""

    channel: grpc.Channel
    tls: LoadedTls | None


class _NamedCall:
    """A method at a node. Every call carries the client's headers as they are then: a token may be new."""

    def __init__(self, call: Any, headers: Callable[[], _Headers]) -> None:
        self._call = call
        self._headers = headers

    def __call__(self, request: Any, timeout: float | None = None) -> Any:
        return self._call(request, timeout=timeout, metadata=self._headers())

    def future(self, request: Any, timeout: float | None = None) -> Any:
        return self._call.future(request, timeout=timeout, metadata=self._headers())


class Channels:
    """The channels of one client. Thread-safe. Every call carries the user's password or token, and the `client_id`.

    ValueError for other characters than printable ASCII, which gRPC cannot send; ConfigError for what gRPC's TLS cannot do.
    """

    def __init__(self, security: ClientSecurity = NO_SECURITY, client_id: str = "") -> None:
        for what, value in (("user", security.user), ("password", security.password), ("client id", client_id)):
            if value is not None and not (value.isascii() and value.isprintable()):
                raise ValueError(f"the {what} has characters that are not printable ASCII; no node accepts such a {what}")
        if security.tls is not None and not security.tls.settings.checks_host_name:
            raise ConfigError(
                "gRPC always checks the host name in a node's certificate; leave ssl.endpoint.identification.algorithm out and "
                "issue a certificate with this name, or use a KAFKA listener: kafka://HOST:PORT"
            )
        self._security = security
        self._client_id: _Headers = ((CLIENT_ID_HEADER, client_id),) if client_id else ()
        self._has_headers = bool(self._client_id) or security.user is not None or security.has_sasl
        self._lock = threading.Lock()
        self._channels: dict[Endpoint, _Channel] = {}
        self._calls: dict[tuple[Endpoint, str], _UnaryCall] = {}

    def headers(self) -> _Headers:
        """Return the metadata of a call. ConfigError for a token that cannot be read."""
        security = self._security
        if security.mechanism == OAUTHBEARER:
            return (("authorization", f"Bearer {security.bearer()}"), *self._client_id)
        if security.user is None:
            return self._client_id
        return ((USER_HEADER, security.user), (PASSWORD_HEADER, security.password), *self._client_id)

    def unary(self, endpoint: Endpoint, api: str) -> _UnaryCall:
        """Return the callable `(request, timeout=seconds) -> response` of a method at a node. It raises grpc.RpcError."""
        call = self._calls.get((endpoint, api))
        if call is None:
            method = METHODS[api]
            call = self._channel(endpoint).unary_unary(
                f"/{SERVICE}/{api}", method.request.SerializeToString, method.response.FromString
            )
            if self._has_headers:
                call = _NamedCall(call, self.headers)
            self._calls[endpoint, api] = call
        return call

    def check(self, request: AdminRequest) -> None:
        """Refuse a request that the protocol cannot carry: none."""

    def stream(self, endpoint: Endpoint) -> Any:
        """Return the callable `(iterator of CallRequests) -> iterator of CallResponses` of the pipelined API at a node."""
        call = self._channel(endpoint).stream_stream(
            f"/{SERVICE}/{STREAM_METHOD}", admin_pb2.CallRequests.SerializeToString, admin_pb2.CallResponses.FromString
        )
        return _NamedCall(call, self.headers) if self._has_headers else call

    def explained(self, endpoint: Endpoint, error: grpc.RpcError) -> grpc.RpcError:
        """Return the error, or the reason why the node takes no connection under TLS."""
        if self._security.tls is None or not failed_to_connect(error):
            return error
        from .diagnosis import grpc_fault  # loaded for a call that failed
        from .dialling import NotSecured

        self._forget_old_keys(endpoint)
        fault = grpc_fault(endpoint, self._security)
        if fault is None:
            return error
        return not_secured(fault) if isinstance(fault, NotSecured) else closed(fault)

    def last_look(self, endpoint: Endpoint, fault: str) -> str:
        """Return the fault of a node that is asked no more: perhaps it expects TLS."""
        if self._security.tls is not None or not hung_up(fault):
            return fault
        from .diagnosis import security_fault

        found = security_fault(endpoint, self._security)
        return fault if found is None else str(not_secured(found))

    def _forget_old_keys(self, endpoint: Endpoint) -> None:
        """Let the next call make a new channel if the files of keys or authorities have changed; calls keep the old one."""
        with self._lock:
            old = self._channels.get(endpoint)
            if old is None or self._security.tls is None or old.tls is self._security.tls.loaded():
                return
            del self._channels[endpoint]
            for key in [key for key in self._calls if key[0] == endpoint]:
                del self._calls[key]

    def _channel(self, endpoint: Endpoint) -> grpc.Channel:
        with self._lock:
            found = self._channels.get(endpoint)
            if found is None:
                found = self._channels[endpoint] = _opened(endpoint, self._security)
            return found.channel

    def close(self) -> None:
        with self._lock:
            channels, self._channels = self._channels, {}
            self._calls.clear()
        for each in channels.values():
            each.channel.close()


def _opened(endpoint: Endpoint, security: ClientSecurity) -> _Channel:
    """Make a channel. Without a truststore gRPC trusts the authorities that it brings along. ConfigError."""
    if security.tls is None:
        return _Channel(grpc.insecure_channel(str(endpoint), options=_OPTIONS), None)
    loaded = security.tls.loaded()
    key, chain = (loaded.keys.key_pem, loaded.keys.chain_pem) if loaded.keys else (None, None)
    credentials = grpc.ssl_channel_credentials(loaded.authorities_pem or None, key, chain)
    return _Channel(grpc.secure_channel(str(endpoint), credentials, options=_OPTIONS), loaded)


def authentication_error(error: grpc.RpcError) -> ApiError | None:
    """Return the ApiError for a failed authentication, None for another error."""
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, error.details())
    return None
