"""M13: brokers are only fenced after a whole session without a heartbeat, when their port refuses, or at their own request.

A heartbeat is noted with the epoch of the leader that received it, and the time on that controller's clock. A committed record
that fences a broker has the time at which the leader of its epoch decided that, on the same clock. A session must lie between the
two times, or a row of refused connections to the broker's port. Brokers that want to shut down are fenced at their own request. A
heartbeat in the millisecond of the decision does not count: it may have come later.

M14: no leader fences an incarnation because of its port twice, so that no broker flaps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from kraftlab.metadata.peer_rpc import BrokerHeartbeatRequest
from kraftlab.metadata.records import AnyRecord, BrokerRegistrationChange
from kraftlab.quorum.state_machine import CommittedBatch

REFUSALS = 3
"""Refused connections in a row that show the death of a process."""
SLACK_MS = 100
"""Time between a decision and the append of its record."""

_Incarnation = tuple[int, int]
"""(broker id, broker epoch)."""


class Sessions:
    """The heartbeats of a run."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._received_ms: dict[tuple[_Incarnation, int], list[int]] = defaultdict(list)
        """Times of heartbeats, by incarnation and leader's epoch."""
        self._leaving: set[_Incarnation] = set()
        self._tries: dict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)
        """Times of tries to connect to a broker, and True for each refused one, by broker id and leader's epoch."""
        self._fenced_early: set[tuple[_Incarnation, int]] = set()

    def received(self, request: BrokerHeartbeatRequest, leader_epoch: int, now_ms: int) -> None:
        """Note a heartbeat that the active controller of that epoch has received."""
        incarnation = (request.broker_id, request.broker_epoch)
        self._received_ms[incarnation, leader_epoch].append(now_ms)
        if request.want_shutdown:
            self._leaving.add(incarnation)

    def tried(self, broker_id: int, leader_epoch: int, now_ms: int, was_refused: bool) -> None:
        """Note what the active controller of that epoch has learned about a broker's port."""
        self._tries[broker_id, leader_epoch].append((now_ms, was_refused))

    def broken_by(self, batch: CommittedBatch, records: Iterable[AnyRecord]) -> str:
        """Return the violation in a committed batch, "" if there is none."""
        for record in records:
            if type(record) is not BrokerRegistrationChange or not record.fenced:
                continue
            incarnation = (record.broker_id, record.broker_epoch)
            times = self._received_ms[incarnation, batch.epoch]
            before = bisect_left(times, batch.append_time_ms)
            if incarnation in self._leaving or not before:
                continue
            heard_ms = times[before - 1]
            silent_ms = batch.append_time_ms - heard_ms
            if silent_ms + SLACK_MS >= self._session_timeout_ms:
                continue
            if not self._was_refused(record.broker_id, batch, heard_ms):
                return f"M13 broker {record.broker_id} is fenced at {batch.base_offset}, {silent_ms} ms after a heartbeat"
            if (incarnation, batch.epoch) in self._fenced_early:
                return f"M14 broker {record.broker_id} is fenced at {batch.base_offset} because of its port, and was before"
            self._fenced_early.add((incarnation, batch.epoch))
        return ""

    def _was_refused(self, broker_id: int, batch: CommittedBatch, heard_ms: int) -> bool:
        """Return True if the last tries before the batch were refused, and none of them is older than the last heartbeat."""
        tries = [each for each in self._tries[broker_id, batch.epoch] if each[0] <= batch.append_time_ms][-REFUSALS:]
        return len(tries) == REFUSALS and all(was_refused and at_ms >= heard_ms for at_ms, was_refused in tries)
