"""Peer requests over real sockets: answers, refusals, and closed connections."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec
import pytest
import trio
import trio.testing

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode, InvariantViolation
from kraftlab.common.line_limit import LINES_AT_ONCE
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.wire import transport
from kraftlab.wire.frames import MAX_FRAME_BYTES, REQUEST, Frame, FrameBuffer, FrameError, encode_frame
from kraftlab.wire.transport import (
    DirectHandler,
    ListenError,
    NewerGeneration,
    PeerError,
    PeerHandler,
    PeerIdentity,
    PeerPool,
    PeerRequest,
    PeerServer,
    PeerTimeout,
    PeerUnreachable,
    Responder,
    merged_handlers,
)

ECHO, SLOW, REFUSING, DECODING, FAILING, DIRECT = 1001, 1002, 1003, 1004, 1005, 1006
Identity = Callable[..., PeerIdentity]
Eventually = Callable[..., Awaitable[None]]


async def echo(request: PeerRequest) -> bytes:
    return request.body


async def slow(request: PeerRequest) -> bytes:
    await trio.sleep_forever()
    raise AssertionError("unreachable")


async def refusing(request: PeerRequest) -> bytes:
    raise PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "node 7 leads")


async def decoding(request: PeerRequest) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.decode(request.body, type=list[int]))


async def failing(request: PeerRequest) -> bytes:
    raise KeyError("a bug of the handler")


HANDLERS: dict[int, PeerHandler | DirectHandler] = {
    ECHO: echo,
    SLOW: slow,
    REFUSING: refusing,
    DECODING: decoding,
    FAILING: failing,
}


class Blocking(NamedTuple):
    """The source of bytes that a socket of trio is once it is readable."""

    socket: trio.socket.SocketType

    def recv_into(self, room: memoryview, /) -> int:
        descriptor = self.socket.fileno()
        return os.readv(descriptor, [room])


@contextlib.asynccontextmanager
async def served(
    identity: Identity, handlers: Mapping[int, PeerHandler | DirectHandler] = HANDLERS, client: PeerIdentity | None = None
) -> AsyncIterator[tuple[PeerPool, Endpoint, PeerServer]]:
    """A server (node 1) and a pool (by default of node 2) that reaches it."""
    with trio.fail_after(15):
        async with trio.open_nursery() as nursery:
            server = PeerServer(identity(1), handlers)
            port: int = await nursery.start(server.serve, "127.0.0.1", 0)
            yield PeerPool(nursery, client or identity(2)), Endpoint("127.0.0.1", port), server
            nursery.cancel_scope.cancel()


async def test_a_request_comes_back_with_its_body(identity: Identity) -> None:
    async with served(identity) as (pool, endpoint, _):
        assert await pool.request(endpoint, ECHO, b"\x00\xffhello", timeout_ms=2000) == b"\x00\xffhello"


async def test_a_handler_sees_the_sender_and_the_anonymous_principal(identity: Identity) -> None:
    seen: list[PeerRequest] = []

    async def remember(request: PeerRequest) -> bytes:
        seen.append(request)
        return b""

    async with served(identity, {ECHO: remember}) as (pool, endpoint, _):
        await pool.request(endpoint, ECHO, b"x", timeout_ms=2000)
    assert (seen[0].sender, seen[0].principal, seen[0].api) == (identity(2).key, "User:ANONYMOUS", ECHO)
    assert seen[0].source.startswith("127.0.0.1:")


async def test_requests_share_one_connection_and_a_slow_one_holds_nobody_up(identity: Identity) -> None:
    async with served(identity) as (pool, endpoint, server), trio.open_nursery() as nursery:
        with contextlib.suppress(trio.Cancelled):
            nursery.start_soon(slow_request, pool, endpoint)
            answers: dict[int, bytes] = {}

            async def one(number: int) -> None:
                answers[number] = await pool.request(endpoint, ECHO, str(number).encode(), timeout_ms=5000)

            async with trio.open_nursery() as burst:
                for number in range(200):
                    burst.start_soon(one, number)
            assert answers == {number: str(number).encode() for number in range(200)}
            assert server.statistics() == {"connections": 1, "requests": 1}
            nursery.cancel_scope.cancel()


async def slow_request(pool: PeerPool, endpoint: Endpoint) -> None:
    await pool.request(endpoint, SLOW, b"", timeout_ms=60_000)


async def test_large_bodies_pass_in_both_directions(identity: Identity) -> None:
    body = bytes(range(256)) * (8 * 4096)
    async with served(identity) as (pool, endpoint, _):
        assert await pool.request(endpoint, ECHO, body, timeout_ms=5000) == body


async def test_nothing_listening_is_refused(identity: Identity, new_port: Callable[[], int]) -> None:
    async with served(identity) as (pool, _, _):
        with pytest.raises(PeerUnreachable) as raised:
            await pool.request(Endpoint("127.0.0.1", new_port()), ECHO, b"", timeout_ms=2000)
    assert raised.value.refused


async def test_pending_requests_fail_when_a_server_ends_and_its_successor_is_found(identity: Identity) -> None:
    async with served(identity) as (pool, endpoint, _), trio.open_nursery() as nursery:
        port: int = await nursery.start(PeerServer(identity(3), HANDLERS).serve, "127.0.0.1", 0)
        other = Endpoint("127.0.0.1", port)
        outcome: list[BaseException] = []

        async def ask() -> None:
            with pytest.raises(PeerUnreachable) as raised:
                await pool.request(other, SLOW, b"", timeout_ms=10_000)
            outcome.append(raised.value)

        async with trio.open_nursery() as asking:
            asking.start_soon(ask)
            await pool.request(other, ECHO, b"", timeout_ms=2000)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await pool.request(endpoint, ECHO, b"", timeout_ms=2000)
    async with served(identity) as (pool, endpoint, _), trio.open_nursery() as nursery:
        await nursery.start(PeerServer(identity(3), HANDLERS).serve, "127.0.0.1", other.port)
        assert await pool.request(other, ECHO, b"back", timeout_ms=2000) == b"back"
        nursery.cancel_scope.cancel()


async def test_no_answer_in_time_is_a_timeout(identity: Identity) -> None:
    async with served(identity) as (pool, endpoint, _):
        with pytest.raises(PeerTimeout, match="did not answer api 1002"):
            await pool.request(endpoint, SLOW, b"", timeout_ms=50)
        assert await pool.request(endpoint, ECHO, b"still fine", timeout_ms=2000) == b"still fine"


@pytest.mark.parametrize(
    ("api", "version", "code"),
    [
        (REFUSING, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (DECODING, 0, ErrorCode.INVALID_REQUEST),
        (FAILING, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (9999, 0, ErrorCode.UNSUPPORTED_VERSION),
        (ECHO, 1, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_errors_come_back_as_codes(identity: Identity, api: int, version: int, code: ErrorCode) -> None:
    async with served(identity) as (pool, endpoint, _):
        with pytest.raises(PeerError) as raised:
            await pool.request(endpoint, api, b"not an array", timeout_ms=2000, version=version)
        assert raised.value.code == code
        assert await pool.request(endpoint, ECHO, b"healthy", timeout_ms=2000) == b"healthy"


async def test_faults_of_a_handler_fill_no_disk(identity: Identity, caplog: pytest.LogCaptureFixture) -> None:
    async with served(identity) as (pool, endpoint, _):
        for _ in range(LINES_AT_ONCE + 5):
            with pytest.raises(PeerError):
                await pool.request(endpoint, FAILING, b"", timeout_ms=2000)
    assert LINES_AT_ONCE <= caplog.text.count("Traceback") < LINES_AT_ONCE + 5


async def test_another_clusters_node_is_refused_without_this_ones_id(identity: Identity) -> None:
    async with served(identity, client=identity(2, cluster_id="another-cluster")) as (pool, endpoint, _):
        with pytest.raises(PeerError, match="the cluster id is not this node's") as raised:
            await pool.request(endpoint, ECHO, b"", timeout_ms=2000)
    assert raised.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "driver-test" not in raised.value.message


async def test_the_answer_of_another_node_than_the_one_that_was_asked_does_not_count(identity: Identity) -> None:
    async with served(identity) as (pool, endpoint, _):
        assert await pool.request(endpoint, ECHO, b"to 1", timeout_ms=2000, node_id=1) == b"to 1"
        with pytest.raises(PeerUnreachable, match=r"node 1 answers at .*, not node 4"):
            await pool.request(endpoint, ECHO, b"to 4", timeout_ms=2000, node_id=4)


async def test_a_node_of_an_older_generation_is_refused_and_learns_the_newer_one(identity: Identity) -> None:
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            port: int = await nursery.start(PeerServer(identity(1, generation=2), HANDLERS).serve, "127.0.0.1", 0)
            pool = PeerPool(nursery, identity(2, generation=1))
            with pytest.raises(NewerGeneration, match="at generation 2 of the cluster; this node's, 1, is over") as raised:
                await pool.request(Endpoint("127.0.0.1", port), ECHO, b"", timeout_ms=2000)
            assert (raised.value.code, raised.value.generation) == (ErrorCode.STALE_GENERATION, 2)
            nursery.cancel_scope.cancel()


async def test_a_server_of_an_older_generation_refuses_requests(identity: Identity) -> None:
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            server = PeerServer(identity(1), HANDLERS)
            port: int = await nursery.start(server.serve, "127.0.0.1", 0)
            pool = PeerPool(nursery, identity(2, generation=3))
            with pytest.raises(PeerError, match="behind the sender's 3") as raised:
                await pool.request(Endpoint("127.0.0.1", port), ECHO, b"", timeout_ms=2000)
            assert raised.value.code == ErrorCode.STALE_GENERATION
            assert not isinstance(raised.value, NewerGeneration)
            client = PeerPool(nursery, identity(2, generation=9)._replace(key=ReplicaKey(-1)))
            with pytest.raises(PeerError, match="behind the sender's 9"):
                await client.request(Endpoint("127.0.0.1", port), ECHO, b"", timeout_ms=2000)
            nursery.cancel_scope.cancel()


async def test_connections_that_are_not_kept_are_closed(identity: Identity, eventually: Eventually) -> None:
    async with served(identity) as (pool, endpoint, server):
        assert await pool.request(endpoint, ECHO, b"1", timeout_ms=2000) == b"1"
        pool.keep({endpoint})
        assert await pool.request(endpoint, ECHO, b"2", timeout_ms=2000) == b"2"
        pool.keep(set())
        await eventually(lambda: server.statistics()["connections"] == 0, "the server hears that the connection ended")
        assert await pool.request(endpoint, ECHO, b"3", timeout_ms=2000) == b"3"


async def test_an_oversize_body_is_refused_before_it_is_sent(identity: Identity) -> None:
    async with served(identity) as (pool, endpoint, _):
        with pytest.raises(FrameError, match="over the limit"):
            await pool.request(endpoint, ECHO, bytes(MAX_FRAME_BYTES), timeout_ms=2000)
        assert await pool.request(endpoint, ECHO, b"", timeout_ms=2000) == b""


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(64),
        b"\x00\x00\x00\x05\xc1\xc1\xc1\xc1\xc1",
        b"\x00\x00\x00\x01\x90",
        b"\xff" * 5000,
    ],
)
async def test_garbage_closes_the_connection_with_one_log_line(
    identity: Identity, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(identity) as (pool, endpoint, _):
        with caplog.at_level(logging.INFO, logger="kraftlab.peer"):
            stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
            await stream.send_all(garbage)
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""
        assert await pool.request(endpoint, ECHO, b"healthy", timeout_ms=2000) == b"healthy"
    assert len([r for r in caplog.records if "closed connection from 127.0.0.1" in r.getMessage()]) == 1


async def test_half_a_frame_does_not_hold_its_connection_forever(
    identity: Identity, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(transport, "SWEEP_INTERVAL_S", 0.01)
    monkeypatch.setattr(transport, "FIRST_FRAME_TIMEOUT_S", 0.05)
    monkeypatch.setattr(transport, "PARTIAL_FRAME_TIMEOUT_S", 0.05)
    whole = encode_frame(Frame(REQUEST, ECHO, 0, 1, identity(2).cluster_id, 0, identity(2).key, b"x"))
    async with served(identity) as (_, endpoint, server):
        for beginning in (whole[:3], whole[:20], bytes(whole) + bytes(whole[:20])):
            stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
            await stream.send_all(beginning)
            while await stream.receive_some():
                pass
        await eventually(lambda: server.statistics()["connections"] == 0, "connections are closed")


async def test_a_connection_with_too_much_in_work_is_not_read_until_some_is_done(
    identity: Identity, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(transport, "MAX_REQUESTS_PER_CONNECTION", 4)
    waiting: list[Responder] = []
    handlers = {DIRECT: DirectHandler(lambda request, responder: waiting.append(responder))}
    async with served(identity, handlers) as (pool, endpoint, _), trio.open_nursery() as nursery:
        answers: list[bytes] = []

        async def one() -> None:
            answers.append(await pool.request(endpoint, DIRECT, b"", timeout_ms=5000))

        for _ in range(10):
            nursery.start_soon(one)
        await eventually(lambda: len(waiting) == 4, "four are in work")
        while len(answers) < 10:
            assert len(waiting) <= 4
            for responder in waiting:
                responder.reply(b"done")
            waiting.clear()
            await trio.sleep(0.001)


async def test_a_peer_that_does_not_read_its_answers_is_not_read_from_and_gets_all_of_them_later(identity: Identity) -> None:
    handled, count = 0, 1000

    async def counted(request: PeerRequest) -> bytes:
        nonlocal handled
        handled += 1
        return bytes(request.body)

    body = bytes(65_536)
    frames = [Frame(REQUEST, ECHO, 0, n, identity(2).cluster_id, 0, identity(2).key, memoryview(body)) for n in range(count)]
    async with served(identity, {ECHO: counted}) as (pool, endpoint, _), trio.open_nursery() as nursery:
        stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        nursery.start_soon(stream.send_all, b"".join(map(encode_frame, frames)))
        before = -1
        while before < handled:
            before = handled
            await trio.testing.wait_all_tasks_blocked(0.2)
        assert 0 < handled < count / 2
        assert await pool.request(endpoint, ECHO, b"another", timeout_ms=5000) == b"another"
        buffer, answered = FrameBuffer(), []
        while len(answered) < count:
            await trio.lowlevel.wait_readable(stream.socket)
            buffer.receive_from(Blocking(stream.socket))
            answered += [frame.correlation for frame, _ in buffer.frames()]
        assert answered == list(range(count))
        await stream.aclose()


async def test_thousands_of_requests_at_once_are_answered_and_others_meanwhile(identity: Identity) -> None:
    count = 3000
    frames = [Frame(REQUEST, ECHO, 0, n, identity(2).cluster_id, 0, identity(2).key, memoryview(b"x")) for n in range(count)]
    async with served(identity) as (pool, endpoint, _), trio.open_nursery() as nursery:
        stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        nursery.start_soon(stream.send_all, b"".join(map(encode_frame, frames)))
        assert await pool.request(endpoint, ECHO, b"another", timeout_ms=5000) == b"another"
        buffer, answered = FrameBuffer(), set()
        while len(answered) < count:
            await trio.lowlevel.wait_readable(stream.socket)
            buffer.receive_from(Blocking(stream.socket))
            answered |= {frame.correlation for frame, _ in buffer.frames()}
        await stream.aclose()


async def test_a_direct_handler_is_notified_of_a_closed_connection(identity: Identity, eventually: Eventually) -> None:
    abandoned: list[str] = []

    def accept(request: PeerRequest, responder: Responder) -> None:
        responder.on_abandoned = lambda: abandoned.append(request.source)

    async with served(identity, {DIRECT: DirectHandler(accept)}) as (pool, endpoint, _):
        with pytest.raises(PeerTimeout):
            await pool.request(endpoint, DIRECT, b"", timeout_ms=50)
        await eventually(lambda: len(abandoned) == 1, "the request is abandoned")


async def test_a_broken_invariant_in_a_handler_ends_the_server(identity: Identity) -> None:
    async def broken(request: PeerRequest) -> bytes:
        raise InvariantViolation("two leaders in epoch 3")

    with trio.fail_after(10), pytest.raises(ExceptionGroup) as raised:
        async with served(identity, {ECHO: broken}) as (pool, endpoint, _):
            with contextlib.suppress(PeerUnreachable):
                await pool.request(endpoint, ECHO, b"", timeout_ms=2000)
            await trio.sleep_forever()
    assert raised.group_contains(InvariantViolation, match="two leaders in epoch 3")


async def test_a_port_in_use_is_named(identity: Identity) -> None:
    async with served(identity) as (_, endpoint, _):
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{endpoint.port}"):
            await PeerServer(identity(3), {}).serve("127.0.0.1", endpoint.port)


class Stream:
    """Returns its bytes in pieces of at most that size."""

    def __init__(self, data: bytes, piece_bytes: int) -> None:
        self.left = data
        self.piece_bytes = piece_bytes

    def recv_into(self, room: memoryview, /) -> int:
        size = min(len(room), len(self.left), self.piece_bytes)
        room[:size], self.left = self.left[:size], self.left[size:]
        return size


def test_frames_survive_any_cut_of_the_stream(identity: Identity) -> None:
    me = identity(2)
    frames = [Frame(REQUEST, ECHO, 0, n, me.cluster_id, 0, me.key, bytes(n * 37)) for n in range(50)]
    stream = b"".join(bytes(encode_frame(frame)) for frame in frames)
    for step in (1, 3, 64, 1000, len(stream)):
        buffer, found, source = FrameBuffer(), [], Stream(stream, step)
        while buffer.receive_from(source):
            found += [frame for frame, _ in buffer.frames()]
        assert found == frames
        assert buffer.unread_bytes == 0


def test_two_handlers_for_one_number_are_refused() -> None:
    async def handle(request: PeerRequest) -> bytes:
        return request.body

    assert merged_handlers({1: handle}, {2: handle}, {}) == {1: handle, 2: handle}
    with pytest.raises(InvariantViolation, match="two handlers answer to peer api 2"):
        merged_handlers({1: handle, 2: handle}, {2: handle})
