"""Names for the requests of a client, so that a node which gets one again knows it.

Theory of operation. A request that changes something gets an id and a sequence when its call begins, and keeps them through all
its sendings; then they are taken off it again, for the program may send the same message as another request. Nodes keep the last
answers of an id and refuse what is older. So an id is only ever used by one call at a time: calls that run side by side have
different ids, and there are as many as there ever were calls at once.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from kraftlab.rpc.methods import AdminRequest
from kraftlab.rpc.request_ids import can_be_named, is_named


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
