"""The id of an admin request, as the controller's doors read it."""

from __future__ import annotations

import hashlib
from typing import Any

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.rpc.request_ids import CLIENT_ID_BYTES, is_named
from kraftlab.rpc.server import Call

from ..engine.exactly_once import RequestIdentity

DIGEST_BYTES = 16


def identity_of(call: Call) -> RequestIdentity | None:
    """Who the request says it is; None if it has no id, or none that counts. ApiError INVALID_REQUEST."""
    request: Any = call.request
    if not is_named(call.api, request):
        return None
    request_id = request.header.request_id
    if len(request_id.client_id) != CLIENT_ID_BYTES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Not carried out: the client_id of a request_id has {CLIENT_ID_BYTES} bytes (a random UUID), not "
            f"{len(request_id.client_id)}.",
        )
    return RequestIdentity(request_id.client_id, request_id.sequence, _digest(call, request))


def _digest(call: Call, request: Any) -> bytes:
    """Of what is asked and by whom. The header does not count, but for the version: deadlines differ from sending to sending."""
    header = admin_pb2.RequestHeader()
    header.CopyFrom(request.header)
    request.ClearField("header")
    try:
        body = request.SerializeToString(deterministic=True)
    finally:
        request.header.CopyFrom(header)
    version = header.api_version if header.HasField("api_version") else -1
    digest = hashlib.blake2b(f"{call.api}\0{call.principal}\0{version}\0".encode(), digest_size=DIGEST_BYTES)
    digest.update(body)
    return digest.digest()
