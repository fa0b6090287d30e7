"""Tasks that wait until the committed state has reached an offset."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Protocol


class Signal(Protocol):
    """An event that is set once."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    async def wait(self) -> None: ...


class OffsetWaiters:
    """`signal` makes the event that a task waits for."""

    def __init__(self, signal: Callable[[], Signal]) -> None:
        self._signal = signal
        self._waiting: list[tuple[int, int, Signal]] = []
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, offset: int) -> None:
        """Return once `reached` was called with this offset or a later one."""
        reached = self._signal()
        entry = (offset, next(self._number), reached)
        heapq.heappush(self._waiting, entry)
        try:
            await reached.wait()
        finally:
            if not reached.is_set():
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)

    def reached(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            heapq.heappop(self._waiting)[2].set()
