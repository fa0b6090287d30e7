"""Coroutines in virtual time: the world's heap resumes them, without an event loop.

Theory of operation. To wait, a coroutine yields a function, which is called with a `resume`. The party that has the result calls
`resume` once, with the result. Then the coroutine goes on as an action of the heap, at the same virtual time: so no coroutine
goes on in the middle of another action, and equal times keep their order. To sleep, a coroutine yields a duration. A coroutine
can belong to a process: it pauses with the process, and ends silently when the process dies.

An exception of a coroutine goes to `ended` if given; otherwise it ends the run.
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
    """A result."""

    value: T_co

    def unwrap(self) -> T_co:
        return self.value


class Error(Struct, frozen=True):
    """An exception in place of a result."""

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
    """Call `begin` with a `resume`, and wait for the result that `resume` is called with."""
    return (yield begin)


def never_postponed(action: Callable[..., object], *arguments: object) -> bool:
    """Return False: the coroutine belongs to no process."""
    return False


class Task(Generic[T]):
    """A coroutine that runs from `start` on. `postponed(action, …)` returns True if its process is dead or paused; after a pause
    the action runs. `ended` gets the result, once.
    """

    def __init__(
        self,
        heap: Heap,
        coroutine: Coroutine[Any, Any, T],
        ended: Callable[[Outcome[T]], object] | None = None,
        postponed: Callable[..., bool] = never_postponed,
    ) -> None:
        self._heap = heap
        self._coroutine = coroutine
        self._ended = ended
        self._postponed = postponed
        self._turn = 0
        self.is_over = False

    def start(self) -> Task[T]:
        """Run the coroutine until its first wait."""
        self._go_on(0, _GO_ON)
        return self

    def cancel(self) -> None:
        """End the coroutine here; its cleanup runs now."""
        if not self.is_over:
            self.is_over = True
            self._coroutine.close()

    def _go_on(self, turn: int, result: Outcome[Any]) -> None:
        if self.is_over or turn != self._turn or (turn and self._postponed(self._go_on, turn, result)):
            return
        self._turn = next_turn = turn + 1
        coroutine = self._coroutine
        try:
            begin: Begin[Any] | int = coroutine.throw(result.error) if type(result) is Error else coroutine.send(result.unwrap())
        except StopIteration as stop:
            self._end(Value(stop.value))
        except Exception as error:
            del result  # otherwise the exception would refer to itself through this frame
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
    """A flag that is set once and resumes all waiting coroutines."""

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
    """Wait for that time."""
    yield delay_us


async def first_of(
    heap: Heap, wait: Callable[[], Coroutine[object, object, T]], delay_us: int, postponed: Callable[..., bool] = never_postponed
) -> T | None:
    """Return the result of `wait`, or cancel it after `delay_us` and return None."""

    def begin(resume: Resume[T | None]) -> None:
        heap.after(delay_us, _Patience(Task(heap, wait(), resume, postponed).start(), resume, postponed).ends)

    return await waiting(begin)


class _Patience(Generic[T]):
    """The timeout of a wait for a task. It has no reference cycle, so that it is freed with its last user."""

    __slots__ = ("_postponed", "_resume", "_task")

    def __init__(self, task: Task[T], resume: Resume[T | None], postponed: Callable[..., bool]) -> None:
        self._task = task
        self._resume = resume
        self._postponed = postponed

    def ends(self) -> None:
        if not self._task.is_over and not self._postponed(self.ends):
            self._task.cancel()
            self._resume(Value(None))
