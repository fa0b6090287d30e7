"""Faults on a cluster of real processes: nodes react as they must, and the cluster recovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.faults import capabilities, ledger
from jepsen_lite.faults.capabilities import new_disk
from jepsen_lite.faults.cluster_under_faults import ClusterUnderFaults
from jepsen_lite.faults.injector import carry_out
from jepsen_lite.faults.kinds import KINDS
from jepsen_lite.faults.leaders import LeaderFinder
from jepsen_lite.faults.ledger import Ledger
from jepsen_lite.faults.quorum_guard import QuorumGuard
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.checking.facts import Strike
from kraftlab.lab import LocalCluster
from kraftlab.lab.faults import full_disk

from ...helpers.waiting import wait_until

pytestmark = pytest.mark.cluster

DEADLINE_S = 30.0


def strike(cluster: LocalCluster, kind: str, target: str, for_ms: int, **arguments: Any) -> Strike:
    """Carry out one strike at once."""
    began = time.monotonic_ns()
    action = Action(at_ms=0, kind=kind, target=target, for_ms=for_ms, arguments=arguments)
    plan = FaultPlan(seed="1", actions=(action,))
    with Ledger() as book, closing(LeaderFinder(cluster)) as leaders:
        victim = ClusterUnderFaults(cluster, leaders, QuorumGuard(cluster, leaders.voters), book, cluster.disks)
        (struck,) = trio.run(carry_out, victim, plan, lambda: time.monotonic_ns() - began)
    cluster.wait_ready(DEADLINE_S)
    return struck


def needs(kind: str) -> pytest.MarkDecorator:
    off = [found.detail for found in capabilities.probe(KINDS[kind].needs) if not found.is_on]
    return pytest.mark.skipif(bool(off), reason="; ".join(off))


@pytest.fixture(scope="module")
def cluster(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("chaos"), 3, 1, 2, allow_chaos=True) as running:
        with running.admin() as client:
            client.create_topics([pb.CreatableTopic(name="moved", num_partitions=4, replication_factor=1)])
        yield running


def log_of(cluster: LocalCluster, node: int) -> str:
    return cluster.log_path(node).read_text()


def test_the_time_of_day_of_processes_is_not_set(cluster: LocalCluster) -> None:
    assert "share the machine's time of day" in strike(cluster, "clock", "leader", 10, set_ms=2000).error


@needs("disk-error")
def test_a_node_whose_fsync_fails_ends_and_is_started_again(cluster: LocalCluster) -> None:
    before, begin = cluster.pid(3000), len(log_of(cluster, 3000))
    struck = strike(cluster, "disk-error", "controller:0", 2500)
    assert not struck.error
    assert "fsync of" in log_of(cluster, 3000)[begin:]
    assert cluster.pid(3000) not in (None, before)


@needs("disk-full")
def test_a_node_with_a_full_disk_is_freed(cluster: LocalCluster) -> None:
    struck = strike(cluster, "disk-full", "controller:1", 1000)
    assert not struck.error
    pid = cluster.pid(3001)
    assert pid is not None
    assert not full_disk.is_full(pid)


def test_messages_held_on_a_link_come_late(cluster: LocalCluster) -> None:
    struck = strike(cluster, "late", "controllers", 1500, of="leader")
    assert not struck.error
    assert len(struck.links) == 1
    assert struck.nodes == (struck.links[0][0],)
    assert not cluster.links_status()


@needs("slow-disk")
def test_a_node_with_a_slow_disk_goes_on(cluster: LocalCluster) -> None:
    before = cluster.pid(3001)
    struck = strike(cluster, "slow-disk", "controller:1", 1000, delay_ms=50)
    assert not struck.error
    assert cluster.pid(3001) == before


def test_rot_is_noticed_and_repaired(cluster: LocalCluster) -> None:
    begin = len(log_of(cluster, 3002))
    struck = strike(cluster, "bit-rot", "controller:2", 300)
    assert not struck.error
    wait_until(lambda: "repairs its metadata log" in log_of(cluster, 3002)[begin:], "the rot was not noticed")
    directory = cluster.metadata_dir(3002) / "__cluster_metadata-0"
    wait_until(lambda: not (directory / "repair").exists(), "the log was not repaired")


def test_a_torn_tail_is_cut(cluster: LocalCluster) -> None:
    begin = len(log_of(cluster, 3001))
    struck = strike(cluster, "torn", "controller:1", 300)
    assert not struck.error
    assert "node 3001: cut " in log_of(cluster, 3001)[begin:]


@pytest.mark.parametrize("wipe", [False, True])
def test_a_voter_leaves_and_joins(cluster: LocalCluster, wipe: bool) -> None:
    def voters() -> dict[int, str]:
        with cluster.admin() as client:
            return {voter.replica_id: voter.replica_directory_id for voter in client.describe_quorum().current_voters}

    def all_fetch() -> bool:
        with cluster.admin() as client:
            quorum = client.describe_quorum()
        followers = [voter for voter in quorum.current_voters if voter.replica_id != quorum.leader_id]
        return all((voter.last_fetch_timestamp or 0) >= begin_ms for voter in followers)

    begin_ms = time.time() * 1000
    repairs = [cluster.metadata_dir(node) / "__cluster_metadata-0" / "repair" for node in cluster.controller_ids]
    wait_until(lambda: not any(path.exists() for path in repairs), "a repair goes on")
    wait_until(all_fetch, "a controller does not fetch, and could not be spared")
    before = voters()
    struck = strike(cluster, "membership", "follower", 500, wipe=wipe)
    assert not struck.error
    assert voters().keys() == before.keys()
    assert (voters() != before) == wipe


def test_replicas_move_to_other_directories(cluster: LocalCluster) -> None:
    def places() -> dict[int, str]:
        with cluster.admin() as client:
            found = client.describe_log_dirs(0)
        return {
            replica.partition_index: directory.log_dir
            for directory in found
            for replica in directory.replicas
            if not replica.is_future_key
        }

    before = places()
    struck = strike(cluster, "move-dirs", "broker:0", 0, replicas=5)
    assert not struck.error
    wait_until(lambda: all(places()[index] != before[index] for index in before), "a replica did not move")


@pytest.mark.nightly
@needs("power-loss")
def test_acknowledged_writes_survive_a_power_loss_of_all_controllers(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "lab", 3, 1, 1, allow_chaos=True, own_disks=True) as cluster:
        for round in range(3):
            with cluster.admin() as client:
                topic = pb.CreatableTopic(name=f"topic-{round}", num_partitions=1, replication_factor=1)
                assert not client.create_topics([topic]).topics[0].error_code
            struck = strike(cluster, "power-loss", "controllers", 200)
            assert not struck.error
            assert struck.nodes == (3000, 3001, 3002)
            with cluster.admin() as client:
                names = {*client.describe_topics(linearizable=True)}
            assert names >= {f"topic-{before}" for before in range(round + 1)}


@needs("power-loss")
def test_a_disk_without_power_keeps_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    with Ledger(tmp_path) as book:
        disk = new_disk(book, size_mib=8)
        (disk.path / "synced").write_bytes(b"kept")
        disk.sync()
        (disk.path / "synced").write_bytes(b"lost")
        (disk.path / "new").write_bytes(b"lost")
        disk.lose_power()
        disk.restore_power()
        assert (disk.path / "synced").read_bytes() == b"kept"
        assert not (disk.path / "new").exists()
        disk.unmount()
    assert not list(tmp_path.iterdir())


HARNESS = """
import functools, sys, time, trio
from pathlib import Path
from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.faults.cluster_under_faults import ClusterUnderFaults
from jepsen_lite.faults.injector import carry_out
from jepsen_lite.faults.leaders import LeaderFinder
from jepsen_lite.faults.ledger import Ledger
from jepsen_lite.faults.quorum_guard import QuorumGuard
from kraftlab.lab import LocalCluster
from kraftlab.lab.faults import full_disk

actions = (Action(at_ms=0, kind="pause", target="all", for_ms=600_000),)
with Ledger() as book, LocalCluster(sys.argv[1], 1, 0) as cluster:
    print(cluster.pid(3000), cluster.fork_server.process.pid, flush=True)
    leaders = LeaderFinder(cluster)
    victim = ClusterUnderFaults(cluster, leaders, QuorumGuard(cluster, leaders.voters), book)
    struck = functools.partial(carry_out, begun=lambda action: print("struck", flush=True))
    trio.run(struck, victim, FaultPlan(seed="1", actions=actions), time.monotonic_ns)
"""


def test_a_paused_node_is_cleaned_after_a_kill_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness and the process that forks nodes end at the same moment. A stopped node does not notice it, or is woken by the
    system and ends.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path / "lab")], stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    node, fork_server = map(int, harness.stdout.readline().split())
    assert harness.stdout.readline() == "struck\n"
    os.kill(fork_server, signal.SIGKILL)
    harness.kill()
    harness.wait()
    (cleaned,) = ledger.clean()
    assert cleaned.undone in ((f"process {node} (node 3000)",), ())
    assert not cleaned.faults
    assert ledger.began(node) is None
