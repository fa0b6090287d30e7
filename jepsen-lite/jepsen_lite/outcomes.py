"""Which errors mean that nothing happened.

`fail` only where it is certain: the node decided before it wrote anything, or no byte left this machine. Everything else is
`info`. A wrong `fail` invents bugs and a wrong `ok` hides them; a needless `info` only costs time.
"""

from __future__ import annotations

from kraftlab.metadata.errors import ErrorCode

from .history import FAIL, INFO, Outcome

UNCERTAIN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Codes of whole requests that a node may give after it has passed the request on, or has begun it."""

NEVER_SENT = ("failed to connect", "connection refused")
"""How gRPC's details begin when no byte of a request has left (in small letters)."""


def of_error_code(code: int, *, outcome_unknown: bool) -> Outcome:
    """Of an answer whose header has this error. `outcome_unknown`: the header says "begun, perhaps not for good"."""
    return INFO if outcome_unknown or code in UNCERTAIN or code not in ErrorCode._value2member_map_ else FAIL


def error_name(code: int) -> str:
    """TOPIC_ALREADY_EXISTS, say."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"UNKNOWN_{code}"


def of_broken_call(status: str, details: str) -> Outcome:
    """Of a call that gRPC ended with this status, "UNAVAILABLE" say."""
    return FAIL if status == "UNAVAILABLE" and details.lower().startswith(NEVER_SENT) else INFO
