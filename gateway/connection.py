"""One connection of a Kafka client: frames in, frames out.

Theory of operation. A frame is read only when the answer to the last one has been sent, so answers are in the order of requests,
and a client that does not read its answers is not read from. The memory of a frame grows with the bytes that have arrived, not
with the length that the client claims. Large frames of all connections share one budget: a frame waits with its first byte until
the budget has room for all of it, and has to arrive within a time that follows from its size. So neither many connections nor
slow ones can fill the memory.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from kraftlab.wire.network import Wire
from kraftlab.wire.parts import InMemory, Part, joined

from .codec import MalformedRequest

SMALL_FRAME_BYTES_MAX = 64 * 1024
"""A frame of this size needs no budget."""
FRAME_TIMEOUT_S = 30.0
FRAME_BYTES_PER_S_MIN = 1024 * 1024
"""A frame has to arrive within FRAME_TIMEOUT_S, and more time at this rate if it is large."""
AWAITED_BYTES_MAX = 256 * 1024
"""Bytes of a large frame that arrive before its reader is woken."""
_LENGTH = struct.Struct(">i")
_OTHER_PROTOCOLS = {0x16: " (a TLS handshake)", 0x47: " (HTTP)", 0x50: " (HTTP)"}
"""First byte → the protocol that begins with it."""


class ConnectionClosed(Exception):
    """The connection is over. The text gives the reason, "" if the client closed it between two requests."""


class FrameBudget:
    """Bytes of large frames that may be in memory at once, over all connections. A frame that is alone always has room."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._changed = trio.Event()
        self.used_bytes = 0

    @asynccontextmanager
    async def room(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold room for a frame inside the block; wait for it first. Small frames need none."""
        if size_bytes <= SMALL_FRAME_BYTES_MAX:
            yield
            return
        while self.used_bytes and self.used_bytes + size_bytes > self._total_bytes:
            await self._changed.wait()
        self.used_bytes += size_bytes
        try:
            yield
        finally:
            self.used_bytes -= size_bytes
            self._changed.set()
            self._changed = trio.Event()


class ClientConnection:
    """Reads requests and sends answers. Without a request for `idle_timeout_s` the connection is over."""

    def __init__(self, wire: Wire, frame_bytes_max: int, idle_timeout_s: Callable[[], float]) -> None:
        self._wire = wire
        self._frame_bytes_max = frame_bytes_max
        self._idle_timeout_s = idle_timeout_s
        self._awaited_bytes = 1

    async def next_size(self, login_bytes_max: int | None = None) -> int:
        """Wait for a request and return its claimed size. ConnectionClosed; MalformedRequest for an impossible size.

        `login_bytes_max`: the limit within a login, where a request may be empty.
        """
        lowest, highest, key = (
            (0, login_bytes_max, "sasl.server.max.receive.size")
            if login_bytes_max is not None
            else (1, self._frame_bytes_max, "socket.request.max.bytes")
        )
        with trio.move_on_after(self._idle_timeout_s()):
            await self._readable(1)
            (size,) = _LENGTH.unpack(start := await self._bytes(_LENGTH.size, is_first=True))
            if not lowest <= size <= highest:
                advice = _OTHER_PROTOCOLS.get(start[0], "")
                raise MalformedRequest(f"the length of a request is {size}{advice}, expected {lowest} to {highest} ({key})")
            return int(size)
        raise ConnectionClosed("no request came for connections.max.idle.ms")

    async def body(self, size: int) -> memoryview:
        """Return the request of that size, read-only. ConnectionClosed if it does not arrive whole in time."""
        timeout_s = FRAME_TIMEOUT_S + size / FRAME_BYTES_PER_S_MIN
        with trio.move_on_after(timeout_s):
            return memoryview(await self._bytes(size)).toreadonly()
        raise ConnectionClosed(f"a request of {size} bytes did not arrive within {timeout_s:.0f} s")

    async def send(self, parts: Sequence[Part]) -> None:
        """Send an answer. ConnectionClosed if the client does not take it; OSError, PartLost."""
        with trio.move_on_after(self._idle_timeout_s()):
            for part in joined(parts):
                if isinstance(part, InMemory):
                    await self._send(memoryview(part))
                else:
                    await part.send(self._wire)
            return
        raise ConnectionClosed("the client did not take an answer for connections.max.idle.ms")

    async def _send(self, data: memoryview) -> None:
        while data:
            try:
                data = data[self._wire.send(data) :]
            except BlockingIOError:
                await self._wire.wait_writable()

    async def _bytes(self, size: int, *, is_first: bool = False) -> bytearray:
        """Return that many bytes. ConnectionClosed, without a reason if `is_first` and nothing came."""
        data, filled = bytearray(min(size, SMALL_FRAME_BYTES_MAX)), 0
        while filled < size:
            if filled == len(data):
                data.extend(bytes(min(filled, size - filled)))
            with memoryview(data) as room:
                try:
                    count = self._wire.recv_into(room[filled:])
                except BlockingIOError:
                    count = -1
            if count > 0:
                filled += count
            elif not count:
                raise ConnectionClosed("" if is_first and not filled else "the client closed the connection within a request")
            else:
                await self._readable(size - filled)
        return data

    async def _readable(self, missing_bytes: int) -> None:
        awaited_bytes = min(missing_bytes, AWAITED_BYTES_MAX)
        if awaited_bytes != self._awaited_bytes:
            self._awaited_bytes = awaited_bytes
            self._wire.await_bytes(awaited_bytes)
        await self._wire.wait_readable()
