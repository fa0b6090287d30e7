"""Pipelined admin calls: many in flight over one gRPC stream, each a future.

gRPC requests the next message when it has sent the last one, and gets all calls that were submitted meanwhile. So a call never
waits for others, and frequent calls share the cost of a message.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.endpoint import Endpoint
from kraftlab.rpc.methods import METHODS

from .channels import Channels, authentication_error
from .errors import ClusterUnreachable, header_error

_MESSAGE_BYTES = 256 * 1024
"""Size at which a message takes no further calls."""


class CallStream:
    """One stream to one node. `submit` returns at once; answers come in any order, as the node finishes.

    When the stream breaks, every future without an answer fails with ClusterUnreachable: those calls may have taken effect. The
    stream does not follow NOT_CONTROLLER: open it at the active controller (`AdminClient.open_stream`), and open another stream
    when futures fail with that error. Use as a context manager, or call `close`.
    """

    def __init__(self, channels: Channels, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._requests: queue.SimpleQueue[admin_pb2.CallRequest | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Message]] = {}
        self._next = 0
        self._broken: Exception | None = None
        self._answers = channels.stream(endpoint)(self._messages())
        self._reader = threading.Thread(target=self._read, args=(self._answers,), name="call-stream", daemon=True)
        self._reader.start()

    def submit(self, api: str, request: Message) -> Future[Message]:
        """Start a call. The future returns the response, or raises the header's ApiError (OutcomeUnknown if the call may have
        taken effect), or ClusterUnreachable.

        A broken stream raises its error at once. A submitted call cannot be cancelled.
        """
        future: Future[Message] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._broken is not None:
                raise self._broken
            correlation = self._next
            self._next += 1
            self._pending[correlation] = future
        fields: dict[str, Any] = {"correlation": correlation, METHODS[api].field: request}
        self._requests.put(admin_pb2.CallRequest(**fields))
        return future

    def _messages(self) -> Iterator[admin_pb2.CallRequests]:
        """Yield messages with all calls that are submitted so far, until the stream ends."""
        ended = False
        while not ended:
            call = self._requests.get()
            message = admin_pb2.CallRequests()
            size_bytes = 0
            while call is not None:
                message.calls.append(call)
                size_bytes += call.ByteSize()
                if size_bytes >= _MESSAGE_BYTES:
                    break
                try:
                    call = self._requests.get_nowait()
                except queue.Empty:
                    break
            ended = call is None
            if message.calls:
                yield message

    def _read(self, answers: Iterator[admin_pb2.CallResponses]) -> None:
        refusal: Exception | None = None
        reason = f"the stream to {self.endpoint} was closed before the answer came; the call may have taken effect"
        try:
            for message in answers:
                for answer in message.calls:
                    self._settle(answer)
        except grpc.RpcError as error:
            refusal = authentication_error(error)
            detail = error.details() if isinstance(error, grpc.Call) else str(error)
            reason = f"the stream to {self.endpoint} broke ({detail}); the call may have taken effect"
        with self._lock:
            self._broken = refusal or ClusterUnreachable(reason)
            pending, self._pending = self._pending, {}
        for future in pending.values():
            future.set_exception(self._broken)

    def _settle(self, answer: admin_pb2.CallResponse) -> None:
        with self._lock:
            future = self._pending.pop(answer.correlation, None)
        if future is None:
            return
        field = answer.WhichOneof("response")
        response: Any = answer if field is None else getattr(answer, field)
        header = answer.fault if field is None else response.header
        if header.error_code:
            future.set_exception(header_error(header))
        else:
            future.set_result(response)

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for the answers of submitted calls, then end the stream."""
        self._requests.put(None)
        self._reader.join(timeout_s)
        if self._reader.is_alive():
            self._answers.cancel()
            self._reader.join()

    def __enter__(self) -> CallStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
