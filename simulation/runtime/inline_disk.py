"""A node's disk under trio's clock: its work runs on the event loop, in a time that is drawn, without any thread.

Theory of operation. A mock clock jumps ahead while a thread works, so no work may run in a thread. Work that the runtime would
give to a thread is one call here, between two waits. If a node is killed during the first wait, the work is undone, half done or
done when the node starts again: some of it runs up to one of its file operations, as in a process that dies in the middle. During
the second wait the work is done, but no task knows the result.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import count
from types import TracebackType
from typing import ParamSpec, Protocol, Self, TypeVar

import trio

from kraftlab.common.signal import Signal

P = ParamSpec("P")
R = TypeVar("R")
WAITS_S = (0.0001, 0.0001, 0.0003, 0.001, 0.005, 0.03)
"""Times that are drawn for one wait, more or less."""
LAST_OPERATIONS = 8
"""A dying node does fewer file operations than this of one piece of work."""
BEGUN_RATE = 0.5
"""Share of the waiting work that has begun when its node dies."""


class Medium(Protocol):
    """Files of a node: a `SimulatedFileSystem`, or a `LogDirDisk`. They fail after `operations_left`; None: they do not."""

    full: bool
    fsync_fails: bool
    operations_left: int | None

    def crash(self, *, power_cut: bool) -> None: ...


class InlineDisk:
    """`kraftlab.quorum.driver.environment.Threads` for work on these files. All work takes `slower_ms` longer."""

    is_stuck = False

    def __init__(self, chance: random.Random, files: Medium) -> None:
        self._chance, self._files = chance, files
        self._waiting: dict[int, Callable[[], object]] = {}
        self._numbers = count()
        self.slower_ms = 0

    async def _wait(self) -> None:
        await trio.sleep(self._chance.choice(WAITS_S) * self._chance.uniform(0.5, 1.5))

    async def run(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        return await self.run_limited(None, function, *arguments, **options)

    async def run_limited(
        self, limiter: trio.CapacityLimiter | None, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
    ) -> R:
        return await self._do(limiter, partial(function, *arguments, **options), is_abandoned=True)

    async def run_to_its_end(
        self, limiter: trio.CapacityLimiter | None, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
    ) -> R:
        """Run the work, and finish it even if the caller is cancelled, like `trio.to_thread.run_sync`."""
        return await self._do(limiter, partial(function, *arguments, **options), is_abandoned=False)

    async def _do(self, limiter: trio.CapacityLimiter | None, work: Callable[[], R], *, is_abandoned: bool) -> R:
        async with AsyncExitStack() as stack:
            if limiter is not None:
                await stack.enter_async_context(limiter)
            number = next(self._numbers)
            self._waiting[number] = work
            try:
                await self._wait()
                await trio.sleep(self.slower_ms / 1000)
            finally:
                self._waiting.pop(number, None)
            result = work()
            with trio.CancelScope(shield=not is_abandoned):
                await self._wait()
            return result

    def check_cancelled(self) -> None:
        """Do nothing: work is never interrupted here."""

    def die(self) -> None:
        """End the node's work: some of the waiting work has begun."""
        waiting, self._waiting = self._waiting, {}
        for work in waiting.values():
            if self._chance.random() < BEGUN_RATE:
                self._files.operations_left = self._chance.randrange(LAST_OPERATIONS)
                with suppress(Exception):  # the caller is dead
                    work()
                self._files.operations_left = None

    def worker(self, name: str) -> InlineWorker:
        return InlineWorker(self)


class InlineWorker:
    """`kraftlab.quorum.driver.environment.Worker`. Its work runs when a task waits for it."""

    def __init__(self, disk: InlineDisk) -> None:
        self._disk = disk
        self._function: Callable[[], None] | None = None
        self._has_work = Signal()
        self.is_working = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._function = None

    def start(self, function: Callable[[], None]) -> None:
        self._function = function
        self.is_working = True
        self._has_work.set()

    async def finished(self) -> None:
        while (function := self._function) is None:
            await self._has_work.wait()
        self._function = None
        try:
            await self._disk.run(function)
        finally:
            self.is_working = False

    async def settle(self, timeout_s: float) -> None:
        """Drop the work: a node that ends here dies."""
        self._function, self.is_working = None, False
        await trio.lowlevel.cancel_shielded_checkpoint()
