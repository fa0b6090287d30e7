"""Snapshots of the metadata log on real disks, and logs that rot: taken, listed, checked, started from, copied, repaired."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.demo.lab import wait_until
from kraftlab.lab import layout
from kraftlab.quorum.core.batch import HEADER_BYTES
from kraftlab.quorum.storage.identity import PARTITION_DIRECTORY
from kraftlab.quorum.storage.recovery import scan
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES


@pytest.fixture(scope="module")
def running(quorum_clusters: Any) -> Iterator[Any]:
    """Three controllers and two brokers, for the whole module."""
    with quorum_clusters(3, 2) as lab:
        yield lab


@pytest.fixture
def lab(running: Any) -> Any:
    """The module's cluster with every node running."""
    running.heal()
    return running


def flip_a_bit_of_what_was_committed(segment: Path) -> int:
    """In the body of a batch in the middle of the log; its offset."""
    data = bytearray(segment.read_bytes())
    headers = list(scan(bytes(data), HEADER_PAGE_BYTES))
    middle = len(headers) // 2
    data[HEADER_PAGE_BYTES + sum(header.size_bytes for header in headers[:middle]) + HEADER_BYTES] ^= 1
    segment.write_bytes(data)
    return headers[middle].base_offset


def test_a_voter_whose_log_has_rotted_repairs_it_and_votes_again(lab: Any, kraftlab_here: Any) -> None:
    lab.create_topic("remembered", [0, 1], configs={"retention.ms": "123000"})
    cluster = lab.cluster
    victim = next(node_id for node_id in cluster.controller_ids if node_id != lab.active)
    cluster.kill_node(victim)
    (segment,) = cluster.metadata_dir(victim).glob("*/*.log")
    offset = flip_a_bit_of_what_was_committed(segment)
    config = layout.properties_path(cluster.directory, cluster.node(victim))
    code, said = kraftlab_here("storage", "info", "--config", str(config))
    assert code == 1
    assert f"the log is damaged at offset {offset}" in said
    cluster.start_node(victim)
    log = cluster.log_path(victim)
    wait_until("it is repaired", lambda: "has repaired its metadata log; it votes again" in log.read_text())
    cluster.wait_ready()
    assert kraftlab_here("storage", "info", "--config", str(config))[0] == 0
    assert not lab.admin.call_at(cluster.node(victim).grpc, pb.ListSnapshotsResponse, pb.ListSnapshotsRequest()).is_repairing
    assert not list(cluster.metadata_dir(victim).rglob("*.damaged"))
    assert lab.metadata_is_equal_everywhere()
    lab.transfer(victim)
    assert lab.topic_configs("remembered") == {"retention.ms": "123000"}
    lab.create_topic("after-the-repair", [0, 1])


def test_a_cluster_starts_from_its_snapshots_and_a_wiped_broker_is_given_one(lab: Any, kraftlab_here: Any) -> None:
    cluster = lab.cluster
    lab.create_topic("kept", [0, 1])
    for node in cluster.plan.nodes:
        code, said = kraftlab_here("snapshot", "create", *lab.at, "--node", str(node.node_id))
        assert code == 0
        assert said.startswith(f"Node {node.node_id} has written snapshot ")
        code, said = kraftlab_here("snapshot", "list", *lab.at, "--node", str(node.node_id), "--json")
        listed = json.loads(said)
        assert [item["end_offset"] for item in listed["snapshots"]] == [listed["log_start_offset"]]
        assert listed["log_end_offset"] >= listed["log_start_offset"] > 0
        code, said = kraftlab_here("snapshot", "verify", str(cluster.metadata_dir(node.node_id)))
        assert (code, said[:6]) == (0, "valid ")
    assert lab.metadata_is_equal_everywhere()

    cluster.kill()
    cluster.start()
    cluster.wait_ready()
    lab.create_topic("more", [0, 1])
    assert lab.metadata_is_equal_everywhere()

    wiped = cluster.broker_ids[-1]
    cluster.kill_node(wiped)
    shutil.rmtree(cluster.metadata_dir(wiped) / PARTITION_DIRECTORY)
    cluster.start_node(wiped)
    cluster.wait_ready()
    assert lab.admin.call_at(cluster.node(wiped).grpc, pb.ListSnapshotsResponse, pb.ListSnapshotsRequest()).log_start_offset > 0
    assert lab.metadata_is_equal_everywhere()
    wait_until("its replicas are in sync again", lambda: lab.replicas_are_equal("kept"))
    lab.create_topic("even-more", [0, 1])


def test_snapshots_of_an_unknown_node_are_refused_with_the_known_nodes(lab: Any, kraftlab_here: Any) -> None:
    code, said = kraftlab_here("snapshot", "list", *lab.at, "--node", "77")
    assert code == 1
    assert "node 77 is not registered; registered nodes: 0,1,3000,3001,3002" in said
