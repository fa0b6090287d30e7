"""What became of the sendings of one request: which node said what, and whether one of them may have carried it out.

A request goes to one node after the other until one gives an answer that counts. Whoever is told in the end that it failed has to
know of all sendings: a timeout of the last one says nothing of the first, whose answer may have been lost.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.quorum.core.types import Endpoint

from .errors import OutcomeUnknown

_REFUSED = "connection refused"
_NO_ANSWER = "no answer in time"
_HUNG_UP = "it hangs up before a word is said; is this the port of its GRPC listener?"
_UNKNOWN_NAME = "the host name cannot be resolved"
_NOBODY_THERE = (_REFUSED, _HUNG_UP, _UNKNOWN_NAME)
_NOT_RESOLVED = ("errors resolving", "DNS resolution failed")
_NOT_CONNECTED = ("failed to connect", *_NOT_RESOLVED)
"""How gRPC begins what it says about a request that it could not send at all."""


class Sendings:
    """Of one request of that api. `once`: it may not be sent again if a node may have carried it out."""

    def __init__(self, api: str, *, once: bool) -> None:
        self._api = api
        self._once = once
        self._faults: dict[Endpoint, str] = {}
        self._doubt: str | None = None
        """Why it may have been carried out, None if it certainly was not."""

    def had_no_answer(self, endpoint: Endpoint, error: grpc.RpcError, *, had_time: bool) -> None:
        """A node did not answer. `had_time`: it had as long as any. ApiError NETWORK_EXCEPTION if nobody else may be asked."""
        fault = fault_of(error)
        if fault != _NO_ANSWER or had_time:
            self._faults[endpoint] = fault
        else:
            self._faults.setdefault(endpoint, fault)  # It had little time; what it said before tells more.
        if was_never_sent(fault):
            return
        self._doubt = f"{endpoint} was asked before and did not answer; it may have carried it out."
        if self._once:
            raise ApiError(
                ErrorCode.NETWORK_EXCEPTION,
                f"{endpoint} did not answer {self._api} ({fault}); whether it was carried out is unknown, see: "
                "kraftlab metadata-quorum describe",
            ) from error

    def was_sent_on(self, endpoint: Endpoint, error: ApiError) -> None:
        """A node refused, and another one may not. OutcomeUnknown if nobody else may be asked."""
        if isinstance(error, OutcomeUnknown):
            self._doubt = f"{endpoint} was asked before: {error.message}"
            if self._once:
                raise error
        self._faults[endpoint] = str(error)

    def was_refused(self, error: ApiError) -> None:
        """A refusal that counts. OutcomeUnknown if it says of one sending that nothing was done in time, and another one may have
        been carried out.
        """
        if self._doubt is not None and error.code is ErrorCode.REQUEST_TIMED_OUT:
            offset = error.offset if isinstance(error, OutcomeUnknown) else 0
            raise OutcomeUnknown(error.code, f"{error.message} But {self._doubt}", offset) from error

    def has_failed_at(self, endpoint: Endpoint) -> bool:
        return endpoint in self._faults

    @property
    def found_nobody(self) -> bool:
        """Whether no admin API is at any of the addresses."""
        return all(fault in _NOBODY_THERE for fault in self._faults.values())

    @property
    def knows_no_name(self) -> bool:
        """Whether no host of any address exists: a failed look-up is final."""
        return bool(self._faults) and all(fault == _UNKNOWN_NAME for fault in self._faults.values())

    def so_far(self) -> str:
        """The nodes that have not answered, and why."""
        return _tried(self._faults)

    def summary(self, seconds: float) -> str:
        """For people, when nobody could answer."""
        return unreachable(self._api, self._faults, seconds)


def fault_of(error: grpc.RpcError) -> str:
    """Why there was no answer."""
    if not isinstance(error, grpc.Call):
        return str(error)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _NO_ANSWER
    details = error.details() or error.code().name
    if details.startswith(_NOT_RESOLVED):
        return _UNKNOWN_NAME
    if "refused" in details.lower():
        return _REFUSED
    hung_up = "socket closed" in details.lower() or "connection reset" in details.lower()
    return _HUNG_UP if hung_up and details.startswith(_NOT_CONNECTED) else details


def was_never_sent(fault: str) -> bool:
    """Whether the request cannot have reached the node: there was no connection."""
    return fault in _NOBODY_THERE or fault.startswith(_NOT_CONNECTED)


def _tried(faults: Mapping[Endpoint, str]) -> str:
    return "; ".join(f"{endpoint}: {fault}" for endpoint, fault in faults.items()) or "none could be tried"


def unreachable(api: str, faults: Mapping[Endpoint, str], seconds: float) -> str:
    """The text of ClusterUnreachable."""
    tried = _tried(faults)
    return f"no node could answer {api} within {seconds:.1f} s ({tried}); check the addresses and that the nodes run"
