"""Find out whether a server speaks the Kafka protocol or gRPC, with one small request.

A Kafka broker answers ApiVersions in version 0, before any login. A server of HTTP/2 sends a SETTINGS frame first, whatever it
reads. Both answers come within a round trip, and neither server logs anything. Under TLS the handshake tells: a server of gRPC
takes the offer of HTTP/2 (ALPN), and a Kafka broker takes none.
"""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Sequence

from kraftlab.common.endpoint import Endpoint

from .dialling import connect, is_alert
from .security import NO_SECURITY, ClientSecurity

TIMEOUT_S = 1.0
"""Patience with one server."""
_HTTP2 = "h2"
_CORRELATION_ID = 0x6B726166
_REQUEST = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
_ANSWER_BYTES = 8
"""A length and a correlation id; a frame header of HTTP/2 is longer."""


def speaks_kafka(servers: Sequence[Endpoint], security: ClientSecurity = NO_SECURITY, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether the first of the servers that answers speaks the Kafka protocol. False if none answers, or no handshake
    under TLS succeeds. ConfigError for keys of the client.
    """
    for server in servers:
        found = _protocol(server, security, time.monotonic() + timeout_s)
        if found is not None:
            return found != _HTTP2
    return False


def answers_plain(server: Endpoint, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether a server of Kafka or gRPC answers without TLS."""
    return _protocol(server, NO_SECURITY, time.monotonic() + timeout_s) is not None


def _protocol(server: Endpoint, security: ClientSecurity, deadline: float) -> str | None:
    """Return h2 for gRPC, another text for the Kafka protocol, None if the server does not answer in time."""
    data = b""
    try:
        with connect(server, security, max(deadline - time.monotonic(), 0.001), _HTTP2) as connected:
            if isinstance(connected, ssl.SSLSocket):
                return connected.selected_alpn_protocol() or ""
            connected.sendall(_REQUEST)
            while len(data) < _ANSWER_BYTES:
                connected.settimeout(max(deadline - time.monotonic(), 0.001))
                piece = connected.recv(_ANSWER_BYTES - len(data))
                if not piece:
                    return None
                data += piece
    except OSError:
        return None
    return None if is_alert(data) else "" if data[4:] == struct.pack(">i", _CORRELATION_ID) else _HTTP2
