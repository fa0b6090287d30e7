"""Blocking work on log directories, off the event loop: a few threads per directory, so that a slow disk holds up only
itself, and more for new replicas that may go to any."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import trio

from .errors import LogDirFailed, NoSpace

logger = logging.getLogger("kraftlab.broker.disks")

FULL_DISK_REMINDER_S = 60.0
"""A full disk is told again after this long, not with every append that it refuses."""
THREADS_PER_DIRECTORY = 4
THREADS_FOR_ANY_DIRECTORY = 32
"""For new replicas, which do little but wait for fsyncs; a file system answers those of many threads at once."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class InThread(Protocol):
    """Runs what blocks where it does not hold up the event loop. Who cancels it waits until it is done."""

    async def __call__(
        self,
        limiter: trio.CapacityLimiter | None,
        work: Callable[Arguments, Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result: ...


async def in_thread(
    limiter: trio.CapacityLimiter | None,
    work: Callable[Arguments, Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """In a worker thread."""
    return await trio.to_thread.run_sync(partial(work, *args, **kwargs), limiter=limiter)


async def look_after_each(
    directories: Callable[[], Iterable[Path]], interval_ms: int, work: Callable[[Path], Awaitable[object]]
) -> None:
    """Calls `work` with each directory that there is, again and again. Each goes by itself: one that hangs holds up no other."""
    busy: set[Path] = set()

    async def look(log_dir: Path) -> None:
        busy.add(log_dir)
        try:
            await work(log_dir)
        finally:
            busy.discard(log_dir)

    async with trio.open_nursery() as nursery:
        while True:
            await trio.sleep(interval_ms / 1000)
            for log_dir in directories():
                if log_dir not in busy:
                    nursery.start_soon(look, log_dir)


class Disks:
    """Runs functions in worker threads, bounded per directory, and tells `on_failed` of a directory that failed (each time it
    is met). `in_thread` is how.

    Work that has begun is never abandoned: cancelling the caller waits for it.
    """

    def __init__(self, on_failed: Callable[[LogDirFailed], None], in_thread: InThread = in_thread) -> None:
        self.failed = on_failed
        self.in_thread = in_thread
        self._limiters: dict[Path | None, trio.CapacityLimiter] = {}
        self._told_full_at: dict[Path, float] = {}

    async def run(
        self, log_dir: Path | None, work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """What `work` returns or raises. `log_dir` is the directory it touches; None: any of them."""
        limiter = self._limiters.get(log_dir)
        if limiter is None:
            threads = THREADS_FOR_ANY_DIRECTORY if log_dir is None else THREADS_PER_DIRECTORY
            limiter = self._limiters[log_dir] = trio.CapacityLimiter(threads)
        try:
            return await self.in_thread(limiter, work, *args, **kwargs)
        except LogDirFailed as error:
            self.failed(error)
            raise
        except NoSpace as error:
            self._tell_full(error)
            raise

    def _tell_full(self, error: NoSpace) -> None:
        now = trio.current_time()
        if now >= self._told_full_at.get(error.log_dir, -FULL_DISK_REMINDER_S) + FULL_DISK_REMINDER_S:
            self._told_full_at[error.log_dir] = now
            logger.error("%s", error)
