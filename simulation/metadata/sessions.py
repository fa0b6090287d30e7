"""M13: brokers are only fenced after a whole session without a heartbeat, or at their own request.

A heartbeat is noted with the epoch of the leader that received it, and the time on that controller's clock. A committed record
that fences a broker has the time at which the leader of its epoch decided that, on the same clock. A session must lie between the
two times. Brokers that want to shut down are fenced at their own request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from kraftlab.metadata.peer_rpc import BrokerHeartbeatRequest
from kraftlab.metadata.records import AnyRecord, BrokerRegistrationChange
from kraftlab.quorum.state_machine import CommittedBatch

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

    def received(self, request: BrokerHeartbeatRequest, leader_epoch: int, now_ms: int) -> None:
        """Note a heartbeat that the active controller of that epoch has received."""
        incarnation = (request.broker_id, request.broker_epoch)
        self._received_ms[incarnation, leader_epoch].append(now_ms)
        if request.want_shutdown:
            self._leaving.add(incarnation)

    def broken_by(self, batch: CommittedBatch, records: Iterable[AnyRecord]) -> str:
        """Return the violation in a committed batch, "" if there is none."""
        for record in records:
            if type(record) is not BrokerRegistrationChange or not record.fenced:
                continue
            incarnation = (record.broker_id, record.broker_epoch)
            times = self._received_ms[incarnation, batch.epoch]
            before = bisect_right(times, batch.append_time_ms)
            if incarnation in self._leaving or not before:
                continue
            silent_ms = batch.append_time_ms - times[before - 1]
            if silent_ms + SLACK_MS < self._session_timeout_ms:
                return f"M13 broker {record.broker_id} is fenced at {batch.base_offset}, {silent_ms} ms after a heartbeat"
        return ""
