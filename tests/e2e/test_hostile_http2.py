"""HTTP/2 that a gRPC client never sends, at the GRPC listeners of a controller and a broker.

The stranger gets an error or loses its connection; the node lives, answers others, and takes little memory.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import grpc
import pytest

from kraftlab.client import AdminClient
from kraftlab.common.endpoint import Endpoint
from kraftlab.lab import LocalCluster
from kraftlab.rpc.methods import SERVICE

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
MEMORY_MAX = 200 * 1024 * 1024
"""Bytes by which one stranger may grow a node: several messages of the largest size, 64 MiB."""
FRAME_BYTES = 16 * 1024


def frame(kind: int, stream: int, data: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, stream) + data


START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0)


def header(name: bytes, value: bytes) -> bytes:
    """Return a header field of HPACK, as a literal that is not indexed."""
    return b"\0" + length(name) + name + length(value) + value


def length(text: bytes) -> bytes:
    """Return the length of a text of HPACK: an integer with a prefix of 7 bits."""
    rest = len(text) - 127
    if rest < 0:
        return bytes([len(text)])
    found = bytearray([127])
    while rest >= 128:
        found.append(rest % 128 + 128)
        rest //= 128
    return bytes([*found, rest])


def call(method: str = "DescribeCluster", **more: bytes) -> bytes:
    """Return the header block of a call."""
    fields = {":method": b"POST", ":scheme": b"http", ":path": f"/{SERVICE}/{method}".encode(), ":authority": b"a"}
    fields |= {"te": b"trailers", "content-type": b"application/grpc"}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    return b"".join(header(name.encode(), value) for name, value in fields.items())


def begun(stream: int, block: bytes | None = None) -> bytes:
    return frame(HEADERS, stream, call() if block is None else block, END_HEADERS)


def in_data(message: bytes, stream: int = 1) -> bytes:
    pieces = [message[start : start + FRAME_BYTES] for start in range(0, len(message), FRAME_BYTES)]
    return b"".join(frame(DATA, stream, piece) for piece in pieces) + frame(DATA, stream, b"", END_STREAM)


def message(data: bytes, *, is_compressed: bool = False, size: int | None = None) -> bytes:
    return struct.pack(">BI", is_compressed, len(data) if size is None else size) + data


def long_header(pieces: int, *, ends: bool) -> bytes:
    """Return headers with a value as long as so many frames."""
    block = call(padding=b"x" * (FRAME_BYTES * pieces))
    parts = [block[start : start + FRAME_BYTES] for start in range(0, len(block), FRAME_BYTES)]
    last = frame(CONTINUATION, 1, parts[-1], END_HEADERS if ends else 0)
    return frame(HEADERS, 1, parts[0]) + b"".join(frame(CONTINUATION, 1, part) for part in parts[1:-1]) + last


ODD = range(1, 2**31, 2)
STRANGE = {
    "many SETTINGS": frame(SETTINGS, 0) * 100_000,
    "many PINGs": frame(PING, 0, bytes(8)) * 100_000,
    "many unknown frames": frame(77, 0, bytes(8)) * 100_000,
    "SETTINGS at their ends": frame(SETTINGS, 0, b"".join(struct.pack(">HI", number, 2**32 - 1) for number in range(1, 9))),
    "windows beyond their end": frame(WINDOW_UPDATE, 0, struct.pack(">I", 2**31 - 1)) * 3,
    "the longest frame": struct.pack(">I", 2**24 - 1)[1:] + struct.pack(">BBI", DATA, 0, 1) + bytes(1_000_000),
    "data without a stream": frame(DATA, 0, b"x") + frame(DATA, 9, b"x"),
    "a header of 1 MB": long_header(64, ends=True),
    "headers that never end": long_header(640, ends=False),
    "a message that claims 4 GiB": begun(1) + frame(DATA, 1, message(b"x", size=2**32 - 1)),
    "messages that claim 60 MiB": b"".join(
        begun(stream) + frame(DATA, stream, message(b"x", size=60 * 1024 * 1024)) for stream in ODD[:100]
    ),
    "compressed noise": begun(1, call(grpc_encoding=b"gzip")) + in_data(message(b"no gzip at all", is_compressed=True)),
    "thousands of calls that never end": b"".join(map(begun, ODD[:10_000])),
    "thousands of streams of calls": b"".join(begun(stream, call("Call")) for stream in ODD[:10_000]),
    "thousands of calls that are reset": b"".join(
        begun(stream) + frame(RST_STREAM, stream, struct.pack(">I", 8)) for stream in ODD[:10_000]
    ),
    "an unknown method": begun(1, call("NoSuchMethod")) + in_data(message(b"")),
    "no protobuf": begun(1) + in_data(message(b"\xff" * 1000)),
    "many calls without protobuf": b"".join(begun(stream) + in_data(message(b"\xff"), stream) for stream in ODD[:2000]),
}


NO_CALLS = (
    ("NoSuchMethod", b"", grpc.StatusCode.UNIMPLEMENTED),
    ("DescribeCluster", b"\xff", grpc.StatusCode.INTERNAL),
    ("CreateTopics", b"\x12\x00" * 4_000_000, grpc.StatusCode.INTERNAL),
    ("CreateTopics", bytes(65 * 1024 * 1024), grpc.StatusCode.RESOURCE_EXHAUSTED),
)
"""(method, message, status): calls that are none. Their messages are compressed on their way."""
LARGEST_NO_CALL = ("CreateTopics", bytes(512 * 1024 * 1024), grpc.StatusCode.RESOURCE_EXHAUSTED)
"""A message that takes seconds to compress."""


CLUSTER = (1, 1, 1)


@pytest.mark.parametrize("name", STRANGE)
def test_a_stranger_at_the_port_for_grpc_does_no_harm(cluster: LocalCluster, name: str) -> None:
    for node in cluster.plan.nodes:
        pid = cluster.pid(node.node_id)
        logged = cluster.log_path(node.node_id).stat().st_size
        before = memory_of(pid)
        send(node.grpc, START + STRANGE[name])
        with AdminClient(str(node.grpc), timeout_ms=20_000) as admin:
            assert admin.describe_cluster().cluster_id == cluster.cluster_id
        assert cluster.pid(node.node_id) == pid
        assert memory_of(pid) - before < MEMORY_MAX
        assert cluster.log_path(node.node_id).stat().st_size - logged < 20_000
    assert not cluster.exited()


@pytest.mark.parametrize(
    ("method", "data", "status"),
    [*NO_CALLS, pytest.param(*LARGEST_NO_CALL, marks=pytest.mark.nightly)],
    ids=range(len(NO_CALLS) + 1),
)
def test_a_call_that_is_none_gets_a_status(cluster: LocalCluster, method: str, data: bytes, status: grpc.StatusCode) -> None:
    options = (("grpc.max_send_message_length", -1),)
    for node in cluster.plan.nodes:
        before = memory_of(cluster.pid(node.node_id))
        with grpc.insecure_channel(str(node.grpc), options, grpc.Compression.Gzip) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(f"/{SERVICE}/{method}")(data, timeout=60)
            assert refused.value.code() == status  # type: ignore[attr-defined]
        assert memory_of(cluster.pid(node.node_id)) - before < MEMORY_MAX


def send(at: Endpoint, data: bytes) -> None:
    """Send bytes, and read until the node closes or is silent for a moment. A node may close before it has read all."""
    with socket.create_connection((at.host, at.port), timeout=20) as connected:
        connected.settimeout(0.3)
        try:
            connected.sendall(data)
            while connected.recv(1 << 20):
                pass
        except (TimeoutError, ConnectionError):
            return


def memory_of(pid: int) -> int:
    """Return the most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
