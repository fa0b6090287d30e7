"""A node's disk under trio's clock: its work is done on the event loop, in a time that is drawn, without any thread.

Theory of operation. A mock clock jumps ahead while a thread works, so nothing may run in one. What the shell hands to a thread is
called here in one piece, between two waits: before the first the work has not happened, behind it nobody has heard of it yet. A
node that is killed in between finds it done or not when it starts again, as after a kill of its process. While a node stands
still its disk does, too. Power is never lost here: what was written is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import trio

from kraftlab.quorum.driver.signal import Signal

P = ParamSpec("P")
R = TypeVar("R")
WAITS_S = (0.0001, 0.0001, 0.0003, 0.001, 0.005, 0.03)
"""Half of what one piece of work takes, more or less."""


class InlineDisk:
    """`kraftlab.quorum.driver.outside.Threads`."""

    is_stuck = False

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._going_on = trio.Event()
        self._going_on.set()

    def stand_still(self, is_still: bool) -> None:
        if not is_still:
            self._going_on.set()
        elif self._going_on.is_set():
            self._going_on = trio.Event()

    async def wait(self) -> None:
        await trio.sleep(self._chance.choice(WAITS_S) * self._chance.uniform(0.5, 1.5))
        await self._going_on.wait()

    async def run(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        return await self.run_limited(None, function, *arguments, **options)

    async def run_limited(
        self, limiter: trio.CapacityLimiter | None, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
    ) -> R:
        async with AsyncExitStack() as stack:
            if limiter is not None:
                await stack.enter_async_context(limiter)
            await self.wait()
            result = function(*arguments, **options)
            await self.wait()
            return result

    def check_cancelled(self) -> None:
        """Work is one piece here."""

    def worker(self, name: str) -> InlineWorker:
        return InlineWorker(self)


class InlineWorker:
    """`kraftlab.quorum.driver.outside.Worker`. What it was given is done when somebody waits for it."""

    def __init__(self, disk: InlineDisk) -> None:
        self._disk = disk
        self._function: Callable[[], None] | None = None
        self._given = Signal()
        self.is_working = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._function = None

    def start(self, function: Callable[[], None]) -> None:
        self._function = function
        self.is_working = True
        self._given.set()

    async def finished(self) -> None:
        while (function := self._function) is None:
            await self._given.wait()
        self._function = None
        try:
            await self._disk.run(function)
        finally:
            self.is_working = False

    async def settle(self, timeout_s: float) -> None:
        """Who ends here dies: what has not been done is not done any more."""
        self._function, self.is_working = None, False
        await trio.lowlevel.cancel_shielded_checkpoint()
