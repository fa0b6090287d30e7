"""Find out whether a server speaks the Kafka protocol or gRPC, with one small request.

A Kafka broker answers ApiVersions in version 0, before any login. A server of HTTP/2 sends a SETTINGS frame first, whatever it
reads. Both answers come within a round trip, and neither server logs anything. A broker that expects TLS gives neither.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

from kraftlab.common.endpoint import Endpoint

TIMEOUT_S = 1.0
"""Patience with one server."""
_CORRELATION_ID = 0x6B726166
_REQUEST = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
_ANSWER_BYTES = 8
"""A length and a correlation id; a frame header of HTTP/2 is longer."""


def speaks_kafka(servers: Sequence[Endpoint], timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether the first of the servers that answers speaks the Kafka protocol without TLS. False if none answers."""
    for server in servers:
        if (answer := _answer(server, time.monotonic() + timeout_s)) is not None:
            return answer[4:] == struct.pack(">i", _CORRELATION_ID)
    return False


def _answer(server: Endpoint, deadline: float) -> bytes | None:
    """Return the first bytes of a server's answer, or None if the server sends nothing in time."""
    data = b""
    try:
        with socket.create_connection((server.host, server.port), max(deadline - time.monotonic(), 0.001)) as connected:
            connected.sendall(_REQUEST)
            while len(data) < _ANSWER_BYTES:
                connected.settimeout(max(deadline - time.monotonic(), 0.001))
                piece = connected.recv(_ANSWER_BYTES - len(data))
                if not piece:
                    return None
                data += piece
    except (OSError, UnicodeError):  # UnicodeError: not a host name
        return None
    return data
