"""Fencing by the active controller: of brokers whose session has ended, and of brokers whose process is dead.

The heartbeat table knows when each broker last sent a heartbeat. This module has the timer and its safeguard: a process that
was stopped itself received no heartbeats, so that time is not counted against any broker. `lost_connections.py` finds dead
processes before their session ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ..cluster import brokers
from ..cluster.heartbeats import HeartbeatTable
from .background import RunWrite
from .purgatory import Answer
from .queue import Event, EventQueue
from .state import Context, ControllerState, Outcome

logger = logging.getLogger("kraftlab.controller")

FENCE_TAG = "fence stale brokers"
FENCE_RETRY_MS = 100
"""Pause after a fencing that failed, or is computed on another thread. Most often the leadership is lost, and its notice
follows.
"""
STALL_MS = 200
"""A check that is later than this means that this process was stopped; the delay fences nobody."""

WriterFor = Callable[[int], RunWrite]
"""Returns a function that runs an operation on this broker's partitions, now or on another thread if there are very many."""


class Fencing:
    """One per controller. `newest`: the state that the next write starts from. `is_active`: True on the active controller."""

    def __init__(
        self,
        queue: EventQueue,
        clock: Callable[[], int],
        heartbeats: HeartbeatTable,
        session_timeout_ms: int,
        writer_for: WriterFor,
        newest: Callable[[], ControllerState],
        is_active: Callable[[], bool],
    ) -> None:
        self.fenced = 0
        """Number of brokers that this process has fenced."""
        self._queue = queue
        self._clock = clock
        self._heartbeats = heartbeats
        self._session_timeout_ms = session_timeout_ms
        self._writer_for = writer_for
        self._newest = newest
        self._is_active = is_active

    def activate(self, pause_ms: int = 0) -> None:
        """Schedule the next check for the end of the oldest session, at least `pause_ms` from now."""
        oldest_contact = self._heartbeats.oldest_contact(self._unfenced())
        now_ms = self._clock()
        limit_ms = now_ms + self._session_timeout_ms
        at_ms = limit_ms if oldest_contact is None else max(now_ms + pause_ms, min(limit_ms, oldest_contact[1] + 1))
        self._queue.schedule(FENCE_TAG, at_ms, partial(self._fence_stale, at_ms))

    def deactivate(self) -> None:
        self._queue.cancel(FENCE_TAG)

    def _unfenced(self) -> list[int]:
        return [broker_id for broker_id, broker in self._newest().image.cluster.brokers.items() if not broker.fenced]

    def _fence_stale(self, due_ms: int) -> None:
        now_ms = self._clock()
        if now_ms - due_ms > STALL_MS:
            logger.warning("this process was stopped for %d ms; the sessions of brokers are extended by it", now_ms - due_ms)
            self._heartbeats.extend_sessions(now_ms - due_ms, now_ms)
        pause_ms = 0
        oldest_contact = self._heartbeats.oldest_contact(self._unfenced())
        while oldest_contact is not None and oldest_contact[1] < now_ms and self._is_active():
            broker_id = oldest_contact[0]
            logger.info("fencing broker %d: no heartbeat for %d ms", broker_id, self._session_timeout_ms)
            self._writer_for(broker_id)("fence", partial(self._fence, broker_id), Answer())
            if broker_id in self._unfenced():
                pause_ms = FENCE_RETRY_MS
                break
            oldest_contact = self._heartbeats.oldest_contact(self._unfenced())
        if self._is_active():
            self.activate(pause_ms)

    def fence_dead(self, broker_id: int, broker_epoch: int, is_suspect: Callable[[], bool]) -> None:
        """Queue the fence of a broker whose process is dead. Its turn may come late: then the broker must be suspect still, and
        must not have registered again.
        """

        def generate(state: ControllerState, context: Context) -> Outcome[bool]:
            broker = state.image.cluster.brokers.get(broker_id)
            if broker is None or broker.epoch != broker_epoch or broker.fenced or not is_suspect():
                return Outcome([], False)
            fence = self._fence(broker_id, state, context)
            return Outcome(fence.records, True, fence.atomic, fence.appended)

        def done(answer: Answer[bool]) -> None:
            if answer.value:
                logger.info("fenced broker %d: it has no connection here and its port refuses, so its process is dead", broker_id)

        answer: Answer[bool] = Answer()
        answer.when_done(done)
        self._queue.append(Event("fence", partial(self._writer_for(broker_id), "fence", generate, answer), answer.fail))

    def _fence(self, broker_id: int, state: ControllerState, context: Context) -> Outcome[None]:
        outcome = brokers.fence(state, self._heartbeats, broker_id, context)

        def appended(end_offset: int) -> None:
            self.fenced += bool(outcome.records)
            if outcome.appended is not None:
                outcome.appended(end_offset)

        return outcome._replace(appended=appended)
