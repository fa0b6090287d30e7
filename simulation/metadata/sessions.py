"""Whether brokers are fenced for their silence alone (M13).

A broker notes where its heartbeats arrive, in which epoch of whose leadership and when, on that controller's clock; a committed
record that fences it has the time at which the leader of its epoch decided that, on the same clock. In between must be a session.
Brokers that want to shut down are fenced at their own wish.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from kraftlab.metadata.peer_rpc import BrokerHeartbeatRequest
from kraftlab.metadata.records import AnyRecord, BrokerRegistrationChange
from kraftlab.quorum.state_machine import CommittedBatch

SLACK_MS = 100
"""A decision may take so long to get its place in the log."""

_Incarnation = tuple[int, int]
"""Broker and its epoch."""


class Sessions:
    """All of a run."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._heard_ms: dict[tuple[_Incarnation, int], list[int]] = defaultdict(list)
        """By the incarnation and the leader's epoch."""
        self._leaving: set[_Incarnation] = set()

    def heard(self, request: BrokerHeartbeatRequest, leader_epoch: int, now_ms: int) -> None:
        """A heartbeat reaches the active controller of that epoch."""
        incarnation = (request.broker_id, request.broker_epoch)
        self._heard_ms[incarnation, leader_epoch].append(now_ms)
        if request.want_shutdown:
            self._leaving.add(incarnation)

    def broken_by(self, batch: CommittedBatch, records: Iterable[AnyRecord]) -> str:
        """What a committed batch says against the rule, "" if nothing."""
        for record in records:
            if type(record) is not BrokerRegistrationChange or not record.fenced:
                continue
            incarnation = (record.broker_id, record.broker_epoch)
            times = self._heard_ms[incarnation, batch.epoch]
            before = bisect_right(times, batch.append_time_ms)
            if incarnation in self._leaving or not before:
                continue
            silent_ms = batch.append_time_ms - times[before - 1]
            if silent_ms + SLACK_MS < self._session_timeout_ms:
                return f"M13 broker {record.broker_id} is fenced at {batch.base_offset}, {silent_ms} ms after it was heard"
        return ""
