"""The METRICS listener against clients of all kinds, by real sockets."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.metrics import web
from kraftlab.metrics.answers import Answer, Caller, Page
from kraftlab.metrics.server import MetricsServer

LOOPBACK = Endpoint("127.0.0.1", 0)
LARGE = "x" * 5_000_000


def page(caller: Caller) -> Answer:
    return Answer(f"{caller.host} {caller.authorization} {caller.certificate}\n")


@contextlib.contextmanager
def serving(
    pages: dict[str, Page], context: Callable[[], ssl.SSLContext] | None = None, at: Endpoint = LOOPBACK
) -> Iterator[MetricsServer]:
    server = MetricsServer(at, pages, context)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with serving({"/metrics": page, "/large": lambda caller: Answer(LARGE)}) as server:
        yield server


def get(server: MetricsServer, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def ask(server: MetricsServer, request: bytes) -> bytes:
    """Send bytes and return all that comes back."""
    with connect(server) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_page_knows_its_caller(server: MetricsServer) -> None:
    assert get(server, Authorization="Basic eA==") == (200, b"127.0.0.1 Basic eA== None\n")
    assert get(server, "/metrics?name=x")[0] == 200


def test_other_paths_and_methods_get_an_error_of_http(server: MetricsServer) -> None:
    assert get(server, "/") == (404, b"no such page; there are /metrics, /large\n")
    assert get(server, "/metrics/../etc")[0] == 404
    for method in (b"POST", b"DELETE", b"\xff\xfe", b"CONNECT"):
        assert b" 501 " in ask(server, method + b" /metrics HTTP/1.1\r\n\r\n").split(b"\n")[0]
    head = ask(server, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ") and head.endswith(b"\r\n\r\n")
    assert ask(server, b"GET\r\n\r\n") == b"Bad request syntax ('GET')\n"
    assert b" 414 " in ask(server, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n").split(b"\n")[0]
    assert b" 431 " in ask(server, b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n").split(b"\n")[0]
    assert get(server)[0] == 200


def test_a_large_page_is_compressed_for_whom_can_read_it(server: MetricsServer) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/large", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=30) as response:
        packed = response.read()
    assert response.headers["Content-Encoding"] == "gzip" and len(packed) < 100_000
    assert gzip.decompress(packed) == LARGE.encode()
    assert get(server, "/large") == (200, LARGE.encode())


def test_clients_that_send_nothing_make_room_for_those_that_ask(server: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connect(server)).sendall(b"GET /metr")
        assert get(server)[0] == 200


def test_clients_that_read_nothing_and_clients_that_dribble_are_closed(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "CONNECTION_S", 0.5)
    with connect(server) as slow, connect(server) as dribbling:
        slow.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        ended = False
        deadline = time.monotonic() + 20
        while not ended and time.monotonic() < deadline:
            try:
                dribbling.sendall(b"G")
                dribbling.settimeout(0.1)
                ended = dribbling.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
        slow.settimeout(20)
        with contextlib.suppress(ConnectionError):
            assert len(b"".join(iter(lambda: slow.recv(65536), b""))) < len(LARGE)


def test_readers_that_are_slow_do_not_keep_others_waiting(server: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(web.CONNECTIONS_MAX - 1):
            stack.enter_context(connect(server)).sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert get(server)[0] == 200


def test_a_page_that_fails_ends_its_own_connection_alone() -> None:
    def broken(caller: Caller) -> Answer:
        raise RuntimeError("as the test wants")

    with serving({"/broken": broken, "/metrics": page}) as server:
        assert ask(server, b"GET /broken HTTP/1.1\r\n\r\n") == b""
        assert get(server)[0] == 200


def test_a_port_that_is_taken_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        MetricsServer(Endpoint("127.0.0.1", other.getsockname()[1]), {})


def test_the_port_of_a_listener_that_is_stopped_is_free_at_once() -> None:
    """A node that begins again in the same process opens its listener again."""
    server = MetricsServer(LOOPBACK, {"/metrics": page})
    server.start()
    assert get(server)[0] == 200
    server.stop()
    with serving({"/again": page}, at=Endpoint("127.0.0.1", server.port)) as other:
        assert get(other, "/again")[0] == 200


def test_the_threads_of_listeners_that_are_stopped_end() -> None:
    """One that is stopped before it has begun ends too."""
    for _ in range(5):
        server = MetricsServer(LOOPBACK, {"/metrics": page})
        server.start()
        server.stop()
        with pytest.raises(OSError):
            connect(server).close()
    for thread in threading.enumerate():
        if thread.name == "metrics":
            thread.join(20)
            assert not thread.is_alive()
