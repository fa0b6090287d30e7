"""The lock of one log, and the pins of its readers.

Changes of the log are made under the lock. A reader holds it only to add a pin, and reads beside appends; `exclusive` waits until
no pin is left, and lets nobody in meanwhile. There are tens of thousands of these, most of which nobody ever waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Pins:
    """`lock` is re-entrant."""

    __slots__ = ("_changed", "_count", "_exclusive_thread", "_waiting", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed: threading.Condition | None = None
        """Made for the first thread that waits."""
        self._count = 0
        self._waiting = 0
        self._exclusive_thread: int | None = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock with no reader inside. Re-entrant; a thread that reads must not ask for it."""
        with self.lock:
            self._waiting += 1
            try:
                while self._count:
                    self._wait()
                outer, self._exclusive_thread = self._exclusive_thread, threading.get_ident()
                try:
                    yield
                finally:
                    self._exclusive_thread = outer
            finally:
                self._waiting -= 1
                self._notify()

    @contextmanager
    def added(self) -> Iterator[None]:
        """Hold the lock, and keep a pin from the end of the block on, until `remove`; unless the block fails."""
        with self.lock:
            while self._waiting and self._exclusive_thread != threading.get_ident():
                self._wait()
            yield
            self._count += 1

    def remove(self) -> None:
        with self.lock:
            self._count -= 1
            self._notify()

    def _wait(self) -> None:
        if self._changed is None:
            self._changed = threading.Condition(self.lock)
        self._changed.wait()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.notify_all()
