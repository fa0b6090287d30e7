"""The server's side of one `Call` stream: the pipelined door of the admin API.

Theory of operation. One thread reads messages and hands all calls of a message to the event loop with one wake-up; another
writes answers as they come, each message with whatever is ready by then. So nobody waits for a message to fill, and the busier a
stream is, the less a call costs: what a message costs (a good ten thread switches inside gRPC) is shared. Reading stops while
`MAX_IN_FLIGHT` calls have no answer, which holds the client back by TCP; a message is taken whole.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.errors import ErrorCode

from .methods import METHOD_OF_FIELD, Method

logger = logging.getLogger("kraftlab.rpc")

MAX_IN_FLIGHT = 1024
MESSAGE_BYTES = 256 * 1024
"""A message of answers takes no more of them once it is this large."""

Settle = Callable[[Message | None], None]
"""Takes the answer to one call, once; None if the node stops first. From any thread."""
Begin = tuple[Method, Message, Settle]
"""A call to begin."""


class ServedStream:
    """`read` and `responses` run on a thread each; `hand_over` begins calls on the event loop."""

    def __init__(self, hand_over: Callable[[Sequence[Begin]], None]) -> None:
        self._hand_over = hand_over
        self._answers: queue.SimpleQueue[tuple[int, str, Message] | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._read = 0
        self._written = 0
        self._ended = False
        self._closed = False
        self.stopping = False

    def read(self, requests: Iterator[admin_pb2.CallRequests]) -> None:
        """Reads to the end of the client's requests, or until the stream breaks."""
        try:
            for message in requests:
                self._read += len(message.calls)
                self._hand_over([begin for begin in map(self._begin, message.calls) if begin is not None])
                with self._room:
                    self._room.wait_for(lambda: self._closed or self._read - self._written < MAX_IN_FLIGHT)
                if self._closed:
                    return
        except Exception as error:
            logger.debug("an admin stream broke: %r", error)
        finally:
            self._ended = True
            self._answers.put(None)

    def _begin(self, call: admin_pb2.CallRequest) -> Begin | None:
        """What the loop shall do for a call; None if it has been refused."""
        field = call.WhichOneof("request")
        if field is None:
            refusal = "the call names no request that this node knows"
            header = admin_pb2.ResponseHeader(error_code=ErrorCode.INVALID_REQUEST, error_message=refusal, leader_id=-1)
            self._answers.put((call.correlation, "fault", header))
            return None
        return METHOD_OF_FIELD[field], getattr(call, field), functools.partial(self._settle, call.correlation, field)

    def _settle(self, correlation: int, field: str, response: Message | None) -> None:
        if response is None:
            self.stopping = True
            self.close()
        else:
            self._answers.put((correlation, field, response))

    def responses(self) -> Iterator[admin_pb2.CallResponses]:
        """Answers until all requests that were read have theirs, or the stream is closed."""
        while not self._closed and not (self._ended and self._written == self._read):
            message = self._gather(self._answers.get())
            if message.calls:
                with self._room:
                    self._written += len(message.calls)
                    self._room.notify()
                yield message

    def _gather(self, answer: tuple[int, str, Message] | None) -> admin_pb2.CallResponses:
        """A message with this answer and those that are ready; None among them is only a wake-up."""
        message = admin_pb2.CallResponses()
        size_bytes = 0
        while answer is not None:
            correlation, field, response = answer
            call = message.calls.add(correlation=correlation)
            getattr(call, field).CopyFrom(response)
            size_bytes += call.ByteSize()
            if size_bytes >= MESSAGE_BYTES:
                break
            try:
                answer = self._answers.get_nowait()
            except queue.Empty:
                break
        return message

    def close(self) -> None:
        """The client went away, or the node stops."""
        with self._room:
            self._closed = True
            self._room.notify()
        self._answers.put(None)
