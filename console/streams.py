"""Streams of server-sent events: what threads find out reaches every open page.

Theory of operation. The state of a page is a set of named parts. `put` keeps a part's newest value and, if the value is new,
sends it to every stream; a new stream begins with all parts at once. `send` sends one batch of the metadata log, whose event id
is the offset after it: a browser that comes back names the last id, and gets the batches since from the ring of the follower, or
`reset` if the ring begins later. Each value is encoded once for all streams. A reader that is 64 messages behind loses its
stream, and comes back by itself.

`watched` is set while a page is open, and for REST_S after the last one or a request: everything that asks the cluster waits for
it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Callable

import msgspec
import trio

QUEUE_MESSAGES = 64
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
            self._send(event("part", encode({name: part})))

    def send(self, message: bytes) -> None:
        """Send a message about a batch of the metadata log, or RESET."""
        self._post(lambda: self._send(message))

    def _post(self, function: object) -> None:
        try:
            self._token.run_sync_soon(function)  # type: ignore[arg-type]
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
        for reader in [*self._readers]:
            try:
                reader.send_nowait(message)
            except trio.WouldBlock:
                self._readers.discard(reader)
                reader.close()
            except trio.BrokenResourceError:
                self._readers.discard(reader)

    async def open(self, missed: Callable[[], list[bytes]]) -> AsyncIterator[bytes]:
        """Yield the messages of one stream: the state, then those that `missed` returns, then what happens. A batch that is among
        the missed ones and among those that happen meanwhile is sent once.
        """
        sender, receiver = trio.open_memory_channel[bytes](QUEUE_MESSAGES)
        self._readers.add(sender)
        self.watched.set()
        try:
            sent = missed()
            yield b"retry: %d\n\n" % RETRY_MS + event("state", self.state())
            for message in sent:
                yield message
            async for message in receiver:
                if message.startswith(b"id: "):
                    if message in sent:
                        continue
                    sent = []
                yield message
        finally:
            self._readers.discard(sender)
            receiver.close()
            self._left_at = trio.current_time()

    async def tick(self) -> None:
        """Send the time and the age of each part every second, and rest when nobody looks. Runs until cancelled."""
        while True:
            await trio.sleep(TICK_S)
            if self._readers:
                ages = {name: part.as_of_ms for name, part in self._parts.items()}
                self._send(event("tick", encode({"now_ms": time.time_ns() // 1_000_000, "as_of_ms": ages})))
            elif self.watched.is_set() and trio.current_time() - self._left_at > REST_S:
                self.watched.clear()
