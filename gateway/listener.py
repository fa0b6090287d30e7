"""The KAFKA listener: connections, their limits, their logins, and their requests.

Theory of operation. Each connection has one task, which reads a request, answers it, and reads the next (`connection.py`). Bytes
of another protocol, a request that is not served and a request that cannot be answered close their connection with one log line;
other connections go on. Connections above `max.connections` or `max.connections.per.ip` are closed at once.

With TLS or SASL the client first proves who it is: it has a deadline for that, and an address may have a bounded number of
connections that have not done so (`half_open.py`). `authenticator.py` judges each request, also after the login: sessions end.
"""

from __future__ import annotations

import errno
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

import trio

from kraftlab.access.entrance import OPEN, Entrance
from kraftlab.access.users import ANONYMOUS
from kraftlab.common.audit import AuditLog
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.line_limit import LimitedLog
from kraftlab.config.config_key import split_list
from kraftlab.messages.catalog import API_VERSIONS
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.turns import ELEMENTS_AT_ONCE
from kraftlab.wire.half_open import PROOF_TIMEOUT_S, HalfOpen
from kraftlab.wire.network import TcpWire, Wire
from kraftlab.wire.parts import PartLost
from kraftlab.wire.tls import HandshakeFailed, SilentEnd, TlsWire
from kraftlab.wire.transport import ListenError

from .admin_calls import Unanswerable
from .authenticator import Answer, Authenticator, ConnectionEnd, Serve
from .codec import KafkaRequest, LargeRequest, MalformedRequest, decode_request, peek
from .connection import ClientConnection, ConnectionClosed, FrameBudget
from .data import Acks0Failed
from .door import Door
from .unserved import VainClients, refusal_of

logger = logging.getLogger("kraftlab.gateway")

FRAMES_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of large requests in memory at once."""


class NotAuthenticated(Exception):
    """A client has not proven who it is; the text is for the log."""


Setting = Callable[[str], str | None]
"""The broker's present value of a config."""


class KafkaListener:
    """Serves the door on host:port. Use: `port = await nursery.start(listener.serve)`; cancel the scope to stop."""

    def __init__(self, door: Door, host: str, port: int, setting: Setting, entrance: Entrance = OPEN) -> None:
        self._door = door
        self._entrance = entrance
        self._half_open = HalfOpen()
        self._audit = AuditLog()
        self._host, self._port = host, port
        self._setting = setting
        self._connections: Counter[str] = Counter()
        """Number of open connections by the client's address."""
        self._frame_bytes_max = int(setting("socket.request.max.bytes") or 0)
        self._budget = FrameBudget(max(FRAMES_BYTES_MAX, self._frame_bytes_max))
        self._lines = LimitedLog(logger, trio.current_time)
        self._vain = VainClients()
        self._one_large = trio.CapacityLimiter(1)

    def statistics(self) -> dict[str, int]:
        return {"connections": self._connections.total(), "frame_bytes": self._budget.used_bytes}

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
            await trio.serve_listeners(self._accept, listeners, handler_nursery=nursery)

    async def _accept(self, stream: trio.SocketStream) -> None:
        try:
            host = stream.socket.getpeername()[0].removeprefix("::ffff:")
        except OSError:  # The client has reset the connection already.
            await stream.aclose()
            return
        reason = self._too_many(host)
        if reason:
            self._lines.warning("closed a connection of %s: %s", host, reason)
            await stream.aclose()
            return
        connected = TcpWire(stream.socket)
        try:
            wire: Wire = connected if self._entrance.context is None else TlsWire(connected, self._entrance.context())
        except SilentEnd:
            return
        self._connections[host] += 1
        try:
            await self._serve_client(wire, host)
        finally:
            wire.close()
            self._connections[host] -= 1
            if not self._connections[host]:
                del self._connections[host]

    def _too_many(self, host: str) -> str:
        """Return the reason to refuse one more connection of that address, "" without one."""
        if self._connections.total() >= int(self._setting("max.connections") or sys.maxsize):
            return f"{self._connections.total()} connections are open already (max.connections)"
        limit = self._limits_by_host().get(host, int(self._setting("max.connections.per.ip") or sys.maxsize))
        if self._connections[host] >= limit:
            return f"{limit} connections of this address are open already (max.connections.per.ip)"
        return ""

    def _limits_by_host(self) -> dict[str, int]:
        pairs = (item.rpartition(":") for item in split_list(self._setting("max.connections.per.ip.overrides") or ""))
        return {host: int(number) for host, _, number in pairs}

    def _idle_timeout_s(self) -> float:
        idle_ms = int(self._setting("connections.max.idle.ms") or -1)
        return math.inf if idle_ms < 0 else idle_ms / 1000

    async def _serve_client(self, wire: Wire, host: str) -> None:
        connection = ClientConnection(wire, self._frame_bytes_max, self._idle_timeout_s)
        try:
            if self._entrance.is_open:
                authenticator = Authenticator(None)
            else:
                authenticator = await self._prove(wire, connection, host)
            while True:
                await self._serve_frame(connection, authenticator, host)
        except ConnectionClosed as error:
            if str(error):
                logger.debug("a connection of %s ended: %s", host, error)
        except SilentEnd as error:
            logger.debug("a connection of %s ended: %s", host, error)
        except (HandshakeFailed, NotAuthenticated) as error:
            self._audit.login_failed("KAFKA", host, str(error))
        except (MalformedRequest, Unanswerable, Acks0Failed) as error:
            self._lines.warning("closed a connection of %s: %s", host, error)
        except (OSError, PartLost) as error:
            logger.debug("a connection of %s ended: %s", host, error)
        except Exception:
            self._lines.exception("a request of %s failed; its connection is closed", host)

    async def _prove(self, wire: Wire, connection: ClientConnection, host: str) -> Authenticator:
        """Let the client prove who it is, within the time for that. HandshakeFailed, NotAuthenticated."""
        with self._half_open.bounded(host):
            principal = ANONYMOUS
            if isinstance(wire, TlsWire):
                await wire.shake_hands(self._half_open.turn)
                self._entrance.opened(wire)
                principal = self._principal(wire)
            authenticator = Authenticator(self._entrance.sasl, principal)
            while not authenticator.is_authenticated:
                await self._serve_frame(connection, authenticator, host)
            return authenticator
        raise NotAuthenticated(f"it was not authenticated within {PROOF_TIMEOUT_S:.0f} s, or had to make room for others")

    def _principal(self, wire: TlsWire) -> str:
        if wire.certificate is None or self._entrance.sasl is not None:
            return ANONYMOUS
        try:
            return self._entrance.principal_of(wire.certificate)
        except ValueError as error:
            raise NotAuthenticated(f"its certificate names nobody: {error}") from error

    async def _serve_frame(self, connection: ClientConnection, authenticator: Authenticator, host: str) -> None:
        login_bytes_max = authenticator.frame_bytes_max
        try:
            size = await connection.next_size(login_bytes_max)
        except MalformedRequest:
            if login_bytes_max is not None:
                await self._hold_back()
            raise
        async with self._budget.room(size):
            frame = await connection.body(size)
            action = authenticator.receive(frame, trio.current_time())
            if isinstance(action, Serve):
                await self._serve_request(connection, frame, host, action.principal)
            elif isinstance(action, Answer):
                await connection.send(action.parts)
            else:
                await self._end(connection, action)

    async def _end(self, connection: ClientConnection, ending: ConnectionEnd) -> NoReturn:
        if ending.failed:
            await self._hold_back()
        if ending.parts:
            await connection.send(ending.parts)
        raise NotAuthenticated(ending.reason)

    async def _hold_back(self) -> None:
        """Wait before a failed login is answered, so that passwords cannot be tried quickly (KIP-306)."""
        await trio.sleep(int(self._setting("connection.failed.authentication.delay.ms") or 0) / 1000)

    async def _serve_request(self, connection: ClientConnection, frame: memoryview, host: str, principal: str) -> None:
        begun_s = time.perf_counter()
        head, figures = peek(frame), self._door.figures
        offer = self._door.offers.get(head.key)
        if offer is not None and offer.lowest <= head.version <= offer.highest:
            figures.arrived(offer.name, head.version)
            request = await self._decoded(frame)
            if line := self._vain.line_for(request, host, trio.current_time()):
                self._lines.warning("%s", line)
            answer = await self._door.answer(request, Caller(principal, host, request.client_id))
        elif head.key == API_VERSIONS:
            answer = self._door.unsupported(head)
        else:
            raise MalformedRequest(refusal_of(head, frame))
        answered_s = time.perf_counter()
        if answer is not None:
            await connection.send(answer)
        if offer is not None:
            figures.sent(offer.name, begun_s, answered_s, time.perf_counter())

    async def _decoded(self, frame: memoryview) -> KafkaRequest:
        """Decode a request, with many elements on a thread: one such request at a time."""
        try:
            return decode_request(frame, ELEMENTS_AT_ONCE)
        except LargeRequest:
            decoded = await trio.to_thread.run_sync(decode_request, frame, abandon_on_cancel=True, limiter=self._one_large)
            return decoded._replace(is_large=True)


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
