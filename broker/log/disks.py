"""Blocking work on log directories, off the event loop. Each directory has a few threads, so that a slow disk delays only its own
work; new replicas, which may go to any directory, have more.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import trio

from .ending import LogEnded, ending
from .errors import LogDirFailed, NoSpace
from .partition_log import PartitionLog

logger = logging.getLogger("kraftlab.broker.disks")

FULL_DISK_REMINDER_S = 60.0
"""A full disk is logged again after this time, not with every append that it refuses."""
THREADS_PER_DIRECTORY = 4
THREADS_FOR_ANY_DIRECTORY = 32
"""For new replicas, which mostly wait for fsyncs; a file system answers the fsyncs of many threads at once."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class InThread(Protocol):
    """Runs blocking work so that it does not delay the event loop. A cancelled caller waits until the work is done."""

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
    """Run work in a worker thread."""
    return await trio.to_thread.run_sync(partial(work, *args, **kwargs), limiter=limiter)


async def one_turn(work: Callable[Arguments, Awaitable[object]], *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
    """Do one turn of background work that is repeated. An unexpected error, a bug, ends this turn only; its stack is logged."""
    try:
        await work(*args, **kwargs)
    except Exception:
        logger.exception("%s failed unexpectedly; this broker goes on without this turn", getattr(work, "__qualname__", work))


async def look_after_each(
    directories: Callable[[], Iterable[Path]], interval_ms: int, work: Callable[[Path], Awaitable[object]]
) -> None:
    """Call `work` with each directory, again and again. A directory whose work hangs or fails does not delay the others."""
    busy: set[Path] = set()

    async def look(log_dir: Path) -> None:
        busy.add(log_dir)
        try:
            await one_turn(work, log_dir)
        finally:
            busy.discard(log_dir)

    async with trio.open_nursery() as nursery:
        while True:
            await trio.sleep(interval_ms / 1000)
            for log_dir in directories():
                if log_dir not in busy:
                    nursery.start_soon(look, log_dir)


class Disks:
    """Runs functions in worker threads, bounded per directory. Calls `on_failed` each time a directory fails or a log ends.

    Work that has begun is never abandoned: a cancelled caller waits for it.
    """

    def __init__(self, on_failed: Callable[[LogDirFailed | LogEnded], None], in_thread: InThread = in_thread) -> None:
        self.failed = on_failed
        self.in_thread = in_thread
        self._limiters: dict[Path | None, trio.CapacityLimiter] = {}
        self._full_logged_at: dict[Path, float] = {}

    async def run(
        self, log_dir: Path | None, work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Return the result of `work`, or raise its error. `log_dir` is the directory that it touches; None: any of them."""
        limiter = self._limiters.get(log_dir)
        if limiter is None:
            threads = THREADS_FOR_ANY_DIRECTORY if log_dir is None else THREADS_PER_DIRECTORY
            limiter = self._limiters[log_dir] = trio.CapacityLimiter(threads)
        try:
            return await self.in_thread(limiter, work, *args, **kwargs)
        except (LogDirFailed, LogEnded) as error:
            self.failed(error)
            raise
        except NoSpace as error:
            self._log_full(error)
            raise

    @contextmanager
    def ending(self, log: PartitionLog, *expected: type[Exception]) -> Iterator[None]:
        """As `ending`, for background work on the event loop: the end is reported as the failure of a directory is."""
        try:
            with ending(log, *expected):
                yield
        except LogEnded as error:
            self.failed(error)
            raise

    def _log_full(self, error: NoSpace) -> None:
        now = trio.current_time()
        if now >= self._full_logged_at.get(error.log_dir, -FULL_DISK_REMINDER_S) + FULL_DISK_REMINDER_S:
            self._full_logged_at[error.log_dir] = now
            logger.error("%s", error)
