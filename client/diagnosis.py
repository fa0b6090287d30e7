"""Reasons for a server that closes a new connection, found by asking it in other ways.

A connection that breaks at once can have many reasons, and gRPC tells few of them. So the client tries what could be meant: the
handshake by itself, plain bytes where TLS was asked for, TLS where it was not. Nothing of the request is sent.
"""

from __future__ import annotations

import socket
import ssl

from kraftlab.common.endpoint import Endpoint

from .dialling import NotSecured, connect, expects_tls, refusal, speaks_no_tls
from .kafka_probe import answers_plain
from .security import ClientSecurity

TIMEOUT_S = 1.0
_HTTP2 = "h2"
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
"""The first bytes of a client of HTTP/2, with an empty SETTINGS frame."""
_ALERTS = ("TLSV1_ALERT", "TLSV13_ALERT", "SSLV3_ALERT")
"""Beginnings of OpenSSL's reasons for what a server of TLS answers."""


def security_fault(endpoint: Endpoint, security: ClientSecurity) -> NotSecured | None:
    """Return the error if a server speaks TLS and the client does not, or the other way round; None if that is not the reason."""
    if security.tls is None:
        return expects_tls(security) if _speaks_tls(endpoint) else None
    return speaks_no_tls(security) if answers_plain(endpoint) else None


def grpc_fault(endpoint: Endpoint, security: ClientSecurity) -> OSError | None:
    """Return why a server takes no gRPC connection of this security, None if that is not the reason. An error that is not
    NotSecured may be over at the next attempt.
    """
    if security.tls is None:
        return security_fault(endpoint, security)
    connected: socket.socket | None = None
    try:
        connected = connect(endpoint, security, TIMEOUT_S, _HTTP2)
        with connected:
            assert isinstance(connected, ssl.SSLSocket)
            if connected.selected_alpn_protocol() != _HTTP2:
                return NotSecured("it speaks TLS, and not gRPC; a KAFKA listener is written kafka://HOST:PORT")
            connected.sendall(_HTTP2_PREFACE)
            if connected.recv(1):
                return None
            raise ConnectionResetError
    except NotSecured as error:
        return error
    except OSError as error:
        if connected is None:
            return security_fault(endpoint, security) or (error if isinstance(error, ConnectionResetError) else None)
        return refusal(error, endpoint, security)


def _speaks_tls(endpoint: Endpoint) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # Nothing is sent.
    context.set_alpn_protocols([_HTTP2])
    try:
        with socket.create_connection((endpoint.host, endpoint.port), TIMEOUT_S) as connected:
            context.wrap_socket(connected, server_hostname=endpoint.host).close()
    except ssl.SSLError as error:
        return (error.reason or "").startswith(_ALERTS)
    except (OSError, UnicodeError):
        return False
    return True
