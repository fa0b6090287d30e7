"""The controller's event queue: every change of the controller's state is one event, and events run one after the other.

Theory of operation. The queue has no task and no lock. An event is a function that runs to its end without waiting: proposing
to the log is synchronous, and the purgatory waits for the commit. The caller that adds an event runs the queue until it is
empty, unless the queue is already running further up the stack. Events that arrive together run back to back, without a task
switch.

Events wait while the queue is held: before an activation has finished, and while the log takes no more (`NotNow`). The latter
hold ends with the next commit, or after a short pause, since nothing may be in flight. Nothing at all runs while the queue is
paused: a write is being computed on another thread, and later events must see its changes.

An event whose deadline passes while it waits fails with REQUEST_TIMED_OUT and never runs, so nothing was done. A running event
has no deadline. `prepend` puts an event before all others and runs it even while the queue is held (activation). Deferred
events have a tag and a time, at most one per tag. Due events run before queued ones, but after prepended ones, which build on
the state before them.

The owner keeps time: it calls `run_due` when `next_deadline_ms` has come, and looks at that time again after each
`on_timer_changed`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metrics.recent import RecentValues

NEVER_MS = 1 << 62
RETRY_MS = 50
"""Longest pause before a queue that `NotNow` holds tries again."""


class NotNow(Exception):
    """Raised by an event that cannot run yet and did nothing. It stays at the head, and the queue is held until `resume`."""


class Event:
    """`run` is called once, or `fail` once with the reason why it was not run. `deadline_ms` ends the waiting."""

    __slots__ = ("added_s", "deadline_ms", "fail", "name", "run")

    def __init__(self, name: str, run: Callable[[], None], fail: Callable[[ApiError], None], deadline_ms: int = NEVER_MS) -> None:
        self.name = name
        self.run = run
        self.fail = fail
        self.deadline_ms = deadline_ms
        self.added_s = 0.0

    def __repr__(self) -> str:
        return f"Event({self.name})"


class EventQueue:
    """See the module's docstring. `clock` gives the current time in milliseconds, the scale of every deadline here."""

    def __init__(self, clock: Callable[[], int], on_timer_changed: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_timer_changed = on_timer_changed
        self._waiting: deque[Event] = deque()
        self._prepended = 0
        """Number of events at the head that run before any deferred event."""
        self._deferred: dict[str, tuple[int, Callable[[], None]]] = {}
        self._next_due_ms = NEVER_MS
        self._held = False
        self._paused = False
        self._retry_ms = NEVER_MS
        self._running = False
        self._closed = False
        self._started = 0
        self._timed_out = 0
        self.waits, self.durations = RecentValues(), RecentValues()
        """Times that events waited and took, in ms."""

    def append(self, event: Event) -> None:
        """Add an event at the tail and run the queue."""
        if self._closed:
            event.fail(_shutting_down())
            return
        event.added_s = time.perf_counter()
        self._waiting.append(event)
        if (self._held or self._paused) and not self._running:
            self._on_timer_changed()
        self.run_due()

    def prepend(self, event: Event) -> None:
        """Run this event next, before everything that waits, even if the queue is held."""
        if self._closed:
            event.fail(_shutting_down())
            return
        self._end_hold()
        event.added_s = time.perf_counter()
        self._waiting.appendleft(event)
        self._prepended += 1
        self.run_due()

    def schedule(self, tag: str, at_ms: int, run: Callable[[], None]) -> None:
        """Defer an event. It replaces a deferred event with the same tag."""
        self._deferred[tag] = (at_ms, run)
        self._deferred_changed()

    def cancel(self, tag: str) -> None:
        """Forget the deferred event with this tag, if any."""
        if self._deferred.pop(tag, None) is not None:
            self._deferred_changed()

    def hold(self) -> None:
        """Let events wait until `resume` or `prepend`."""
        self._hold_until(NEVER_MS)

    def _hold_until(self, retry_ms: int) -> None:
        self._held = True
        self._retry_ms = retry_ms
        self._on_timer_changed()

    def _end_hold(self) -> None:
        """End a hold. Deferred events count again, so the timer changes."""
        if self._held:
            self._held = False
            self._on_timer_changed()

    def pause(self) -> None:
        """Run nothing until `unpause`."""
        self._paused = True
        self._on_timer_changed()

    def unpause(self, event: Event | None = None) -> None:
        """End a pause. `event` runs next, then the waiting events."""
        self._paused = False
        self._on_timer_changed()
        if event is not None:
            self.prepend(event)
        else:
            self.run_due()

    def resume(self) -> None:
        """End a hold and run the waiting events."""
        if self._held:
            self._end_hold()
            self.run_due()

    def fail_waiting(self, error: ApiError) -> None:
        """Fail every waiting event; deferred events stay."""
        waiting, self._waiting = self._waiting, deque()
        self._prepended = 0
        for event in waiting:
            event.fail(error)

    def close(self) -> None:
        """Fail every waiting event and every later one."""
        self._closed = True
        self._deferred.clear()
        self._next_due_ms = NEVER_MS
        self.fail_waiting(_shutting_down())

    def next_deadline_ms(self) -> int:
        """Time at which `run_due` has something to do; NEVER_MS if there is none."""
        if not self._held and not self._paused:
            return self._next_due_ms
        retry_ms = NEVER_MS if self._paused else self._retry_ms
        return min(retry_ms, min((event.deadline_ms for event in self._waiting), default=NEVER_MS))

    def run_due(self) -> None:
        """Run due deferred events, then waiting events. Fail waiting events whose deadline has passed."""
        if self._running:
            return
        self._running = True
        try:
            if self._paused or (self._held and self._clock() < self._retry_ms):
                self._expire(self._clock())
                return
            self._held = False
            while True:
                now_ms = self._clock()
                if now_ms >= self._next_due_ms and not self._prepended:
                    if not self._run_deferred(now_ms):
                        return
                elif not self._waiting or not self._run_next(now_ms):
                    return
                if self._paused:
                    return
        finally:
            self._running = False

    def statistics(self) -> dict[str, int]:
        return {
            "waiting": len(self._waiting),
            "deferred": len(self._deferred),
            "started": self._started,
            "timed_out": self._timed_out,
        }

    def _run_next(self, now_ms: int) -> bool:
        """Run the event at the head. Return False if the queue is held afterwards."""
        event = self._waiting.popleft()
        was_prepended, self._prepended = bool(self._prepended), max(self._prepended - 1, 0)
        if now_ms >= event.deadline_ms:
            self._timed_out += 1
            event.fail(_timed_out(event.name))
            return True
        self._started += 1
        begun_s = time.perf_counter()
        try:
            event.run()
        except NotNow:
            self._started -= 1
            self._waiting.appendleft(event)
            self._prepended += was_prepended
            self._hold_until(now_ms + RETRY_MS)
            return False
        self.waits.observe((begun_s - event.added_s) * 1000, begun_s)
        self.durations.observe((time.perf_counter() - begun_s) * 1000, begun_s)
        return not self._held

    def _run_deferred(self, now_ms: int) -> bool:
        """Run the deferred event with the earliest time. Return False if the queue is held afterwards."""
        tag = min(self._deferred, key=lambda name: self._deferred[name][0])
        _, run = self._deferred.pop(tag)
        self._next_due_ms = min((at_ms for at_ms, _ in self._deferred.values()), default=NEVER_MS)
        self._started += 1
        try:
            run()
        except NotNow:
            self._started -= 1
            self._deferred[tag] = (now_ms, run)
            self._next_due_ms = now_ms
            self._hold_until(now_ms + RETRY_MS)
        return not self._held

    def _deferred_changed(self) -> None:
        self._next_due_ms = min((at_ms for at_ms, _ in self._deferred.values()), default=NEVER_MS)
        self._on_timer_changed()

    def _expire(self, now_ms: int) -> None:
        expired = [event for event in self._waiting if now_ms >= event.deadline_ms]
        if not expired:
            return
        self._prepended -= sum(now_ms >= self._waiting[place].deadline_ms for place in range(self._prepended))
        self._waiting = deque(event for event in self._waiting if now_ms < event.deadline_ms)
        for event in expired:
            self._timed_out += 1
            event.fail(_timed_out(event.name))


def _timed_out(name: str) -> ApiError:
    return ApiError(
        ErrorCode.REQUEST_TIMED_OUT, f"{name} waited in the controller's queue until its timeout passed; nothing was done"
    )


def _shutting_down() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, "the controller is shutting down; nothing was done")
