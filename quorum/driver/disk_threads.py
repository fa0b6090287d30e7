"""Threads for disk work. A disk that no longer answers must not keep the process alive.

Theory of operation. `DiskThreads.run` is `trio.to_thread.run_sync` for functions that read and write files. A cancelled caller
waits for the function as usual, because files are best left in order, but not for long: a thread that hangs in the kernel is
abandoned and ends with the process. A thread that had not begun does not touch a file. `is_stuck` while a thread is
abandoned: the files that it may be using must not be closed, because their descriptors could be reused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio

from .worker_thread import WorkerThread

SETTLE_TIMEOUT_S = 2.0
"""Time that a cancelled task waits for a disk that does not answer."""
_LOOK_INTERVAL_S = 0.01

P = ParamSpec("P")
R = TypeVar("R")


class DiskThreads:
    """The threads that work for one node's disk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0

    @property
    def is_stuck(self) -> bool:
        """True if a function is still running without a caller that waits for it."""
        return self._working > 0

    async def run(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Run `function` in a thread; return its result."""
        return await self.run_limited(None, function, *arguments, **options)

    def check_cancelled(self) -> None:
        """End the calling function, which runs here, if its caller no longer waits."""
        trio.from_thread.check_cancelled()

    def worker(self, name: str) -> WorkerThread:
        """Return a thread for one task alone."""
        return WorkerThread(name)

    async def run_limited(
        self, limiter: trio.CapacityLimiter | None, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
    ) -> R:
        """Run `function` as `run` does, in at most as many threads as `limiter` allows."""
        has_begun = is_given_up = False
        ended = threading.Event()

        def work() -> R:
            nonlocal has_begun
            with self._lock:
                if is_given_up:
                    raise _GivenUp
                has_begun = True
                self._working += 1
            try:
                return function(*arguments, **options)
            finally:
                with self._lock:
                    self._working -= 1
                ended.set()

        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
        except trio.Cancelled:
            with self._lock:
                is_given_up = not has_begun
            if has_begun:
                await _settle(ended)
            raise


class _GivenUp(Exception):
    """Ends a thread that begins after its work was cancelled. Nothing catches it."""


async def _settle(ended: threading.Event) -> None:
    """Wait for the thread with a poll: it happens once in a process's life."""
    waited_s = 0.0
    with trio.CancelScope(shield=True):
        while not ended.is_set() and waited_s < SETTLE_TIMEOUT_S:
            await trio.sleep(_LOOK_INTERVAL_S)
            waited_s += _LOOK_INTERVAL_S
