"""Requests in flight.

A response counts only if its correlation is in flight and its type fits; all others are dropped, so duplicates and strays need no
further care. The request is kept until then, because an answer is judged by the epoch of its request.
"""

from __future__ import annotations

import msgspec

from .effects import Barrier, Effects, Send
from .messages import API_OF, RESPONSE_OF, Request, Response

_RESPONSE_TO = {request: RESPONSE_OF[api] for request, api in API_OF.items()}


class InFlight(msgspec.Struct, frozen=True, gc=False):
    """A request that has no answer so far. `destination` ANYBODY: the node that the shell picked."""

    correlation: int
    destination: int
    request: Request


class RequestManager:
    """Numbers requests and keeps them until they are answered or have failed."""

    __slots__ = ("_in_flight", "_next_correlation", "_out")

    def __init__(self, out: Effects) -> None:
        self._out = out
        self._next_correlation = 1
        self._in_flight: dict[int, InFlight] = {}

    def send(self, destination: int, request: Request, after: Barrier, timeout_ms: int) -> int:
        """Send a request; return its correlation."""
        correlation = self._next_correlation
        self._next_correlation += 1
        self._in_flight[correlation] = InFlight(correlation, destination, request)
        self._out.append(Send(correlation, destination, request, after, timeout_ms))
        return correlation

    def answered(self, correlation: int, response: Response) -> InFlight | None:
        """Return the request that `response` answers; None if there is none of its type."""
        asked = self._in_flight.get(correlation)
        if asked is None or type(response) is not _RESPONSE_TO[type(asked.request)]:
            return None
        return self._in_flight.pop(correlation)

    def failed(self, correlation: int) -> InFlight | None:
        return self._in_flight.pop(correlation, None)

    def __len__(self) -> int:
        return len(self._in_flight)
