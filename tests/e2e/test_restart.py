"""Everything at once: all nodes killed, all stopped, started again on the same data; parents that come, go and are killed."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.demo.lab import wait_until

pytestmark = pytest.mark.cluster


def test_a_cluster_killed_as_a_whole_comes_back_with_topics_configs_reassignments_and_data(lab: Any) -> None:
    lab.create_topic("survivor", [0, 1], [1, 2], configs={"retention.ms": "777000"})
    lab.fill("survivor", 300_000)
    lab.fill("survivor", 60_000, partition=1)
    lab.throttle("survivor", 20_000)
    lab.reassign({("survivor", 0): [2, 1]})
    wait_until("the reassignment copies", lambda: lab.bytes_arrived("survivor", 2) > 0)
    before, ids = lab.contents("survivor"), lab.data.topic_id("survivor")

    for node_id in (*lab.cluster.controller_ids, *lab.cluster.broker_ids):
        os.kill(lab.cluster.pid(node_id), signal.SIGKILL)
    lab.cluster.kill()
    lab.cluster.start()
    lab.cluster.wait_ready()

    lab.data.refresh()
    assert lab.data.topic_id("survivor") == ids
    assert lab.topic_configs("survivor")["retention.ms"] == "777000"
    assert list(lab.partitions()["survivor", 0].target_replicas) == [2, 1]
    held = lab.contents("survivor")
    for partition, broker in ((0, 0), (0, 1), (1, 1), (1, 2)):
        assert held[partition][broker] == before[partition][broker]
    assert lab.metadata_is_equal_everywhere()

    lab.throttle("survivor", None)
    wait_until("the reassignment completes", lambda: ("survivor", 0) not in lab.reassigning())
    wait_until("replicas become equal", lambda: lab.replicas_are_equal("survivor"))
    assert list(lab.partitions()["survivor", 0].replica_nodes) == [2, 1]
    assert lab.contents("survivor")[0][2] == before[0][1]


@contextmanager
def running_up(directory: pathlib.Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`kraftlab up` of one controller and one broker, with the endpoints it printed."""
    command = [sys.executable, "-m", "kraftlab.cli.main", "up", "--data", str(directory), "--json"]
    command += ["--controllers", "1", "--brokers", "1", "--log-dirs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@pytest.mark.nightly
def test_a_second_up_on_the_same_directory_is_refused_while_the_first_runs_and_finds_its_data_after_it(
    scratch: pathlib.Path, processes: Callable[[pathlib.Path], dict[int, str]], listening: Callable[[int], bool], kraftlab: Any
) -> None:
    with running_up(scratch / "data") as (first, endpoints), AdminClient(endpoints["bootstrap_servers"]) as admin:
        topic = pb.CreatableTopic(name="kept", num_partitions=2, replication_factor=1)
        admin.create_topics([topic])
        refused = kraftlab("up", "--data", str(scratch / "data"))
        assert refused.returncode == 1
        assert f"a cluster runs on {scratch / 'data'} already; stop it first" in refused.stderr
        first.send_signal(signal.SIGINT)
        first.wait(20)
    assert first.returncode == 0
    assert not processes(scratch)
    ports = [int(node[door].rpartition(":")[2]) for node in endpoints["nodes"] for door in ("grpc", "peer")]
    assert not any(map(listening, ports))

    with running_up(scratch / "data") as (_, again), AdminClient(again["bootstrap_servers"]) as admin:
        assert again["cluster_id"] == endpoints["cluster_id"]
        assert [topic.name for topic in admin.describe_topics().values()] == ["kept"]


@pytest.mark.nightly
def test_nodes_do_not_outlive_a_parent_that_is_killed(
    scratch: pathlib.Path, processes: Callable[[pathlib.Path], dict[int, str]], listening: Callable[[int], bool]
) -> None:
    with running_up(scratch / "data") as (parent, endpoints):
        assert len(processes(scratch)) >= 3
        parent.kill()
        parent.wait()
        wait_until("the nodes go", lambda: not processes(scratch))
    ports = [int(node[door].rpartition(":")[2]) for node in endpoints["nodes"] for door in ("grpc", "peer")]
    assert not any(map(listening, ports))


def test_nodes_started_by_hand_stop_on_sigterm_with_exit_code_0(node_files: Any) -> None:
    nodes = [node_files.start(role) for role in ("controller", "broker")]
    for role in ("controller", "broker"):
        node_files.wait_until_serving(role)
    for process in reversed(nodes):
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=15)
        assert process.returncode == 0, said
        assert "stopping on SIGTERM" in said
