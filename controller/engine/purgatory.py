"""Answers that wait until what they are based on is committed.

Theory of operation. An operation on the active controller sees state that is not committed yet. Its answer therefore
waits in the purgatory for an end offset: its own records' for a write, the highest one pending for an operation that
wrote nothing (so that an error computed from uncommitted state is never told before that state is durable). Offsets only
rise, so the purgatory is a queue: `complete_to` answers from its head. When leadership is lost everything in it fails;
whether those writes survive is unknown.

`Answer` is the value that comes later: it is completed once, calls back at once, and can be awaited by one task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import trio

from kraftlab.metadata.errors import ApiError

T = TypeVar("T")


class Answer(Generic[T]):
    """Completed exactly once, with a value and the metadata offset it reflects, or with an error. Later completions are
    ignored.
    """

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
        """Calls back when done, at once if that is now. One callback only."""
        if self.done:
            callback(self)
        else:
            self._callback = callback

    async def wait(self) -> T:
        """The value; raises the error. Cancelling the wait leaves the operation as it is. Always a checkpoint."""
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
    """What waits for the log, in the order of its offsets."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def defer(self, offset: int, release: Callable[[int], None], fail: Callable[[ApiError], None]) -> None:
        """`release` is called with the offset when everything below it is committed, `fail` if leadership is lost before."""
        self._waiting.append(_Waiting(offset, release, fail))

    def postpone(self, offset: int, to_offset: int) -> None:
        """Who waits for `offset`, the last that anybody waits for, waits for a later one: what it stands for ends there."""
        waiting = self._waiting
        moved = []
        while waiting and offset < to_offset and waiting[-1].offset == offset:
            moved.append(waiting.pop()._replace(offset=to_offset))
        waiting.extend(reversed(moved))

    def complete_to(self, committed_offset: int) -> None:
        """Releases everything that waits for an offset up to this one, oldest first."""
        waiting = self._waiting
        while waiting and waiting[0].offset <= committed_offset:
            entry = waiting.popleft()
            entry.release(entry.offset)

    def fail_all(self, error: Callable[[int], ApiError]) -> None:
        """Fails everything that waits, with the error for the offset that it waits for."""
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            entry.fail(error(entry.offset))

    def __len__(self) -> int:
        return len(self._waiting)
