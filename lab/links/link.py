"""One link of a cluster, from a node to another, and the pipes that carry its messages.

Theory of operation. A link is directed: it carries what `source` sends to `target`. That runs on two kinds of connections, since
responses flow back where requests came: requests of `source` on the connections that it opened, and its answers on those that
`target` opened. Each direction of a connection is a `Pipe`; a link is its pipes, and what is done to their messages.

A link that is clear passes bytes on as they come, from the task that read them. As soon as it is held or shaped, messages go
through the pipe's queue, each with the time at which it is due, and a second task delivers them; it ends when the queue is empty
and the link clear again. So there is one writer at any time, and messages stay in order unless the shape says otherwise.

A held link delivers nothing, not even the end of a connection: the other side does not learn that the process has gone. Healing
releases what was held (late, as a network delivers what was on its way) or drops it; a message that had begun to arrive at the
target is completed either way. What is held beyond `HELD_BYTES_MAX` stays with the sender, whose writes begin to wait. A link
that resets breaks every connection on which one of its messages runs, at once and as soon as there is another one.
"""

from __future__ import annotations

import heapq
import random
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from .frame_splitter import FrameSplitter, frames_of
from .shape import PLAIN, Cut, LinkShape

HELD_BYTES_MAX = 16 * 1024 * 1024
"""A pipe that has so much to deliver reads no more."""


class Link:
    """What is done to messages from `source` to `target`. Belongs to the proxies' thread."""

    def __init__(self, source: int, target: int, seed: int = 0) -> None:
        self.source = source
        self.target = target
        self.cut: Cut | None = None
        self.shape = PLAIN
        self.chance = random.Random(f"link {seed} {source} {target}")
        self.pipes: dict[Pipe, None] = {}
        """In the order in which they came."""

    def __repr__(self) -> str:
        return f"link {self.source}→{self.target}{f' {self.cut.value}' if self.cut else ''}"

    @property
    def is_clear(self) -> bool:
        return self.cut is None and self.shape is PLAIN

    def change(self, cut: Cut | None, shape: LinkShape, *, drop: bool = False) -> None:
        """Cut, heals, shapes. `drop`: messages that wait are lost."""
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
    """One direction of one connection. `target` gives the socket to write to, `reset` breaks the connection; `read` and what it
    starts in `nursery` return when the end has been delivered, `on_end` says so."""

    def __init__(
        self,
        link: Link,
        source: socket.socket,
        splitter: FrameSplitter,
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
        """The connection is over."""
        self._link.pipes.pop(self, None)

    def wake(self) -> None:
        self._woken.set()

    def drop(self) -> None:
        """Forget the messages that wait; the end of the connection is none."""
        self._queue = [message for message in self._queue if not message.frame]
        self.waiting_bytes = 0
        self._drops += 1
        self._room.set()

    @property
    def is_ended(self) -> bool:
        """Whether the source has closed; the target does not know yet."""
        return self._ended

    async def read(self) -> None:
        """Pass on what comes until the source closes. FrameError at garbage."""
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
        """Whole frames that the source has sent."""
        if self._link.is_clear and not self._delivering:
            await self._write(whole)
            return
        for frame in frames_of(whole):
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
        """To the target; what a target that has gone does not take is lost."""
        sent, size, drops = 0, len(data), self._drops
        target = await self._target()
        with memoryview(data) as view:
            while sent < size:
                while self._link.cut is not None:
                    self._woken = trio.Event()
                    await self._woken.wait()
                if self._drops != drops:
                    size, drops = _end_of_begun(data, sent), self._drops
                    continue
                try:
                    sent += target.send(view[sent:size])
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(target)
                except OSError:
                    return


def _end_of_begun(whole: bytes, sent: int) -> int:
    """Where the frame ends of which a part has been sent."""
    end = 0
    for frame in frames_of(whole):
        if end >= sent:
            break
        end += len(frame)
    return end
