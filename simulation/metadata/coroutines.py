"""Coroutines in virtual time: the world's heap resumes them, no event loop runs.

Theory of operation. A coroutine waits by yielding a function; the world calls that with a `resume`, and whoever has the result
calls `resume` with it, once. The coroutine goes on as an action of its own of the heap, at the same virtual time: so nobody goes
on in the middle of what somebody else is doing, and equal times keep their order. One that only lets time pass yields for how
long. A coroutine may belong to a process: then it stands still with that, and ends without a word when it dies.

What a coroutine raises is passed to who started it, if he wants to hear how it ended; else it ends the run.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Value(Struct, Generic[T_co], frozen=True):
    """What something came to."""

    value: T_co

    def unwrap(self) -> T_co:
        return self.value


class Error(Struct, frozen=True):
    """What was raised instead."""

    error: BaseException

    def unwrap(self) -> object:
        raise self.error


Outcome = Value[T] | Error
Resume = Callable[[Outcome[T]], None]
Begin = Callable[[Resume[T]], object]
_GO_ON: Value[object] = Value(None)


class Heap(Protocol):
    """The world: `after` schedules an action."""

    def after(self, delay_us: int, action: Callable[..., object], *arguments: object) -> None: ...


@types.coroutine
def waiting(begin: Begin[T]) -> Generator[Begin[T], T, T]:
    """Calls `begin` with what to call with the result, and waits for that call."""
    return (yield begin)


def never_still(action: Callable[..., object], *arguments: object) -> bool:
    """Of a coroutine that belongs to no process."""
    return False


class Task(Generic[T]):
    """A coroutine that runs from `start` on. `is_still(action, …)` says whether its process is dead or stands still; then it sees
    to it that the action comes later, or never. `ended` gets the result, once.
    """

    def __init__(
        self,
        heap: Heap,
        coroutine: Coroutine[Any, Any, T],
        ended: Callable[[Outcome[T]], object] | None = None,
        is_still: Callable[..., bool] = never_still,
    ) -> None:
        self._heap = heap
        self._coroutine = coroutine
        self._ended = ended
        self._is_still = is_still
        self._turn = 0
        self.is_over = False

    def start(self) -> Task[T]:
        """Runs it until it waits first."""
        self._go_on(0, _GO_ON)
        return self

    def cancel(self) -> None:
        """It goes on no further; what it must leave in order it does now."""
        if not self.is_over:
            self.is_over = True
            self._coroutine.close()

    def _go_on(self, turn: int, result: Outcome[Any]) -> None:
        if self.is_over or turn != self._turn or (turn and self._is_still(self._go_on, turn, result)):
            return
        self._turn = next_turn = turn + 1
        coroutine = self._coroutine
        try:
            begin: Begin[Any] | int = coroutine.throw(result.error) if type(result) is Error else coroutine.send(result.unwrap())
        except StopIteration as stop:
            self._end(Value(stop.value))
        except Exception as error:
            del result  # else what was raised would hold itself, by way of this frame
            if self._ended is None:
                raise
            self._end(Error(error))
        else:
            if isinstance(begin, int):
                self._heap.after(begin, self._go_on, next_turn, _GO_ON)
            else:
                begin(partial(self._heap.after, 0, self._go_on, next_turn))

    def _end(self, result: Outcome[T]) -> None:
        self.is_over = True
        if self._ended is not None:
            self._ended(result)


class Signal:
    """Set once; everybody who waits for it goes on."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Resume[None]] = []

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume(Value(None))

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self) -> None:
        if not self._is_set:
            await waiting(self._waiting.append)


@types.coroutine
def sleep(delay_us: int) -> Generator[int, None, None]:
    """Waits for so long."""
    yield delay_us


async def first_of(
    heap: Heap, wait: Callable[[], Coroutine[object, object, T]], delay_us: int, is_still: Callable[..., bool] = never_still
) -> T | None:
    """What `wait` comes to, or None after `delay_us`: then it is given up."""

    def begin(resume: Resume[T | None]) -> None:
        heap.after(delay_us, _Patience(Task(heap, wait(), resume, is_still).start(), resume, is_still).ends)

    return await waiting(begin)


class _Patience(Generic[T]):
    """Of who waits for a task. It holds no way back to itself, so that it goes with the last who knows it."""

    __slots__ = ("_is_still", "_resume", "_task")

    def __init__(self, task: Task[T], resume: Resume[T | None], is_still: Callable[..., bool]) -> None:
        self._task = task
        self._resume = resume
        self._is_still = is_still

    def ends(self) -> None:
        if not self._task.is_over and not self._is_still(self.ends):
            self._task.cancel()
            self._resume(Value(None))
