"""Ids of admin requests, by which a retry is answered like the first sending, and nothing is done twice.

Theory of operation. The requests that change metadata, by the active controller's hand, can have an id. One that only validates
changes nothing and is judged again each time; an id on it, or on any other call, is ignored. A client gives a request an id and a
sequence when its call begins, which stay through all its sendings; then they are taken off it again, for the program may send the
same message as another request. Nodes keep the last answers of an id and refuse older sequences (see `exactly_once.py` of the
controller's engine). So an id is only ever used by one call at a time: calls that run side by side have different ids, and there
are as many as there ever were calls at once.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .methods import AdminRequest

CLIENT_ID_BYTES = 16

NAMEABLE = frozenset(
    {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "AlterConfigs",
        "AlterClientQuotas",
        "UpdateFeatures",
        "AlterPartitionReassignments",
        "AlterReplicationFactors",
        "AlterPartitionCounts",
        "AlterInterBrokerThrottle",
        "UnregisterBroker",
        "AllocateProducerIds",
        "CreateAcls",
        "DeleteAcls",
        "AlterUserScramCredentials",
    }
)

ONCE = frozenset(
    {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "AlterPartitionReassignments",
        "DeleteAcls",
        "AlterUserScramCredentials",
        "AddRaftVoter",
        "RemoveRaftVoter",
        "UnregisterBroker",
    }
)
"""Made twice without an id, these answer that the topic, voter or broker exists, or does not, that nothing moves or has moved on:
their outcome is told wrongly. Who passes calls on does not send them again.
"""


def can_be_named(api: str, request: object) -> bool:
    """Whether an id on this request counts."""
    return api in NAMEABLE and not getattr(request, "validate_only", False)


def is_named(api: str, request: Any) -> bool:
    """Whether sending this request twice is the same as sending it once."""
    return can_be_named(api, request) and bool(request.header.HasField("request_id"))


class _ClientId:
    """One id and the last sequence that was used with it."""

    def __init__(self) -> None:
        self.client_id = uuid.uuid4().bytes
        self.sequence = 0


class RequestIds:
    """The ids of one client. Thread-safe. Not `enabled`: no request gets one."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._free: list[_ClientId] = []

    @contextmanager
    def of(self, api: str, request: AdminRequest) -> Iterator[bool]:
        """While this lasts the request has an id, if it can have one. Gives whether sending it again does nothing twice."""
        if not self._enabled or not can_be_named(api, request) or request.header.HasField("request_id"):
            yield is_named(api, request)
            return
        with self._lock:
            used = self._free.pop() if self._free else _ClientId()
        used.sequence += 1
        request.header.request_id.client_id = used.client_id
        request.header.request_id.sequence = used.sequence
        try:
            yield True
        finally:
            request.header.ClearField("request_id")
            with self._lock:
                self._free.append(used)
