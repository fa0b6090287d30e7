"""Requests between nodes over peer frames: `PeerServer` answers them, `PeerClient` and `PeerPool` make them.

Theory of operation. A node listens on one TCP port and opens at most one connection to each other node. Requests are multiplexed
on it by correlation number and may be answered in any order. The server runs each request in its own task, bounded per connection
in number and bytes: over the bound it stops reading, so TCP holds the peer back. A `DirectHandler` gets the request without a
task and answers later through its `Responder`; consensus uses it, because its answers are effects of the core.

The client connects when there is something to send. A short, growing pause follows a failed attempt. Every request has a deadline
and ends in exactly one of: a body, `PeerError` (the peer refused it), `PeerTimeout` (no answer in time) or `PeerUnreachable`,
whose `refused` means that nothing listens there: the process is gone rather than slow. A connection is closed if nothing arrived
on it since a timed-out request was sent. A request that failed may still have been executed.

A connection has one sender: the node that the peer has proven to be (`Wire.peer`), or no node if it has proven to be a client.
Without proofs it is the sender of the first frame. A frame in another node's name is refused, and the connection is closed.
Nothing else of a frame is believed here. A newer generation in a request is refused and not acted upon, since anybody can claim
one: a node learns of it from the answers to its own requests. A sender of another cluster learns nothing about this node, not
even from the head of the answer. An answer counts only if the node that was asked has sent it, where the caller knows that node's
id, and if it is the node that has proven to be at that endpoint.

A sweep closes connections with an incomplete frame or without traffic after a while. Malformed bytes close their connection with
one log line.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import NamedTuple

import msgspec
import trio

from kraftlab.common.audit import PEERS, AuditLog, shown
from kraftlab.common.decoding import Decoder
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode, InvariantViolation
from kraftlab.common.line_limit import LimitedLog
from kraftlab.common.peer_name import PeerName
from kraftlab.common.replica_key import ReplicaKey

from .frames import ERROR, REQUEST, RESPONSE, Frame, FrameConnection, FrameError, encode_frame, frame_parts
from .network import TCP, Network, Wire, host_of
from .parts import NOTHING, InMemory, Part

logger = logging.getLogger("kraftlab.peer")

ANONYMOUS = "User:ANONYMOUS"
SUPPORTED_VERSION = 0
NOBODY = ReplicaKey(-1)
"""Sender of clients' requests, and of answers to senders of other clusters."""
ANY_NODE = -1
"""The caller does not know the id of the node at an endpoint."""
MAX_CONNECTIONS = 512
MAX_REQUESTS_PER_CONNECTION = 1024
MAX_REQUEST_BYTES_PER_CONNECTION = 64 * 1024 * 1024
MAX_UNSENT_BYTES_PER_CONNECTION = 1024 * 1024
"""Bytes of answers that a peer may leave unread while more of its requests are read."""
FIRST_FRAME_TIMEOUT_S = 10.0
PARTIAL_FRAME_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 600.0
SWEEP_INTERVAL_S = 1.0
RECONNECT_BACKOFF_S = 0.02
RECONNECT_BACKOFF_MAX_S = 0.2


class PeerIdentity(NamedTuple):
    """A node's identity in every frame."""

    cluster_id: str
    generation: int
    key: ReplicaKey


UNPROVEN = ANONYMOUS, None, None
"""Principal and role of a peer that only claims an identity."""
UNKNOWN = PeerIdentity("", 0, NOBODY)
"""Identity in answers to senders of other clusters."""


class PeerRequest(NamedTuple):
    """A request as its handler sees it.

    `sender` is the identity in the frame; `source` is the peer's address, for messages. `role` is what the sender has proven to
    be ("" for a client), None if the identity is a claim.
    """

    api: int
    version: int
    sender: ReplicaKey
    body: memoryview
    principal: str
    source: str
    role: str | None = None

    @property
    def host(self) -> str:
        """Host of the peer's address."""
        return host_of(self.source)


class PeerUnreachable(ConnectionError):
    """No connection, or it was lost before the answer came. `refused`: nothing listens there."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class PeerTimeout(TimeoutError):
    """No answer within the request's timeout; it may still have been executed."""


class PeerError(Exception):
    """The peer answered with an error; a handler raises it to answer with one. `code` is Kafka's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class NewerGeneration(PeerError):
    """The peer, node `source` by its own account, is at a newer generation of the cluster: the quorum was forced, and this node's
    data is history. `role` is what the peer has proven to be, None if that is a claim.
    """

    def __init__(self, generation: int, source: int, message: str, role: str | None = None) -> None:
        super().__init__(ErrorCode.STALE_GENERATION, message)
        self.generation = generation
        self.source = source
        self.role = role


class ListenError(OSError):
    """A listener could not be opened; the message names address and cause."""


PeerFailure = PeerUnreachable | PeerTimeout | PeerError
Body = InMemory | Sequence[Part]
"""Body of a message, as a whole or in parts."""
PeerHandler = Callable[[PeerRequest], Awaitable[Body]]
"""Answers one request, in a task that is cancelled when the connection ends. PeerError becomes the peer's PeerError."""

_encode = msgspec.msgpack.encode
_error_decoder = Decoder(tuple[int, str])


class Connection:
    """An accepted connection, as handlers see it. `on_closed`, if set, is called with the connection once it has ended,
    whichever side closed it.
    """

    def __init__(self) -> None:
        self.on_closed: Callable[[Connection], None] | None = None


class Responder:
    """The one answer to one request. `on_abandoned`, if set, is called when the peer closes the connection before."""

    __slots__ = ("_connection", "_request", "_size_bytes", "on_abandoned")

    def __init__(self, connection: _ServedConnection, request: Frame, size_bytes: int) -> None:
        self._connection = connection
        self._request = request
        self._size_bytes = size_bytes
        self.on_abandoned: Callable[[], None] | None = None

    @property
    def connection(self) -> Connection:
        """The connection that carried the request."""
        return self._connection

    def reply(self, body: Body) -> None:
        self._connection.answer(self, self._request, self._size_bytes, RESPONSE, body)

    def refuse(self, code: int, message: str) -> None:
        self._connection.answer(self, self._request, self._size_bytes, ERROR, _encode((code, message)))


class DirectHandler(NamedTuple):
    """Handles requests without a task. `accept` must not block, and uses the responder once, then or later."""

    accept: Callable[[PeerRequest, Responder], None]


def merged_handlers(*tables: Mapping[int, PeerHandler | DirectHandler]) -> dict[int, PeerHandler | DirectHandler]:
    """Return the handlers of several parts of a node as one table.

    InvariantViolation if two of them answer to the same number.
    """
    merged: dict[int, PeerHandler | DirectHandler] = {}
    for table in tables:
        for api, handler in table.items():
            if api in merged:
                raise InvariantViolation(f"two handlers answer to peer api {api}: give one of them another number")
            merged[api] = handler
    return merged


class PeerServer:
    """Answers peer requests on one port. One handler per api number; see the module's docstring for limits.

    Errors it answers itself: INCONSISTENT_CLUSTER_ID, STALE_GENERATION (the sender's generation is over, or this node's),
    UNSUPPORTED_VERSION (api or version unknown), INVALID_REQUEST (a handler could not decode the body, or the connection has
    another sender), UNKNOWN_SERVER_ERROR (a handler failed; the log has the traceback).

    A former member of the cluster (`is_member`) loses its connections: its certificate is still good.
    """

    def __init__(
        self,
        identity: PeerIdentity,
        handlers: Mapping[int, PeerHandler | DirectHandler],
        network: Network = TCP,
        is_member: Callable[[PeerName], bool] = lambda peer: True,
    ) -> None:
        self.identity = identity
        self.is_member = is_member
        self._network = network
        self.handlers = handlers
        self._connections: dict[_ServedConnection, None] = {}
        self.lines = LimitedLog(logger, trio.current_time)
        self.audit = AuditLog()

    async def serve(self, host: str, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled; report the port (0: any free one) once it accepts. ListenError if it cannot."""
        try:
            listening = await self._network.listen(host, port)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host or '*'}:{port}: {error.strerror or error}; is another process using the port?"
            ) from error
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sweep)
            task_status.started(listening.number)
            await listening.serve(self._serve_connection, nursery)

    def statistics(self) -> dict[str, int]:
        """Return the numbers of open connections and of their requests in progress."""
        return {"connections": len(self._connections), "requests": sum(c.requests for c in self._connections)}

    async def _serve_connection(self, connected: Wire, source: str) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            self.lines.warning("refused a connection: %d are open already", len(self._connections))
            connected.close()
            return
        connection = _ServedConnection(self, connected, source)
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_INTERVAL_S)
            now = trio.current_time()
            for connection in tuple(self._connections):
                connection.close_if_overdue(now)
            self.lines.summarize("lines about peers' connections")


class _ServedConnection(Connection):
    """One accepted connection with its requests in progress."""

    def __init__(self, server: PeerServer, connected: Wire, source: str) -> None:
        super().__init__()
        self._server = server
        self.source = source
        self._frames = FrameConnection(connected, self._on_frame, self._resume_if_not_full)
        self._open: dict[Responder, None] = {}
        self._request_bytes = 0
        self._paused = False
        self._sender: ReplicaKey | None = None
        """Sender of the first frame, and of all others."""
        self._peer = connected.peer
        self._was_member = False
        self._warned = False

    @property
    def requests(self) -> int:
        return len(self._open)

    async def run(self) -> None:
        try:
            await self._frames.run()
        except* FrameError as errors:
            self._server.lines.warning("closed connection from %s: it sent %s", self.source, errors.exceptions[0])
        finally:
            for responder in tuple(self._open):
                if responder.on_abandoned is not None:
                    responder.on_abandoned()
            self._open.clear()
            if self.on_closed is not None:
                self.on_closed(self)

    def close_if_overdue(self, now: float) -> None:
        frames = self._frames
        last_received = max(frames.opened_at, frames.last_received)
        if self._sender is None and now - frames.opened_at > FIRST_FRAME_TIMEOUT_S:
            reason = f"it sent no whole frame within {FIRST_FRAME_TIMEOUT_S:.0f} s"
        elif frames.partial_since is not None and now - frames.partial_since > PARTIAL_FRAME_TIMEOUT_S and not self._paused:
            reason = f"a frame was not completed within {PARTIAL_FRAME_TIMEOUT_S:.0f} s"
        elif now - last_received > IDLE_TIMEOUT_S and not self._open:
            reason = f"idle for {IDLE_TIMEOUT_S:.0f} s"
        elif self._is_expelled():
            reason = f"{self._peer} no longer belongs to the cluster"
        else:
            return
        self._server.lines.warning("closed connection from %s: %s", self.source, reason)
        frames.close()

    def _is_expelled(self) -> bool:
        is_member = self._peer is not None and self._server.is_member(self._peer)
        self._was_member, was_member = self._was_member or is_member, self._was_member
        return was_member and not is_member

    def answer(self, responder: Responder, request: Frame, size_bytes: int, kind: int, body: Body) -> None:
        if responder not in self._open:
            return
        del self._open[responder]
        self._request_bytes -= size_bytes
        self._write(request, kind, body)
        self._resume_if_not_full()

    def _resume_if_not_full(self) -> None:
        if self._paused and not self._full():
            self._paused = False
            self._frames.resume()

    def _on_frame(self, frame: Frame, size_bytes: int) -> bool:
        if frame.kind != REQUEST:
            raise FrameError(f"a frame of kind {frame.kind} where only requests (0) may come")
        if self._sender is None:
            self._sender = frame.sender
        refusal = self._refusal(frame)
        if refusal is not None:
            self._refuse(frame, *refusal)
            self._paused = self._full()
            return not self._paused
        handler = self._server.handlers[frame.api]
        principal, role, _ = self._peer or UNPROVEN
        request = PeerRequest(frame.api, frame.version, frame.sender, frame.body, principal, self.source, role)
        responder = Responder(self, frame, size_bytes)
        self._open[responder] = None
        self._request_bytes += size_bytes
        if isinstance(handler, DirectHandler):
            handler.accept(request, responder)
        else:
            self._frames.nursery().start_soon(_handle, handler, request, responder, self._server.lines)
        self._paused = self._full()
        return not self._paused

    def _full(self) -> bool:
        return (
            len(self._open) >= MAX_REQUESTS_PER_CONNECTION
            or self._request_bytes >= MAX_REQUEST_BYTES_PER_CONNECTION
            or self._frames.outbound_bytes >= MAX_UNSENT_BYTES_PER_CONNECTION
        )

    def _refuse(self, frame: Frame, code: int, message: str) -> None:
        """Answer with an error, log the first one, and end a connection with another sender."""
        if not self._has_proven(frame.sender):
            self._server.audit.login_failed(PEERS, host_of(self.source), message)
        elif not self._warned:
            self._warned = True
            foreign = "" if code != ErrorCode.INCONSISTENT_CLUSTER_ID else f" (the sender's is {shown(frame.cluster_id)})"
            warn = self._server.lines.warning
            warn("refused request from %s (node %d): %s%s", self.source, frame.sender.node_id, message, foreign)
        self._write(frame, ERROR, _encode((code, message)))
        if frame.sender != self._sender or not self._has_proven(frame.sender):
            self._frames.close()

    def _has_proven(self, sender: ReplicaKey) -> bool:
        return self._peer is None or self._peer.node_id == sender.node_id

    def _refusal(self, frame: Frame) -> tuple[int, str] | None:
        mine = self._server.identity
        if not self._has_proven(frame.sender):
            return ErrorCode.INVALID_REQUEST, f"the certificate is that of {self._peer}, and not of node {frame.sender.node_id}"
        if frame.cluster_id != mine.cluster_id:
            return (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                "the cluster id is not this node's; check the endpoints in the sender's configuration",
            )
        if frame.sender != self._sender:
            assert self._sender is not None, "a frame has come"
            before = self._sender.node_id
            return ErrorCode.INVALID_REQUEST, f"this connection is node {before}'s, and not node {frame.sender.node_id}'s"
        if frame.generation < mine.generation:
            return (
                ErrorCode.STALE_GENERATION,
                f"generation {frame.generation} of the cluster is over, it is at {mine.generation}",
            )
        if frame.generation > mine.generation:
            return (
                ErrorCode.STALE_GENERATION,
                f"this node is at generation {mine.generation} of the cluster, behind the sender's {frame.generation}",
            )
        if frame.api not in self._server.handlers or frame.version != SUPPORTED_VERSION:
            return (ErrorCode.UNSUPPORTED_VERSION, f"api {frame.api} version {frame.version} is not served here")
        return None

    def _write(self, request: Frame, kind: int, body: Body) -> None:
        mine = self._server.identity
        if request.cluster_id != mine.cluster_id:
            mine = UNKNOWN
        version, correlation = request.version, request.correlation
        head = Frame(kind, request.api, version, correlation, mine.cluster_id, mine.generation, mine.key, NOTHING)
        try:
            self._frames.write_parts(frame_parts(head, (body,) if isinstance(body, InMemory) else body))
        except FrameError as error:
            self._server.lines.error("could not answer api %d: %s", request.api, error)
            self._write(request, ERROR, _encode((int(ErrorCode.UNKNOWN_SERVER_ERROR), str(error))))


async def _handle(handler: PeerHandler, request: PeerRequest, responder: Responder, lines: LimitedLog) -> None:
    try:
        body = await handler(request)
    except PeerError as error:
        responder.refuse(error.code, error.message)
    except msgspec.MsgspecError as error:
        responder.refuse(ErrorCode.INVALID_REQUEST, f"the body of api {request.api} cannot be read: {error}")
    except InvariantViolation:
        raise
    except Exception as error:
        lines.exception("api %d from %s failed", request.api, request.source)
        responder.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
    else:
        responder.reply(body)


class PeerAnswer(NamedTuple):
    """A peer's response and its sender. `role` is what the sender has proven to be, None if that is a claim."""

    source: ReplicaKey
    body: memoryview
    role: str | None = None


OnAnswer = Callable[[PeerAnswer | PeerFailure], None]


class _PendingRequest(NamedTuple):
    api: int
    node_id: int
    deadline: float
    sent_at: float
    on_answer: OnAnswer


class Traffic:
    """Counts of what the clients of one pool have sent and received. Bytes are those of frames."""

    __slots__ = ("bytes_received", "bytes_sent", "requests", "responses")

    def __init__(self) -> None:
        self.bytes_received = self.bytes_sent = self.requests = self.responses = 0


class PeerClient:
    """Requests to one endpoint, multiplexed on one connection that is made when needed. Its tasks are in `nursery`.

    `send` is synchronous and calls back once; `request` waits. Cancelling `request` forgets the request, it does not undo it.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        identity: PeerIdentity,
        endpoint: Endpoint,
        network: Network = TCP,
        traffic: Traffic | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._traffic = traffic or Traffic()
        self._network = network
        self._nursery = nursery
        self._identity = identity
        self._pending: dict[int, _PendingRequest] = {}
        self._unsent: dict[int, bytearray] = {}
        """Frames that wait for a connection, by correlation."""
        self._last_correlation = 0
        self._connecting = False
        self._connection: FrameConnection | None = None
        self._peer: PeerName | None = None
        self._timer = trio.CancelScope()
        self._armed_deadline = float("inf")
        self._backoff_s = 0.0
        self._next_attempt = 0.0
        self._scope = trio.CancelScope()
        self._closed = False
        self._lines = LimitedLog(logger, trio.current_time)

    async def request(
        self, api: int, body: bytes, *, timeout_ms: int, version: int = SUPPORTED_VERSION, node_id: int = ANY_NODE
    ) -> memoryview:
        """Send a request to the node with that id; return the response's body. PeerUnreachable, PeerTimeout or PeerError."""
        done = trio.Event()
        answers: list[PeerAnswer | PeerFailure] = []

        def on_answer(answer: PeerAnswer | PeerFailure) -> None:
            answers.append(answer)
            done.set()

        correlation = self.send(api, body, timeout_ms=timeout_ms, on_answer=on_answer, version=version, node_id=node_id)
        try:
            await done.wait()
        finally:
            self._forget(correlation)
        answer = answers[0]
        if isinstance(answer, PeerAnswer):
            return answer.body
        raise answer

    def send(
        self,
        api: int,
        body: bytes,
        *,
        timeout_ms: int,
        on_answer: OnAnswer,
        version: int = SUPPORTED_VERSION,
        node_id: int = ANY_NODE,
    ) -> int:
        """Send a request. `on_answer` is called exactly once, never before `send` returns, unless `request` forgot it.
        Another node than `node_id` at this endpoint counts as PeerUnreachable.

        FrameError if the body is too large for a frame.
        """
        self._last_correlation = correlation = self._last_correlation + 1
        mine = self._identity
        data = encode_frame(
            Frame(REQUEST, api, version, correlation, mine.cluster_id, mine.generation, mine.key, memoryview(body))
        )
        self._traffic.requests += 1
        self._traffic.bytes_sent += len(data)
        now = trio.current_time()
        deadline = now + timeout_ms / 1000
        self._pending[correlation] = _PendingRequest(api, node_id, deadline, now, on_answer)
        if self._connection is not None and not self._connection.closed:
            self._connection.write(data)
        else:
            self._unsent[correlation] = data
            if not self._connecting:
                self._connecting = True
                self._nursery.start_soon(self._run)
        if deadline < self._armed_deadline:
            self._armed_deadline = self._timer.deadline = deadline
        return correlation

    @property
    def round_trip_s(self) -> float | None:
        """The round trip to the peer; None without a connection, and where it is unknown."""
        return None if self._connection is None else self._connection.round_trip_s

    def close(self) -> None:
        """Fail pending requests with PeerUnreachable and close the connection."""
        self._closed = True
        self._scope.cancel()

    def _forget(self, correlation: int) -> None:
        self._pending.pop(correlation, None)
        self._unsent.pop(correlation, None)

    async def _run(self) -> None:
        """Make connections, one after the other, while there is something to send. Requests on one that ended fail."""
        failure = PeerUnreachable(f"the connection to {self.endpoint} was closed by this node")
        try:
            while self._unsent and not self._closed:
                with trio.CancelScope() as self._scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._expire)
                        while self._unsent:
                            await trio.sleep_until(self._next_attempt)
                            self._fail_sent(await self._exchange())
                        nursery.cancel_scope.cancel()
        finally:
            self._connecting = False
            self._unsent.clear()
            self._fail_sent(failure)

    def _fail_sent(self, failure: PeerUnreachable) -> None:
        """Fail every pending request that does not wait for the next connection."""
        for correlation in [correlation for correlation in self._pending if correlation not in self._unsent]:
            self._pending.pop(correlation).on_answer(failure)

    async def _exchange(self) -> PeerUnreachable:
        """Connect and read until the connection ends; return why it ended."""
        try:
            connected = await self._network.connect(self.endpoint)
        except OSError as error:
            self._backoff_s = min(max(self._backoff_s * 2, RECONNECT_BACKOFF_S), RECONNECT_BACKOFF_MAX_S)
            self._next_attempt = trio.current_time() + self._backoff_s * self._network.chance.uniform(0.5, 1.0)
            self._unsent.clear()
            refused = isinstance(error, ConnectionRefusedError)
            return PeerUnreachable(f"cannot connect to {self.endpoint}: {error.strerror or error}", refused=refused)
        self._backoff_s = 0.0
        self._peer = connected.peer
        self._connection = connection = FrameConnection(connected, self._on_frame)
        unsent, self._unsent = self._unsent, {}
        for data in unsent.values():
            connection.write(data)
        try:
            await connection.run()
        except* FrameError as errors:
            self._lines.warning("closed connection to %s: it sent %s", self.endpoint, errors.exceptions[0])
        self._next_attempt = trio.current_time() + RECONNECT_BACKOFF_S * self._network.chance.uniform(0.5, 1.0)
        return PeerUnreachable(f"the connection to {self.endpoint} was lost")

    def _on_frame(self, frame: Frame, size_bytes: int) -> bool:
        if frame.kind == REQUEST:
            raise FrameError("a request where only responses may come")
        self._traffic.responses += 1
        self._traffic.bytes_received += size_bytes
        pending = self._pending.pop(frame.correlation, None)
        if pending is None:
            return True
        mine = self._identity
        answer: PeerAnswer | PeerFailure
        role = self._peer.role if self._peer is not None else None
        is_other = pending.node_id not in (ANY_NODE, frame.sender.node_id) and frame.cluster_id == mine.cluster_id
        if self._peer is not None and self._peer.node_id != frame.sender.node_id and frame.sender != NOBODY:
            answer = PeerUnreachable(f"{self._peer} answers at {self.endpoint} as node {frame.sender.node_id}")
        elif is_other:
            answer = PeerUnreachable(f"node {frame.sender.node_id} answers at {self.endpoint}, not node {pending.node_id}")
        elif frame.cluster_id == mine.cluster_id and frame.generation > mine.generation:
            answer = NewerGeneration(
                frame.generation,
                frame.sender.node_id,
                f"{self.endpoint} is at generation {frame.generation} of the cluster; this node's, {mine.generation}, is over",
                role,
            )
        elif frame.kind == ERROR:
            answer = _decode_error(frame)
        elif frame.cluster_id != mine.cluster_id:
            answer = PeerError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"{self.endpoint} belongs to cluster {shown(frame.cluster_id)}, not {mine.cluster_id}",
            )
        elif frame.generation < mine.generation:
            answer = PeerError(
                ErrorCode.STALE_GENERATION,
                f"{self.endpoint} is at generation {frame.generation} of the cluster, which is over",
            )
        else:
            answer = PeerAnswer(frame.sender, frame.body, role)
        pending.on_answer(answer)
        return True

    async def _expire(self) -> None:
        """Fail requests at their deadlines. The scope's deadline is the earliest known one; `send` moves it forward."""
        while True:
            self._armed_deadline = min((p.deadline for p in self._pending.values()), default=float("inf"))
            with trio.CancelScope(deadline=self._armed_deadline) as self._timer:
                await trio.sleep_forever()
            now = trio.current_time()
            overdue = [(correlation, p) for correlation, p in self._pending.items() if p.deadline <= now]
            for correlation, request in overdue:
                self._forget(correlation)
                self._give_up_silent_connection(request.sent_at)
                request.on_answer(PeerTimeout(f"{self.endpoint} did not answer api {request.api} in time"))

    def _give_up_silent_connection(self, since: float) -> None:
        connection = self._connection
        if connection is not None and connection.last_received < since:
            connection.close()


def _decode_error(frame: Frame) -> PeerError:
    try:
        code, message = _error_decoder.decode(frame.body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"an error answer that cannot be read: {error}") from error
    return PeerError(code, message)


class PeerPool:
    """Clients by endpoint, made on first use. Its tasks are in `nursery`; `close` ends its connections."""

    def __init__(self, nursery: trio.Nursery, identity: PeerIdentity, network: Network = TCP) -> None:
        self.identity = identity
        self._nursery = nursery
        self._network = network
        self._clients: dict[tuple[Endpoint, int], PeerClient] = {}
        self.traffic = Traffic()

    def client(self, endpoint: Endpoint, channel: int = 0) -> PeerClient:
        """Return the client of an endpoint; each channel has a client with a connection of its own."""
        client = self._clients.get((endpoint, channel))
        if client is None:
            client = PeerClient(self._nursery, self.identity, endpoint, self._network, self.traffic)
            self._clients[endpoint, channel] = client
        return client

    async def request(
        self,
        endpoint: Endpoint,
        api: int,
        body: bytes,
        *,
        timeout_ms: int,
        version: int = SUPPORTED_VERSION,
        channel: int = 0,
        node_id: int = ANY_NODE,
    ) -> memoryview:
        """Send a request to the node with that id; return the response's body. PeerUnreachable, PeerTimeout or PeerError."""
        return await self.client(endpoint, channel).request(api, body, timeout_ms=timeout_ms, version=version, node_id=node_id)

    def round_trips_s(self) -> dict[Endpoint, float]:
        """Return the round trip to each endpoint with a connection, where the kernel knows it."""
        found = ((client.endpoint, client.round_trip_s) for client in self._clients.values())
        return {endpoint: round_trip_s for endpoint, round_trip_s in found if round_trip_s is not None}

    def keep(self, endpoints: Container[Endpoint]) -> None:
        """Close connections to all other endpoints."""
        for key in [key for key in self._clients if key[0] not in endpoints]:
            self._clients.pop(key).close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
