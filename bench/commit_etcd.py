"""etcd beside us, where its binary is on PATH: three members on loopback, written through the JSON gateway of the leader.

A small write is a put of a key; the large one is one transaction of puts. The limits on a transaction are raised so that it
fits; everything else is etcd's default, fsync included. The client keeps one connection per call in flight.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from .measure import CommitParameters, CommitResult, NoResult, free_ports, percentile

SYSTEM = "etcd"
DOOR = "JSON gateway"
MEMBERS = 3
START_TIMEOUT_S = 20.0
KEYS_PER_TRANSACTION = 10_000


def is_available() -> bool:
    return shutil.which("etcd") is not None


def measure(parameters: CommitParameters) -> CommitResult:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory, _members(directory) as ports:
        return Workload(_leader_port(ports), parameters).run()


@contextmanager
def _members(directory: str) -> Iterator[list[int]]:
    """The client ports of a running cluster."""
    ports = free_ports(2 * MEMBERS)
    client_ports, peer_ports = ports[:MEMBERS], ports[MEMBERS:]
    members = ",".join(f"m{index}=http://127.0.0.1:{port}" for index, port in enumerate(peer_ports))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index, (client_port, peer_port) in enumerate(zip(client_ports, peer_ports, strict=True)):
            client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
            command = ["etcd", "--name", f"m{index}", "--data-dir", os.path.join(directory, str(index))]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            command += ["--initial-cluster", members, "--initial-cluster-state", "new", "--logger", "zap", "--log-level", "error"]
            command += ["--max-txn-ops", str(KEYS_PER_TRANSACTION), "--max-request-bytes", str(16 << 20)]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield client_ports
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _leader_port(ports: list[int]) -> int:
    """The client port of the member that leads, once there is one. NoResult if there is none in time."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        for port in ports:
            try:
                status = Connection(port).post("/v3/maintenance/status", {})
            except (OSError, http.client.HTTPException, NoResult):
                continue
            if status.get("leader") == status["header"]["member_id"]:
                return port
        time.sleep(0.1)
    raise NoResult(f"etcd has no leader after {START_TIMEOUT_S:g} s")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


class Connection:
    """One kept-alive connection to the gateway."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: Any) -> Any:
        """The decoded answer; NoResult if etcd refuses."""
        self._http.request("POST", path, msgspec.json.encode(body), {"Content-Type": "application/json"})
        response = self._http.getresponse()
        answer = response.read()
        if response.status != http.client.OK:
            raise NoResult(f"etcd answered {response.status} to {path}: {answer[:200].decode(errors='replace')}")
        return msgspec.json.decode(answer)


class Workload:
    """The measurement itself."""

    def __init__(self, port: int, parameters: CommitParameters) -> None:
        self._port = port
        self._parameters = parameters
        self._number = itertools.count()
        self._value = _text(bytes(parameters.record_bytes))
        self._connection = Connection(port)

    def write(self, connection: Connection) -> None:
        key = _text(b"bench/%d" % (next(self._number) % 1000))
        connection.post("/v3/kv/put", {"key": key, "value": self._value})

    def timed_ms(self) -> float:
        started = time.perf_counter()
        self.write(self._connection)
        return (time.perf_counter() - started) * 1000

    def bulk_ms(self) -> float:
        puts = [
            {"requestPut": {"key": _text(b"bulk/%d" % number), "value": self._value}}
            for number in range(self._parameters.bulk_records)
        ]
        started = time.perf_counter()
        self._connection.post("/v3/kv/txn", {"success": puts})
        return (time.perf_counter() - started) * 1000

    def commits_per_second(self, in_flight: int) -> float:
        connections = [Connection(self._port) for _ in range(in_flight)]
        deadline = time.perf_counter() + self._parameters.seconds
        done: list[int] = []

        def keep_writing(connection: Connection) -> None:
            count = 0
            while time.perf_counter() < deadline:
                self.write(connection)
                count += 1
            done.append(count)

        threads = [threading.Thread(target=keep_writing, args=(connection,)) for connection in connections]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - started)

    def run(self) -> CommitResult:
        for _ in range(self._parameters.warm_up_commits):
            self.timed_ms()
        serial: list[float] = []
        deadline = time.perf_counter() + self._parameters.seconds
        while time.perf_counter() < deadline:
            serial.append(self.timed_ms())
        throughput = {count: self.commits_per_second(count) for count in self._parameters.in_flight}
        bulk = [self.bulk_ms() for _ in range(self._parameters.bulk_runs)]
        return CommitResult(
            system=SYSTEM,
            door=DOOR,
            serial_p50_ms=percentile(serial, 50),
            serial_p99_ms=percentile(serial, 99),
            commits_per_second=throughput,
            bulk_ms=percentile(bulk, 50),
        )
