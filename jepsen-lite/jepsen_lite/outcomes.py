"""Outcomes of errors.

An outcome is `fail` only if it is certain: the node decided before it wrote anything, or no byte left this machine. Everything
else is `info`. A wrong `fail` invents bugs, a wrong `ok` hides them, and a needless `info` only costs time.
"""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode

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
"""Error codes of whole requests that a node may return after it has forwarded the request or begun to carry it out."""

NEVER_SENT = ("failed to connect", "connection refused")
"""Beginnings, in lower case, of gRPC's details if no byte of a request was sent."""


def of_error_code(code: int, *, outcome_unknown: bool) -> Outcome:
    """Return the outcome of an answer with this error in its header. `outcome_unknown`: the header says that the request was
    begun and may not be durable.
    """
    return INFO if outcome_unknown or code in UNCERTAIN or code not in ErrorCode._value2member_map_ else FAIL


def error_name(code: int) -> str:
    """Return the name of an error code, such as TOPIC_ALREADY_EXISTS."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"UNKNOWN_{code}"


def of_broken_call(status: str, details: str) -> Outcome:
    """Return the outcome of a call that gRPC ended with this status, such as "UNAVAILABLE"."""
    return FAIL if status == "UNAVAILABLE" and details.lower().startswith(NEVER_SENT) else INFO
