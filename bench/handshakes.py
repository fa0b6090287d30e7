"""TLS handshakes at a node that works: 500 a second from processes of their own, at each kind of listener.

Three controllers and a broker are processes with P-256 certificates; an admin client changes a config, one change after the
other. Two client processes make handshakes at one listener, from many addresses: evenly, or all of a second at the same moment,
as after a restart. In each node a task sleeps 5 ms and notes how much later it wakes: that is the delay of a heartbeat. The first
row of a listener has no handshakes. All processes share the machine.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import click
import msgspec
import trio

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.config_parts import config_changes
from kraftlab.common.errors import ApiError
from kraftlab.config.models import load_any
from kraftlab.config.resources import ResourceType
from kraftlab.lab import LocalCluster, layout, node

from .certificates import CLIENT, secure
from .measure import NoResult, Report, measurement, percentile, table

CONTROLLERS, BROKER = 3, 0
CLIENTS = 2
PER_SECOND = 500
TICKS_PER_S = 25
PROBE_S = 0.005
ADDRESSES = 40
"""Addresses of a client process: a listener bounds the handshakes of one."""
READY_WITHIN_S = 60.0
HANDSHAKE_TIMEOUT_S = 10.0


class Delays(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: list[float]) -> Delays:
        return cls(*(1000 * percentile(seconds or [0.0], percent) for percent in (50, 99, 100)))


class ClientResult(msgspec.Struct, frozen=True):
    """Handshakes of one process: numbers, and the times of those that succeeded."""

    failed: int
    seconds: float
    times_s: list[float]


class HandshakesResult(msgspec.Struct, frozen=True):
    """Handshakes at one listener. `late`: wake-ups of the node's event loop; `commits`: config changes meanwhile."""

    listener: str
    pace: str
    per_second: float
    failed: int
    handshakes: Delays
    late: Delays
    commits: Delays


# --- nodes -------------------------------------------------------------------------------------------------------------------


def run_node(role: str, path: str) -> None:
    """Run a node that reports, for each line of standard input, the delays since the line before."""
    run = node.load(role)
    late: list[float] = []

    async def watch() -> None:
        while True:
            due = trio.current_time() + PROBE_S
            await trio.sleep_until(due)
            late.append(trio.current_time() - due)

    def report() -> None:
        for _ in sys.stdin:
            found = late.copy()
            late.clear()
            print(msgspec.json.encode(Delays.of(found)).decode(), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await run(load_any(path))
            nursery.cancel_scope.cancel()

    threading.Thread(target=report, daemon=True).start()
    trio.run(both)


class Node:
    """A node's process."""

    def __init__(self, role: str, path: Path) -> None:
        command = [sys.executable, "-m", __spec__.name, "node", role, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def delays(self) -> Delays:
        """Return the delays since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Delays)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# --- clients -----------------------------------------------------------------------------------------------------------------


def shake(number: int, port: int, folder: Path, per_second: int, ticks_per_s: int, seconds: float) -> ClientResult:
    """Make handshakes, `ticks_per_s` times a second a few at the same moment."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / f"{CLIENT}.pem")
    selector = DefaultSelector()
    open_: dict[ssl.SSLSocket, float] = {}
    times: list[float] = []
    failed = begun = 0

    def connect() -> None:
        plain = socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.{number + 1}.{begun % ADDRESSES + 1}", 0))
        plain.setblocking(False)
        wrapped = context.wrap_socket(plain, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        open_[wrapped] = time.perf_counter()
        selector.register(wrapped, EVENT_READ)

    def go_on(wrapped: ssl.SSLSocket) -> None:
        nonlocal failed
        try:
            wrapped.do_handshake()
            times.append(time.perf_counter() - open_[wrapped])
        except ssl.SSLWantReadError:
            return
        except OSError:
            failed += 1
        del open_[wrapped]
        selector.unregister(wrapped)
        wrapped.close()

    began = time.perf_counter()
    end = began + seconds
    while (now := time.perf_counter()) < end or (open_ and now < end + HANDSHAKE_TIMEOUT_S):
        tick = int((now - began) * ticks_per_s) + 1
        due = min(tick, int(seconds * ticks_per_s)) * per_second // ticks_per_s
        fresh = []
        while begun < due and now < end:
            connect()
            fresh.append(next(reversed(open_)))
            begun += 1
        for wrapped in fresh:
            go_on(wrapped)
        for key, _ in selector.select(0.002):
            assert isinstance(key.fileobj, ssl.SSLSocket)
            go_on(key.fileobj)
    return ClientResult(failed + len(open_), max(time.perf_counter() - began, seconds), times)


# --- measurement -------------------------------------------------------------------------------------------------------------


def measure(seconds: float) -> list[HandshakesResult]:
    found = []
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory, ExitStack() as stack:
        cluster = LocalCluster(directory, CONTROLLERS, 1, 1)
        stack.callback(cluster.close)
        folder = secure(cluster)
        nodes: dict[int, Node] = {}
        for plan in cluster.plan.nodes:
            nodes[plan.node_id] = Node(plan.role, layout.properties_path(cluster.directory, plan))
            stack.callback(nodes[plan.node_id].close)
        with cluster.admin() as admin:
            leader_id = _ready(admin)
            broker, leader = cluster.node(BROKER), cluster.node(leader_id)
            assert broker.kafka is not None
            for listener, at, node_id in (
                ("KAFKA of the broker", broker.kafka, BROKER),
                ("PEER of the broker", broker.peer, BROKER),
                ("CONTROLLER of the leader", leader.peer, leader_id),
            ):
                for pace, ticks_per_s in (("none", 0), ("evenly", TICKS_PER_S), ("once a second", 1)):
                    clients = Clients(at.port, folder, ticks_per_s, seconds) if ticks_per_s else None
                    found.append(_measured(listener, pace, clients, nodes[node_id], admin, seconds))
    return found


def _ready(admin: AdminClient) -> int:
    """Wait for the broker and return the leader's id."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            cluster = admin.describe_cluster()
        except (ApiError, ClusterUnreachable):
            continue
        if cluster.brokers and cluster.leader_id is not None:
            return cluster.leader_id
        time.sleep(0.1)
    raise NoResult(f"the nodes are not ready after {READY_WITHIN_S:g} s")


class Clients:
    """Client processes, which begin at once."""

    def __init__(self, port: int, folder: Path, ticks_per_s: int, seconds: float) -> None:
        command = [sys.executable, "-m", __spec__.name, "clients"]
        ends = [str(port), str(folder), str(PER_SECOND // CLIENTS), str(ticks_per_s), str(seconds)]
        self._processes = [subprocess.Popen([*command, str(number), *ends], stdout=subprocess.PIPE) for number in range(CLIENTS)]

    def results(self) -> list[ClientResult]:
        return [msgspec.json.decode(process.communicate()[0], type=ClientResult) for process in self._processes]


def _measured(
    listener: str, pace: str, clients: Clients | None, node: Node, admin: AdminClient, seconds: float
) -> HandshakesResult:
    commits: list[float] = []
    node.delays()
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        value = str(3600_000 + len(commits))
        admin.incremental_alter_configs([config_changes(ResourceType.BROKER, str(BROKER), {"log.retention.ms": value})])
        commits.append(time.perf_counter() - began)
    results = clients.results() if clients else []
    late = node.delays()
    times = [each for result in results for each in result.times_s]
    per_second = sum(len(result.times_s) / result.seconds for result in results)
    failed = sum(result.failed for result in results)
    return HandshakesResult(listener, pace, per_second, failed, Delays.of(times), late, Delays.of(commits))


def render(results: list[HandshakesResult]) -> str:
    rows = [["listener", "handshakes", "per second", "failed", "handshake", "loop late", "commit"]]
    for each in results:
        delays = (f"{d.p50:.1f} / {d.p99:.1f} / {d.longest:.1f} ms" for d in (each.handshakes, each.late, each.commits))
        rows.append([each.listener, each.pace, f"{each.per_second:.0f}", str(each.failed), *delays])
    return f"{table(rows)}\nTimes: median / p99 / longest."


@measurement("handshakes", __doc__, quick="Two seconds each.")
@click.option("--seconds", type=float, help="Duration of each row (default 10).")
def main(quick: bool, seconds: float | None) -> Report:
    results = measure(seconds or (2.0 if quick else 10.0))
    return Report([{"handshakes": results}], render(results))


if __name__ == "__main__":
    if sys.argv[1] == "node":
        run_node(sys.argv[2], sys.argv[3])
    else:
        made = shake(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), *map(int, sys.argv[5:7]), float(sys.argv[7]))
        print(msgspec.json.encode(made).decode())
