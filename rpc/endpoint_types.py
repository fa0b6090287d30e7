"""Endpoint types of DescribeCluster: brokers describe brokers, controllers describe controllers (KIP-919)."""

from __future__ import annotations

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode

from .versions import version_of

BROKERS = 1
CONTROLLERS = 2
_NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def check_endpoint_type(request: admin_pb2.DescribeClusterRequest, own: int) -> None:
    """Raise ApiError if another type of endpoint is requested than this node's (`own`)."""
    if not request.HasField("endpoint_type") or request.endpoint_type == own:
        return
    wanted = request.endpoint_type
    if wanted not in _NAMES:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}"
    else:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = f"The request was sent to an endpoint of type {_NAMES[own]}, but we wanted an endpoint of type {_NAMES[wanted]}"
    # The first version has no error codes for this.
    raise ApiError(ErrorCode.INVALID_REQUEST if version_of(request) == 0 else code, message)
