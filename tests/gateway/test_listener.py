"""The KAFKA listener: order, limits, and clients that send anything."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.line_limit import LINES_AT_ONCE
from kraftlab.gateway import connection as connection_module
from kraftlab.gateway.codec import Header, KafkaRequest, MalformedRequest, decode_request
from kraftlab.gateway.connection import ClientConnection, ConnectionClosed, FrameBudget
from kraftlab.gateway.data import Acks0Failed
from kraftlab.gateway.door import OFFERS
from kraftlab.gateway.listener import KafkaListener
from kraftlab.gateway.request_figures import RequestFigures
from kraftlab.gateway.unserved import CLIENTS_MAX, REMINDER_S, VainClients, vain_request
from kraftlab.rpc.caller import Caller
from kraftlab.wire.parts import Part

from ..helpers.waiting import eventually
from .conftest import make_frame

METADATA = struct.pack(">hhih", 3, 0, 7, -1) + struct.pack(">i", 0)
"""A Metadata request of version 0 with correlation id 7, without its length."""
DEFAULTS = {"socket.request.max.bytes": "1000", "connections.max.idle.ms": "600000"}

Answer = Callable[[KafkaRequest], Awaitable[Sequence[Part] | None]]


class StubDoor:
    """Answers each request by a function."""

    offers = OFFERS

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.figures = RequestFigures()
        self.principals: list[str] = []

    async def answer(self, request: KafkaRequest, caller: Caller) -> Sequence[Part] | None:
        self.principals.append(caller.principal)
        return await self._answer(request)

    def unsupported(self, head: Header) -> Sequence[Part]:
        return [b"\0\0\0\1?"]


async def echo(request: KafkaRequest) -> Sequence[Part]:
    """Answer with nothing but the correlation id."""
    return [struct.pack(">ii", 4, request.header.correlation_id)]


@asynccontextmanager
async def listening(answer: Answer = echo, **settings: str) -> AsyncIterator[tuple[KafkaListener, int]]:
    values = DEFAULTS | {name.replace("_", "."): value for name, value in settings.items()}
    door: Any = StubDoor(answer)
    listener = KafkaListener(door, "127.0.0.1", 0, values.get)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            yield listener, await nursery.start(listener.serve)
            nursery.cancel_scope.cancel()


async def connected(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def with_id(correlation_id: int) -> bytes:
    return framed(METADATA[:4] + struct.pack(">i", correlation_id) + METADATA[8:])


async def read(stream: trio.SocketStream, size: int) -> bytes:
    """Return that many bytes, or the ones that came before the end."""
    data = b""
    with suppress(trio.BrokenResourceError):
        while len(data) < size and (piece := await stream.receive_some(size - len(data))):
            data += piece
    return data


async def is_served(stream: trio.SocketStream) -> bool:
    """Return True if the connection answers a request, False if it is closed."""
    try:
        await stream.send_all(framed(METADATA))
        return await read(stream, 8) == struct.pack(">ii", 4, 7)
    except trio.BrokenResourceError:
        return False


async def test_answers_come_in_the_order_of_requests() -> None:
    async def slow_first(request: KafkaRequest) -> Sequence[Part]:
        await trio.sleep(0.05 if request.header.correlation_id == 1 else 0)
        return await echo(request)

    async with listening(slow_first) as (_, port), await connected(port) as stream:
        await stream.send_all(with_id(1) + with_id(2) + with_id(3))
        assert struct.unpack(">6i", await read(stream, 24)) == (4, 1, 4, 2, 4, 3)


class Resolver(trio.abc.HostnameResolver):
    """Knows localhost by an IPv6 address that no device has, and by 127.0.0.1."""

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
        ipv6 = (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("2001:db8::1", port, 0, 0))
        return [ipv6, (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


async def test_localhost_is_served_at_127_0_0_1_if_no_device_has_its_ipv6_address() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver())
    door: Any = StubDoor(echo)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            port = await nursery.start(KafkaListener(door, "localhost", 0, DEFAULTS.get).serve)
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            nursery.cancel_scope.cancel()


async def test_a_request_may_arrive_byte_by_byte() -> None:
    async with listening() as (_, port), await connected(port) as stream:
        for byte in framed(METADATA):
            await stream.send_all(bytes([byte]))
        assert await read(stream, 8) == struct.pack(">ii", 4, 7)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "(HTTP)"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "(a TLS handshake)"),
        (struct.pack(">i", 1001), "length of a request is 1001, expected 1 to 1000 (socket.request.max.bytes)"),
        (struct.pack(">i", 0), "length of a request is 0"),
        (struct.pack(">i", -5), "length of a request is -5"),
        (framed(b"\0\3"), "shorter than its header"),
        (framed(struct.pack(">hhi", 999, 0, 1)), "API 999 version 0 is not served"),
        (framed(struct.pack(">hhi", 3, 99, 1)), "API 3 (Metadata) version 99 is not served, client ''"),
        (framed(struct.pack(">hhih", 3, 99, 1, 50) + b"cut"), "version 99 is not served, client 'cut'"),
        (
            framed(struct.pack(">hhih", 68, 1, 1, 4) + b"mine\0"),
            "client 'mine': only classic groups are served; set group.protocol=",
        ),
        (
            framed(struct.pack(">hhih", 24, 3, 1, -1)),
            "(AddPartitionsToTxn) version 3 is not served, client '': transactions are not",
        ),
        (framed(METADATA[:-2]), "MetadataRequest version 0"),
    ],
)
async def test_bytes_that_are_no_request_end_their_connection_only(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as (_, port), await connected(port) as other, await connected(port) as stream:
        await stream.send_all(sent)
        assert await read(stream, 1) == b""
        assert reason in caplog.text
        assert await is_served(other)


async def test_a_client_that_closes_its_half_gets_the_answer_first() -> None:
    async with listening() as (_, port), await connected(port) as stream:
        await stream.send_all(framed(METADATA))
        await stream.send_eof()
        assert await read(stream, 9) == struct.pack(">ii", 4, 7)


async def test_a_failed_write_with_acks_0_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: KafkaRequest) -> None:
        raise Acks0Failed("a batch was not written")

    async with listening(fail) as (_, port), await connected(port) as stream:
        await stream.send_all(framed(METADATA))
        assert await read(stream, 1) == b""
    assert "a batch was not written" in caplog.text


async def test_a_fault_of_the_broker_ends_one_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: KafkaRequest) -> Sequence[Part]:
        if request.header.correlation_id == 1:
            raise ZeroDivisionError
        return await echo(request)

    async with listening(fail) as (_, port), await connected(port) as other, await connected(port) as stream:
        await stream.send_all(with_id(1))
        assert await read(stream, 1) == b""
        assert await is_served(other)
    assert "ZeroDivisionError" in caplog.text


async def test_faults_of_the_broker_fill_no_disk(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: KafkaRequest) -> Sequence[Part]:
        raise ZeroDivisionError

    async with listening(fail) as (_, port):
        for _ in range(LINES_AT_ONCE + 5):
            async with await connected(port) as stream:
                await stream.send_all(framed(METADATA))
                assert await read(stream, 1) == b""
    lines = [record for record in caplog.records if "its connection is closed" in record.getMessage()]
    assert LINES_AT_ONCE <= len(lines) < LINES_AT_ONCE + 5


async def test_more_connections_than_the_limit_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(max_connections="1") as (listener, port):
        async with await connected(port) as first:
            assert await is_served(first)
            async with await connected(port) as second:
                assert not await is_served(second)
        await eventually(lambda: not listener.statistics()["connections"])
        async with await connected(port) as third:
            assert await is_served(third)
    assert "(max.connections)" in caplog.text


async def test_connections_are_limited_per_address(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(max_connections_per_ip="1") as (_, port), await connected(port) as first:
        assert await is_served(first)
        async with await connected(port) as second:
            assert not await is_served(second)
    assert "(max.connections.per.ip)" in caplog.text


async def test_an_address_can_have_a_limit_of_its_own() -> None:
    settings = {"max_connections_per_ip": "1", "max_connections_per_ip_overrides": "10.0.0.1:5, 127.0.0.1:2"}
    async with listening(**settings) as (_, port), await connected(port) as first, await connected(port) as second:
        assert await is_served(first)
        assert await is_served(second)
        async with await connected(port) as third:
            assert not await is_served(third)


async def test_an_idle_connection_is_closed() -> None:
    async with listening(connections_max_idle_ms="50") as (_, port), await connected(port) as stream:
        assert await is_served(stream)
        assert await read(stream, 1) == b""


async def test_a_request_that_stops_half_way_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "FRAME_TIMEOUT_S", 0.05)
    async with listening() as (listener, port), await connected(port) as stream:
        await stream.send_all(framed(METADATA)[:-1])
        assert await read(stream, 1) == b""
        await eventually(lambda: not listener.statistics()["connections"])


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    answered = 0

    async def large(request: KafkaRequest) -> Sequence[Part]:
        nonlocal answered
        answered += 1
        return [bytes(1024 * 1024)]

    async with listening(large) as (_, port), await connected(port) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with trio.move_on_after(0.3):
            while True:
                await stream.send_all(with_id(1))
    assert answered < 20, "answers that nobody reads pile up"


async def test_thousands_of_requests_at_once_are_answered_in_order_and_others_meanwhile() -> None:
    expected = b"".join(struct.pack(">ii", 4, number) for number in range(2000))
    async with (
        listening() as (_, port),
        await connected(port) as stream,
        await connected(port) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(stream.send_all, b"".join(map(with_id, range(2000))))
        assert await is_served(other)
        assert await read(stream, len(expected)) == expected


async def test_a_bad_request_among_good_ones_ends_its_connection_after_the_answers_before_it() -> None:
    async with listening() as (_, port), await connected(port) as stream, await connected(port) as other:
        await stream.send_all(with_id(1) + framed(b"\0\x03\0\x0c") + with_id(2))
        assert await read(stream, 100) == struct.pack(">ii", 4, 1)
        assert await is_served(other)


async def test_a_small_request_is_read_after_a_large_one_that_came_in_pieces() -> None:
    """The connection waits for many bytes of a large request at once, and then for the first byte of the next one."""
    names = b"".join(struct.pack(">h20s", 20, b"topic-%014d" % number) for number in range(20_000))
    large = framed(METADATA[:-4] + struct.pack(">i", 20_000) + names)
    async with listening(socket_request_max_bytes="1000000") as (_, port), await connected(port) as stream:
        await stream.send_all(large[:100])
        await trio.testing.wait_all_tasks_blocked(0.05)
        await stream.send_all(large[100:])
        assert await read(stream, 8) == struct.pack(">ii", 4, 7)
        assert await is_served(stream)


async def test_large_requests_share_a_budget() -> None:
    budget = FrameBudget(100_000)
    order: list[str] = []

    async def hold(name: str, size: int, release: trio.Event) -> None:
        async with budget.room(size):
            order.append(name)
            await release.wait()

    first, second = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, "first", 90_000, first)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hold, "second", 200_000, second)
        nursery.start_soon(hold, "small", 60_000, first)
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["first", "small"]
        first.set()
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["first", "small", "second"]
        second.set()
    assert budget.used_bytes == 0


class Arrived:
    """The reading side of a wire, on which the bytes arrive in pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def recv_into(self, room: memoryview, /) -> int:
        if not self._pieces:
            return 0
        piece = self._pieces.pop(0)
        size = min(len(piece), len(room))
        room[:size] = piece[:size]
        if piece[size:]:
            self._pieces.insert(0, piece[size:])
        return size

    def await_bytes(self, size_bytes: int, /) -> None:
        pass

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(framed(METADATA)), st.just(with_id(3))), max_size=6))
def test_any_bytes_are_requests_or_a_reason_to_close(pieces: list[bytes]) -> None:
    """Requests come as they were sent, whatever the pieces; the rest ends the connection with one of two errors."""
    wire: Any = Arrived(pieces)
    client = ClientConnection(wire, 1000, lambda: 1.0)
    rest = b"".join(pieces)

    async def run() -> None:
        nonlocal rest
        while True:
            size = await client.next_size()
            body = await client.body(size)
            assert rest.startswith(framed(bytes(body)))
            rest = rest[4 + size :]

    with pytest.raises((ConnectionClosed, MalformedRequest)):
        trio.run(run)
    (size,) = struct.unpack(">i", rest[:4]) if len(rest) >= 4 else (1,)
    assert not 0 < size <= 1000 or len(rest) < 4 + size


async def test_a_client_that_asks_for_transactions_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = make_frame(10, 2, key="mine", key_type=1)
    async with listening() as (_, port), await connected(port) as stream:
        for frame in (make_frame(10, 2, key="group"), coordinator, coordinator, make_frame(22, 4, transactional_id="mine")):
            await stream.send_all(frame)
            assert len(await read(stream, 8)) == 8, "it is answered"
    lines = [record.getMessage() for record in caplog.records if "transaction" in record.getMessage()]
    assert lines == [
        "client 'test' of 127.0.0.1 sent FindCoordinator for a transaction: transactions are not served; leave transactional.id "
        "out of its configuration; see docs/kafka-clients.md"
    ]


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (make_frame(10, 0, key="mine"), ""),
        (make_frame(10, 6, key_type=1, coordinator_keys=("mine",)), "FindCoordinator"),
        (make_frame(22, 0, transactional_id=None), ""),
        (make_frame(22, 5, transactional_id="mine"), "InitProducerId"),
        (make_frame(0, 3, transactional_id=None), ""),
        (make_frame(0, 13, transactional_id="mine"), "Produce"),
        (make_frame(3, 13), ""),
    ],
)
def test_requests_for_transactions_are_recognised(frame: bytes, name: str) -> None:
    assert vain_request(decode_request(frame[4:])) == name


def test_only_so_many_clients_are_remembered() -> None:
    vain = VainClients()
    request = decode_request(make_frame(22, 4, transactional_id="mine")[4:])
    hosts = [f"10.0.{number >> 8}.{number & 255}" for number in range(CLIENTS_MAX + 1)]
    assert all(vain.line_for(request, host, 5) for host in hosts)
    assert not vain.line_for(request, hosts[1], 6)
    assert vain.line_for(request, hosts[0], 6), "it was forgotten"
    assert vain.line_for(request, hosts[-1], 5 + REMINDER_S)
