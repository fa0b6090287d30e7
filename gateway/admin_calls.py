"""Requests of the Kafka protocol as calls of the Admin service, and the responses as frames.

The node that answers an admin call translates its frame: the active controller also for frames that brokers forward (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple

import trio
from google.protobuf.message import Message

from kraftlab.admin.v1.admin_pb2 import ResponseHeader
from kraftlab.common.errors import ApiError
from kraftlab.messages.catalog import response_class
from kraftlab.messages.schema import Message as Answer
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import OFFERS, refused
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call, Dispatch
from kraftlab.wire.parts import Part

from .answer_codes import codes_in
from .codec import Header, KafkaRequest, encode_response
from .translation import says_error, to_message, to_value

LARGE_BYTES = 100_000
"""Bytes of an answer from which on a thread encodes it: the rows of a very large one take a minute."""
_NAMES = {offer.key: name for name, offer in OFFERS.items()}

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Unanswerable(Exception):
    """The request failed as a whole, and its response has no field for that. The text gives the request and the reason."""


class AdminCalls:
    """Answers requests by `dispatch`, which gRPC calls too. Large ones are translated one after the other: several at once would
    leave other tasks little time.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._one_large = trio.CapacityLimiter(1)

    async def ask(
        self, request: KafkaRequest, caller: Caller, timeout_ms: int | None = None, broker: ForwardingBroker | None = None
    ) -> Message:
        """Return the response of the Admin service. `timeout_ms` replaces the one in the request, `broker` has forwarded it."""
        name, message = await self._translated(request)
        if timeout_ms is not None:
            message.header.timeout_ms = timeout_ms
        return await self._dispatch(Call(name, message, caller.principal, caller.host, caller.client_id, broker))

    async def refuse(self, request: KafkaRequest, error: ApiError, note_codes: Callable[[Sequence[int]], None]) -> Sequence[Part]:
        """Return the frame that refuses the whole request, by its entries if only they have a place for errors. Unanswerable."""
        name, message = await self._translated(request)
        return await self.encode(request.header, refused(name, message, error), note_codes)

    async def _translated(self, request: KafkaRequest) -> tuple[str, Any]:
        name, version = _NAMES[request.header.key], request.header.version
        message: Any = METHODS[name].request()
        if request.is_large:
            await self.off_loop(to_message, request.body, version, message)
        else:
            to_message(request.body, version, message)
        return name, message

    async def encode(
        self, head: Header, response: Message, note_codes: Callable[[Sequence[int]], None] = lambda codes: None
    ) -> Sequence[Part]:
        """Return the frame that answers a request. `note_codes` gets the error codes in it. Unanswerable: close the connection,
        and the client tries again.
        """
        header: ResponseHeader = getattr(response, "header")  # noqa: B009 - every response has one
        if header.error_code and not says_error(response, response_class(head.key), head.version):
            raise Unanswerable(f"{_NAMES[head.key]} failed: {header.error_message}")
        is_large = response.ByteSize() >= LARGE_BYTES
        parts, codes = await self.off_loop(encoded, head, response) if is_large else encoded(head, response)
        note_codes(codes)
        return parts

    async def off_loop(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a pure function on a thread, where a large request or answer keeps nobody waiting."""
        return await trio.to_thread.run_sync(work, *arguments, abandon_on_cancel=True, limiter=self._one_large)


def encoded(head: Header, response: Message) -> tuple[Sequence[Part], Sequence[int]]:
    """Return a response of the Admin service as a frame, and the error codes in it."""
    answer: Any = response
    return with_codes(head, to_value(answer, response_class(head.key), head.version))


def with_codes(head: Header, answer: Answer) -> tuple[Sequence[Part], Sequence[int]]:
    """Return an answer as a frame, and the error codes in it."""
    return encode_response(head, answer), codes_in(answer)
