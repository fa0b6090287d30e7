"""A controller serves admin calls at its KAFKA listener, for tools with `--bootstrap-controller` (KIP-919)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kraftlab.client import AdminClient
from kraftlab.lab.local import LocalCluster

from .conftest import make_frame, read_response


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("controllers"), 3, 1, 1) as cluster:
        deadline = time.monotonic() + 20
        with AdminClient(cluster.bootstrap_servers) as client:
            while len(client.cluster().controllers) < 3:
                assert time.monotonic() < deadline, "not every controller is registered"
        yield cluster


def ask(cluster: LocalCluster, node_id: int, key: int, version: int, **fields: Any) -> Any:
    """Send one request to the KAFKA listener of a node; return the answer."""
    at = cluster.node(node_id).kafka
    assert at is not None
    with socket.create_connection((at.host, at.port), timeout=20) as client, client.makefile("rb") as answers:
        client.sendall(make_frame(key, version, **fields))
        start = answers.read(4)
        return read_response(key, version, [start, answers.read(struct.unpack(">i", start)[0])])


def leader_of(cluster: LocalCluster) -> int:
    with AdminClient(cluster.bootstrap_servers) as client:
        return int(client.describe_quorum().leader_id)


def test_a_controller_names_the_controllers(cluster: LocalCluster) -> None:
    for asked in (3000, 3001, 3002):
        answer = ask(cluster, asked, 60, 1, endpoint_type=2)
        assert int(answer.error_code) == 0
        assert [each.broker_id for each in answer.brokers] == [3000, 3001, 3002]
        assert [f"{each.host}:{each.port}" for each in answer.brokers] == [str(node.kafka) for node in cluster.plan.controllers]
        assert answer.controller_id == leader_of(cluster)


def test_a_client_of_brokers_hears_that_this_is_a_controller(cluster: LocalCluster) -> None:
    """Trap: client port and controller port mixed up."""
    answer = ask(cluster, 3000, 60, 1, endpoint_type=1)
    assert int(answer.error_code) == 114
    assert "we wanted an endpoint of type BROKER" in answer.error_message
    answer = ask(cluster, 0, 60, 1, endpoint_type=2)
    assert int(answer.error_code) == 114


def test_data_and_metadata_are_not_offered_by_controllers(cluster: LocalCluster) -> None:
    offered = {each.api_key for each in ask(cluster, 3000, 18, 3, client_software_name="a", client_software_version="1").api_keys}
    assert offered >= {18, 19, 45, 46, 55, 57, 60}
    assert offered.isdisjoint({0, 1, 2, 3, 10, 35})


def test_the_active_controller_changes_the_cluster(cluster: LocalCluster) -> None:
    topic = {"name": "orders", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    [created] = ask(cluster, leader_of(cluster), 19, 7, topics=[topic]).topics
    assert int(created.error_code) == 0
    assert ask(cluster, leader_of(cluster), 46, 0, topics=None).topics == ()
