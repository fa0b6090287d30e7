"""The admin API's gRPC server in front of a trio program.

Theory of operation. grpcio has no trio event loop, so the plain threaded server runs beside the loop. A call is handed to the
loop with `run_sync_soon`, runs there as a task of `serve`'s nursery, and its answer wakes the thread that waits for it. The
bidirectional `Call` stream is the pipelined door: one thread reads requests and hands each to the loop at once, another writes
answers in the order they come; `MAX_IN_FLIGHT` per stream holds a client back by TCP. The stream costs no thread per call and
is the fast one.

grpc is imported on a worker thread when serving begins: it takes longer than electing a leader. `dispatch` should answer
faults in the body; what it raises becomes error code -1 there and a traceback in the log. When `serve` is cancelled, calls
that have not been answered end with the gRPC status UNAVAILABLE. Bytes that are not HTTP/2 are dropped by gRPC with their
connection. There is no authentication yet: every call comes from User:ANONYMOUS.
"""

from __future__ import annotations

import functools
import logging
import os
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.errors import ErrorCode
from kraftlab.quorum.driver.transport import ListenError

from .methods import METHOD_OF_FIELD, METHODS, SERVICE, STREAM_METHOD, Method, fault

if TYPE_CHECKING:
    import grpc

logger = logging.getLogger("kraftlab.rpc")

ANONYMOUS = "User:ANONYMOUS"
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_IN_FLIGHT = 1024
MAX_THREADS = 256
MAX_CONCURRENT_CALLS = 4096
STOP_GRACE_S = 0.2
MIN_PING_INTERVAL_MS = 500
"""Clients ping during a call, to tell a node that hangs from one that is slow."""


class Call(NamedTuple):
    """One admin call: the method's name, its protobuf request, who makes it."""

    api: str
    request: Message
    principal: str


Dispatch = Callable[[Call], Awaitable[Message]]
_Answer = Callable[[Message | None], None]


class AdminServer:
    """Serves `dispatch` on host:port. Use: `port = await nursery.start(server.serve)`; cancel the scope to stop."""

    def __init__(self, dispatch: Dispatch, host: str, port: int) -> None:
        self._dispatch = dispatch
        self._host = host
        self._port = port
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._calls = 0
        self._faults = 0
        self._in_flight = 0

    def statistics(self) -> dict[str, int]:
        return {"calls": self._calls, "faults": self._faults, "in_flight": self._in_flight}

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; reports the port once calls are accepted. ListenError if the port cannot be had."""
        self._token = trio.lowlevel.current_trio_token()
        server, port = await trio.to_thread.run_sync(self._bind)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await trio.to_thread.run_sync(server.start)
                task_status.started(port)
                await trio.sleep_forever()
        finally:
            self._nursery = None
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(server.stop(STOP_GRACE_S).wait)

    def _bind(self) -> tuple[grpc.Server, int]:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        server = grpc.server(
            ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="admin"),
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ),
            maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
        )
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            method.api: grpc.unary_unary_rpc_method_handler(
                functools.partial(self._unary, method), method.request.FromString, method.response.SerializeToString
            )
            for method in METHODS.values()
        }
        handlers[STREAM_METHOD] = grpc.stream_stream_rpc_method_handler(
            self._stream, admin_pb2.CallRequest.FromString, admin_pb2.CallResponse.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        host = self._host or "0.0.0.0"
        try:
            port = server.add_insecure_port(f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}")
        except RuntimeError:
            port = 0
        if port == 0:
            raise ListenError(f"cannot listen on {host}:{self._port} for GRPC: {_why_not(host, self._port)}")
        return server, port

    def _begin(self, method: Method, request: Message, answer: _Answer) -> None:
        """Starts a call on the loop; `answer` is called once, with None if the node stops first. On the event loop."""
        if self._nursery is None:
            answer(None)
            return
        self._in_flight += 1
        self._nursery.start_soon(self._run, method, request, answer)

    async def _run(self, method: Method, request: Message, answer: _Answer) -> None:
        response: Message | None = None
        try:
            response = await self._dispatch(Call(method.api, request, ANONYMOUS))
        except Exception as error:
            self._faults += 1
            logger.exception("%s failed", method.api)
            response = fault(method, f"{method.api} failed on this node ({type(error).__name__}); its log says more")
        finally:
            self._calls += 1
            self._in_flight -= 1
            answer(response)

    def _hand_over(self, method: Method, request: Message, answer: _Answer) -> None:
        assert self._token is not None, "calls arrive only while serving"
        try:
            self._token.run_sync_soon(self._begin, method, request, answer)
        except trio.RunFinishedError:
            answer(None)

    def _unary(self, method: Method, request: Message, context: grpc.ServicerContext) -> Message:
        answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._hand_over(method, request, answers.put)
        response = answers.get()
        if response is None:
            _abort_stopping(context)
        assert response is not None
        return response

    def _stream(
        self, requests: Iterator[admin_pb2.CallRequest], context: grpc.ServicerContext
    ) -> Iterator[admin_pb2.CallResponse]:
        stream = _Stream(self._hand_over)
        context.add_callback(stream.close)
        threading.Thread(target=stream.read, args=(requests,), name="admin-stream", daemon=True).start()
        yield from stream.responses()
        if stream.stopping:
            _abort_stopping(context)


class _Stream:
    """One `Call` stream: requests go to the loop as they are read, answers leave as they come."""

    def __init__(self, hand_over: Callable[[Method, Message, _Answer], None]) -> None:
        self._hand_over = hand_over
        self._answers: queue.SimpleQueue[admin_pb2.CallResponse | None] = queue.SimpleQueue()
        self._slots = threading.Semaphore(MAX_IN_FLIGHT)
        self._read = 0
        self._written = 0
        self._ended = False
        self._closed = False
        self.stopping = False

    def read(self, requests: Iterator[admin_pb2.CallRequest]) -> None:
        """Reads to the end of the client's requests, or until the stream breaks."""
        try:
            for request in requests:
                self._slots.acquire()
                if self._closed:
                    return
                self._read += 1
                self._start(request)
        except Exception as error:
            logger.debug("an admin stream broke: %r", error)
        finally:
            self._ended = True
            self._answers.put(None)

    def _start(self, request: admin_pb2.CallRequest) -> None:
        correlation = request.correlation
        field = request.WhichOneof("request")
        if field is None:
            refusal = "the call names no request that this node knows"
            header = admin_pb2.ResponseHeader(error_code=ErrorCode.INVALID_REQUEST, error_message=refusal, leader_id=-1)
            self._answers.put(admin_pb2.CallResponse(correlation=correlation, fault=header))
            return
        self._hand_over(METHOD_OF_FIELD[field], getattr(request, field), functools.partial(self._answer, correlation, field))

    def _answer(self, correlation: int, field: str, response: Message | None) -> None:
        if response is None:
            self.stopping = True
            self.close()
            return
        fields: dict[str, Any] = {"correlation": correlation, field: response}
        self._answers.put(admin_pb2.CallResponse(**fields))

    def responses(self) -> Iterator[admin_pb2.CallResponse]:
        """Answers until all requests that were read have theirs, or the stream is closed."""
        while not self._closed and not (self._ended and self._written == self._read):
            response = self._answers.get()
            if response is not None:
                self._written += 1
                self._slots.release()
                yield response

    def close(self) -> None:
        """The client went away, or the node stops."""
        self._closed = True
        self._slots.release()
        self._answers.put(None)


def _abort_stopping(context: grpc.ServicerContext) -> None:
    import grpc

    context.abort(grpc.StatusCode.UNAVAILABLE, "this node is stopping; ask another one")


def _why_not(host: str, port: int) -> str:
    """Asks the system for the reason that gRPC keeps to itself."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            return f"{error.strerror or error}; is another process using the port?"
    return "gRPC refused the address; give a host and port of this machine"
