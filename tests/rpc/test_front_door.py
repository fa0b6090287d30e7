"""The front door with a stand-in for gRPC's server behind it, then with the real one."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kraftlab.rpc import front_door
from kraftlab.rpc.front_door import FrontDoor, private_backend
from kraftlab.rpc.preface import PREFACE
from kraftlab.wire.line_limit import LineLimit

DEADLINE_S = 5.0


class Place:
    """A door on a free port, and what stands behind it."""

    def __init__(self, stack: ExitStack, is_abstract: bool) -> None:
        self._stack = stack
        backend = stack.enter_context(private_backend(is_abstract))
        self.behind = stack.enter_context(socket.socket(socket.AF_UNIX))
        self.behind.bind(backend.path)
        self.behind.listen()
        self.behind.settimeout(DEADLINE_S)
        listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = listener.getsockname()
        self.door = FrontDoor("here", [listener], backend)
        self.thread = threading.Thread(target=self.door.run)

    def connect(self, first: bytes = b"") -> socket.socket:
        client = self._stack.enter_context(socket.create_connection(self.address, timeout=DEADLINE_S))
        client.sendall(first)
        return client

    def arrival(self) -> socket.socket:
        """The next connection that is let through."""
        server, _ = self.behind.accept()
        server.settimeout(DEADLINE_S)
        return self._stack.enter_context(server)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Client and server of a connection that carries what it likes."""
        client = self.connect(PREFACE)
        server = self.arrival()
        assert read_exactly(server, len(PREFACE)) == PREFACE
        return client, server


@pytest.fixture(params=[True, False], ids=["abstract", "path"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A door that does not wait long for whoever stays when it is stopped."""
    monkeypatch.setattr(front_door, "STOP_TIMEOUT_S", 0.05)
    with ExitStack() as stack:
        place = Place(stack, request.param)
        place.thread.start()
        yield place
        place.door.stop()
        place.thread.join(DEADLINE_S)
        assert not place.thread.is_alive()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "kraftlab.rpc")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "kraftlab.rpc"]


def read_exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count and (part := source.recv(count - len(data))):
        data += part
    return bytes(data)


def read_to_the_end(source: socket.socket) -> bytes:
    data = bytearray()
    try:
        while part := source.recv(65536):
            data += part
    except ConnectionError:
        pass
    return bytes(data)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


# --- who is let in -----------------------------------------------------------------------------------------------------------


def test_garbage_is_closed_with_one_line_that_names_it(place: Place, lines) -> None:
    client = place.connect(b"\xde\xad\xbe\xef")
    source = f"127.0.0.1:{client.getsockname()[1]}"
    assert read_to_the_end(client) == b""
    assert lines() == [rf"closed connection from {source}: it sent what is not HTTP/2: b'\xde\xad\xbe\xef' (GRPC listener here)"]


def test_an_http_1_request_is_told_what_is_spoken_here(place: Place, lines) -> None:
    answer = read_to_the_end(place.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"gRPC" in body
    assert f"Content-Length: {len(body)}".encode() in head
    assert len(lines()) == 1
    assert "an HTTP/1 request: b'GET /metrics" in lines()[0]


def test_the_preface_may_come_byte_by_byte(place: Place, lines) -> None:
    client = place.connect()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in PREFACE:
        client.sendall(bytes([byte]))
        threading.Event().wait(0.001)
    client.sendall(b"more")
    assert read_exactly(place.arrival(), len(PREFACE) + 4) == PREFACE + b"more"
    assert lines() == []


def test_what_comes_with_the_preface_is_passed_on_at_once(place: Place) -> None:
    place.connect(PREFACE + b"settings")
    assert read_exactly(place.arrival(), len(PREFACE) + 8) == PREFACE + b"settings"


def test_who_hangs_up_without_a_word_is_no_news(place: Place, lines) -> None:
    place.connect().close()
    until(lambda: place.door.statistics()["turned_away"] == 1)
    assert lines() == []


def test_who_hangs_up_within_the_preface_is_named(place: Place, lines) -> None:
    place.connect(PREFACE[:5]).close()
    until(lambda: place.door.statistics()["turned_away"] == 1)
    assert [line.split(": it sent ")[1] for line in lines()] == [
        "only the beginning of HTTP/2: b'PRI *'; it hung up (GRPC listener here)"
    ]


@pytest.mark.parametrize(("first", "count"), [(b"", 0), (PREFACE[:5], 1)])
def test_the_preface_has_a_time_limit(place: Place, lines, monkeypatch: pytest.MonkeyPatch, first: bytes, count: int) -> None:
    monkeypatch.setattr(front_door, "PREFACE_TIMEOUT_S", 0.05)
    assert read_to_the_end(place.connect(first)) == b""
    assert len(lines()) == count


def test_silent_connections_give_way_to_newer_ones(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_door, "MAX_NEWCOMERS", 4)
    silent = [place.connect() for _ in range(20)]
    client, server = place.pair()
    client.sendall(b"hello")
    assert read_exactly(server, 5) == b"hello"
    assert read_to_the_end(silent[0]) == b""
    until(lambda: place.door.statistics()["newcomers"] <= 4)


def test_there_is_a_limit_to_connections(place: Place, lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_door, "MAX_CONNECTIONS", 2)
    (first, first_server), _ = place.pair(), place.pair()
    assert read_to_the_end(place.connect(PREFACE)) == b""
    assert "2 connections are open already" in lines()[0]
    first.close()
    first_server.close()
    until(lambda: place.door.statistics()["connections"] == 1)
    place.pair()


def test_lines_about_strangers_are_limited_and_those_left_out_are_counted(
    place: Place, lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.door, "_limit", LineLimit(3, 0.3))
    for _ in range(200):
        read_to_the_end(place.connect(b"\0"))
    until(lambda: "such lines" in lines()[-1] or "more connections" in lines()[-1])
    assert len(lines()) < 20


def test_a_door_without_a_server_behind_it_says_so(place: Place, lines) -> None:
    place.behind.close()
    assert read_to_the_end(place.connect(PREFACE)) == b""
    assert "it sent HTTP/2; it cannot be passed on" in lines()[0]


# --- what is carried ---------------------------------------------------------------------------------------------------------


def test_bytes_go_both_ways_whatever_their_number(place: Place) -> None:
    client, server = place.pair()
    there, back = random.Random(1).randbytes(3_000_000), random.Random(2).randbytes(3_000_000)
    threads = [threading.Thread(target=client.sendall, args=(there,)), threading.Thread(target=server.sendall, args=(back,))]
    for thread in threads:
        thread.start()
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(read_exactly(client, len(back))))
    reader.start()
    assert read_exactly(server, len(there)) == there
    reader.join(DEADLINE_S)
    assert received == [back]
    for thread in threads:
        thread.join(DEADLINE_S)


@pytest.mark.parametrize("slow", ["server", "client"])
def test_a_receiver_that_does_not_read_holds_the_sender_back(place: Place, slow: str) -> None:
    client, server = place.pair()
    sender, receiver = (client, server) if slow == "server" else (server, client)
    sender.setblocking(False)
    sent = 0
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 0.2:
        try:
            sent += sender.send(bytes(65536))
            quiet_since = time.monotonic()
        except BlockingIOError:
            threading.Event().wait(0.01)
        assert sent < 64 * 1024 * 1024
    assert read_exactly(receiver, sent) == bytes(sent)


def test_a_half_close_of_the_client_is_passed_on_and_answers_still_come(place: Place) -> None:
    client, server = place.pair()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    assert read_to_the_end(server) == b"question"
    server.sendall(b"answer")
    server.close()
    assert read_to_the_end(client) == b"answer"
    until(lambda: place.door.statistics()["connections"] == 0)


def test_what_a_server_said_last_is_delivered(place: Place) -> None:
    client, server = place.pair()
    last_words = random.Random(3).randbytes(150_000)
    server.sendall(last_words)
    server.close()
    assert read_to_the_end(client) == last_words
    until(lambda: place.door.statistics()["connections"] == 0)


@pytest.mark.parametrize("ends", [True, False])
def test_a_client_that_takes_nothing_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    monkeypatch.setattr(front_door, "CLIENT_TIMEOUT_S", 0.05)
    _, server = place.pair()
    server.setblocking(False)
    try:
        while True:
            server.send(bytes(65536))
            threading.Event().wait(0.002)
    except BlockingIOError:
        if ends:
            server.close()
    except ConnectionError:
        pass
    until(lambda: place.door.statistics()["connections"] == 0)


def test_a_reset_ends_both_sides(place: Place) -> None:
    client, server = place.pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    assert read_to_the_end(server) == b""
    until(lambda: place.door.statistics()["connections"] == 0)


def test_a_server_that_ends_while_the_client_still_sends(place: Place) -> None:
    client, server = place.pair()
    server.close()
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            client.sendall(bytes(65536))
    until(lambda: place.door.statistics()["connections"] == 0)


def test_thousands_of_connections_come_and_go(place: Place) -> None:
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for number in range(3000):
        with socket.create_connection(place.address, timeout=DEADLINE_S) as client:
            if number % 3 == 0:
                client.sendall(b"\0")
            elif number % 3 == 1:
                client.sendall(PREFACE)
                with place.behind.accept()[0] as server:
                    assert read_exactly(server, len(PREFACE)) == PREFACE
    until(lambda: place.door.statistics()["accepted"] == 3000)
    until(lambda: place.door.statistics()["newcomers"] + place.door.statistics()["connections"] == 0)
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 5


# --- its end -----------------------------------------------------------------------------------------------------------------


def test_a_door_that_stops_lets_nobody_in_and_waits_for_last_words(place: Place) -> None:
    client, server = place.pair()
    place.door.stop_listening()
    with pytest.raises(ConnectionError):
        while True:
            socket.create_connection(place.address, timeout=DEADLINE_S).close()
    place.door.stop()
    server.sendall(b"goodbye")
    server.close()
    assert read_to_the_end(client) == b"goodbye"
    place.thread.join(DEADLINE_S)
    assert not place.thread.is_alive()


def test_a_backend_at_a_path_leaves_nothing_behind() -> None:
    with private_backend(is_abstract=False) as backend:
        assert backend.grpc_address == f"unix:{backend.path}"
        directory = os.path.dirname(backend.path)
        assert os.stat(directory).st_mode & 0o777 == 0o700
    assert not os.path.exists(directory)
