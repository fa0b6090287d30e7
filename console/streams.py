"""Streams of server-sent events: what threads find out reaches every open page.

Theory of operation. The state of a page is a set of named parts. `put` keeps a part's newest value and, if the value is new,
sends it to every stream; a new stream begins with all parts at once. `send` sends one batch of the metadata log, with the
offset after it as event id: a browser that comes back names the last id, and gets the batches since from the ring of the
follower, or `reset` if the ring begins later.

The first message goes out at once, and what comes within GATHER_S after it goes out together: each value is encoded once for all
streams, and a stream costs a few writes a second however much happens. A reader that is QUEUE_CHUNKS behind loses its stream, and
comes back by itself.

`watched` is set while a page is open, and for REST_S after the last one or a request: everything that asks the cluster waits for
it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, Callable

import msgspec
import trio

QUEUE_CHUNKS = 64
GATHER_S = 0.2
REST_S = 2.0
TICK_S = 1.0
RETRY_MS = 300
encode = msgspec.json.Encoder(enc_hook=str).encode


def event(name: str, data: bytes, offset: int | None = None) -> bytes:
    """Return one server-sent event."""
    head = b"" if offset is None else b"id: %d\n" % offset
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), data)


RESET = event("reset", b"{}")
"""Changes were missed."""


class Part(msgspec.Struct, frozen=True):
    """A part of the state. `as_of_ms`: time of the value. `fault`: why the newest question has no answer; "" if it has one."""

    as_of_ms: int
    fault: str
    value: msgspec.Raw


class Streams:
    """All open streams. `put` and `send` are for threads, `open` for the event loop, on which the streams are made."""

    def __init__(self) -> None:
        self.watched = threading.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._parts: dict[str, Part] = {}
        self._readers: set[trio.MemorySendChannel[bytes]] = set()
        self._waiting: list[bytes] = []
        self._waiting_parts: dict[str, Part] = {}
        self._has_news = trio.Event()
        self._left_at = -math.inf

    def put(self, name: str, value: object, fault: str = "") -> None:
        """Keep a value of a part, which was asked for just now. With a `fault`, the part keeps its last value."""
        raw = None if fault else encode(value)
        now_ms = time.time_ns() // 1_000_000
        self._post(lambda: self._put(name, raw, fault, now_ms))

    def _put(self, name: str, raw: bytes | None, fault: str, now_ms: int) -> None:
        old = self._parts.get(name)
        if raw is None:
            kept = old or Part(0, "", msgspec.Raw(b"null"))
            part = Part(kept.as_of_ms, fault, kept.value)
        else:
            part = Part(now_ms, "", msgspec.Raw(raw))
        self._parts[name] = part
        if old is None or bytes(old.value) != bytes(part.value) or old.fault != fault:
            self._waiting_parts[name] = part
            self._has_news.set()

    def send(self, message: bytes) -> None:
        """Send a message about a batch of the metadata log, or RESET."""
        self._post(lambda: self._send(message))

    def _post(self, function: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            return  # the console stops

    def state(self) -> bytes:
        """Return all parts, as JSON."""
        return encode({"now_ms": time.time_ns() // 1_000_000, "parts": self._parts})

    def touch(self) -> None:
        """Note that somebody asks without a stream, for example a script."""
        self._left_at = trio.current_time()
        self.watched.set()

    @property
    def count(self) -> int:
        """Number of open streams."""
        return len(self._readers)

    def _send(self, message: bytes) -> None:
        self._waiting.append(message)
        self._has_news.set()

    async def flush(self) -> None:
        """Send what waits, and gather what comes meanwhile. Runs until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news = trio.Event()
            self._flush()
            await trio.sleep(GATHER_S)

    def _flush(self) -> None:
        parts, self._waiting_parts = self._waiting_parts, {}
        messages, self._waiting = self._waiting, []
        chunk = b"".join([*messages, event("part", encode(parts)) if parts else b""])
        for reader in [*self._readers]:
            try:
                reader.send_nowait(chunk)
            except trio.WouldBlock:
                self._readers.discard(reader)
                reader.close()
            except trio.BrokenResourceError:
                self._readers.discard(reader)

    async def open(self, missed: Callable[[], list[bytes]]) -> AsyncGenerator[bytes]:
        """Yield what one stream gets: the state, what `missed` returns, and what happens. A batch may come twice."""
        sender, receiver = trio.open_memory_channel[bytes](QUEUE_CHUNKS)
        self._readers.add(sender)
        self.watched.set()
        try:
            yield b"".join([b"retry: %d\n\n" % RETRY_MS, event("state", self.state()), *missed()])
            async for chunk in receiver:
                yield chunk
        finally:
            self._readers.discard(sender)
            receiver.close()
            self._left_at = trio.current_time()

    def end(self) -> None:
        """End every stream, as the console stops."""
        for reader in self._readers:
            reader.close()
        self._readers.clear()

    async def tick(self) -> None:
        """Send the time and the age of each part every second, and rest when nobody looks. Runs until cancelled."""
        while True:
            await trio.sleep(TICK_S)
            if self._readers:
                ages = {name: part.as_of_ms for name, part in self._parts.items()}
                self._send(event("tick", encode({"now_ms": time.time_ns() // 1_000_000, "as_of_ms": ages})))
            elif self.watched.is_set() and trio.current_time() - self._left_at > REST_S:
                self.watched.clear()
