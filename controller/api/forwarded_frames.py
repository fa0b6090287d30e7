"""Frames of Kafka clients that brokers forward (KIP-590): decoded once, answered as admin calls, and encoded once.

A broker has decoded the frame already, to refuse what is malformed. `controller/api/service.py` loads this module in a worker
thread with the first frame: a controller without Kafka clients does without the Kafka protocol.
"""

from __future__ import annotations

from typing import Any

from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.admin_calls import AdminCalls, Unanswerable
from kraftlab.gateway.codec import KafkaRequest, LargeRequest, MalformedRequest, decode_request, peek
from kraftlab.metadata.peer_rpc import EnvelopeRequest, EnvelopeResponse
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import OFFERS
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Dispatch
from kraftlab.rpc.turns import ELEMENTS_AT_ONCE
from kraftlab.wire.parts import InMemory

TIMEOUT_MS_MAX = 2**31 - 1


class ForwardedFrames:
    """Answers forwarded frames by `dispatch`."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._calls = AdminCalls(dispatch)

    async def answer(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        """Return the frame of the response, or the error if it has no place there. NOT_CONTROLLER: the broker looks again."""
        try:
            head, row = peek(envelope.request), OFFERS.get(envelope.api) if envelope.api in METHODS else None
            if row is None or row.key != head.key or not row.lowest <= head.version <= row.highest:
                raise MalformedRequest(f"API {head.key} version {head.version} is not {envelope.api}")
            request = await self._decoded(envelope.request)
        except MalformedRequest as error:
            return EnvelopeResponse(ErrorCode.INVALID_REQUEST, f"the frame of {envelope.api} cannot be read: {error}")
        caller = Caller(envelope.principal, envelope.host, envelope.client_id)
        timeout_ms = None if envelope.timeout_ms is None else min(max(envelope.timeout_ms, 0), TIMEOUT_MS_MAX)
        response: Any = await self._calls.ask(request, caller, timeout_ms, envelope.broker)
        header = response.header
        if header.error_code == ErrorCode.NOT_CONTROLLER:
            return EnvelopeResponse(header.error_code, header.error_message, outcome_unknown=header.outcome_unknown)
        try:
            parts = await self._calls.encode(request.header, response)
        except Unanswerable:
            return EnvelopeResponse(header.error_code, header.error_message, outcome_unknown=header.outcome_unknown)
        frame = b"".join(part for part in parts if isinstance(part, InMemory))
        return EnvelopeResponse(ErrorCode.NONE, None, frame, header.metadata_offset, header.outcome_unknown)

    async def _decoded(self, frame: bytes) -> KafkaRequest:
        try:
            return decode_request(frame, ELEMENTS_AT_ONCE)
        except LargeRequest:
            return (await self._calls.off_loop(decode_request, frame))._replace(is_large=True)
