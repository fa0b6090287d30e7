"""The server's side of one `Call` stream, the pipelined form of the admin API.

Theory of operation. All calls of a message go to trio's loop with one wake-up. Answers are written as they come, each message
with the answers that are ready. So no answer waits for a message to fill, and the busier a stream is, the less a call
costs. Reading stops while `MAX_IN_FLIGHT` calls have no answer, which holds the client back by TCP; a message is always taken
whole. Everything here except the settling of a call happens on gRPC's loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ErrorCode

from .methods import METHOD_OF_FIELD, Method

logger = logging.getLogger("kraftlab.rpc")

MAX_IN_FLIGHT = 1024
MESSAGE_BYTES = 256 * 1024
"""A message of answers takes no more of them once it is this large."""

Settle = Callable[[Message | None], None]
"""Takes the answer to one call, once; None if the node stops first."""
Begin = tuple[Method, Message, Settle]
"""A call to begin: method, request, and the function that takes the answer."""


class ServedStream:
    """`hand_over` begins calls on trio's loop; `answer` brings an answer from there to a function here."""

    def __init__(self, hand_over: Callable[[Sequence[Begin]], None], answer: Callable[[Settle, Message | None], None]) -> None:
        self._hand_over = hand_over
        self._answer = answer
        self._ready: deque[tuple[int, str, Message]] = deque()
        self._unanswered = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._has_ended = False
        self.is_garbled = False
        self.is_stopping = False

    async def read(self, decode: Callable[[bytes], admin_pb2.CallRequests | None], requests: AsyncIterator[bytes]) -> None:
        """Read to the end of the client's requests, or until the stream breaks."""
        try:
            async for data in requests:
                message = decode(data)
                if message is None:
                    self.is_garbled = True
                    return
                self._unanswered += len(message.calls)
                self._hand_over([begin for begin in map(self._begin, message.calls) if begin is not None])
                while self._unanswered >= MAX_IN_FLIGHT:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            logger.debug("an admin stream broke: %r", error)
        finally:
            self._has_ended = True
            self._news.set()

    def _begin(self, call: admin_pb2.CallRequest) -> Begin | None:
        """Return the call for trio's loop; None if it has been refused."""
        field = call.WhichOneof("request")
        if field is None:
            refusal = "the call names no request that this node knows"
            header = admin_pb2.ResponseHeader(error_code=ErrorCode.INVALID_REQUEST, error_message=refusal, leader_id=-1)
            self._settle(call.correlation, "fault", header)
            return None
        settle = functools.partial(self._settle, call.correlation, field)
        return METHOD_OF_FIELD[field], getattr(call, field), functools.partial(self._answer, settle)

    def _settle(self, correlation: int, field: str, response: Message | None) -> None:
        if response is None:
            self.is_stopping = True
        else:
            self._ready.append((correlation, field, response))
        self._news.set()

    async def responses(self) -> AsyncIterator[admin_pb2.CallResponses]:
        """Yield answers until all requests that were read have theirs, or the stream ends."""
        while not self.is_garbled and not self.is_stopping and not (self._has_ended and not self._unanswered):
            if not self._ready:
                self._news.clear()
                await self._news.wait()
                continue
            message = self._gather()
            self._unanswered -= len(message.calls)
            self._room.set()
            yield message

    def _gather(self) -> admin_pb2.CallResponses:
        """Return a message with the ready answers, as many as fit."""
        message = admin_pb2.CallResponses()
        size_bytes = 0
        while self._ready and size_bytes < MESSAGE_BYTES:
            correlation, field, response = self._ready.popleft()
            call = message.calls.add(correlation=correlation)
            getattr(call, field).CopyFrom(response)
            size_bytes += call.ByteSize()
        return message
