"""A node's event loop, as the METRICS listener's threads see it: what it answers, and how much of its time it is idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")

ANSWER_S = 5.0
"""Time in which a loop that is alive answers."""


class LoopSilent(Exception):
    """The event loop did not answer in time, or has ended."""


class _Question(Generic[T]):
    """A function for the event loop, and its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._done = threading.Event()
        self._results: list[T] = []
        self._errors: list[Exception] = []

    def answer(self) -> None:
        try:
            self._results.append(self._function())
        except Exception as error:  # it belongs to the thread that asked
            self._errors.append(error)
        self._done.set()

    def result(self, timeout_s: float) -> T:
        if not self._done.wait(timeout_s):
            raise LoopSilent(f"the event loop has not answered for {timeout_s:.0f} s")
        if self._errors:
            raise self._errors[0]
        return self._results[0]


class EventLoop:
    """The loop of the task that makes this object."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._idle = _IdleTime()
        trio.lowlevel.add_instrument(self._idle)

    def ask(self, function: Callable[[], T], timeout_s: float = ANSWER_S) -> T:
        """Return the function's result, computed on the loop. LoopSilent, and what the function raises. For other threads."""
        question = _Question(function)
        try:
            self._token.run_sync_soon(question.answer)
        except trio.RunFinishedError as error:
            raise LoopSilent("the event loop has ended") from error
        return question.result(timeout_s)

    @property
    def idle_s(self) -> float:
        """Seconds that the loop has waited for something to do."""
        return self._idle.total_s


class _IdleTime(trio.abc.Instrument):
    """Sums up the time that a loop waits for I/O and timers."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._begun_s = 0.0

    def before_io_wait(self, timeout: float) -> None:
        self._begun_s = time.perf_counter()

    def after_io_wait(self, timeout: float) -> None:
        self.total_s += time.perf_counter() - self._begun_s
