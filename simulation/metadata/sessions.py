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
from collections.abc import Sequence

from kraftlab.metadata.peer_rpc import BrokerHeartbeatRequest
from kraftlab.metadata.records import AnyRecord, BrokerRegistrationChange
from kraftlab.quorum.core.batch import MAX_RECORDS
from kraftlab.quorum.state_machine import CommittedBatch

REFUSALS = 3
"""Refused connections in a row that show the death of a process."""
NEVER_MS = -(10**9)
SLACK_MS = 100
"""Time between a decision and the append of its record."""

_Incarnation = tuple[int, int]
"""(broker id, broker epoch)."""


class Sessions:
    """The heartbeats of a run."""

    def __init__(self, session_timeout_ms: int, batch_records_max: int = MAX_RECORDS) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._batch_records_max = batch_records_max
        self._row: list[CommittedBatch] = []
        """The full batches just before the next one."""
        self._received_ms: dict[tuple[_Incarnation, int], list[int]] = defaultdict(list)
        """Times of heartbeats, by incarnation and leader's epoch."""
        self._leaving: set[_Incarnation] = set()
        self._tries: dict[tuple[int, int], list[tuple[int, int, bool]]] = defaultdict(list)
        """Begin and end of each try to connect to a broker, and True if it was refused, by broker id and leader's epoch."""
        self._fenced_early: set[tuple[_Incarnation, int]] = set()

    def received(self, request: BrokerHeartbeatRequest, leader_epoch: int, now_ms: int) -> None:
        """Note a heartbeat that the active controller of that epoch has received."""
        incarnation = (request.broker_id, request.broker_epoch)
        self._received_ms[incarnation, leader_epoch].append(now_ms)
        if request.want_shutdown:
            self._leaving.add(incarnation)

    def tried(self, broker_id: int, leader_epoch: int, began_ms: int, now_ms: int, was_refused: bool) -> None:
        """Note what the active controller of that epoch has learned about a broker's port."""
        self._tries[broker_id, leader_epoch].append((began_ms, now_ms, was_refused))

    def broken_by(self, batch: CommittedBatch, records: Sequence[AnyRecord]) -> str:
        """Return the violation in a committed batch, "" if there is none. A change of several batches is decided when the first
        is appended, and all but the last are full. So a fence can be as old as any full batch just before.
        """
        row = [*self._row, batch] if self._row and self._row[-1].epoch == batch.epoch else [batch]
        self._row = row if len(records) >= self._batch_records_max else []
        decided_ms = [each.append_time_ms for each in row]
        for record in records:
            if type(record) is not BrokerRegistrationChange or not record.fenced:
                continue
            incarnation = (record.broker_id, record.broker_epoch)
            if incarnation in self._leaving or any(self._is_over(incarnation, batch.epoch, at_ms) for at_ms in decided_ms):
                continue
            if not any(self._was_refused(incarnation, batch.epoch, at_ms) for at_ms in decided_ms):
                silent_ms = batch.append_time_ms - self._heard_ms(incarnation, batch.epoch, batch.append_time_ms)
                return f"M13 broker {record.broker_id} is fenced at {batch.base_offset}, {silent_ms} ms after a heartbeat"
            if (incarnation, batch.epoch) in self._fenced_early:
                return f"M14 broker {record.broker_id} is fenced at {batch.base_offset} because of its port, and was before"
            self._fenced_early.add((incarnation, batch.epoch))
        return ""

    def _heard_ms(self, incarnation: _Incarnation, leader_epoch: int, at_ms: int) -> int:
        """Return the time of the last heartbeat before that time; NEVER_MS if there is none."""
        times = self._received_ms[incarnation, leader_epoch]
        before = bisect_left(times, at_ms)
        return times[before - 1] if before else NEVER_MS

    def _is_over(self, incarnation: _Incarnation, leader_epoch: int, at_ms: int) -> bool:
        """Return True if the session had ended by that time."""
        return at_ms - self._heard_ms(incarnation, leader_epoch, at_ms) + SLACK_MS >= self._session_timeout_ms

    def _was_refused(self, incarnation: _Incarnation, leader_epoch: int, at_ms: int) -> bool:
        """Return True if the last tries since the last heartbeat were refused. The result of an older try can come late."""
        heard_ms = self._heard_ms(incarnation, leader_epoch, at_ms)
        tries = sorted(
            (began_ms, was_refused)
            for began_ms, ended_ms, was_refused in self._tries[incarnation[0], leader_epoch]
            if began_ms >= heard_ms and ended_ms <= at_ms
        )[-REFUSALS:]
        return len(tries) == REFUSALS and all(was_refused for _, was_refused in tries)
