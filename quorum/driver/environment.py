"""The environment of a node's shell: a network, threads for its disk, randomness and clocks.

The shell uses these in no other way, so an experiment that replaces them replays the same node to the last byte. The quorum and
the controller use this clock: for the core's next deadline, and for the age of sessions. Timeouts of answers and connections use
trio's clock, which is the real one's. Nodes run on `this_machine()`.
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
    """Threads for one node's disk work; `disk_threads.py` and `worker_thread.py` have the contract."""

    @property
    def is_stuck(self) -> bool: ...

    async def run(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R: ...

    async def run_limited(
        self, limiter: trio.CapacityLimiter | None, function: Callable[P, R], *arguments: P.args, **options: P.kwargs
    ) -> R: ...

    def check_cancelled(self) -> None:
        """End the calling function if its caller no longer waits. Called now and then by functions that run long."""

    def worker(self, name: str) -> Worker: ...


class Clock(Protocol):
    """The clocks of one node's machine."""

    def now_s(self) -> float:
        """Return a time that never goes back. Also for threads, after a first call under trio."""

    def wall_s(self) -> float:
        """Return seconds since 1970; can be set to any other time."""

    def at(self, now_s: float) -> float:
        """Return the time on trio's clock at which `now_s` will return that, at its current rate."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `at` begins to return other times than before."""


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
        """Do nothing: the results of `at` do not change."""


class Environment(NamedTuple):
    """The environment of one node."""

    network: Network
    threads: Threads
    chance: random.Random
    clock: Clock


def this_machine(network: Network = TCP) -> Environment:
    """Return the real environment, with another network between nodes if given."""
    return Environment(network, DiskThreads(), random.Random(), MachineClock())
