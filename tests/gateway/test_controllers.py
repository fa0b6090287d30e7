"""A controller serves admin calls at its KAFKA listener, for tools with `--bootstrap-controller` (KIP-919)."""

from __future__ import annotations

import time

import pytest

from kraftlab.client import AdminClient
from kraftlab.lab.local import LocalCluster

from .conftest import ask

CLUSTER = (3, 1, 1)


@pytest.fixture(scope="module")
def cluster(cluster: LocalCluster) -> LocalCluster:
    deadline = time.monotonic() + 20
    for node in cluster.plan.controllers:
        while len(ask(node.kafka, 60, 1, endpoint_type=2).brokers) < 3:
            assert time.monotonic() < deadline, f"{node.name} does not know every controller"
    return cluster


def leader_of(cluster: LocalCluster) -> int:
    with AdminClient(cluster.bootstrap_servers) as client:
        return int(client.describe_quorum().leader_id)


def test_a_controller_names_the_controllers(cluster: LocalCluster) -> None:
    for asked in (3000, 3001, 3002):
        answer = ask(cluster.node(asked).kafka, 60, 1, endpoint_type=2)
        assert int(answer.error_code) == 0
        assert [each.broker_id for each in answer.brokers] == [3000, 3001, 3002]
        assert [f"{each.host}:{each.port}" for each in answer.brokers] == [str(node.kafka) for node in cluster.plan.controllers]
        assert answer.controller_id == leader_of(cluster)


def test_a_client_of_brokers_hears_that_this_is_a_controller(cluster: LocalCluster) -> None:
    """Trap: client port and controller port mixed up."""
    answer = ask(cluster.node(3000).kafka, 60, 1, endpoint_type=1)
    assert int(answer.error_code) == 114
    assert "we wanted an endpoint of type BROKER" in answer.error_message
    answer = ask(cluster.node(0).kafka, 60, 1, endpoint_type=2)
    assert int(answer.error_code) == 114


def test_data_and_metadata_are_not_offered_by_controllers(cluster: LocalCluster) -> None:
    offered = {
        each.api_key
        for each in ask(cluster.node(3000).kafka, 18, 3, client_software_name="a", client_software_version="1").api_keys
    }
    assert offered >= {18, 19, 45, 46, 55, 57, 60}
    assert offered.isdisjoint({0, 1, 2, 3, 10, 35})


def test_the_active_controller_changes_the_cluster(cluster: LocalCluster) -> None:
    topic = {"name": "orders", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    [created] = ask(cluster.node(leader_of(cluster)).kafka, 19, 7, topics=[topic]).topics
    assert int(created.error_code) == 0
    assert ask(cluster.node(leader_of(cluster)).kafka, 46, 0, topics=None).topics == ()
