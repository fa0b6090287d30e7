"""A blocking connection to one broker of a Kafka cluster.

Theory of operation. A connection opens at its first request: TCP, TLS, ApiVersions, SASL. ApiVersions is sent in the newest
version; a broker that does not know it answers error 35 in version 0 and lists the versions that it knows (KIP-511). A broker
closes idle connections, so a connection that has ended is opened again before a request is sent. So is one whose login is about
to expire (KIP-368). After any failure the connection is closed: a late answer must not be taken for the answer to another
request.

`NoAnswer` tells by its text whether the request may have reached the broker (see `attempts.py`).
"""

from __future__ import annotations

import math
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.errors import ConfigError
from kraftlab.gateway.client_codec import MalformedResponse, decode_response, encode_request
from kraftlab.messages.catalog import API_VERSIONS
from kraftlab.messages.generated.api_versions_request import ApiVersionsRequest
from kraftlab.messages.generated.api_versions_response import ApiVersionsResponse
from kraftlab.messages.generated.sasl_authenticate_request import SaslAuthenticateRequest
from kraftlab.messages.generated.sasl_authenticate_response import SaslAuthenticateResponse
from kraftlab.messages.generated.sasl_handshake_request import SaslHandshakeRequest
from kraftlab.messages.generated.sasl_handshake_response import SaslHandshakeResponse
from kraftlab.messages.schema import Message

from .attempts import FAILED_TO_CONNECT, NoAnswer, not_answered, not_connected, not_secured, other_protocol
from .diagnosis import security_fault
from .dialling import NotSecured, alert_of, connect, expects_tls, is_alert, refusal
from .errors import api_error
from .sasl import BadProof, authenticate
from .security import NO_SECURITY, ClientSecurity

DEFAULT_CLIENT_ID = "kraftlab"
CONNECT_TIMEOUT_S = 5.0
RESPONSE_BYTES_MAX = 1 << 30
_HANDSHAKE_VERSION = 1
"""From version 1 on, what follows is in SaslAuthenticate."""
_SESSION_PART = 0.85
"""Part of the time of a login (KIP-368) that is used."""
_PIECE_BYTES = 1 << 20
_LENGTH = struct.Struct(">i")
_ERROR = struct.Struct(">ih")

Answer = TypeVar("Answer", bound=Message)


class Versions(NamedTuple):
    """Range of versions of a request that a broker offers."""

    lowest: int
    highest: int


class KafkaConnection:
    """A connection to one broker. Thread-safe: one request at a time. NoAnswer, ApiError SASL_AUTHENTICATION_FAILED."""

    def __init__(self, endpoint: Endpoint, security: ClientSecurity = NO_SECURITY, client_id: str = "") -> None:
        self.endpoint = endpoint
        self._security = security
        self._client_id = client_id or DEFAULT_CLIENT_ID
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._versions: Mapping[int, Versions] = {}
        self._expires_at = math.inf
        """When the broker may end the connection for want of a new login, less a part for the way there."""

    def versions(self, deadline: float) -> Mapping[int, Versions]:
        """Return the versions that the broker offers, by API key. The deadline is of `time.monotonic`."""
        with self._locked(deadline):
            if not self._versions:
                self._connected(deadline)
            return self._versions

    def request(self, body: Message, kind: type[Answer], version: int, deadline: float) -> Answer:
        """Send a request in a version and return its response, of class `kind`."""
        with self._locked(deadline):
            is_first = self._socket is None and not self._security.has_sasl
            connected = self._connected(deadline)
            try:
                frame = self._exchange(connected, body, version, deadline)
            except OSError as error:
                self._drop()
                raise not_answered(error, is_first=is_first) from error
            except MalformedResponse as error:
                self._drop()
                raise NoAnswer(f"its answer is malformed: {error}") from error
            except BaseException:  # Ctrl-C: the answer is still to come.
                self._drop()
                raise
        try:
            return decode_response(frame, kind, version)
        except MalformedResponse as error:
            text = f"the answer of {self.endpoint} cannot be read, though the request may have taken effect: {error}"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _locked(self, deadline: float) -> _LockUntil:
        return _LockUntil(self._lock, deadline)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is not None and (time.monotonic() >= self._expires_at or select.select([self._socket], [], [], 0)[0]):
            self._drop()  # The broker has closed it: nothing else arrives without a request.
        if self._socket is None:
            deadline = min(deadline, time.monotonic() + CONNECT_TIMEOUT_S)
            self._expires_at = math.inf
            try:
                self._socket = connect(self.endpoint, self._security, _left_s(deadline))
                self._negotiate(self._socket, deadline)
                if self._security.has_sasl:
                    self._log_in(self._socket, deadline)
            except OSError as error:
                raise self._not_opened(error) from error
            except MalformedResponse as error:
                self._drop()
                raise other_protocol(error) from error
            except (ApiError, ConfigError):
                self._drop()
                raise
        return self._socket

    def _not_opened(self, error: OSError) -> NoAnswer:
        """Drop the connection that did not open, and return the error for it."""
        if self._socket is not None:
            error = refusal(alert_of(self._socket, error), self.endpoint, self._security)
        self._drop()
        if isinstance(error, ConnectionResetError):
            error = security_fault(self.endpoint, self._security) or error
        if isinstance(error, NotSecured):
            return not_secured(error)
        return other_protocol(error) if isinstance(error, ConnectionResetError) else not_connected(error)

    def _negotiate(self, connected: socket.socket, deadline: float) -> None:
        version = ApiVersionsRequest.NEWEST
        asked = ApiVersionsRequest(client_software_name="kraftlab", client_software_version="1")
        while True:
            frame = self._exchange(connected, asked, version, deadline)
            is_known = len(frame) < _ERROR.size or _ERROR.unpack_from(frame)[1] != ErrorCode.UNSUPPORTED_VERSION
            answer = decode_response(frame, ApiVersionsResponse, version if is_known else 0)
            self._versions = {each.api_key: Versions(each.min_version, each.max_version) for each in answer.api_keys}
            if is_known:
                return
            listed = self._versions.get(API_VERSIONS, Versions(0, 0)).highest
            version = min(listed, version - 1)
            if version < 0:
                raise MalformedResponse("the broker refuses every version of ApiVersions")

    def _log_in(self, connected: socket.socket, deadline: float) -> None:
        mechanism = self._security.mechanism
        frame = self._exchange(connected, SaslHandshakeRequest(mechanism=mechanism), _HANDSHAKE_VERSION, deadline)
        shaken = decode_response(frame, SaslHandshakeResponse, _HANDSHAKE_VERSION)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            text = f"{self.endpoint} does not offer sasl.mechanism {mechanism}; it offers: {offered}"
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
        offered_versions = self._versions.get(SaslAuthenticateRequest.KEY, Versions(0, 0))
        version = min(offered_versions.highest, SaslAuthenticateRequest.NEWEST)

        def exchange(message: bytes) -> bytes:
            frame = self._exchange(connected, SaslAuthenticateRequest(auth_bytes=message), version, deadline)
            answer = decode_response(frame, SaslAuthenticateResponse, version)
            if answer.error_code:
                raise api_error(answer.error_code, f"{self.endpoint}: {answer.error_message or 'authentication failed'}")
            if answer.session_lifetime_ms > 0:
                self._expires_at = time.monotonic() + _SESSION_PART * answer.session_lifetime_ms / 1000
            return answer.auth_bytes

        try:
            authenticate(self._security, exchange)
        except BadProof as error:
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.endpoint}: {error}") from error

    def _exchange(self, connected: socket.socket, body: Message, version: int, deadline: float) -> bytes:
        """Send a request and return its response without the length. OSError, MalformedResponse."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        connected.settimeout(_left_s(deadline))
        connected.sendall(encode_request(self._correlation_id, self._client_id, body, version))
        length = _exactly(connected, _LENGTH.size, deadline)
        if is_alert(length) and self._security.tls is None:
            raise expects_tls(self._security)
        (size,) = _LENGTH.unpack(length)
        if not _LENGTH.size <= size <= RESPONSE_BYTES_MAX:
            raise MalformedResponse(f"the length of a response is {size}; is this a Kafka broker?")
        frame = _exactly(connected, size, deadline)
        if frame[: _LENGTH.size] != _LENGTH.pack(self._correlation_id):
            raise MalformedResponse(f"the response is not the one to request {self._correlation_id}")
        return frame


class _LockUntil:
    """Holds a connection's lock. NoAnswer if other requests hold it until the deadline."""

    def __init__(self, lock: threading.Lock, deadline: float) -> None:
        self._lock = lock
        self._deadline = deadline

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=max(self._deadline - time.monotonic(), 0)):
            raise NoAnswer(f"{FAILED_TO_CONNECT}: the connection was busy with other requests")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _left_s(deadline: float) -> float:
    """Return the time until the deadline. TimeoutError if the deadline has passed."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no time is left")
    return left_s


def _exactly(connected: socket.socket, size: int, deadline: float) -> bytes:
    """Return that many bytes. ConnectionResetError if the connection ends first. Memory grows with the bytes that arrive."""
    data = bytearray()
    while len(data) < size:
        connected.settimeout(_left_s(deadline))
        piece = connected.recv(min(_PIECE_BYTES, size - len(data)))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        data += piece
    return bytes(data)
