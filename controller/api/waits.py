"""What a door waits for, and on what clock: the one thing in which a served controller and a simulated one differ.

The service itself awaits nothing else, so it answers a call in whichever world its waits belong to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio

from ..engine.purgatory import Answer

T = TypeVar("T")


class Waits(Protocol):
    """The world's own ways to wait."""

    async def within(self, timeout_ms: int, wait: Callable[[], Awaitable[None]]) -> bool:
        """Waits for that as long as it may take; False if it did not come, and was given up."""
        ...

    async def answered(self, answer: Answer[T]) -> T:
        """The value of an answer once it is there; raises its error."""
        ...

    async def aside(self, run: Callable[[], T]) -> T:
        """What a function that takes long returns, while the node goes on to do other things."""
        ...


class TrioWaits:
    """On trio's clock. One thing at a time is worked out aside, on a thread."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(1)

    async def within(self, timeout_ms: int, wait: Callable[[], Awaitable[None]]) -> bool:
        with trio.move_on_after(max(0, timeout_ms) / 1000):
            await wait()
            return True
        return False

    async def answered(self, answer: Answer[T]) -> T:
        return await answer.wait()

    async def aside(self, run: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(run, limiter=self._threads)
