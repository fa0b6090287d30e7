"""What a node's shell has of the world outside of it: a network, threads for its disk, chance and the time of day.

The shell asks for nothing of these in any other way (its own clock is trio's), so an experiment that puts others in their place
plays the same node again to the last byte. Nodes run on `this_machine()`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, ParamSpec, Protocol, Self, TypeVar

import trio

from .disk_threads import DiskThreads
from .network import TCP, Network

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


class Outside(NamedTuple):
    """Of one node. `wall_s`: seconds since 1970."""

    network: Network
    threads: Threads
    chance: random.Random
    wall_s: Callable[[], float]


def this_machine() -> Outside:
    """The real world."""
    return Outside(TCP, DiskThreads(), random.Random(), time.time)
