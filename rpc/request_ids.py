"""Ids of admin requests: a retry gets the answer of the first attempt, and nothing is done twice.

Theory of operation. Requests that change metadata through the active controller can have an id. A request that only validates
changes nothing and is judged again each time; an id on it, or on any other call, is ignored. A client gives a request an id and a
sequence when its call begins. They stay through all attempts and are then removed, because the program may send the same message
as another request. Nodes keep the last answers of an id and refuse older sequences (see `exactly_once.py` of the controller's
engine). So only one call at a time uses an id: parallel calls have different ids, and there are as many ids as there ever were
parallel calls.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from .calls import CALLS
from .methods import AdminRequest, header_of

CLIENT_ID_BYTES = 16


def can_be_named(api: str, request: object) -> bool:
    """Return True if an id on this request counts."""
    return CALLS[api].keeps_id and not getattr(request, "validate_only", False)


def is_named(api: str, request: object) -> bool:
    """Return True if sending this request twice has the effect of sending it once."""
    return can_be_named(api, request) and header_of(request).HasField("request_id")


def is_repeatable(api: str, request: object) -> bool:
    """Return True if a node may forward this request again after an attempt that may have taken effect."""
    return not CALLS[api].once or is_named(api, request)


def changes(api: str, request: object) -> bool:
    """Return True if an attempt without an answer may have changed something."""
    return CALLS[api].once or can_be_named(api, request)


class _ClientId:
    """One id and the last sequence that was used with it."""

    def __init__(self) -> None:
        self.client_id = uuid.uuid4().bytes
        self.sequence = 0


class RequestIds:
    """The ids of one client. Thread-safe. Not `enabled`: requests get none."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._free: list[_ClientId] = []

    @contextmanager
    def of(self, api: str, request: AdminRequest) -> Iterator[bool]:
        """Give the request an id, if it can have one, inside the block. Yields True if sending it again does nothing twice."""
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
