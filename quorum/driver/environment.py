"""What a node's shell has of the world outside of it: a network, threads for its disk, chance and clocks.

The shell asks for nothing of these in any other way, so an experiment that puts others in their place plays the same node again
to the last byte. The clock is what the quorum and the controller go by: when the core is to be woken, and how old a session is.
How long an answer or a connection is waited for goes by trio's clock, which is the real one's. Nodes run on `this_machine()`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, ParamSpec, Protocol, Self, TypeVar

import trio

from kraftlab.wire.network import TCP, Network

from .disk_threads import DiskThreads

P = ParamSpec("P")
R = TypeVar("R")


class Worker(Protocol):
    """Does one thing at a time for one task: `start`, then `await finished()`, in turn, inside `with`."""

    @property
    def is_working(self) -> bool: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def start(self, function: Callable[[], None]) -> None: ...

    async def finished(self) -> None: ...

    async def settle(self, timeout_s: float) -> None: ...


class Threads(Protocol):
    """Where one node's work on its disk is done; `disk_threads.py` and `worker_thread.py` say what is promised."""

    @property
    def is_stuck(self) -> bool: ...

    async def run(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R: ...

    async def run_limited(
        self, limiter: trio.CapacityLimiter | None, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
    ) -> R: ...

    def check_cancelled(self) -> None:
        """For functions that run long, now and then: ends one that nobody waits for any more."""

    def worker(self, name: str) -> Worker: ...


class Clock(Protocol):
    """The clocks of one node's machine."""

    def now_s(self) -> float:
        """Never goes back. Also for threads, once it was asked under trio."""

    def wall_s(self) -> float:
        """Seconds since 1970; may be set to any other time."""

    def at(self, now_s: float) -> float:
        """When on trio's clock `now_s` will say that, as it runs now."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Has that called whenever `at` gives other answers than before."""


class MachineClock:
    """trio's clock, and the system's wall clock."""

    def __init__(self) -> None:
        self._clock: trio.abc.Clock | None = None

    def now_s(self) -> float:
        if self._clock is None:
            self._clock = trio.lowlevel.current_clock()
        return self._clock.current_time()

    def wall_s(self) -> float:
        return time.time()

    def at(self, now_s: float) -> float:
        return now_s

    def follow(self, changed: Callable[[], None]) -> None:
        """Its answers do not change."""


class Outside(NamedTuple):
    """Of one node."""

    network: Network
    threads: Threads
    chance: random.Random
    clock: Clock


def this_machine() -> Outside:
    """The real world."""
    return Outside(TCP, DiskThreads(), random.Random(), MachineClock())
