"""Connections to nodes, plain or under TLS, and what to do if the two sides do not fit.

Theory of operation. `connect` opens a socket as a `ClientSecurity` asks. A connection that TLS refuses stays refused until
somebody changes something, so its error is `NotSecured`, whose text has the next step and which nobody retries. A server of
TLS 1.3 refuses a client's certificate, or none, after the client's handshake: that error comes at the first read, and `refusal`
explains it as well. A server that only closes the connection may just be stopping, so such an error is retried; `diagnosis.py`
asks more.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

from kraftlab.common.endpoint import Endpoint

from .security import ClientSecurity

ALERT_S = 0.2
"""Wait for the alert of a server that takes no more bytes."""
_ALERT = b"\x15\x03"
"""The first bytes of a TLS record that a server sends to a client that does not speak TLS."""

NEEDS_CERTIFICATE = "it wants a certificate of the client, set ssl.keystore.location"
_HOST_MISMATCHES = (62, 64)
"""OpenSSL's codes for a certificate of another host name or address."""
_PERIODS: Mapping[int, str] = {
    9: "its certificate is not valid yet; check the clocks, or have it issued again",
    10: "its certificate has expired; renew it on the node",
}
_NO_TLS_THERE = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "ENCRYPTED_LENGTH_TOO_LONG"}
)
"""OpenSSL's reasons for a first record that is not TLS."""
_ABOUT_CERTIFICATES = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it got none",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "handshake failure",
    "SSLV3_ALERT_BAD_CERTIFICATE": "bad certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "certificate unknown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired by the node's clock",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "unsupported certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "its authority is not trusted there",
    "TLSV1_ALERT_DECRYPT_ERROR": "its signature is wrong",
    "TLSV1_ALERT_ACCESS_DENIED": "access denied",
}
"""OpenSSL's reasons for alerts of a server that does not take the client's certificate."""
_VERSIONS = frozenset({"TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"})


class NotSecured(ConnectionError):
    """The server and the client's security do not fit. The text is about the server ("it …") and has the next step."""


def connect(endpoint: Endpoint, security: ClientSecurity, timeout_s: float, *protocols: str) -> socket.socket:
    """Connect, and offer `protocols` (ALPN) under TLS. OSError, NotSecured among them; ConfigError for keys of the client."""
    context = None if security.tls is None else security.tls.context(*protocols)
    try:
        connected = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
    except UnicodeError as error:
        raise socket.gaierror(f"{endpoint.host} is not a host name") from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return connected
    try:
        return context.wrap_socket(connected, server_hostname=endpoint.host)
    except OSError as error:
        connected.close()
        found = refusal(error, endpoint, security, in_handshake=True)
        if found is error:
            raise
        raise found from error
    except BaseException:
        connected.close()
        raise


def refusal(error: OSError, endpoint: Endpoint, security: ClientSecurity, *, in_handshake: bool = False) -> OSError:
    """Return NotSecured for an error of a new connection that shows such a reason; otherwise an error about the network."""
    if security.tls is None or isinstance(error, NotSecured):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotSecured(_certificate_fault(error, endpoint))
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason in _NO_TLS_THERE:
        return speaks_no_tls(security)
    if reason in _ABOUT_CERTIFICATES:
        refused = f"it does not take the client's certificate ({_ABOUT_CERTIFICATES[reason]}); check ssl.keystore.location"
        return NotSecured(refused if security.tls.settings.has_keystore else NEEDS_CERTIFICATE)
    if reason in _VERSIONS:
        return NotSecured("it speaks other versions of TLS; check ssl.enabled.protocols")
    if not isinstance(error, ssl.SSLError | ConnectionError):
        return error
    closed = "it closed the connection"
    if in_handshake:
        return ConnectionResetError(f"{closed} during the TLS handshake; if {speaks_no_tls(security)}")
    has_key = security.tls.settings.has_keystore
    hint = "it may not take the client's certificate, check ssl.keystore.location" if has_key else f"if {NEEDS_CERTIFICATE}"
    return ConnectionResetError(f"{closed} after the TLS handshake; {hint}")


def alert_of(connected: socket.socket, error: OSError) -> OSError:
    """Return the error of the alert that a server sent before it closed the connection, which broke a write; otherwise the error
    itself.
    """
    if not isinstance(error, ssl.SSLEOFError | ConnectionError):
        return error
    try:
        connected.settimeout(ALERT_S)
        connected.recv(1)
    except OSError as found:
        return error if isinstance(found, ssl.SSLEOFError) or not isinstance(found, ssl.SSLError) else found
    return error


def speaks_no_tls(security: ClientSecurity) -> NotSecured:
    """Return the error for a server of plain bytes."""
    return NotSecured(f"it does not speak TLS, set security.protocol={'SASL_PLAINTEXT' if security.has_sasl else 'PLAINTEXT'}")


def expects_tls(security: ClientSecurity) -> NotSecured:
    """Return the error for a server that answers plain bytes with an alert."""
    protocol = "SASL_SSL" if security.has_sasl else "SSL, or SASL_SSL for a login"
    return NotSecured(f"it expects TLS; set security.protocol={protocol}")


def is_alert(data: bytes) -> bool:
    """Return True if an answer begins as a TLS alert."""
    return data.startswith(_ALERT)


def _certificate_fault(error: ssl.SSLCertVerificationError, endpoint: Endpoint) -> str:
    if error.verify_code in _HOST_MISMATCHES:
        return (
            f"its certificate is not for {endpoint.host}; connect by a name that is in it, or issue one with this name: kraftlab "
            f"certificates issue --host {endpoint.host}"
        )
    reason = error.verify_message.rstrip(".")
    untrusted = f"its certificate is not trusted ({reason}); set ssl.truststore.location to the CA's certificate"
    return _PERIODS.get(error.verify_code, untrusted)
