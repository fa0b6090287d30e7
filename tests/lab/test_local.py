"""Real processes: what holds them together when things end in other ways than planned."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from kraftlab.lab import ClusterError, LocalCluster, fork_server, locking, processes

pytestmark = pytest.mark.cluster

DEADLINE_S = 20.0


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes were left behind"
        time.sleep(0.05)


CLUSTER = (1, 1, 1)


def test_a_cluster_becomes_ready_and_answers(cluster: LocalCluster) -> None:
    with cluster.admin() as client:
        described = client.describe_cluster()
    assert [broker.broker_id for broker in described.brokers] == [0]
    assert described.cluster_id == cluster.cluster_id


def test_a_killed_node_comes_back_with_its_data(cluster: LocalCluster) -> None:
    before = cluster.pid(0)
    cluster.kill_node(0)
    assert cluster.pid(0) is None
    cluster.start_node(0)
    cluster.wait_ready()
    assert cluster.pid(0) not in (None, before)


def test_a_node_runs_once(cluster: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="controller-3000 runs already"):
        cluster.start_node(3000)
    with pytest.raises(ClusterError, match="there is no node 7; nodes are 3000,0"):
        cluster.start_node(7)


def test_a_paused_node_may_be_paused_again_and_is_resumed_by_one_call(cluster: LocalCluster) -> None:
    for _ in range(2):
        begun = time.monotonic()
        cluster.pause_node(0)
        cluster.pause_node(0)
        assert time.monotonic() - begun < 4, "a pause that is not answered is waited for that long"
        cluster.resume_node(0)
        cluster.wait_ready()


def test_a_paused_node_can_be_killed_and_its_successor_paused(cluster: LocalCluster) -> None:
    cluster.pause_node(0)
    cluster.kill_node(0)
    cluster.start_node(0)
    cluster.pause_node(0)
    cluster.resume_node(0)
    cluster.wait_ready()


def test_nodes_may_be_stopped_while_the_cluster_is_waited_for(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    serves = cluster.serves

    def stopped_meanwhile(node_id: int) -> bool:
        cluster.kill_node(0)
        return serves(node_id)

    with monkeypatch.context() as patched:
        patched.setattr(cluster, "serves", stopped_meanwhile)
        cluster.wait_ready()
    cluster.start_node(0)
    cluster.wait_ready()


def test_a_node_that_is_killed_from_outside_is_noticed(cluster: LocalCluster) -> None:
    pid = cluster.pid(0)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    while not cluster.exited():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert cluster.exited() == {0: -signal.SIGKILL}
    cluster.start_node(0)
    cluster.wait_ready()


def test_a_graceful_stop_ends_every_node_by_itself(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1, 1, 1)
    try:
        cluster.start()
        cluster.wait_ready()
        assert cluster.stop_node(0)
        assert cluster.stop_node(3000)
    finally:
        cluster.close()
    assert "stopped" in cluster.log_path(3000).read_text()


PARENT = """
import sys, time
from kraftlab.lab import LocalCluster
cluster = LocalCluster(sys.argv[1], 1, 1, 1, overrides={"controlled.shutdown.enable": "false"})
cluster.start()
if sys.argv[2:]:
    cluster.wait_ready()
for node_id in map(int, sys.argv[2:]):
    cluster.pause_node(node_id)
print(cluster.pid(3000), cluster.pid(0), cluster.fork_server.process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("victim", "paused"),
    [("parent", ("3000", "0")), pytest.param("fork server", (), marks=pytest.mark.nightly), ("fork server", ("3000", "0"))],
)
def test_no_node_outlives_its_parent_and_its_fork_server(tmp_path: Path, victim: str, paused: tuple[str, ...]) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), *paused], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        *nodes, fork_server = map(int, parent.stdout.readline().split())
        os.kill(parent.pid if victim == "parent" else fork_server, signal.SIGKILL)
        wait_until_gone([*nodes, fork_server])
    finally:
        parent.kill()
        parent.wait()


def test_a_start_after_a_killed_parent_waits_for_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), "3000"], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        *nodes, fork_server = map(int, parent.stdout.readline().split())
        os.kill(fork_server, signal.SIGSTOP)
        parent.kill()
    with monkeypatch.context() as patched:
        patched.setattr(locking, "LEFT_WITHIN_S", 0.0)
        with pytest.raises(ClusterError, match="nodes of a killed cluster still use"):
            LocalCluster(tmp_path)
    os.kill(fork_server, signal.SIGCONT)
    cluster = LocalCluster(tmp_path)
    assert all(gone(pid) for pid in nodes)
    cluster.close()


SLOW = """
import os, time
from kraftlab.lab import fork_server, node
fork_server._call_process = lambda name: time.sleep(0.3)
node.load = lambda role: None
node.run = lambda *arguments, **options: len(os.read(0, 1))
fork_server.main()
"""


def test_a_node_that_is_paused_as_soon_as_it_is_forked_does_not_outlive_the_fork_server() -> None:
    """Nor does it keep the server's output open, which the parent reads to its end."""
    with subprocess.Popen([sys.executable, "-c", SLOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        start = fork_server.Start(0, "controller", "/nowhere/node/server.properties", os.devnull)
        server.stdin.write(msgspec.json.encode(start) + b"\n")
        server.stdin.flush()
        pid = msgspec.json.decode(server.stdout.readline(), type=fork_server.StartAnswer).pid
        try:
            server.stdin.write(msgspec.json.encode(fork_server.SignalRequest(1, pid, signal.SIGSTOP)) + b"\n")
            server.stdin.flush()
            assert msgspec.json.decode(server.stdout.readline(), type=fork_server.SignalAnswer).request == 1
            server.kill()
            wait_until_gone([pid])
        finally:
            server.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert server.stdout.read() == b""


DEAF = """
import signal, time
from kraftlab.lab import fork_server, node
signal.signal(signal.SIGTERM, signal.SIG_IGN)
node.load = lambda role: None
node.run = lambda *arguments, **options: time.sleep(60)
fork_server.PATIENCE_S = 0.1
fork_server.main()
"""


def test_a_slow_fork_server_is_not_reported_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_TIMEOUT_S", 0.05)
    server = processes.ForkServerProcess()
    try:
        with pytest.raises(ClusterError, match=r"no node was started within 0\.05 s"):
            server.collect(12345)
        server.process.kill()
        with pytest.raises(ClusterError, match="the process that starts nodes has ended"):
            monkeypatch.setattr(processes, "START_TIMEOUT_S", DEADLINE_S)
            server.collect(12345)
    finally:
        server.close()


def test_nodes_that_start_after_their_caller_gave_up_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be in the way of those that are started when this machine has time again."""
    cluster = LocalCluster(tmp_path, 1, 1, 1)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(processes, "START_TIMEOUT_S", 0.0)
            with pytest.raises(ClusterError, match="Try again later"):
                cluster.start()
        server = cluster.fork_server
        assert server is not None
        for _ in ("they start", "they end"):
            server.signal(-1, 0)
        cluster.start()
        cluster.wait_ready()
        assert sorted(server.nodes) == sorted([cluster.pid(3000), cluster.pid(0)])  # type: ignore[type-var]
    finally:
        cluster.close()


def test_a_node_that_has_ended_is_not_signalled_since_another_one_may_have_its_process_id() -> None:
    class Server(processes.ForkServerProcess):
        def __init__(self) -> None:
            self.signalled: list[tuple[int, int]] = []

        def signal(self, pid: int, number: int) -> None:
            self.signalled.append((pid, number))

    server = Server()
    ended, running = processes.NodeProcess(server, 7), processes.NodeProcess(server, 7)
    ended.code = 0
    for process in (ended, running):
        process.signal(signal.SIGCONT)
    assert server.signalled == [(7, signal.SIGCONT)]


def test_a_killed_server_can_be_closed_with_unread_requests() -> None:
    server = processes.ForkServerProcess()
    server.process.kill()
    server.process.wait()
    server.send(fork_server.Unmount(()))
    server.close()


def test_nodes_that_do_not_stop_are_killed_by_the_fork_server_without_a_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            pids = {}
            for request, role in enumerate(("controller", "broker")):
                start = fork_server.Start(request, role, "/nowhere/node/server.properties", os.devnull)
                server.stdin.write(msgspec.json.encode(start) + b"\n")
                server.stdin.flush()
                pids[role] = msgspec.json.decode(server.stdout.readline(), type=fork_server.StartAnswer).pid
            server.stdin.close()
            ended = [msgspec.json.decode(line, type=fork_server.ExitNotice) for line in server.stdout]
        finally:
            server.kill()
    assert ended == [fork_server.ExitNotice(pids[role], -signal.SIGKILL) for role in ("broker", "controller")]
