"""Requests that are carried out once, however often they are sent.

Theory of operation. A request with an id is an operation with two more steps. Before it runs, the newest state is asked whether
the id was answered: then that answer is given again, at the offset it was given for, and nothing is done. The newest state has
what is not committed yet, and every answer waits until what it rests on is, so a retry that meets the first sending in flight
waits for the same commit, and fails with it. After it has run, its answer is written behind its records, in the same batch. A
change of several batches becomes a metadata transaction with the answer inside.

Every answer of an operation is written, also one without changes (all its entries were refused, say): else two sendings could be
told different things, both believed. A refusal of the whole request is an error, not an answer: it did nothing, is not written,
and the id may be used again.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.records import RequestOutcome
from kraftlab.metadata.requests import KEPT_MS, KEPT_PER_CLIENT, AnsweredRequest, RequestsImage, packed, unpacked
from kraftlab.metadata.uuids import Uuid, to_text
from kraftlab.quorum.core.batch import MAX_RECORDS
from kraftlab.rpc.request_ids import CLIENT_ID_BYTES, is_named

from .state import ControllerState, Outcome

DIGEST_BYTES = 16
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Of one answer, as it is stored: it must fit a batch beside others."""


class RequestIdentity(NamedTuple):
    """`digest` is of the request without its header, of the call and of who makes it."""

    client_id: Uuid
    sequence: int
    digest: bytes

    def __str__(self) -> str:
        return f"request {self.sequence} of client {to_text(self.client_id)}"


def identity_of(api: str, principal: str, request: Any) -> RequestIdentity | None:
    """The identity of a request of `principal`; None if it has no id, or none that counts. ApiError INVALID_REQUEST."""
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
    """Digest of call, caller and request. Of the header only the version counts: deadlines differ from sending to sending."""
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
    """What this request was answered, None if it was not.

    ApiError DUPLICATE_SEQUENCE_NUMBER: that cannot be told any more. INVALID_REQUEST: the id is another request's.
    """
    client = requests.get(identity.client_id)
    if client is None:
        return None
    answered = client.get(identity.sequence)
    if client.is_too_old(identity.sequence) or (answered is not None and answered.is_over(now_ms)):
        raise ApiError(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"Not carried out: {identity} is older than what is kept ({KEPT_PER_CLIENT} answers of a client, for "
            f"{KEPT_MS // 60_000} minutes), so it may have been carried out before. See what the metadata says now, and ask with "
            "a new sequence for what is missing.",
        )
    if answered is not None and answered.digest != identity.digest:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Not carried out: {identity} was a different request, or another caller's. Give each request a sequence of its own, "
            "and each client an id of its own; repeat a request exactly as it was.",
        )
    return answered


def repeated(answered: AnsweredRequest, response: Message) -> Outcome[object]:
    """The answer that was given, read into an empty response."""
    response.MergeFromString(unpacked(answered.answer))
    return Outcome((), response, reflects=answered.end_offset)


def recorded(api: str, identity: RequestIdentity, outcome: Outcome[Any], state: ControllerState, now_ms: int) -> Outcome[object]:
    """The outcome with its answer among its records. ApiError POLICY_VIOLATION if that is too long to be kept."""
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
