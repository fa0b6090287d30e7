"""Holds the tasks of one node, as SIGSTOP holds a process, although all nodes share one loop.

Theory of operation. The context of a task names its owner (`OWNER`), and new tasks inherit it. trio notifies an instrument of
each new task, whose coroutine (`Task.coro`) is then replaced by a wrapper. The wrapper passes values from trio on to the
coroutine. While the owner is held, the wrapper keeps the value and waits to be rescheduled. After the release, all held tasks are
rescheduled, and their coroutines get the kept values.

So no line of the node's own tasks runs meanwhile: no timer fires, no message is read, no disk work begins. Time goes on: after
the release, all deadlines that have passed are over. A task that is cancelled meanwhile notices after the release. trio's own
part of a cancellation is done at once.

All these names are public in trio, but replacing the coroutine of a new task is not documented. It works with trio 0.30, 0.32 and
0.35. If it stops working, `hold` raises CannotHold.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import trio

OWNER: ContextVar[object] = ContextVar("owner", default=None)


class CannotHold(RuntimeError):
    """trio ignores the wrappers of tasks' coroutines."""


class HeldTasks(trio.abc.Instrument):
    """The held tasks of one `trio.run`."""

    def __init__(self) -> None:
        self._held: dict[object, dict[trio.lowlevel.Task, None]] = {}
        self.has_tasks = self.has_resumed = False

    def __contains__(self, owner: object) -> bool:
        return owner in self._held

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        owner = task.context.get(OWNER)
        if owner is not None:
            self.has_tasks = True
            task.coro = _PausableCoroutine(task, owner, self)  # type: ignore[assignment]

    def keep(self, task: trio.lowlevel.Task, owner: object) -> bool:
        """Keep the task until its owner is released. Return False if the owner is not held."""
        held = self._held.get(owner)
        if held is None:
            return False
        held[task] = None
        return True

    def hold(self, owner: object) -> None:
        """Hold all tasks of the owner until `release`. CannotHold."""
        if self.has_tasks and not self.has_resumed:
            raise CannotHold(_refusal("no step of any task went through the wrapper of its coroutine"))
        self._held.setdefault(owner, {})

    def release(self, owner: object) -> None:
        """Let the owner's tasks go on, if they are held."""
        for task in self._held.pop(owner, {}):
            trio.lowlevel.reschedule(task)


def _refusal(what: str) -> str:
    return (
        f"under trio {trio.__version__} nodes cannot be paused: {what}. It works with trio 0.30, 0.32 and 0.35: install one "
        "of these, or leave out the fault `pause`"
    )


async def _standstill() -> None:
    await trio.lowlevel.wait_task_rescheduled(lambda raise_cancel: trio.lowlevel.Abort.FAILED)


class _PausableCoroutine:
    """The wrapper of a task's coroutine, which trio resumes."""

    def __init__(self, task: trio.lowlevel.Task, owner: object, held: HeldTasks) -> None:
        self._task, self._owner, self._held = task, owner, held
        self._coro: Any = task.coro
        self._kept: Any = None
        self._pause: Any = None

    def send(self, value: Any) -> Any:
        self._held.has_resumed = True
        if self._pause is not None:
            self._wake(value)
            value = self._kept
        if self._held.keep(self._task, self._owner):
            self._kept = value
            self._pause = _standstill()
            return self._pause.send(None)
        return self._coro.send(value)

    def _wake(self, value: Any) -> None:
        pause, self._pause = self._pause, None
        try:
            pause.send(value)
        except StopIteration:
            return
        raise CannotHold(_refusal("a task that was rescheduled waits on"))

    def throw(self, *error: Any) -> Any:
        return self._coro.throw(*error)

    def close(self) -> None:
        self._coro.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)
