"""Functions to call on the event loop of another thread, with one wake-up for all that are queued meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Errands:
    """`wake` schedules a function on that loop: trio's `run_sync_soon`, asyncio's `call_soon_threadsafe`. Thread-safe."""

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def put(self, errand: Callable[[], object]) -> None:
        """Schedule `errand` after those before it. It must not raise."""
        self._waiting.append(errand)
        if not self._is_woken:
            self._is_woken = True
            self._wake(self._run)

    def _run(self) -> None:
        # An errand that is put from here on is found below, or wakes this loop again, or both.
        self._is_woken = False
        while self._waiting:
            self._waiting.popleft()()
