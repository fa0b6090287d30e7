"""TLS as a `Wire`: a connected socket with encrypted bytes.

Theory of operation. The socket does not block, and no task belongs to a direction: encryption happens inside `send` and
`recv_into`, on the event loop. An SSL object is not for two threads, so bytes of a file are read elsewhere and sent here
(`takes_files` is False): `sendfile` would put them on the wire as they are.

OpenSSL keeps three things that a socket does not. Bytes that are decrypted and not yet read make no descriptor readable, so
`wait_readable` looks for them first. A record that is encrypted and did not fit into the kernel's buffer has to be sent again
with the same bytes, so the size of a send that waits is remembered. A direction may wait for the other one (an update of keys),
so each remembers what its last attempt has asked for.

A handshake that fails ends with an alert, as clients expect. A client that speaks another protocol gets one too, instead of the
reset that a close with unread bytes would cause.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

import trio

from kraftlab.common.peer_name import PeerName

from .network import round_trip_s

RECORD_BYTES_MAX = 16 * 1024
"""Bytes of one TLS record."""
SEND_BYTES_MAX = 256 * 1024
"""Bytes of one `send`, so that a large answer does not hold up the event loop."""
RECEIVE_BYTES_MAX = 256 * 1024
"""Bytes of one `recv_into`, likewise."""
DRAINED_BYTES_MAX = 64 * 1024
OTHER_DIRECTION_RETRY_S = 0.01
NO_TURN = nullcontext()
INTERNAL_ERROR_ALERT = bytes.fromhex("15030300020250")

OTHER_PROTOCOLS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS, or only versions before 1.2",
    "HTTP_REQUEST": "it speaks HTTP without TLS",
    "HTTPS_PROXY_REQUEST": "it takes this port for an HTTP proxy",
    "RECORD_LAYER_FAILURE": "it does not speak TLS",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS",
    "ENCRYPTED_LENGTH_TOO_LONG": "it does not speak TLS",
}
"""Reasons of OpenSSL for a first record that is not TLS; OpenSSL sends no alert for some of them."""
REASONS = OTHER_PROTOCOLS | {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and this listener requires one",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection within the handshake; does it speak TLS?",
    "UNSUPPORTED_PROTOCOL": "it offers only versions of TLS before 1.2",
    "NO_SHARED_CIPHER": "it offers no cipher suite that this listener uses",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of this listener's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this listener's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this listener's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this listener's certificate has expired by its clock",
}


class HandshakeFailed(OSError):
    """No TLS connection came about. The text gives the reason, about the peer ("it …")."""


class SilentEnd(HandshakeFailed):
    """The client ended the connection before its first byte, as health checks and port scans do."""


class TlsWire:
    """A connection under TLS; `shake_hands` comes first.

    It takes the socket over. `server_name` is the name or address that the peer's certificate must have; without one the peer is
    the client. SilentEnd if the connection is over already.
    """

    takes_files = False

    def __init__(
        self, connected: socket.socket | trio.socket.SocketType, context: ssl.SSLContext, server_name: str | None = None
    ) -> None:
        plain = socket.socket(fileno=connected.detach())
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket = context.wrap_socket(
                plain, server_side=server_name is None, do_handshake_on_connect=False, server_hostname=server_name
            )
        except BaseException as error:
            plain.close()
            if isinstance(error, OSError):
                raise SilentEnd("it reset the connection before the handshake") from error
            raise
        self._begun_bytes = 0
        """Bytes of a send that waits: OpenSSL has encrypted some of them."""
        self._reads_by_writing = self._writes_by_reading = False
        self.certificate: bytes | None = None
        """The peer's certificate (DER) after the handshake, None if it showed none."""
        self.peer: PeerName | None = None
        self._is_server = server_name is None

    @property
    def round_trip_s(self) -> float | None:
        return round_trip_s(self._socket)

    async def shake_hands(self, turn: AbstractAsyncContextManager[object] = NO_TURN) -> None:
        """Make the TLS connection. HandshakeFailed after an alert; the caller has a deadline and closes the wire.

        Each step of OpenSSL, which takes a millisecond, happens within `turn`.
        """
        if self._is_server:
            await self._await_first_byte()
        while True:
            try:
                async with turn:
                    self._socket.do_handshake()
                self.certificate = self._socket.getpeercert(binary_form=True)
                return
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(self._socket)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(self._socket)
            except OSError as error:
                self._say_why(error)
                raise HandshakeFailed(_reason(error)) from error

    async def _await_first_byte(self) -> None:
        """Wait until the client speaks. SilentEnd if it does not."""
        await trio.lowlevel.wait_readable(self._socket)
        first = b""
        with suppress(OSError):
            first = socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        if not first:
            raise SilentEnd("it closed the connection without a byte")

    def send(self, data: bytes | bytearray | memoryview, /) -> int:
        """Send SEND_BYTES_MAX at most, or as many bytes as the last call if it was blocked. BlockingIOError if the kernel does
        not take all of them now; then the next call brings the same bytes.
        """
        assert len(data) >= self._begun_bytes, "a send that was blocked is repeated with the same bytes"
        with memoryview(data) as view, view[: self._begun_bytes or SEND_BYTES_MAX] as piece:
            try:
                self._socket.send(piece)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
                self._begun_bytes = len(piece)
                self._writes_by_reading = isinstance(error, ssl.SSLWantReadError)
                raise BlockingIOError from error
            self._begun_bytes = 0
            return len(piece)

    def send_from(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        raise NotImplementedError("the bytes of a file would not be encrypted")

    def recv_into(self, room: memoryview, /) -> int:
        """Receive what is there. OpenSSL returns one record at a time; after a full one there are probably more."""
        received = count = 0
        try:
            while not received or (count == RECORD_BYTES_MAX and received < min(len(room), RECEIVE_BYTES_MAX)):
                with room[received:] as rest:
                    count = self._socket.recv_into(rest)
                if not count:
                    break
                received += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self._reads_by_writing = isinstance(error, ssl.SSLWantWriteError)
            if not received:
                raise BlockingIOError from error
        return received

    def await_bytes(self, size_bytes: int, /) -> None:
        """Do nothing: the kernel counts encrypted bytes."""

    def wait_readable(self) -> Awaitable[None]:
        if self._socket.pending():
            return trio.lowlevel.checkpoint()  # noqa: ASYNC105 the caller awaits it
        if self._reads_by_writing:
            return _other_direction(trio.lowlevel.wait_writable, self._socket)
        return trio.lowlevel.wait_readable(self._socket)  # noqa: ASYNC105

    def wait_writable(self) -> Awaitable[None]:
        if self._writes_by_reading:
            return _other_direction(trio.lowlevel.wait_readable, self._socket)
        return trio.lowlevel.wait_writable(self._socket)  # noqa: ASYNC105

    def end(self) -> None:
        """Let both sides see the end of the connection; the reader closes it."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Announce the end (close_notify) if the kernel takes it, and close."""
        with suppress(OSError, ValueError):
            self._socket.unwrap()
        with suppress(OSError):
            self._socket.close()

    def _say_why(self, error: OSError) -> None:
        """Send an alert in plain bytes to a client of another protocol, where OpenSSL sends none, and let the alert arrive: a
        close with unread bytes would reset the connection.
        """
        with suppress(OSError):
            if isinstance(error, ssl.SSLError) and error.reason in OTHER_PROTOCOLS:
                socket.socket.send(self._socket, INTERNAL_ERROR_ALERT)
            socket.socket.shutdown(self._socket, socket.SHUT_WR)
            socket.socket.recv(self._socket, DRAINED_BYTES_MAX)


async def _other_direction(wait: Callable[[socket.socket], Awaitable[None]], connected: socket.socket) -> None:
    """Wait for the direction that another task may wait for already; then just try again soon."""
    try:
        await wait(connected)
    except trio.BusyResourceError:
        await trio.sleep(OTHER_DIRECTION_RETRY_S)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        return REASONS.get(reason, reason.lower().replace("_", " "))
    return error.strerror or str(error) or type(error).__name__
