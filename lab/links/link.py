"""One link of a cluster, from a node to another, and the pipes that carry its messages.

Theory of operation. A link is directed: it carries messages from `source` to `target`. They run on two kinds of connections,
since responses flow back on the connection of the request: requests of `source` on the connections that it opened, and its
answers on those that `target` opened. Each direction of a connection is a `Pipe`; a link has pipes, and rules for their messages.

A clear link passes bytes on as they come, from the task that read them. As soon as it is held or shaped, messages go through the
pipe's queue, each with the time at which it is due, and a second task delivers them; it ends when the queue is empty and the link
clear again. So there is one writer at any time, and messages stay in order unless the shape changes the order.

A held link delivers nothing, not even the end of a connection: the other side does not learn that the process has gone. Healing
releases held messages (late, as a network delivers them) or drops them; a message of which a part has arrived at the target is
completed either way. Beyond `HELD_BYTES_MAX`, messages stay with the sender, whose writes begin to wait. A link that resets
breaks every connection that carries one of its messages, at once and at each later message.
"""

from __future__ import annotations

import heapq
import random
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from .frame_splitter import Splitter
from .shape import PLAIN, Cut, LinkShape

HELD_BYTES_MAX = 16 * 1024 * 1024
"""A pipe with that many undelivered bytes reads no more."""


class Link:
    """Rules for messages from `source` to `target`. Belongs to the proxies' thread."""

    def __init__(self, source: int, target: int, seed: int = 0) -> None:
        self.source = source
        self.target = target
        self.cut: Cut | None = None
        self.shape = PLAIN
        self.chance = random.Random(f"link {seed} {source} {target}")
        self.pipes: dict[Pipe, None] = {}
        """In the order of their connections."""

    def __repr__(self) -> str:
        return f"link {self.source}→{self.target}{f' {self.cut.value}' if self.cut else ''}"

    @property
    def is_clear(self) -> bool:
        return self.cut is None and self.shape is PLAIN

    def change(self, cut: Cut | None, shape: LinkShape, *, drop: bool = False) -> None:
        """Cut, heal or shape the link. `drop`: waiting messages are lost."""
        self.cut = cut
        self.shape = PLAIN if shape.is_plain else shape
        for pipe in list(self.pipes):
            if drop:
                pipe.drop()
            if cut is Cut.RESET:
                pipe.reset()
            pipe.wake()

    def waiting_bytes(self) -> int:
        return sum(pipe.waiting_bytes for pipe in self.pipes)


class _Message(NamedTuple):
    """`frame` is empty for the end of the connection."""

    due: float
    number: int
    frame: bytes


class Pipe:
    """One direction of one connection.

    `target` returns the socket to write to, `reset` breaks the connection, `on_end` is called when the end has been delivered;
    then `read` and the tasks that it starts in `nursery` return.
    """

    def __init__(
        self,
        link: Link,
        source: socket.socket,
        splitter: Splitter,
        target: Callable[[], Awaitable[socket.socket]],
        reset: Callable[[], None],
        on_end: Callable[[], None],
        nursery: trio.Nursery,
    ) -> None:
        self.reset = reset
        self.waiting_bytes = 0
        self._link = link
        self._source = source
        self._splitter = splitter
        self._target = target
        self._on_end = on_end
        self._nursery = nursery
        self._queue: list[_Message] = []
        self._numbers = 0
        self._not_before = 0.0
        self._delivering = False
        self._ended = False
        self._drops = 0
        self._woken = trio.Event()
        self._room = trio.Event()
        link.pipes[self] = None

    def leave(self) -> None:
        """Note that the connection is over."""
        self._link.pipes.pop(self, None)

    def wake(self) -> None:
        self._woken.set()

    def drop(self) -> None:
        """Drop waiting messages, but not the end of the connection. A connection without known messages breaks instead."""
        if self._queue and not self._splitter.has_messages:
            self.reset()
        self._queue = [message for message in self._queue if not message.frame]
        self.waiting_bytes = 0
        self._drops += 1
        self._room.set()

    @property
    def is_ended(self) -> bool:
        """True if the source has closed and the target does not know yet."""
        return self._ended

    async def read(self) -> None:
        """Pass bytes on until the source closes. FrameError for invalid bytes."""
        while True:
            await trio.lowlevel.wait_readable(self._source)
            try:
                count = self._splitter.receive_from(self._source)
            except BlockingIOError:
                continue
            except OSError:
                count = 0
            if not count:
                break
            data = self._splitter.take()
            if data:
                await self.pass_on(data)
        self._ended = True
        if self._link.is_clear and not self._delivering:
            self._on_end()
        else:
            self._put(trio.current_time(), b"")

    async def pass_on(self, whole: bytes) -> None:
        """Pass on whole frames from the source."""
        if self._link.is_clear and not self._delivering:
            await self._write(whole)
            return
        for frame in self._splitter.messages(whole):
            if self._link.cut is Cut.RESET:
                self.reset()
                return
            copies, self._not_before = self._link.shape.deliveries(self._link.chance, trio.current_time(), self._not_before)
            for due in copies:
                self._put(due, frame)
        while self.waiting_bytes > HELD_BYTES_MAX:
            self._room = trio.Event()
            await self._room.wait()

    def _put(self, due: float, frame: bytes) -> None:
        heapq.heappush(self._queue, _Message(due if frame else max(due, self._last_due()), self._numbers, frame))
        self._numbers += 1
        self.waiting_bytes += len(frame)
        self._woken.set()
        if not self._delivering:
            self._delivering = True
            self._nursery.start_soon(self._deliver)

    def _last_due(self) -> float:
        return max((message.due for message in self._queue), default=0.0)

    async def _deliver(self) -> None:
        while self._queue:
            due = float("inf") if self._link.cut is not None else self._queue[0].due
            if due > trio.current_time():
                self._woken = trio.Event()
                with trio.CancelScope(deadline=due):
                    await self._woken.wait()
                continue
            message = heapq.heappop(self._queue)
            if not message.frame:
                self._on_end()
                return
            self.waiting_bytes -= len(message.frame)
            self._room.set()
            await self._write(message.frame)
        self._delivering = False

    async def _write(self, data: bytes) -> None:
        """Write to the target; bytes for a target that has gone are lost."""
        sent, size, drops = 0, len(data), self._drops
        target = await self._target()
        with memoryview(data) as view:
            while sent < size:
                while self._link.cut is not None:
                    self._woken = trio.Event()
                    await self._woken.wait()
                if self._drops != drops and not self._splitter.has_messages:
                    self.reset()
                    return
                if self._drops != drops:
                    size, drops = self._end_of_begun(data, sent), self._drops
                    continue
                try:
                    sent += target.send(view[sent:size])
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(target)
                except OSError:
                    return

    def _end_of_begun(self, whole: bytes, sent: int) -> int:
        """The end of the message of which a part has been sent."""
        end = 0
        for message in self._splitter.messages(whole):
            if end >= sent:
                break
            end += len(message)
        return end
