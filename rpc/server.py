"""The admin API's gRPC server in front of a trio program.

Theory of operation. gRPC has no trio event loop, so its asyncio server runs on its own loop and thread, beside trio's. Requests
are decoded and answers encoded there. A decoded call goes to the trio loop. There `accept` takes it, or it runs as a task of
`serve`'s nursery, and its answer goes back. Calls and answers that are on their way together share the wake-up of the target loop
(`Errands`). No thread waits for an answer: threads that all wake up for one commit would compete for the interpreter with the
loop that commits. A call without its client continues, and nobody waits for its answer.

grpc is imported on that thread when serving begins, because importing takes longer than electing a leader. `dispatch` should
answer faults in the body; its exceptions become error code -1 there and a traceback in the log. When `serve` is cancelled, calls
without an answer end with the gRPC status UNAVAILABLE. gRPC silently closes a connection that does not speak HTTP/2. The caller
is determined once for a unary call or a stream (`caller.py`), and nothing but Check of the health service is answered before.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import trio
from google.protobuf.message import DecodeError, Message

from kraftlab.access.logins import Login, UserLogin
from kraftlab.access.users import AuthenticationFailed, Users
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.audit import AuditLog
from kraftlab.common.causes import only_cause
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.line_limit import LimitedLog
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.wire.transport import ListenError

from .call_stream import Begin, ServedStream, Settle
from .caller import Caller, caller_of, host_of
from .calls import fault
from .element_count import ELEMENTS_MAX, has_too_many_elements
from .errands import Errands
from .health import OUT_OF_ORDER, Health, HealthService, Tell
from .health import SERVICE as HEALTH_SERVICE
from .methods import METHODS, SERVICE, STREAM_METHOD, Method
from .reflection import SERVICES as REFLECTION_SERVICES
from .reflection import answers as reflection_answers
from .versions import refusal

if TYPE_CHECKING:
    import grpc
    import grpc.aio

    Context = grpc.aio.ServicerContext[Any, Any]

logger = logging.getLogger("kraftlab.rpc")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_CONCURRENT_CALLS = 4096
MAX_STREAMS = 128
"""Maximum of simultaneous streams, those of health and reflection among them, which are part of the calls above."""
STOP_GRACE_S = 0.2
MIN_PING_INTERVAL_MS = 500
"""Minimum between pings of clients, which ping during a call to distinguish a node that hangs from a slow one."""
HANDSHAKE_TIMEOUT_MS = 5000
"""Time limit for the HTTP/2 preface of a new connection."""
MAX_CONNECTIONS = 1024
"""Maximum of connections, those in their handshake among them: each takes a file descriptor, which storage needs too."""

MALFORMED = "INTERNAL", "malformed request, or one with millions of entries; send several smaller ones, of this service"
UNKNOWN_NAME = f'no such service; "" is the node, {SERVICE} its readiness'
STOPPING = "UNAVAILABLE", "this node is stopping; ask another one"
"""gRPC status and message of a call that ends without an answer."""


class TlsMaterial(NamedTuple):
    """Key, certificate chain and trusted authorities of a listener, as PEM."""

    key: bytes
    chain: bytes
    authorities: bytes | None

    def __repr__(self) -> str:
        return "TlsMaterial()"


class GrpcTls(NamedTuple):
    """TLS of a gRPC listener. `material` returns the present one, the same object until it changes, in any thread."""

    material: Callable[[], TlsMaterial]
    requires_certificate: bool = False


class Call(NamedTuple):
    """One admin call: the method's name, its protobuf request, the caller, its address, and the client's name for itself.

    `broker`: the broker that forwards the call, if the answer depends on it.
    """

    api: str
    request: Message
    principal: str
    host: str = ""
    client_id: str = ""
    broker: ForwardingBroker | None = None


Dispatch = Callable[[Call], Awaitable[Message]]
Later = Callable[[], Awaitable[Message]]
"""The rest of a call, which needs a task; returns its answer."""
Accept = Callable[[Call, Callable[[Message], None]], Later | None]
"""Takes a call on the event loop and gives its answer there, once; or returns the rest for a task."""


class AdminServer:
    """Serves `dispatch` on host:port. Use: `port = await nursery.start(server.serve)`; cancel the scope to stop.

    `accept`, if given, is called first: a call that it takes costs no task and no pass of the event loop. `login` finds out who
    calls; without one everybody is ANONYMOUS. With `tls` the listener speaks TLS. `health` is asked on the event loop.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        host: str,
        port: int,
        *,
        accept: Accept | None = None,
        login: Login | None = None,
        tls: GrpcTls | None = None,
        health: Callable[[], Health] = lambda: Health(is_serving=True, is_ready=True),
    ) -> None:
        self._health = health
        self._login = UserLogin(Users({})) if login is None else login
        self._tls = tls
        self._accept: Accept = accept or (lambda call, answer: functools.partial(dispatch, call))
        self._host = host
        self._port = port
        self._nursery: trio.Nursery | None = None
        self._calls = 0
        self._faults = 0
        self._lines = LimitedLog(logger, time.monotonic)
        self._in_flight = 0
        self._accepted: dict[int, Settle] = {}
        """Calls that `accept` took and has not answered, by a number of their own."""
        self._last_accepted = 0

    def statistics(self) -> dict[str, int]:
        return {"calls": self._calls, "faults": self._faults, "in_flight": self._in_flight}

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; report the port once calls are accepted. ListenError if the port is not available."""
        grpc_server = _GrpcServer(self.begin, self._present_health, self._login, self._tls, self._host, self._port)
        try:
            async with trio.open_nursery() as threads:
                try:
                    await self._serve(await threads.start(grpc_server.run), task_status)
                finally:
                    grpc_server.stop()
        except BaseExceptionGroup as group:
            raise only_cause(group) from None

    async def _serve(self, port: int, task_status: trio.TaskStatus[int]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    task_status.started(port)
                    await trio.sleep_forever()
                finally:
                    # Calls continue to arrive, even after the last task and the nursery have ended.
                    self._nursery = None
        finally:
            for number in tuple(self._accepted):
                self._settle_accepted(number, None)

    def begin(self, caller: Caller, calls: Sequence[Begin]) -> None:
        """Start calls; each is answered once, with None if the node stops first. On the event loop."""
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
            later = self._offer(method, Call(method.api, request, *caller), settle)
            if later is not None:
                self._nursery.start_soon(self._run, method, later, settle)

    def _offer(self, method: Method, call: Call, settle: Settle) -> Later | None:
        self._last_accepted = number = self._last_accepted + 1
        self._accepted[number] = settle
        try:
            later = self._accept(call, functools.partial(self._settle_accepted, number))
        except Exception as error:
            self._settle_accepted(number, self._failed(method, error))
            return None
        if later is not None:
            del self._accepted[number]
        return later

    def _settle_accepted(self, number: int, response: Message | None) -> None:
        settle = self._accepted.pop(number, None)
        if settle is not None:
            self._calls += 1
            self._in_flight -= 1
            settle(response)

    def _present_health(self) -> Health:
        try:
            return self._health()
        except Exception:
            self._lines.exception("the health of this node cannot be told")
            return OUT_OF_ORDER

    async def _run(self, method: Method, later: Later, settle: Settle) -> None:
        response: Message | None = None
        try:
            response = await later()
        except Exception as error:
            response = self._failed(method, error)
        finally:
            self._calls += 1
            self._in_flight -= 1
            settle(response)

    def _failed(self, method: Method, error: Exception) -> Message:
        self._faults += 1
        self._lines.exception("%s failed", method.api)
        return fault(method, f"{method.api} failed on this node ({type(error).__name__}); its log says more")


class _GrpcServer:
    """The asyncio side: gRPC's server on its own loop. `begin` and `present_health` are called on trio's loop, where this is
    made.
    """

    def __init__(
        self,
        begin: Callable[[Caller, Sequence[Begin]], None],
        present_health: Callable[[], Health],
        login: Login,
        tls: GrpcTls | None,
        host: str,
        port: int,
    ) -> None:
        self._begin = begin
        self._present_health = present_health
        self._login = login
        self._audit = AuditLog()
        self._tls = tls
        self._host = host
        self._port = port
        self._streams = 0
        self._lines = LimitedLog(logger, time.monotonic)
        self._calls = Errands(trio.lowlevel.current_trio_token().run_sync_soon)
        self._answers: Errands
        self._health: HealthService
        self._stopped: asyncio.Event
        self._is_serving = False

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`; report the port once calls are accepted. Can be cancelled only before that. ListenError."""
        try:
            await trio.to_thread.run_sync(self._run, task_status, thread_name="admin", limiter=trio.CapacityLimiter(1))
        finally:
            self._is_serving = False
        await trio.lowlevel.checkpoint_if_cancelled()

    def stop(self) -> None:
        """Let `run` end, after the answers that were given before. On trio's loop."""
        if self._is_serving:
            self._answers.put(self._stopped.set)

    def _run(self, task_status: trio.TaskStatus[int]) -> None:
        asyncio.run(self._serve(task_status))

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        self._answers = Errands(asyncio.get_running_loop().call_soon_threadsafe)
        self._stopped = asyncio.Event()
        self._health = HealthService(self._ask_health)
        server, port = self._build()
        await server.start()
        try:
            if trio.from_thread.run_sync(self._started, port, task_status):
                await self._stopped.wait()
        finally:
            self._health.stop()
            await server.stop(STOP_GRACE_S)

    def _started(self, port: int, task_status: trio.TaskStatus[int]) -> bool:
        """Report the port. Return False if `run` has been cancelled by now. On trio's loop."""
        if trio.current_effective_deadline() > -math.inf:
            self._is_serving = True
            task_status.started(port)
        return self._is_serving

    def _build(self) -> tuple[grpc.aio.Server, int]:
        """Return the server and its port. ListenError."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc
        import grpc.aio

        server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
                ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ),
            maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
        )
        for service, handlers in self._handlers().items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        return server, _listen(server, self._host, self._port, None if self._tls is None else _credentials(self._tls))

    def _handlers(self) -> dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]:
        """Return the methods of each service. All take bytes: gRPC logs a traceback for bytes that it cannot decode."""
        import grpc

        admin = {
            method.api: grpc.unary_unary_rpc_method_handler(
                functools.partial(self._unary, method), response_serializer=method.response.SerializeToString
            )
            for method in METHODS.values()
        }
        stream = grpc.stream_stream_rpc_method_handler(
            self._stream, response_serializer=admin_pb2.CallResponses.SerializeToString
        )
        health = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, response_serializer=_encoded),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, response_serializer=_encoded),
        }
        reflect = grpc.stream_stream_rpc_method_handler(self._reflect, response_serializer=_encoded)
        return {
            SERVICE: {**admin, STREAM_METHOD: stream},
            HEALTH_SERVICE: health,
            **{name: {"ServerReflectionInfo": reflect} for name in REFLECTION_SERVICES},
        }

    async def _unary(self, method: Method, data: bytes, context: Context) -> Message:
        caller = await self._caller(context)
        request = self._read(method.request, data)
        if request is None:
            await _abort(context, *MALFORMED)
        answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        settle = functools.partial(self._answer, functools.partial(_set, answer))
        self._calls.put(functools.partial(self._begin, caller, ((method, request, settle),)))
        response = await answer
        if response is None:
            await _abort(context, *STOPPING)
        return response

    def _answer(self, deliver: Settle, response: Message | None) -> None:
        self._answers.put(functools.partial(deliver, response))

    async def _stream(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[admin_pb2.CallResponses]:
        caller = await self._caller(context)

        def hand_over(calls: Sequence[Begin]) -> None:
            self._calls.put(functools.partial(self._begin, caller, calls))

        stream = ServedStream(hand_over, self._answer)
        async with self._counted(context):
            reader = asyncio.create_task(stream.read(functools.partial(self._read, admin_pb2.CallRequests), requests))
            try:
                async for message in stream.responses():
                    yield message
            finally:
                reader.cancel()
                with suppress(asyncio.CancelledError):
                    await reader
        if stream.is_garbled:
            await _abort(context, *MALFORMED)
        if stream.is_stopping:
            await _abort(context, *STOPPING)

    async def _check(self, data: bytes, context: Context) -> Message:
        """Answer Check of the health service: before login, so that a probe needs no secret."""
        status: Message | None = await self._health.check(await self._name_in(data, context))
        if status is None:
            await _abort(context, "NOT_FOUND", UNKNOWN_NAME)
        return status

    async def _watch(self, data: bytes, context: Context) -> AsyncIterator[Message]:
        await self._caller(context)
        name = await self._name_in(data, context)
        async with self._counted(context):
            async for status in self._health.watch(name):
                yield status

    async def _name_in(self, data: bytes, context: Context) -> str:
        """Return the name that a request of the health service asks for."""
        from grpc_health.v1.health_pb2 import HealthCheckRequest

        request = self._read(HealthCheckRequest, data)
        if request is None:
            await _abort(context, *MALFORMED)
        name: str = request.service
        return name

    def _ask_health(self, tell: Tell) -> None:
        def ask() -> None:
            self._answers.put(functools.partial(tell, self._present_health()))

        self._calls.put(ask)

    async def _reflect(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Message]:
        await self._caller(context)

        async def decoded(kind: type[Message]) -> AsyncIterator[Message]:
            async for data in requests:
                request: Message | None = self._read(kind, data)
                if request is None:
                    await _abort(context, *MALFORMED)
                yield request

        async with self._counted(context):
            async for answer in reflection_answers(decoded):
                yield answer

    @asynccontextmanager
    async def _counted(self, context: Context) -> AsyncIterator[None]:
        """Count a stream. One too many is refused."""
        if self._streams >= MAX_STREAMS:
            too_many = f"{MAX_STREAMS} streams are open at this node already; close one, or make unary calls"
            await _abort(context, "RESOURCE_EXHAUSTED", too_many)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _caller(self, context: Context) -> Caller:
        try:
            return await caller_of(context, self._login)
        except AuthenticationFailed as error:
            self._audit.login_failed("GRPC", host_of(context.peer()), str(error))
            await _abort(context, "UNAUTHENTICATED", str(error))

    def _read(self, kind: type[Message], data: bytes) -> Any:
        """Return the decoded request; None if the bytes cannot be decoded, or have too many elements.

        gRPC itself would log a traceback for each, and never stop after some streams of them.
        """
        name = kind.DESCRIPTOR.name
        if has_too_many_elements(kind, data):
            self._lines.warning("refused a call: %s of %d bytes has over %d elements", name, len(data), ELEMENTS_MAX)
            return None
        try:
            return kind.FromString(data)
        except DecodeError:
            self._lines.warning("refused a call: %d bytes that are not a valid %s", len(data), name)
            return None


def _encoded(message: Message) -> bytes:
    return message.SerializeToString()


def _set(answer: asyncio.Future[Message | None], response: Message | None) -> None:
    if not answer.done():
        answer.set_result(response)


async def _abort(context: Context, status: str, message: str) -> NoReturn:
    import grpc

    await context.abort(grpc.StatusCode[status], message)


def _credentials(tls: GrpcTls) -> grpc.ServerCredentials:
    """Return credentials that follow `tls`: gRPC asks at every handshake, on a thread of its own, which may not wait."""
    import grpc

    given = [tls.material()]

    def configuration() -> grpc.ServerCertificateConfiguration:
        material = given[-1]
        return grpc.ssl_server_certificate_configuration([(material.key, material.chain)], material.authorities)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration if it is another one than the last, None to keep that."""
        material = tls.material()
        if material is given[-1]:
            return None
        given[:] = [material]
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), changed, tls.requires_certificate)  # type: ignore[arg-type]


def _listen(server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None) -> int:
    """Let the server listen at every address of `host`, or at all of this machine's if it is empty; return the port.

    ListenError if the host cannot be resolved, or the port is not available at one of its addresses. Blocks.
    """
    wanted = Endpoint(host or "*", port)
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ListenError(f"cannot listen on {wanted} for GRPC: {error.strerror}") from error
    for address in dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found):
        try:
            at = str(Endpoint(address, port))
            port = server.add_insecure_port(at) if credentials is None else server.add_secure_port(at, credentials)
        except RuntimeError as error:
            why = _why_not(address, port) or error
            raise ListenError(f"cannot listen on {wanted} for GRPC: {why}; is another process using the port?") from error
    return port


def _why_not(address: str, port: int) -> str | None:
    """Return the system's reason why the port is not available, which gRPC does not report; None if there is none."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.create_server((address, port), family=family).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return None
