"""Periodic tasks of the active controller.

A task is an operation whose response says whether there is more to do. If there is, the task runs again after a short pause,
and requests get their turn in between. Tasks run on the active controller only, the first time one interval after its
activation. An idle log gets a NoOp record per interval, which shows readers that it is alive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kraftlab.metadata.records import NoOp

from ..partitions.leader_elections import balance_leaders, elect_uncleanly
from .purgatory import Answer
from .queue import EventQueue
from .state import Context, ControllerState, Outcome, Settings

logger = logging.getLogger("kraftlab.controller")

AGAIN_MS = 10
"""Pause before a task with more to do runs again."""
RETRY_MS = 60_000
"""Longest pause after a task that failed."""
IDLE_TAG = "write a no-op"

RunWrite = Callable[[str, Callable[[ControllerState, Context], Outcome[Any]], Answer[Any]], None]
"""Run an operation of this name now, and complete its answer."""


class BackgroundTask(NamedTuple):
    """`follows_configs`: the task also runs after a change of configuration."""

    name: str
    interval_ms: int
    run: Callable[[ControllerState, Context], Outcome[bool]]
    follows_configs: bool = False

    def pause_ms(self, has_more: bool, has_failed: bool) -> int:
        """Pause between a run that ended like this and the next one."""
        if has_failed:
            return min(self.interval_ms, RETRY_MS)
        return AGAIN_MS if has_more else self.interval_ms


def background_tasks(settings: Settings) -> tuple[BackgroundTask, ...]:
    """Tasks of a controller with these settings."""
    tasks = [BackgroundTask("elect uncleanly", settings.unclean_election_interval_ms, elect_uncleanly, follows_configs=True)]
    if settings.balance_interval_ms > 0:
        tasks.append(BackgroundTask("balance leaders", settings.balance_interval_ms, balance_leaders))
    return tuple(tasks)


class Background:
    """One per controller. `is_busy`: batches are in flight, and a NoOp is not needed."""

    def __init__(
        self,
        queue: EventQueue,
        clock: Callable[[], int],
        settings: Settings,
        run_write: RunWrite,
        is_active: Callable[[], bool],
        is_busy: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._idle_interval_ms = settings.max_idle_interval_ms
        self._tasks = background_tasks(settings)
        self._run_write = run_write
        self._is_active = is_active
        self._is_busy = is_busy
        self._last_append_ms = 0

    def activate(self) -> None:
        """Schedule the first run of every task."""
        self._last_append_ms = self._clock()
        self._schedule_no_op()
        for task in self._tasks:
            self._schedule(task, task.interval_ms)

    def deactivate(self) -> None:
        self._queue.cancel(IDLE_TAG)
        for task in self._tasks:
            self._queue.cancel(task.name)

    def appended(self, now_ms: int) -> None:
        """Note that the log is not idle."""
        self._last_append_ms = now_ms

    def configs_changed(self) -> None:
        """Run the tasks that follow configurations now."""
        for task in self._tasks:
            if task.follows_configs:
                self._schedule(task, 0)

    def _schedule(self, task: BackgroundTask, pause_ms: int) -> None:
        self._queue.schedule(task.name, self._clock() + pause_ms, partial(self._run, task))

    def _run(self, task: BackgroundTask) -> None:
        has_more = False

        def generate(state: ControllerState, context: Context) -> Outcome[bool]:
            nonlocal has_more
            outcome = task.run(state, context)
            has_more = outcome.response
            if outcome.records:
                logger.info("%s: %d changes", task.name, len(outcome.records))
            return outcome

        answer: Answer[bool] = Answer()
        self._run_write(task.name, generate, answer)
        if self._is_active():
            self._schedule(task, task.pause_ms(has_more, answer.error is not None))

    def _schedule_no_op(self) -> None:
        if self._idle_interval_ms > 0:
            at_ms = max(self._clock(), self._last_append_ms) + self._idle_interval_ms
            self._queue.schedule(IDLE_TAG, at_ms, self._write_no_op)

    def _write_no_op(self) -> None:
        if self._clock() - self._last_append_ms >= self._idle_interval_ms and not self._is_busy():
            self._run_write("no-op", lambda state, context: Outcome([NoOp(0)], None), Answer())
        self._schedule_no_op()
