"""Brokers that come back, cleanly or not, brokers that are taken out, and producer ids over a failover, with real processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.demo.lab import wait_until


def claims(lab: Any, topic: str) -> tuple[list[int], list[int], int]:
    """(ISR, ELR, leader) of partition 0."""
    partition = lab.partitions()[topic, 0]
    return sorted(partition.isr_nodes), sorted(partition.eligible_leader_replicas), partition.leader_id


def test_a_broker_that_stopped_cleanly_is_elected_when_it_comes_back_and_one_that_was_killed_waits(lab: Any) -> None:
    lab.create_topic("claim", [0, 1], configs={"min.insync.replicas": "2"})
    lab.fill("claim", 40_000)
    before = lab.contents("claim")
    lab.cluster.stop_node(0)
    wait_until("0 is eligible", lambda: claims(lab, "claim") == ([1], [0], 1))
    lab.cluster.stop_node(1)
    wait_until("nobody leads", lambda: claims(lab, "claim") == ([], [0, 1], None))

    for controller in lab.cluster.controller_ids:
        lab.cluster.kill_node(controller)
    lab.cluster.start_node(0)
    wait_until("0 has opened its logs", lambda: not (lab.cluster.log_dirs(0)[0] / ".kafka_cleanshutdown").exists())
    lab.cluster.stop_node(0)
    assert all((path / ".kafka_cleanshutdown").exists() for path in lab.cluster.log_dirs(0)), "as clean as before"
    for controller in lab.cluster.controller_ids:
        lab.cluster.start_node(controller)

    lab.cluster.start_node(0)
    wait_until("0 leads again, having lost nothing", lambda: claims(lab, "claim") == ([0], [1], 0))
    assert lab.contents("claim")[0][0] == before[0][0]

    lab.cluster.kill_node(0)
    wait_until("0 is fenced", lambda: claims(lab, "claim") == ([], [0, 1], None))
    lab.cluster.start_node(0)
    wait_until("0 has lost its claim", lambda: claims(lab, "claim") == ([], [1], None))
    wait_until("0 is back", lambda: 0 in {broker.broker_id for broker in lab.admin.describe_cluster().brokers})
    assert claims(lab, "claim") == ([], [1], None), "it may have lost what was acknowledged"

    lab.cluster.start_node(1)
    wait_until("both are in sync, and 1 leads", lambda: claims(lab, "claim") == ([0, 1], [], 1))
    assert lab.contents("claim")[0] == before[0]


def test_producer_ids_stay_unique_over_a_controller_failover(lab: Any) -> None:
    def take(count: int) -> list[int]:
        return [lab.admin.init_producer_id(broker).producer_id for broker in lab.cluster.broker_ids for _ in range(count)]

    ids = take(5)
    active = lab.active
    lab.cluster.kill_node(active)
    ids += take(5)
    for broker in lab.cluster.broker_ids:
        lab.cluster.kill_node(broker)
    for node_id in (active, *lab.cluster.broker_ids):
        lab.cluster.start_node(node_id)
    lab.cluster.wait_ready()
    ids += take(5)
    assert len(set(ids)) == len(ids) == 15 * len(lab.cluster.broker_ids)
    assert lab.metadata_is_equal_everywhere()


def test_a_dead_broker_is_listed_unregistered_and_comes_back(lab: Any, kraftlab_here: Callable[..., tuple[int, str]]) -> None:
    lab.create_topic("left", [1, 2])
    lab.cluster.kill_node(2)
    wait_until("2 is fenced", lambda: 2 not in {broker.broker_id for broker in lab.admin.describe_cluster().brokers})
    standby = lab.cluster.node(next(node for node in lab.cluster.controller_ids if node != lab.active)).grpc
    listed = ("cluster", "list-endpoints", "--bootstrap-server", str(standby), "--include-fenced-brokers", "--long")
    code, said = kraftlab_here(*listed)
    assert code == 0
    rows = {line.split()[0]: line.split() for line in said.splitlines()}
    assert rows["ID"][:6] == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    assert rows["2"][4:6] == ["fenced", "broker"] and rows["1"][4:6] == ["unfenced", "broker"]
    assert rows["1"][8:10] == ["ms", "ago"], "a standby leads to the active controller, which knows the last contact"
    epoch = rows["2"][6]

    code, said = kraftlab_here("cluster", "unregister", *lab.at, "--id", "2", "--expected-epoch", "1")
    assert (code, "has registered again" in said) == (1, True), said
    assert kraftlab_here("cluster", "unregister", *lab.at, "--id", "2", "--expected-epoch", epoch) == (
        0,
        "Broker 2 is no longer registered.\n",
    )
    code, said = kraftlab_here("cluster", "unregister", *lab.at, "--id", "2")
    assert (code, "Broker ID 2 is not currently registered" in said) == (1, True), said
    assert list(lab.partitions()["left", 0].replica_nodes) == [1, 2], "replica lists are not edited"
    with pytest.raises(ApiError) as caught:
        lab.reassign({("left", 0): [2, 1]})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    lab.cluster.start_node(2)
    wait_until("2 has its data again", lambda: lab.replicas_are_equal("left"))
    assert kraftlab_here("cluster", "cluster-id", *lab.at) == (0, f"Cluster ID: {lab.cluster.cluster_id}\n")


def test_a_broker_whose_directories_are_all_cordoned_gets_replicas_only_by_name(lab: Any) -> None:
    def cordon(value: str | None) -> None:
        change = pb.AlterableConfig(name="cordoned.log.dirs", config_operation=0 if value else 1, value=value)
        entry = pb.AlterConfigsResource(resource_type=4, resource_name="2", configs=[change])
        lab.admin.incremental_alter_configs([entry])

    def cordoned() -> int:
        (broker,) = (broker for broker in lab.admin.describe_cluster().brokers if broker.broker_id == 2)
        return len(broker.cordoned_log_dirs)

    cordon("*")
    try:
        wait_until("the controller knows", lambda: cordoned() == 2)
        placed = pb.CreatableTopic(name="placed", num_partitions=3, replication_factor=2)
        lab.admin.create_topics([placed])
        replicas = {broker for (name, _), item in lab.partitions().items() if name == "placed" for broker in item.replica_nodes}
        assert replicas == {0, 1}
        lab.create_topic("named", [2])
        assert lab.partitions()["named", 0].leader_id == 2
    finally:
        cordon(None)
    wait_until("the controller knows", lambda: cordoned() == 0)
