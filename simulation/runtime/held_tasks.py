"""Tasks that stand still, as those of a process that was sent SIGSTOP, though all nodes share one loop.

Theory of operation. A task belongs to whom its context names (`OWNER`), which it has from the task that began it. trio tells an
instrument of each new task, whose coroutine (`Task.coro`) is then wrapped. trio resumes the wrapper, which passes on what it is
sent to the coroutine. But while the task's owner stands still, it keeps that, and waits to be rescheduled instead. When the owner
goes on, all such tasks are rescheduled, and their coroutines get what was kept for them.

So no line of the node's own tasks runs meanwhile: no timer is seen to go off, no message is read, no disk work begins. Time does
not stand still: whoever goes on finds that it is later, and that all deadlines are over which have passed. A task that is told
to end meanwhile hears of that afterwards. What trio itself does for a task when it cancels what that waits for is done at once.

All these names are trio's public ones. That trio takes a coroutine that was put in place of a new task's own is promised
nowhere: it did in trio 0.30, 0.32 and 0.35. If it does not any more, `hold` says so.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import trio

OWNER: ContextVar[object] = ContextVar("owner", default=None)


class CannotHold(RuntimeError):
    """trio does not resume tasks by what was put in place of their coroutines."""


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
            task.coro = _Pausing(task, owner, self)  # type: ignore[assignment]

    def keep(self, task: trio.lowlevel.Task, owner: object) -> bool:
        """Keep the task until its owner goes on; False if the owner is not held."""
        held = self._held.get(owner)
        if held is None:
            return False
        held[task] = None
        return True

    def hold(self, owner: object) -> None:
        """Its tasks stand still, until `release`. CannotHold."""
        if self.has_tasks and not self.has_resumed:
            raise CannotHold(_refusal("no step of any task was made through what was put in place of its coroutine"))
        self._held.setdefault(owner, {})

    def release(self, owner: object) -> None:
        """Its tasks go on, if they stood still."""
        for task in self._held.pop(owner, {}):
            trio.lowlevel.reschedule(task)


def _refusal(what: str) -> str:
    return (
        f"under trio {trio.__version__} nodes cannot stand still: {what}. It works with trio 0.30, 0.32 and 0.35: install one "
        "of these, or leave out the fault `pause`"
    )


async def _standstill() -> None:
    await trio.lowlevel.wait_task_rescheduled(lambda raise_cancel: trio.lowlevel.Abort.FAILED)


class _Pausing:
    """The coroutine of a task, for whoever resumes it."""

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

    def throw(self, *told: Any) -> Any:
        return self._coro.throw(*told)

    def close(self) -> None:
        self._coro.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)
