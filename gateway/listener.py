"""The KAFKA listener: connections, frames and answers in order.

Theory of operation. Each connection has one task, which reads a request, answers it, and reads the next: answers are in the order
of requests, and a client that does not read its answers is not read from. A frame larger than the limit, bytes of another
protocol and an unknown request close their connection with one log line; other connections go on.
"""

from __future__ import annotations

import errno
import logging
import struct

import trio

from kraftlab.access.users import ANONYMOUS
from kraftlab.quorum.core.types import Endpoint
from kraftlab.wire.line_limit import LineLimit
from kraftlab.wire.transport import ListenError

from .codec import API_VERSIONS, MalformedRequest, decode_request, encode_response, peek
from .door import OFFERS, Door, Unanswerable

logger = logging.getLogger("kraftlab.gateway")

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's default of socket.request.max.bytes."""
CONNECTIONS_MAX = 2048
IDLE_TIMEOUT_S = 600.0
"""Kafka's default of connections.max.idle.ms."""
PIECE_BYTES = 64 * 1024
LINES_AT_ONCE = 30
LINE_INTERVAL_S = 5.0
_LENGTH = struct.Struct(">i")


class KafkaListener:
    """Serves the door on host:port. Use: `port = await nursery.start(listener.serve)`; cancel the scope to stop."""

    def __init__(self, door: Door, host: str, port: int) -> None:
        self._door = door
        self._host, self._port = host, port
        self._connections = 0
        self._limit = LineLimit(LINES_AT_ONCE, LINE_INTERVAL_S)

    def statistics(self) -> dict[str, int]:
        return {"connections": self._connections}

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; report the port once connections are accepted. ListenError if the port is not available."""
        try:
            listeners = await _listeners(self._host, self._port)
        except OSError as error:
            wanted = Endpoint(self._host or "*", self._port)
            why = f"{error.strerror or error}; is another process using the port?"
            raise ListenError(f"cannot listen on {wanted} for KAFKA: {why}") from error
        async with trio.open_nursery() as nursery:
            task_status.started(listeners[0].socket.getsockname()[1])
            await trio.serve_listeners(self._connection, listeners, handler_nursery=nursery)

    async def _connection(self, stream: trio.SocketStream) -> None:
        try:
            peer = stream.socket.getpeername()[0].removeprefix("::ffff:")
        except OSError:  # The client has reset the connection already.
            await stream.aclose()
            return
        if self._connections >= CONNECTIONS_MAX:
            self._warn(f"closed a connection of {peer}: {CONNECTIONS_MAX} connections are open already")
            await stream.aclose()
            return
        self._connections += 1
        try:
            async with stream:
                await self._requests(stream, peer)
        except (MalformedRequest, Unanswerable) as error:
            self._warn(f"closed a connection of {peer}: {error}")
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            logger.debug("a connection of %s ended", peer)
        except Exception:
            logger.exception("a request of %s failed; its connection is closed", peer)
        finally:
            self._connections -= 1

    async def _requests(self, stream: trio.SocketStream, peer: str) -> None:
        while True:
            with trio.fail_after(IDLE_TIMEOUT_S):
                frame = await _frame(stream)
            if frame is None:
                return
            header = peek(frame)
            offer = OFFERS.get(header.key)
            if offer is None or not offer.lowest <= header.version <= offer.highest:
                if header.key != API_VERSIONS:
                    raise MalformedRequest(f"API {header.key} version {header.version} is not served; see docs/kafka-clients.md")
                response = self._door.unsupported()
            else:
                response = await self._door.answer(decode_request(frame), ANONYMOUS, peer)
            with trio.fail_after(IDLE_TIMEOUT_S):
                await stream.send_all(encode_response(header.correlation_id, response))

    def _warn(self, text: str) -> None:
        suppressed = self._limit.admit(trio.current_time())
        if suppressed is not None:
            more = f"; {suppressed} such lines before this one were left out" if suppressed else ""
            logger.warning("%s%s", text, more)


async def _listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen at every address of `host`, or at all of this machine's if it is empty. OSError.

    localhost may have an IPv6 address that no device has: then listen at 127.0.0.1 only.
    """
    try:
        return await trio.open_tcp_listeners(port, host=host or None)
    except OSError as error:
        if host != "localhost" or error.errno != errno.EADDRNOTAVAIL:
            raise
        return await trio.open_tcp_listeners(port, host="127.0.0.1")


async def _frame(stream: trio.SocketStream) -> bytes | None:
    """Return the next request without its length; None at the end of the connection. MalformedRequest.

    Memory grows with the bytes that have arrived, not with the length that the client claims.
    """
    start = await _exactly(stream, _LENGTH.size)
    if not start:
        return None
    (size,) = _LENGTH.unpack(start)
    if not 0 < size <= REQUEST_BYTES_MAX:
        advice = {0x16: " (a TLS handshake)", 0x47: " (HTTP)", 0x50: " (HTTP)"}.get(start[0], "")
        raise MalformedRequest(
            f"the length of a request is {size}{advice}, expected 1 to {REQUEST_BYTES_MAX}; is this a Kafka client?"
        )
    body = await _exactly(stream, size)
    return body or None


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    """Return that many bytes; none if the connection ended first."""
    data = bytearray()
    while len(data) < size:
        piece = await stream.receive_some(min(PIECE_BYTES, size - len(data)))
        if not piece:
            return b""
        data += piece
    return bytes(data)
