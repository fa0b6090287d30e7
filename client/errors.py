"""Errors between a client and a cluster."""

from __future__ import annotations

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode


class ClusterUnreachable(ConnectionError):
    """No node answered in time. The text names the nodes that were tried, why each failed, and the next step."""


class OutcomeUnknown(ApiError):
    """The outcome of a change is unknown after a timeout or a lost leadership: it was written up to metadata offset `offset` (0
    if unknown), and may still be committed. Read with that `min_offset`, or repeat the call.
    """

    def __init__(self, code: ErrorCode, message: str | None, offset: int) -> None:
        super().__init__(code, message)
        self.offset = offset


def api_error(code: int, message: str | None) -> ApiError:
    """Return the ApiError of a code and message. An unknown code becomes UNKNOWN_SERVER_ERROR."""
    try:
        row = ErrorCode(code)
    except ValueError:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error code {code}: {message or 'no message'}")
    return ApiError(row, message or None)


def header_error(header: pb.ResponseHeader) -> ApiError:
    """Return the ApiError in an answer's header, OutcomeUnknown if the request may have taken effect."""
    error = api_error(header.error_code, header.error_message)
    return OutcomeUnknown(error.code, error.message, header.metadata_offset) if header.outcome_unknown else error
