"""Attempts of one request: the answers of nodes, and whether an attempt may have taken effect.

A request goes to one node after the other until an answer is final. The error of a failed request covers all attempts: a timeout
of the last attempt does not exclude that the first took effect and lost its answer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import grpc

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode

from .errors import OutcomeUnknown

if TYPE_CHECKING:
    from .dialling import NotSecured

_REFUSED = "connection refused"
_NO_ANSWER = "no answer in time"
_HUNG_UP = (
    "it closes connections at once; is this the port of its GRPC listener? (a Kafka listener: kafka://HOST:PORT, with TLS also "
    "security.protocol)"
)
_UNKNOWN_NAME = "the host name cannot be resolved"
_NOBODY_THERE = (_REFUSED, _HUNG_UP, _UNKNOWN_NAME)
_NOT_RESOLVED = ("errors resolving", "DNS resolution failed")
FAILED_TO_CONNECT = "failed to connect"
_OTHER_PROTOCOL = f"{FAILED_TO_CONNECT}: it does not speak the Kafka protocol as asked"
_NEEDS_LOGIN = "it closes connections at the first request"
_NOT_SECURED = "no secure connection"
_CLOSED = f"{FAILED_TO_CONNECT} over TLS"
_NO_API = (_OTHER_PROTOCOL, _NEEDS_LOGIN, _CLOSED)
_NOT_CONNECTED = (FAILED_TO_CONNECT, _NOT_SECURED, *_NOT_RESOLVED)
"""Beginnings of the faults of a request that could not be sent."""


class NoAnswer(grpc.RpcError):
    """A node did not answer over the Kafka protocol. The text is the fault, as `fault_of` returns it."""


def not_connected(error: OSError) -> NoAnswer:
    """Return the error for a connection that could not be opened: nothing was sent."""
    if isinstance(error, ConnectionRefusedError):
        return NoAnswer(_REFUSED)
    return NoAnswer(_UNKNOWN_NAME if isinstance(error, socket.gaierror) else f"{FAILED_TO_CONNECT}: {error}")


def not_secured(error: NotSecured) -> NoAnswer:
    """Return the error for a server that does not fit the client's security: nothing was sent that it took."""
    return NoAnswer(f"{_NOT_SECURED}: {error}")


def closed(error: OSError) -> NoAnswer:
    """Return the error for a server that closes new connections, as one does that is stopping too."""
    return NoAnswer(f"{_CLOSED}: {error}")


def other_protocol(reason: object) -> NoAnswer:
    """Return the error for a server that does not speak the Kafka protocol, or that expects TLS or no TLS."""
    return NoAnswer(f"{_OTHER_PROTOCOL} ({reason}); check its port, and security.protocol in --command-config")


def not_answered(error: OSError, *, is_first: bool) -> NoAnswer:
    """Return the error for a request that was sent: it may have taken effect. `is_first`: of a connection without a login."""
    if is_first and isinstance(error, ConnectionError):
        return NoAnswer(f"{_NEEDS_LOGIN}; if it needs a login, set security.protocol and sasl.mechanism in --command-config")
    return NoAnswer(_NO_ANSWER if isinstance(error, TimeoutError) else f"the connection broke: {error}")


def is_read(api: str) -> bool:
    """Return True if the request changes nothing."""
    return api.startswith(("Describe", "List"))


class Attempts:
    """The attempts of one request. `once`: no further attempt after one that may have taken effect. `last_look(endpoint, fault)`
    returns the fault of a node that is asked no more.
    """

    def __init__(self, api: str, *, once: bool, last_look: Callable[[Endpoint, str], str] = lambda _, fault: fault) -> None:
        self._api = api
        self._once = once
        self._last_look = last_look
        self._faults: dict[Endpoint, str] = {}
        self._doubt: str | None = None
        """Why the request may have taken effect, None if it did not."""

    def add_no_answer(self, endpoint: Endpoint, error: grpc.RpcError, *, had_time: bool) -> None:
        """Note that a node did not answer. `had_time`: it had the full time. ApiError NETWORK_EXCEPTION if no other node may be
        asked.
        """
        fault = fault_of(error)
        if fault != _NO_ANSWER or had_time:
            self._faults[endpoint] = fault
        else:
            self._faults.setdefault(endpoint, fault)  # it had little time; its earlier fault is more precise
        if was_never_sent(fault) or is_read(self._api):
            return
        self._doubt = f"{endpoint} was asked before and did not answer; the request may have taken effect."
        if self._once:
            raise ApiError(
                ErrorCode.NETWORK_EXCEPTION,
                f"{endpoint} did not answer {self._api} ({fault}); the request may have taken effect, see: "
                "kraftlab metadata-quorum describe --status",
            ) from error

    def add_refusal(self, endpoint: Endpoint, error: ApiError) -> None:
        """Note a refusal that another node may not repeat. OutcomeUnknown if no other node may be asked."""
        if isinstance(error, OutcomeUnknown) and not is_read(self._api):
            self._doubt = f"{endpoint} was asked before: {error.message}"
            if self._once:
                raise error
        self._faults[endpoint] = str(error)

    def end_with(self, error: ApiError) -> None:
        """Note a final refusal. OutcomeUnknown for a timeout without effect if an earlier attempt may have taken effect."""
        if self._doubt is not None and error.code is ErrorCode.REQUEST_TIMED_OUT:
            offset = error.offset if isinstance(error, OutcomeUnknown) else 0
            raise OutcomeUnknown(error.code, f"{error.message} But {self._doubt}", offset) from error

    def has_failed_at(self, endpoint: Endpoint) -> bool:
        return endpoint in self._faults

    @property
    def found_no_api(self) -> bool:
        """True if no address has an admin API."""
        return all(fault in _NOBODY_THERE or fault.startswith(_NO_API) for fault in self._faults.values())

    @property
    def is_hopeless(self) -> bool:
        """True if another attempt would fail as well: no host name can be resolved, or the security fits no node."""
        return bool(self._faults) and all(map(is_final, self._faults.values()))

    def so_far(self) -> str:
        """Return the nodes that have not answered, with their faults."""
        return _tried(self._faults)

    def summary(self, seconds: float) -> str:
        """Return the text of ClusterUnreachable for all attempts."""
        faults = {endpoint: self._last_look(endpoint, fault) for endpoint, fault in self._faults.items()}
        return unreachable(self._api, faults, seconds)


def fault_of(error: grpc.RpcError) -> str:
    """Return why there was no answer."""
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


def failed_to_connect(error: grpc.RpcError) -> bool:
    """Return whether gRPC reached a server and got no connection. A server that hangs does not count."""
    if not isinstance(error, grpc.Call) or error.code() is not grpc.StatusCode.UNAVAILABLE:
        return False
    fault = fault_of(error)
    return fault == _HUNG_UP or (fault.startswith(FAILED_TO_CONNECT) and "timed out" not in fault)


def hung_up(fault: str) -> bool:
    """Return whether a server closed the connection at once."""
    return fault == _HUNG_UP


def is_final(fault: str) -> bool:
    """Return whether a node is not reached until somebody changes something."""
    return fault == _UNKNOWN_NAME or fault.startswith(_NOT_SECURED)


def was_never_sent(fault: str) -> bool:
    """Return whether there was no connection: the request cannot have reached the node."""
    return fault in _NOBODY_THERE or fault.startswith(_NOT_CONNECTED)


def _tried(faults: Mapping[Endpoint, str]) -> str:
    return "; ".join(f"{endpoint}: {fault}" for endpoint, fault in faults.items()) or "none could be tried"


def unreachable(api: str, faults: Mapping[Endpoint, str], seconds: float) -> str:
    """Return the text of ClusterUnreachable."""
    tried = _tried(faults)
    if faults and all(fault.startswith(_NOT_SECURED) for fault in faults.values()):
        return f"no node could answer {api} ({tried})"
    return f"no node could answer {api} within {seconds:.1f} s ({tried}); check the addresses and that the nodes run"
