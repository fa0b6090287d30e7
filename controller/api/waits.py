"""Waiting in the API: the only difference between a served controller and a simulated one.

The service awaits nothing else, so the same service runs on trio and in a simulation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio

from ..engine.purgatory import Answer

T = TypeVar("T")


class Waits(Protocol):
    """Ways to wait."""

    async def within(self, timeout_ms: int, wait: Callable[[], Awaitable[None]]) -> bool:
        """Run `wait` for at most `timeout_ms`. Return False if it did not finish and was cancelled."""
        ...

    async def answered(self, answer: Answer[T]) -> T:
        """Wait for an answer and return its value, or raise its error."""
        ...

    async def offload(self, run: Callable[[], T]) -> T:
        """Return the result of a long computation, while the event loop goes on."""
        ...


class TrioWaits:
    """Waits on trio's clock. One computation at a time runs on a thread."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(1)

    async def within(self, timeout_ms: int, wait: Callable[[], Awaitable[None]]) -> bool:
        with trio.move_on_after(max(0, timeout_ms) / 1000):
            await wait()
            return True
        return False

    async def answered(self, answer: Answer[T]) -> T:
        return await answer.wait()

    async def offload(self, run: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(run, limiter=self._threads)
