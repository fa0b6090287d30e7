"""Bytes of no protocol, on every port of a running cluster: the connection ends, a node's own port logs it, all goes on."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.demo.lab import wait_until

RANDOM = random.Random(7)

GARBAGE = {
    "one byte": b"\xff",
    "random bytes": RANDOM.randbytes(64),
    "many random bytes": RANDOM.randbytes(3_000_000),
    "zeros": bytes(4096),
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000001fc0303") + RANDOM.randbytes(500),
    "frame of random bytes": struct.pack(">I", 512) + RANDOM.randbytes(512),
    "frame that is no array": struct.pack(">I", 6) + b"\xa5hello",
    "frame of a short array": struct.pack(">I", 3) + b"\x92\x00\x01",
    "largest length": struct.pack(">I", 0xFFFFFFFF) + b"x" * 100,
}
WAITING = ("one byte", "random bytes", "many random bytes")
"""Possible beginnings of a frame: the sender has to close first. HTTP/2 begins differently."""


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_does_no_harm_at_any_port(lab: Any, name: str) -> None:
    for node in lab.cluster.plan.nodes:
        pid = lab.cluster.pid(node.node_id)
        for endpoint in (node.peer, node.grpc):
            send_and_hang_up(endpoint, GARBAGE[name])
        assert lab.cluster.pid(node.node_id) == pid
    assert set(lab.brokers()) == {0, 1, 2}
    lab.small_write(any_topic(lab), 1_000_000)


@pytest.mark.parametrize("name", [name for name in GARBAGE if name not in WAITING])
def test_the_port_for_peers_closes_the_connection_and_logs_why(lab: Any, name: str) -> None:
    for node in lab.cluster.plan.nodes:
        logged = lab.cluster.log_path(node.node_id).stat().st_size
        source = sends_until_closed(node.peer, GARBAGE[name])

        def told(node_id: int = node.node_id, logged: int = logged, source: int = source) -> bool:
            with lab.cluster.log_path(node_id).open("rb") as log:
                log.seek(logged)
                lines = log.read().decode(errors="replace").splitlines()
            return len([line for line in lines if f"closed connection from 127.0.0.1:{source}: it sent" in line]) == 1

        wait_until(f"{node.name} says so", told)


@pytest.mark.parametrize("name", GARBAGE)
def test_the_port_for_grpc_closes_the_connection(lab: Any, name: str) -> None:
    for node in lab.cluster.plan.nodes:
        sends_until_closed(node.grpc, GARBAGE[name])


def test_half_frames_that_never_end_do_not_keep_others_from_being_served(lab: Any) -> None:
    half = struct.pack(">I", 1000) + b"\x98" + bytes(100)
    connections = []
    try:
        for node in lab.cluster.plan.nodes:
            for endpoint in (node.peer, node.grpc):
                for _ in range(20):
                    connection = socket.create_connection((endpoint.host, endpoint.port), timeout=5)
                    connection.sendall(half)
                    connections.append(connection)
        lab.small_write(any_topic(lab), 2_000_000)
        lab.fill(any_topic(lab), 20_000)
        assert lab.metadata_is_equal_everywhere()
    finally:
        for connection in connections:
            connection.close()


def any_topic(lab: Any) -> str:
    if "unmoved" not in {*lab.admin.describe_topics()}:
        lab.create_topic("unmoved", [0, 1, 2])
    return "unmoved"


def send_and_hang_up(endpoint: Endpoint, data: bytes) -> None:
    """Sends as much as the other side takes, then closes."""
    with socket.create_connection((endpoint.host, endpoint.port), timeout=5) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            reads_to_the_end(connection)
        except OSError:
            return


def sends_until_closed(endpoint: Endpoint, data: bytes) -> int:
    """Sends this and reads until the other side closes; returns the port that it was sent from."""
    with socket.create_connection((endpoint.host, endpoint.port), timeout=5) as connection:
        source: int = connection.getsockname()[1]
        try:
            connection.sendall(data)
        except ConnectionError:
            assert len(data) > 1_000_000, "closed before it could be known as garbage"
        assert reads_to_the_end(connection)
    return source


def reads_to_the_end(connection: socket.socket) -> bool:
    """Return whether the other side closes, after any output."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True
