"""Work for a disk that does not answer any more must not keep a process alive.

Theory of operation. `DiskThreads.run` is `trio.to_thread.run_sync` for functions that read and write files. Who cancels it waits
for the function as usual, since files are best left in order, but not for long: a thread that hangs in the kernel is left
behind, and goes with the process. A thread that had not begun yet does not touch a file any more. While one is left behind,
`is_stuck`: the files that it may be using must not be closed, for their descriptors could be given to others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio

from .worker_thread import WorkerThread

SETTLE_TIMEOUT_S = 2.0
"""How long the end of a task waits for a disk that does not answer."""
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
        """True if a function is still running that nobody waits for."""
        return self._working > 0

    async def run(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """What `function` returns or raises, in a thread."""
        return await self.run_limited(None, function, *arguments, **options)

    def check_cancelled(self) -> None:
        """In a function that runs here: ends it if nobody waits for it any more."""
        trio.from_thread.check_cancelled()

    def worker(self, name: str) -> WorkerThread:
        """A thread for one task alone."""
        return WorkerThread(name)

    async def run_limited(
        self, limiter: trio.CapacityLimiter | None, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
    ) -> R:
        """The same, with no more threads at once than `limiter` allows."""
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
    """Ends a thread that begins after its work was cancelled; nobody hears of it."""


async def _settle(ended: threading.Event) -> None:
    """Looks now and then: it happens once in a process's life."""
    waited_s = 0.0
    with trio.CancelScope(shield=True):
        while not ended.is_set() and waited_s < SETTLE_TIMEOUT_S:
            await trio.sleep(_LOOK_INTERVAL_S)
            waited_s += _LOOK_INTERVAL_S
