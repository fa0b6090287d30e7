"""Tasks that stand still, as those of a process that was sent SIGSTOP, though all nodes share one loop.

Theory of operation. A task belongs to whom its context names (`OWNER`), which it has from the task that began it. trio tells an
instrument of each step before a task makes it. If the task's owner stands still, what its coroutine was about to be sent is kept,
and the step puts the task to sleep instead. When the owner goes on, all such tasks can run, and get what was kept for them.

So no line of the node's own tasks runs meanwhile: no timer is seen to go off, no message is read, no disk work begins. Time does
not stand still: whoever goes on finds that it is later, and that all deadlines are over which have passed. A task that is told
to end meanwhile hears of that afterwards. What trio itself does for a task when it cancels what that waits for is done at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import trio
from trio._core._traps import WaitTaskRescheduled

OWNER: ContextVar[object] = ContextVar("owner", default=None)


def _asleep(value: object) -> WaitTaskRescheduled:
    return WaitTaskRescheduled(lambda raise_cancel: trio.lowlevel.Abort.FAILED)


class HeldTasks(trio.abc.Instrument):
    """Of one `trio.run`."""

    def __init__(self) -> None:
        self._held: dict[object, dict[trio.lowlevel.Task, tuple[Callable[[Any], object] | None, Any]]] = {}

    def __contains__(self, owner: object) -> bool:
        return owner in self._held

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._held:
            held = self._held.get(task.context.get(OWNER))
            if held is not None:
                held[task] = task._next_send_fn, task._next_send
                task._next_send_fn, task._next_send = _asleep, None

    def hold(self, owner: object) -> None:
        """Its tasks stand still, until `release`."""
        self._held.setdefault(owner, {})

    def release(self, owner: object) -> None:
        """Its tasks go on, if they stood still."""
        for task, kept in self._held.pop(owner, {}).items():
            trio.lowlevel.reschedule(task)
            task._next_send_fn, task._next_send = kept
