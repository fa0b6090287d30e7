"""Best possible times on this machine: one bare unary echo through gRPC for Python, and one small fdatasync.

A commit through gRPC costs at least the echo and two parallel fdatasyncs. Latencies measured on a busy machine can only be judged
with these two numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import msgspec

from .measure import percentile

_METHOD = "/bench.Echo/Echo"
_BODY = bytes(64)


class Floor(msgspec.Struct, frozen=True):
    """Medians in milliseconds."""

    grpc_echo_p50_ms: float
    fdatasync_p50_ms: float

    def __str__(self) -> str:
        return f"floor of this run: bare gRPC echo {self.grpc_echo_p50_ms:.2f} ms, fdatasync {self.fdatasync_p50_ms:.2f} ms (p50)"


class _Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def measure(seconds: float) -> Floor:
    """Measure both floors, each for about that many seconds."""
    with _server() as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(_METHOD, None, None)
        echo_ms = _median_ms(lambda: call(_BODY, timeout=10), seconds)
    with tempfile.TemporaryFile() as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, 1 << 20)
        os.fsync(descriptor)

        def sync() -> None:
            os.pwrite(descriptor, os.urandom(256), 0)
            os.fdatasync(descriptor)

        return Floor(echo_ms, _median_ms(sync, seconds))


def _median_ms(act: Callable[[], object], seconds: float) -> float:
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends or len(taken) < 20:
        started = time.perf_counter()
        act()
        taken.append((time.perf_counter() - started) * 1000)
    return percentile(taken[len(taken) // 10 :], 50)


@contextmanager
def _server() -> Iterator[int]:
    """Run an echo server in a process of its own, which ends when its standard input closes."""
    command = [sys.executable, "-m", "bench.floor"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(10)


def _serve() -> None:
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((_Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    _serve()
