"""The admin API's gRPC server in front of a trio program.

Theory of operation. grpcio has no trio event loop, so the plain threaded server runs beside the loop. A call is handed to the
loop with `run_sync_soon`, is taken by `accept` or runs there as a task of `serve`'s nursery, and its answer wakes the thread that
waits for it: some twenty thread switches per call, most of them gRPC's own. The bidirectional `Call` stream (`call_stream.py`)
is the pipelined door, whose calls share those switches: it is the fast one. A stream keeps a thread while it is open, so only
`MAX_STREAMS` are, and one more is refused. A call whose client is gone goes on, but keeps no thread waiting for its answer.

grpc is imported on a worker thread when serving begins: it takes longer than electing a leader. `dispatch` should answer
faults in the body; what it raises becomes error code -1 there and a traceback in the log. When `serve` is cancelled, calls
that have not been answered end with the gRPC status UNAVAILABLE. gRPC closes a connection that does not speak HTTP/2, and says
nothing about it. Who calls is worked out once for a unary call or a stream (`caller.py`).
"""

from __future__ import annotations

import functools
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from google.protobuf.message import DecodeError, Message

from kraftlab.access.users import Users
from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.quorum.core.types import Endpoint
from kraftlab.wire.line_limit import LineLimit
from kraftlab.wire.transport import ListenError

from .call_stream import Begin, ServedStream, Settle
from .caller import Caller, caller_of
from .methods import METHODS, SERVICE, STREAM_METHOD, Method, fault
from .versions import refusal

if TYPE_CHECKING:
    import grpc

logger = logging.getLogger("kraftlab.rpc")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_THREADS = 256
MAX_STREAMS = 128
"""Each keeps a thread for as long as it is open; the other threads are for unary calls."""
MAX_CONCURRENT_CALLS = 4096
STOP_GRACE_S = 0.2
MIN_PING_INTERVAL_MS = 500
"""Clients ping during a call, to tell a node that hangs from one that is slow."""
HANDSHAKE_TIMEOUT_MS = 5000
"""A connection that has not shown by then that it speaks HTTP/2 is closed."""
LINES_AT_ONCE = 50
LINE_INTERVAL_S = 5.0
"""Requests that cannot be decoded give so many log lines at once, and one more in that time."""


class Call(NamedTuple):
    """One admin call: the method's name, its protobuf request, who makes it, from which address, and what the client calls
    itself. `broker`: the one that was asked, if one passes it on and the answer depends on it.
    """

    api: str
    request: Message
    principal: str
    host: str = ""
    client_id: str = ""
    broker: ForwardingBroker | None = None


Dispatch = Callable[[Call], Awaitable[Message]]
Accept = Callable[[Call, Callable[[Message], None]], bool]
"""Takes a call that needs no task of its own, on the event loop, and gives its answer there, once. False: it is not taken."""


class AdminServer:
    """Serves `dispatch` on host:port. Use: `port = await nursery.start(server.serve)`; cancel the scope to stop.

    `accept`, if given, is offered every call first: what it takes costs no task and no pass of the event loop. `users` are those
    that a caller can prove to be.
    """

    def __init__(
        self, dispatch: Dispatch, host: str, port: int, *, accept: Accept | None = None, users: Users | None = None
    ) -> None:
        self._dispatch = dispatch
        self._users = Users({}) if users is None else users
        self._accept = accept
        self._host = host
        self._port = port
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._calls = 0
        self._faults = 0
        self._in_flight = 0
        self._accepted: dict[int, Settle] = {}
        """Calls that `accept` took and has not answered, by a number of their own."""
        self._last_accepted = 0
        self._stream_places = threading.BoundedSemaphore(MAX_STREAMS)
        self._limit = LineLimit(LINES_AT_ONCE, LINE_INTERVAL_S)
        self._limit_lock = threading.Lock()

    def statistics(self) -> dict[str, int]:
        return {"calls": self._calls, "faults": self._faults, "in_flight": self._in_flight}

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; reports the port once calls are accepted. ListenError if the port cannot be had."""
        self._token = trio.lowlevel.current_trio_token()
        server, port = await trio.to_thread.run_sync(self._build)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await trio.to_thread.run_sync(server.start)
                    task_status.started(port)
                    await trio.sleep_forever()
                finally:
                    # Calls go on arriving, also when the last task has ended and the nursery with it.
                    self._nursery = None
        finally:
            await self._stop(server)

    async def _stop(self, server: grpc.Server) -> None:
        """Ends the calls that have no answer."""
        for number in tuple(self._accepted):
            self._settle_accepted(number, None)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(server.stop(STOP_GRACE_S).wait)

    def _build(self) -> tuple[grpc.Server, int]:
        """The server and its port. ListenError. Worker thread."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        server = grpc.server(
            ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="admin"),
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ),
            maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
        )
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            method.api: grpc.unary_unary_rpc_method_handler(
                functools.partial(self._unary, method), response_serializer=method.response.SerializeToString
            )
            for method in METHODS.values()
        }
        handlers[STREAM_METHOD] = grpc.stream_stream_rpc_method_handler(
            self._stream, response_serializer=admin_pb2.CallResponses.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        return server, _listen(server, self._host, self._port)

    def _read(self, kind: type[Message], data: bytes) -> Any:
        """None for bytes that are none. gRPC itself would log a traceback for each, and after some streams of them never stop."""
        try:
            return kind.FromString(data)
        except DecodeError:
            with self._limit_lock:
                suppressed = self._limit.admit(time.monotonic())
            if suppressed is not None:
                more = f"; {suppressed} such lines before this one were left out" if suppressed else ""
                logger.warning("refused a call: %d bytes that are no %s%s", len(data), kind.DESCRIPTOR.name, more)
            return None

    def begin(self, caller: Caller, calls: Sequence[Begin]) -> None:
        """Starts calls; each is answered once, with None if the node stops first. On the event loop."""
        for method, request, settle in calls:
            if self._nursery is None:
                settle(None)
                continue
            refused = refusal(method, request)
            if refused is not None:
                self._calls += 1
                settle(refused)
                continue
            self._in_flight += 1
            call = Call(method.api, request, *caller)
            if self._accept is None or not self._accepts(self._accept, method, call, settle):
                self._nursery.start_soon(self._run, method, call, settle)

    def _accepts(self, accept: Accept, method: Method, call: Call, settle: Settle) -> bool:
        self._last_accepted = number = self._last_accepted + 1
        self._accepted[number] = settle
        try:
            is_taken = accept(call, functools.partial(self._settle_accepted, number))
        except Exception as error:
            self._settle_accepted(number, self._failed(method, error))
            return True
        if not is_taken:
            del self._accepted[number]
        return is_taken

    def _settle_accepted(self, number: int, response: Message | None) -> None:
        settle = self._accepted.pop(number, None)
        if settle is not None:
            self._calls += 1
            self._in_flight -= 1
            settle(response)

    async def _run(self, method: Method, call: Call, settle: Settle) -> None:
        response: Message | None = None
        try:
            response = await self._dispatch(call)
        except Exception as error:
            response = self._failed(method, error)
        finally:
            self._calls += 1
            self._in_flight -= 1
            settle(response)

    def _failed(self, method: Method, error: Exception) -> Message:
        self._faults += 1
        logger.exception("%s failed", method.api)
        return fault(method, f"{method.api} failed on this node ({type(error).__name__}); its log says more")

    def _hand_over(self, caller: Caller, calls: Sequence[Begin]) -> None:
        """Begins calls on the event loop, all with one wake-up. On any other thread."""
        assert self._token is not None, "calls arrive only while serving"
        try:
            self._token.run_sync_soon(self.begin, caller, calls)
        except trio.RunFinishedError:
            for _, _, settle in calls:
                settle(None)

    def _unary(self, method: Method, data: bytes, context: grpc.ServicerContext) -> Message:
        answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        caller = caller_of(context, self._users)
        request = self._read(method.request, data)
        if request is None:
            _abort_garbled(context)
        if not context.add_callback(functools.partial(answers.put, None)):
            return method.response()  # which nobody hears
        self._hand_over(caller, [(method, request, answers.put)])
        response = answers.get()
        if response is None:
            _abort_stopping(context)
        assert response is not None
        return response

    def _stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[admin_pb2.CallResponses]:
        is_garbled = threading.Event()

        def messages() -> Iterator[admin_pb2.CallRequests]:
            for data in requests:
                message = self._read(admin_pb2.CallRequests, data)
                if message is None:
                    is_garbled.set()
                    stream.close()
                    return
                yield message

        stream = ServedStream(functools.partial(self._hand_over, caller_of(context, self._users)))
        if not self._stream_places.acquire(blocking=False):
            _abort_full(context)
        try:
            context.add_callback(stream.close)
            threading.Thread(target=stream.read, args=(messages(),), name="admin-stream", daemon=True).start()
            yield from stream.responses()
        finally:
            self._stream_places.release()
        if is_garbled.is_set():
            _abort_garbled(context)
        if stream.stopping:
            _abort_stopping(context)


def _abort_full(context: grpc.ServicerContext) -> None:
    import grpc

    context.abort(
        grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open at this node already; close one, or make unary calls"
    )


def _abort_garbled(context: grpc.ServicerContext) -> None:
    import grpc

    context.abort(grpc.StatusCode.INTERNAL, "these bytes are no request; is this a client of another service?")


def _abort_stopping(context: grpc.ServicerContext) -> None:
    import grpc

    context.abort(grpc.StatusCode.UNAVAILABLE, "this node is stopping; ask another one")


def _listen(server: grpc.Server, host: str, port: int) -> int:
    """Has the server listen at every address of `host`, or at all of this machine's if it is empty; returns the port.

    ListenError if the host cannot be resolved, or the port cannot be had at one of its addresses. Blocks.
    """
    wanted = Endpoint(host or "*", port)
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ListenError(f"cannot listen on {wanted} for GRPC: {error.strerror}") from error
    for address in dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found):
        try:
            port = server.add_insecure_port(str(Endpoint(address, port)))
        except RuntimeError as error:
            why = _why_not(address, port) or error
            raise ListenError(f"cannot listen on {wanted} for GRPC: {why}; is another process using the port?") from error
    return port


def _why_not(address: str, port: int) -> str | None:
    """The system's reason why nobody can listen there, which gRPC keeps to itself; None if there is none."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.create_server((address, port), family=family).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return None
