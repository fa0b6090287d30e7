"""Requests with an id: each is carried out once, however often it is sent.

Theory of operation. A request with an id is an operation with two more steps. Before it runs, `find` looks for its answer in
the newest state. If there is one, the answer is repeated, with its first offset, and nothing is done. The newest state
includes uncommitted records, and every answer waits for the commit of the state that it was computed from. So a retry that
arrives while the first request is in flight waits for the same commit, and fails with it. After the operation has run, its
answer is written after its records, in the same batch. A change of several batches becomes a metadata transaction that
includes the answer.

Every answer of an operation is written, also one without changes (all entries were refused, for example). Otherwise two
attempts could get different answers. A refusal of the whole request is an error, not an answer: nothing was done, nothing is
written, and the id can be used again.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid, to_text
from kraftlab.metadata.records import RequestOutcome
from kraftlab.metadata.requests import KEPT_MS, KEPT_PER_CLIENT, AnsweredRequest, RequestsImage, packed, unpacked
from kraftlab.quorum.core.batch import MAX_RECORDS
from kraftlab.rpc.request_ids import CLIENT_ID_BYTES, is_named

from .state import ControllerState, Outcome

DIGEST_BYTES = 16
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Largest stored answer: it has to fit a batch beside other records."""


class RequestIdentity(NamedTuple):
    """`digest`: over the call, its caller, and the request without its header."""

    client_id: Uuid
    sequence: int
    digest: bytes

    def __str__(self) -> str:
        return f"request {self.sequence} of client {to_text(self.client_id)}"


def identity_of(api: str, principal: str, request: Any) -> RequestIdentity | None:
    """Return the identity of a request of `principal`. None if it has no id, or if the call takes none. ApiError
    INVALID_REQUEST.
    """
    if not is_named(api, request):
        return None
    request_id = request.header.request_id
    if len(request_id.client_id) != CLIENT_ID_BYTES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Not carried out: the client_id of a request_id has {CLIENT_ID_BYTES} bytes (a random UUID), not "
            f"{len(request_id.client_id)}.",
        )
    return RequestIdentity(request_id.client_id, request_id.sequence, _digest(api, principal, request))


def _digest(api: str, principal: str, request: Any) -> bytes:
    """Digest over call, caller and request. Of the header only the version is included, since deadlines differ between
    attempts.
    """
    header = admin_pb2.RequestHeader()
    header.CopyFrom(request.header)
    request.ClearField("header")
    try:
        body = request.SerializeToString(deterministic=True)
    finally:
        request.header.CopyFrom(header)
    version = header.api_version if header.HasField("api_version") else -1
    digest = hashlib.blake2b(f"{api}\0{principal}\0{version}\0".encode(), digest_size=DIGEST_BYTES)
    digest.update(body)
    return digest.digest()


def find(requests: RequestsImage, identity: RequestIdentity, now_ms: int) -> AnsweredRequest | None:
    """Return the earlier answer to this request, None if there is none.

    ApiError DUPLICATE_SEQUENCE_NUMBER: the answer is forgotten. INVALID_REQUEST: the id belongs to another request.
    """
    client = requests.get(identity.client_id)
    if client is None:
        return None
    answered = client.get(identity.sequence)
    if client.is_too_old(identity.sequence) or (answered is not None and answered.is_over(now_ms)):
        raise ApiError(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"Not carried out: {identity} is older than the kept answers ({KEPT_PER_CLIENT} of a client, for "
            f"{KEPT_MS // 60_000} minutes), so it may have been carried out before. Describe the metadata, and request "
            "the missing changes with a new sequence.",
        )
    if answered is not None and answered.digest != identity.digest:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Not carried out: {identity} was a different request, or another caller's. Give each request a sequence of its own, "
            "and each client an id of its own; repeat a request exactly as it was.",
        )
    return answered


def repeated(answered: AnsweredRequest, response: Message) -> Outcome[object]:
    """The earlier answer, parsed into an empty response."""
    response.MergeFromString(unpacked(answered.answer))
    return Outcome((), response, reflects=answered.end_offset)


def recorded(api: str, identity: RequestIdentity, outcome: Outcome[Any], state: ControllerState, now_ms: int) -> Outcome[object]:
    """The outcome, with a record of its answer. ApiError POLICY_VIOLATION if the answer is too large."""
    answer = packed(outcome.response.SerializeToString())
    if len(answer) > ANSWER_BYTES_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Nothing was changed: the answer would take {len(answer)} bytes, and at most {ANSWER_BYTES_MAX} are kept of a "
            "request with an id. Split the request, or send it without an id.",
        )
    record = RequestOutcome(
        0, identity.client_id, identity.sequence, identity.digest, state.image.requests.next_time_ms(now_ms), answer
    )
    transaction = outcome.transaction
    if transaction is None and (not outcome.atomic or len(outcome.records) <= MAX_RECORDS):
        transaction = api
    return outcome._replace(records=[*outcome.records, record], atomic=True, transaction=transaction)
