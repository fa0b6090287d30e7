"""Answers that wait for a commit.

Theory of operation. An operation on the active controller sees uncommitted state. So its answer waits in the purgatory for an
end offset: the end of its own records, or for an operation that wrote nothing, the end of the last batch in flight. So no
error that was computed from uncommitted state is sent before that state is durable. Offsets only rise, so the purgatory is a
queue, and `complete_to` releases answers from its head. When leadership is lost, everything in it fails, and the outcome of
those writes is unknown.

`Answer` is a value that comes later. It is completed once, calls back at once, and can be awaited by one task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import trio

from kraftlab.common.errors import ApiError

T = TypeVar("T")


class Answer(Generic[T]):
    """Completed once: with a value and the metadata offset that it reflects, or with an error. Later completions are ignored."""

    __slots__ = ("_callback", "_event", "done", "error", "offset", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T | None = None
        self.error: ApiError | None = None
        self.offset = -1
        self._event: trio.Event | None = None
        self._callback: Callable[[Answer[T]], None] | None = None

    def succeed(self, value: T, offset: int) -> None:
        if not self.done:
            self.value = value
            self.offset = offset
            self._finish()

    def fail(self, error: ApiError) -> None:
        if not self.done:
            self.error = error
            self._finish()

    def when_done(self, callback: Callable[[Answer[T]], None]) -> None:
        """Call back when done, at once if it is done already. One callback only."""
        if self.done:
            callback(self)
        else:
            self._callback = callback

    async def wait(self) -> T:
        """Return the value, or raise the error. Cancelling the wait does not cancel the operation. Always a checkpoint."""
        if self.done:
            await trio.lowlevel.checkpoint()
        else:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value

    def _finish(self) -> None:
        self.done = True
        if self._event is not None:
            self._event.set()
        if self._callback is not None:
            callback, self._callback = self._callback, None
            callback(self)


class _Waiting(NamedTuple):
    offset: int
    release: Callable[[int], None]
    fail: Callable[[ApiError], None]


class Purgatory:
    """Callbacks that wait for the log, ordered by offset."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def defer(self, offset: int, release: Callable[[int], None], fail: Callable[[ApiError], None]) -> None:
        """Call `release` with the offset once everything below it is committed, or `fail` if leadership is lost before."""
        self._waiting.append(_Waiting(offset, release, fail))

    def postpone(self, offset: int, to_offset: int) -> None:
        """Move the waiters for `offset`, the last offset that anything waits for, to a later one: their change ends there now."""
        waiting = self._waiting
        moved = []
        while waiting and offset < to_offset and waiting[-1].offset == offset:
            moved.append(waiting.pop()._replace(offset=to_offset))
        waiting.extend(reversed(moved))

    def fail_last(self, offset: int, error: ApiError) -> None:
        """Fail the waiters for `offset`, the last offset that anything waits for: their change no longer gets there."""
        while self._waiting and self._waiting[-1].offset == offset:
            self._waiting.pop().fail(error)

    def complete_to(self, committed_offset: int) -> None:
        """Release every waiter for an offset up to this one, oldest first."""
        waiting = self._waiting
        while waiting and waiting[0].offset <= committed_offset:
            entry = waiting.popleft()
            entry.release(entry.offset)

    def fail_all(self, error: Callable[[int], ApiError]) -> None:
        """Fail every waiter, with the error for its offset."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            entry.fail(error(entry.offset))

    def __len__(self) -> int:
        return len(self._waiting)
