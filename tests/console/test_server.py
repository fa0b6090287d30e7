"""Connections of the console: one that fails ends alone, and none holds up the end."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import pytest
import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

from kraftlab.common.endpoint import Endpoint
from kraftlab.console import server
from kraftlab.console.server import listen, serve

PATIENCE_S = 20
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
App = Callable[[Scope, ASGIReceiveCallable, ASGISendCallable], Awaitable[None]]


async def hello(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Answer before the body of a request has ended."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello", "more_body": False})


async def endless(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[tuple[int, Callable[[], Awaitable[None]]]]:
    """Serve an application; yield the port, and a function that stops it. The block ends within PATIENCE_S."""
    stop, ended = trio.Event(), trio.Event()

    async def run() -> None:
        await serve(app, Config(), listening, stop, None)
        ended.set()

    async def end() -> None:
        stop.set()
        await ended.wait()

    with trio.fail_after(PATIENCE_S), listen(Endpoint("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            yield port, end
            await end()


async def asked(port: int, request: bytes = REQUEST) -> bytes:
    """Return the answer to a request, until the connection ends or `hello` is in it."""
    answer = b""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        async for part in stream:
            answer += part
            if answer.endswith(b"hello"):
                break
    return answer


async def late(port: int) -> bytes:
    """Return the answer to a request; nothing if the connection was closed without one."""
    try:
        return await asked(port)
    except trio.BrokenResourceError:
        return b""


def data_of_a_request_that_was_answered() -> bytes:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    names = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "127.0.0.1")]
    connection.send_headers(1, names)
    connection.send_data(1, bytes(100))
    return connection.data_to_send()


def request_with_an_odd_path() -> bytes:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    connection.initiate_connection()
    names = [(b":method", b"GET"), (b":path", b"/\xff"), (b":scheme", b"http"), (b":authority", b"127.0.0.1")]
    connection.send_headers(1, names, end_stream=True)
    return connection.data_to_send()


@pytest.mark.parametrize("made", [data_of_a_request_that_was_answered, request_with_an_odd_path])
def test_input_that_the_protocol_does_not_foresee_ends_its_connection_alone(made: Callable[[], bytes]) -> None:
    async def play() -> bytes:
        async with serving(hello) as (port, _):
            async with await trio.open_tcp_stream("127.0.0.1", port) as odd:
                await odd.send_all(made())
                await trio.testing.wait_all_tasks_blocked(0.1)  # it was answered
                await odd.send_all(b"\x00\x00\x01\x00\x00\x00\x00\x00\x01x")  # one byte more of its body
                with trio.move_on_after(1):
                    while await odd.receive_some():
                        pass
            return await asked(port)

    assert trio.run(play).endswith(b"hello")


@pytest.mark.parametrize("junk", [b"\x00" * 100, b"GET /\xff HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: " + b"a" * 70_000])
def test_what_is_no_request_is_refused_and_others_are_answered(junk: bytes) -> None:
    async def play() -> tuple[bytes, bytes]:
        async with serving(hello) as (port, _):
            return await asked(port, junk), await asked(port)

    refused, answer = trio.run(play)
    assert refused.startswith(b"HTTP/1.1 4")
    assert answer.endswith(b"hello")


def test_a_reader_that_does_not_read_does_not_hold_up_the_end() -> None:
    async def play() -> float:
        async with serving(endless) as (port, end), await trio.open_tcp_stream("127.0.0.1", port) as lazy:
            await lazy.send_all(REQUEST)
            await lazy.receive_some(1)
            await trio.testing.wait_all_tasks_blocked(0.2)
            began = trio.current_time()
            await end()
            return trio.current_time() - began

    assert trio.run(play) < 2 * server.GRACE_S


def test_a_connection_ends_whose_reader_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNREAD_MS", 500)
    ended = trio.Event()

    async def watched(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    async def app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched, scope, receive, send)
            nursery.start_soon(endless, scope, receive, send)
            await ended.wait()
            nursery.cancel_scope.cancel()

    async def play() -> bool:
        async with serving(app) as (port, _), await trio.open_tcp_stream("127.0.0.1", port) as lazy:
            await lazy.send_all(REQUEST)
            await ended.wait()
            return True

    assert trio.run(play)


@pytest.mark.console
def test_connections_beyond_the_limit_are_closed_and_later_ones_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)

    async def play() -> list[bytes]:
        async with serving(hello) as (port, _):
            held = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
            refused = await trio.open_tcp_stream("127.0.0.1", port)
            try:
                found = [await refused.receive_some()]
            except trio.BrokenResourceError:
                found = [b""]
            for stream in (*held, refused):
                await stream.aclose()
            while not (answer := await late(port)):  # noqa: ASYNC110
                await trio.sleep(0.02)
            return [*found, answer]

    refused, answer = trio.run(play)
    assert (refused, answer.endswith(b"hello")) == (b"", True)


def test_a_connection_that_its_client_closed_is_free_before_its_idle_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 1)

    async def play() -> None:
        async with serving(hello) as (port, _):
            with trio.fail_after(Config().keep_alive_timeout):
                for _ in range(10):
                    while not await late(port):  # noqa: ASYNC110
                        await trio.sleep(0.01)

    trio.run(play)


@pytest.mark.console
def test_a_request_that_is_sent_slowly_is_given_up() -> None:
    async def play() -> bytes:
        config_s = Config().keep_alive_timeout
        async with serving(hello) as (port, _), await trio.open_tcp_stream("127.0.0.1", port) as slow:
            with trio.fail_after(2 * config_s):
                await slow.send_all(REQUEST[:10])
                return bytes(await slow.receive_some())

    assert trio.run(play) == b""


def test_the_port_of_another_socket_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        listen(Endpoint("127.0.0.1", other.getsockname()[1]))
