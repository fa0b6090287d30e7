"""The listener in front of gRPC's server: what is not HTTP/2 is closed and named in the log, everything else is passed through.

Theory of operation. gRPC drops a connection that does not speak HTTP/2 without a word, so nobody would learn of a stranger at
its port. Here a listener of our own has that port. A connection has to begin with the preface of HTTP/2, in time; then it is
connected to gRPC's server, which listens on a Unix socket that only this process knows, and its bytes are carried (`splice.py`).
One thread does all of that: it costs a call less than tasks of the event loop would, and a busy loop does not delay it.

Whoever says nothing and goes, or stays until the time is over (a health check, a port scan), is worth a debug line. Lines about
others are limited in number. Connections that have not shown the preface are few and the oldest gives way, so that silent ones
keep nobody out. gRPC sees a Unix socket as its peer: the name that this end is given tells it the client's address (`host_of`).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import math
import os
import secrets
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from kraftlab.quorum.core.types import Endpoint
from kraftlab.wire.line_limit import LineLimit

from .preface import describe, is_http_1, is_preface, may_become_preface
from .splice import CHUNK_BYTES, Splice

logger = logging.getLogger("kraftlab.rpc")

MAX_CONNECTIONS = 512
MAX_NEWCOMERS = 128
PREFACE_TIMEOUT_S = 5.0
CLIENT_TIMEOUT_S = 30.0
"""A client that takes nothing for so long, although there is something for it, is given up."""
STOP_TIMEOUT_S = 0.5
ACCEPT_PAUSE_S = 0.2
ACCEPTS_AT_ONCE = 32
FIRST_READ_BYTES = 64 * 1024
LINES_AT_ONCE = 50
LINE_INTERVAL_S = 5.0

_READ = selectors.EVENT_READ
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_HINT = "This port speaks gRPC (HTTP/2 without TLS).\n"
_BAD_REQUEST = (
    f"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {len(_HINT)}\r\n\r\n{_HINT}"
).encode()


class Backend(NamedTuple):
    """A Unix socket's address, as gRPC and as the system spell it."""

    grpc_address: str
    path: str


@contextmanager
def private_backend(is_abstract: bool = sys.platform == "linux") -> Iterator[Backend]:
    """An address that nobody else uses. An abstract one (Linux) leaves no file behind, however the process ends."""
    name = f"kraftlab-{os.getpid()}-{secrets.token_hex(8)}"
    if is_abstract:
        yield Backend(f"unix-abstract:{name}", f"\0{name}")
        return
    with tempfile.TemporaryDirectory(prefix="kraftlab-") as directory:
        path = os.path.join(directory, "grpc")
        yield Backend(f"unix:{path}", path)


class FrontDoor:
    """Serves listening sockets, which it closes. Call `run` in a thread of its own; the other methods from any."""

    def __init__(self, name: str, listeners: Sequence[socket.socket], backend: Backend) -> None:
        self._name = name
        self._backend = backend
        self._listeners = tuple(listeners)
        self._selector = selectors.DefaultSelector()
        self._chunk = memoryview(bytearray(CHUNK_BYTES))
        self._newcomers: dict[_Newcomer, float] = {}
        """With their deadlines; the oldest is the first."""
        self._splices: set[Splice] = set()
        self._waiting: dict[Splice, float] = {}
        """Those of `_splices` that wait for their clients, with deadlines; the oldest is the first."""
        self._limit = LineLimit(LINES_AT_ONCE, LINE_INTERVAL_S)
        self._is_listening = False
        self._listens_at = -math.inf
        """From when on connections are accepted (again)."""
        self._is_shut = False
        self._ends_at = math.inf
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._number = itertools.count()
        self._accepted = 0
        self._turned_away = 0

    def statistics(self) -> dict[str, int]:
        """`turned_away` counts connections that never reached gRPC. `newcomers` have not shown the preface yet."""
        return {
            "accepted": self._accepted,
            "turned_away": self._turned_away,
            "newcomers": len(self._newcomers),
            "connections": len(self._splices),
        }

    # --- life ----------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until `stop`."""
        for listener in self._listeners:
            listener.setblocking(False)
        self._wake_reader.setblocking(False)
        self._selector.register(self._wake_reader, _READ, _Turn(self._woken))
        try:
            while self._ends_at == math.inf or (self._splices and time.monotonic() < self._ends_at):
                for key, mask in self._selector.select(self._keep_time(time.monotonic())):
                    key.data.turn(mask)
        finally:
            for newcomer in self._newcomers:
                newcomer.close()
            for splice in tuple(self._splices):
                splice.close()
            for own in (*self._listeners, self._wake_reader, self._wake_writer):
                own.close()
            self._selector.close()

    def stop_listening(self) -> None:
        """Lets nobody in any more."""
        self._is_shut = True
        self._wake()

    def stop(self) -> None:
        """Lets `run` return when gRPC has ended all connections, or soon."""
        self._is_shut = True
        self._ends_at = time.monotonic() + STOP_TIMEOUT_S
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")

    def _woken(self, mask: int) -> None:
        self._wake_reader.recv(64)

    def _keep_time(self, now: float) -> float | None:
        """Does what is due; for how long there is nothing to do by the passing of time alone."""
        self._listen(not self._is_shut and now >= self._listens_at)
        while self._newcomers and _first(self._newcomers) <= now:
            self._too_late(next(iter(self._newcomers)))
        while self._waiting and _first(self._waiting) <= now:
            next(iter(self._waiting)).close()
        if self._limit.tells_at <= now:
            logger.warning("turned away %d more connections to GRPC listener %s", self._limit.admit(now), self._name)
        next_at = min(_first(self._newcomers), _first(self._waiting), self._limit.tells_at, self._ends_at)
        if not self._is_listening and not self._is_shut:
            next_at = min(next_at, self._listens_at)
        return None if next_at == math.inf else max(0.0, next_at - now)

    # --- newcomers -----------------------------------------------------------------------------------------------------------

    def _listen(self, is_wanted: bool) -> None:
        if is_wanted != self._is_listening:
            self._is_listening = is_wanted
            for listener in self._listeners:
                if is_wanted:
                    self._selector.register(listener, _READ, _Turn(partial(self._accept, listener)))
                else:
                    self._selector.unregister(listener)
        if self._is_shut:
            for listener in self._listeners:
                listener.close()

    def _accept(self, listener: socket.socket, mask: int) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connected, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._warn("cannot accept connections: %s", error.strerror)
                    self._listens_at = time.monotonic() + ACCEPT_PAUSE_S
                    return
                continue
            self._accepted += 1
            connected.setblocking(False)
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(self._newcomers) >= MAX_NEWCOMERS:
                self._turn_away(next(iter(self._newcomers)), "others came while it did not say what it wants")
            newcomer = _Newcomer(self, connected, Endpoint(address[0], address[1]))
            self._newcomers[newcomer] = time.monotonic() + PREFACE_TIMEOUT_S
            self._selector.register(connected, _READ, newcomer)

    def hear(self, newcomer: _Newcomer, data: bytes) -> None:
        """Called when a newcomer has said more; no data means that it has hung up."""
        if newcomer not in self._newcomers:
            return
        first = newcomer.first = newcomer.first + data
        if data and is_preface(first):
            self._let_in(newcomer)
        elif not data:
            self._turn_away(newcomer, "it hung up")
        elif not may_become_preface(first):
            if is_http_1(first):
                newcomer.answer(_BAD_REQUEST)
            self._turn_away(newcomer, "")

    def _too_late(self, newcomer: _Newcomer) -> None:
        self._turn_away(newcomer, f"nothing more came within {PREFACE_TIMEOUT_S:.0f} s")

    def _turn_away(self, newcomer: _Newcomer, reason: str) -> None:
        self._turned_away += 1
        if newcomer.first:
            sent = describe(newcomer.first)
            self._warn("closed connection from %s: it sent %s%s", newcomer.source, sent, f"; {reason}" if reason else "")
        else:
            logger.debug("closed connection from %s: it sent nothing; %s (GRPC listener %s)", newcomer.source, reason, self._name)
        self._forget(newcomer)
        newcomer.close()

    def _forget(self, newcomer: _Newcomer) -> None:
        del self._newcomers[newcomer]
        self._selector.unregister(newcomer.socket)

    def _warn(self, message: str, *values: object) -> None:
        suppressed = self._limit.admit(time.monotonic())
        if suppressed is not None:
            more = f"; {suppressed} such lines before this one were left out" if suppressed else ""
            logger.warning(f"{message} (GRPC listener %s)%s", *values, self._name, more)

    # --- connections ---------------------------------------------------------------------------------------------------------

    def _let_in(self, newcomer: _Newcomer) -> None:
        if len(self._splices) >= MAX_CONNECTIONS:
            self._turn_away(newcomer, f"{MAX_CONNECTIONS} connections are open already")
            return
        try:
            backend = _connect(self._backend.path, f"{next(self._number)}{_HOST_MARK}{newcomer.source.host}")
        except OSError as error:
            self._turn_away(newcomer, f"it cannot be passed on: {error.strerror}")
            return
        self._forget(newcomer)
        splice = Splice(self._selector, self._chunk, newcomer.socket, backend, self._changed)
        self._splices.add(splice)
        splice.begin(newcomer.first)

    def _changed(self, splice: Splice) -> None:
        self._waiting.pop(splice, None)
        if splice.waits_for_client:
            self._waiting[splice] = time.monotonic() + CLIENT_TIMEOUT_S
        elif splice.is_closed:
            self._splices.discard(splice)


class _Turn(NamedTuple):
    """What the selector has for a socket that only has one thing to do."""

    turn: Callable[[int], None]


class _Newcomer:
    """A connection that has not shown what it is."""

    __slots__ = ("_door", "first", "socket", "source")

    def __init__(self, door: FrontDoor, connected: socket.socket, source: Endpoint) -> None:
        self._door = door
        self.socket = connected
        self.source = source
        self.first = b""

    def turn(self, mask: int) -> None:
        """Called when the socket is ready."""
        try:
            data = self.socket.recv(FIRST_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._door.hear(self, data)

    def answer(self, text: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.send(text)

    def close(self) -> None:
        self.socket.close()


_HOST_MARK = "-from-"


def host_of(peer: str) -> str:
    """The address of a client, from what gRPC calls its peer; "" if there is none in it."""
    host = unquote(peer).rpartition(_HOST_MARK)[2] if _HOST_MARK in peer else ""
    return host.removeprefix("::ffff:")


def _connect(path: str, name: str) -> socket.socket:
    """To the server at `path`, as a peer whose name ends so."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        own = f"{path}-{name}"
        connecting.bind(own)
        if not own.startswith("\0"):
            os.unlink(own)
        connecting.connect(path)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _first(deadlines: Mapping[Any, float]) -> float:
    """The deadline of the oldest."""
    return next(iter(deadlines.values()), math.inf)
