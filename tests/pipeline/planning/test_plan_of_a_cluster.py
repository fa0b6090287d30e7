"""A plan from a real cluster, through `reassign-partitions --execute` to `--verify`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.lab import LocalCluster

DEADLINE_S = 60.0
CLUSTER = (1, 4, 2)
Run = Callable[..., Any]


def test_a_plan_from_a_live_cluster_is_executed_and_verified(cluster: LocalCluster, run: Run, plan: Run, tmp_path: Path) -> None:
    server = str(cluster.node(0).grpc)
    with cluster.admin() as admin:
        brokers = sorted(broker.broker_id for broker in admin.describe_cluster().brokers)
        skewed = [pb.CreatableReplicaAssignment(partition_index=at, broker_ids=brokers[:2]) for at in range(8)]
        admin.create_topics([pb.CreatableTopic(name="skewed", num_partitions=-1, replication_factor=-1, assignments=skewed)])
        admin.describe_topics(["skewed"], linearizable=True)
    file, kafka = str(tmp_path / "plan.json"), tmp_path / "reassignment.json"

    proposed = plan("propose", "--bootstrap-server", server, "--goals", "count,leader", "--output", file)
    kafka.write_text(plan("export", file).out)
    checked = plan("check", file, "--bootstrap-server", server)
    executed = run("reassign-partitions", "--bootstrap-server", server, "--execute", "--reassignment-json-file", str(kafka))
    verified = _verified(run, server, kafka)

    assert proposed.code == checked.code == executed.code == 0, (proposed, checked, executed)
    assert "is completed" in verified.out and "still in progress" not in verified.out
    with cluster.admin() as admin:
        topic = admin.describe_topics(["skewed"], linearizable=True)["skewed"]
        held = [broker for entry in topic.partitions for broker in entry.replica_nodes]
        leads = [entry.replica_nodes[0] for entry in topic.partitions]
    assert all(3 <= held.count(broker) <= 5 for broker in brokers), proposed.out
    assert all(1 <= leads.count(broker) <= 3 for broker in brokers), proposed.out
    again = plan("propose", "--bootstrap-server", server, "--goals", "count,leader", "--json")
    assert again.json["moves"] == []


def _verified(run: Run, server: str, kafka: Path) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        ran = run("reassign-partitions", "--bootstrap-server", server, "--verify", "--reassignment-json-file", str(kafka))
        if "still in progress" not in ran.out or time.monotonic() > deadline:
            return ran
