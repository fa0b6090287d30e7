"""The network between nodes: the interface that the shell needs, and TCP, its implementation on real nodes.

A connection's end is a `Wire`, which behaves as a non-blocking socket. `send` takes as many bytes as fit and raises
BlockingIOError if none do. `recv_into` returns the available bytes, 0 when the peer has closed. Experiments use a network in
memory, which they can break.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.peer_name import PeerName

CONNECT_TIMEOUT_S = 2.0
_TCP_INFO = 11
_RTT_US = struct.Struct("68xI")
"""The part of Linux's `struct tcp_info` up to `tcpi_rtt`."""


class Wire(Protocol):
    """One end of a connection. OSError if it is broken; BlockingIOError if there is nothing to do now. Bytes that `send` did not
    take are sent again before any others.
    """

    @property
    def takes_files(self) -> bool:
        """True if `send_from` may be called, in any thread."""
        ...

    @property
    def peer(self) -> PeerName | None:
        """The proven identity of the other end, None if it can only claim one."""
        ...

    @property
    def round_trip_s(self) -> float | None:
        """The round trip to the other end, None if it is unknown."""
        ...

    def send(self, data: bytes | bytearray | memoryview, /) -> int: ...

    def send_from(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        """As `send`, for bytes of an open file; may wait for its disk."""

    def recv_into(self, room: memoryview, /) -> int: ...

    def await_bytes(self, size_bytes: int, /) -> None:
        """Let `wait_readable` wait for so many bytes, or the end: fewer wake-ups for a large frame."""

    def wait_readable(self) -> Awaitable[None]: ...

    def wait_writable(self) -> Awaitable[None]: ...

    def close(self) -> None: ...


Accept = Callable[[Wire, str], Awaitable[None]]
"""Serves a connection from that address, in its own task, and closes the wire."""


class ListeningPort(Protocol):
    """A port that is in use; `number` is its number."""

    @property
    def number(self) -> int: ...

    async def serve(self, accept: Accept, nursery: trio.Nursery) -> None:
        """Accept connections until cancelled, with their tasks in `nursery`; then free the port."""


class Network(Protocol):
    """One node's connections to the others. `chance` draws its pauses between attempts."""

    @property
    def chance(self) -> random.Random: ...

    async def connect(self, endpoint: Endpoint) -> Wire:
        """Connect. OSError; ConnectionRefusedError only if nothing listens there."""
        ...

    async def listen(self, host: str, port: int) -> ListeningPort:
        """Listen on the port; 0 takes any free one. OSError."""
        ...


class TcpWire(socket.socket):
    """A connected socket."""

    __slots__ = ()
    takes_files = True
    peer = None

    def __init__(self, connected: socket.socket | trio.socket.SocketType) -> None:
        super().__init__(fileno=connected.detach())
        self.setblocking(False)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def round_trip_s(self) -> float | None:
        return round_trip_s(self)

    def send_from(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        return os.sendfile(self.fileno(), descriptor, position, size_bytes)

    def await_bytes(self, size_bytes: int, /) -> None:
        with suppress(OSError):
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def wait_readable(self) -> Awaitable[None]:
        return trio.lowlevel.wait_readable(self)  # noqa: ASYNC105 the caller awaits it: no coroutine between them

    def wait_writable(self) -> Awaitable[None]:
        return trio.lowlevel.wait_writable(self)  # noqa: ASYNC105


def round_trip_s(connected: socket.socket) -> float | None:
    """Return the round trip as the kernel smooths it (TCP_INFO), None where it does not tell."""
    try:
        information = connected.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RTT_US.size)
        microseconds: int = _RTT_US.unpack(information)[0]
    except (OSError, struct.error):
        return None
    return microseconds / 1e6 if microseconds else None


class TcpPort:
    """Listening sockets."""

    def __init__(self, listeners: list[trio.SocketListener]) -> None:
        self._listeners = listeners
        self.number: int = listeners[0].socket.getsockname()[1]

    async def serve(self, accept: Accept, nursery: trio.Nursery) -> None:
        async def serve_stream(stream: trio.SocketStream) -> None:
            wire = TcpWire(stream.socket)
            await accept(wire, _address_of(wire))

        await trio.serve_listeners(serve_stream, self._listeners, handler_nursery=nursery)


class TcpNetwork:
    """The kernel's network."""

    def __init__(self) -> None:
        self.chance: random.Random = random.SystemRandom()  # nodes that are forked from one process must not draw the same
        self.introduction = b""
        """First bytes of every connection, for a proxy that takes them away."""

    async def connect(self, endpoint: Endpoint) -> TcpWire:
        """Connect to the first address that accepts. ConnectionRefusedError only if every address refused.

        Otherwise OSError of another address. Endpoints come from logs and from peers: an impossible one is an OSError too.
        """
        failures: list[OSError] = []
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                addresses = await trio.socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
                for family, kind, protocol, _, address in addresses:
                    connecting = trio.socket.socket(family, kind, protocol)
                    try:
                        await connecting.connect(address)
                        if self.introduction:
                            await connecting.send(self.introduction)
                        return TcpWire(connecting)
                    except OSError as error:
                        failures.append(error)
                    finally:
                        connecting.close()
        except trio.TooSlowError as error:
            raise TimeoutError(f"no connection within {CONNECT_TIMEOUT_S:.0f} s") from error
        except (ValueError, OverflowError) as error:
            raise OSError(f"invalid address: {error}") from error
        raise next((error for error in failures if not isinstance(error, ConnectionRefusedError)), failures[-1])

    async def listen(self, host: str, port: int) -> TcpPort:
        return TcpPort(await trio.open_tcp_listeners(port, host=host or None))


def host_of(source: str) -> str:
    """Return the host of a peer's address in text."""
    return source.rpartition(":")[0].strip("[]")


def _address_of(connected: socket.socket) -> str:
    try:
        name = connected.getpeername()
    except OSError:
        return "a peer that has gone"
    return str(Endpoint(name[0], name[1]))


TCP = TcpNetwork()
