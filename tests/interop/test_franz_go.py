"""franz-go as admin client, producer and consumer group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.lab.local import LocalCluster

from .conftest import run_franz_go

Run = Callable[..., str]


@pytest.fixture
def run(franz_go: Path, cluster: LocalCluster) -> Run:
    """Runs the program against the cluster."""

    def run(command: str, topic: str, *arguments: str, seconds: float = 0) -> str:
        return run_franz_go(franz_go, command, cluster.kafka_bootstrap_servers, topic, *arguments, seconds=seconds)

    return run


def test_a_topic_is_created_described_configured_moved_and_deleted(run: Run) -> None:
    assert run("admin", "franz-admin").splitlines() == [
        "created: 2 partitions, 2 replicas",
        "partition 0: 2 replicas, 2 in sync",
        "partition 1: 2 replicas, 2 in sync",
        "config: cleanup.policy=compact from DYNAMIC_TOPIC_CONFIG",
        "config: max.message.bytes=1048588 from DEFAULT_CONFIG",
        "moved: [3 2]",
        "log directories: partition 0 on brokers [2 3]",
        "deleted: true",
    ]


def test_two_members_of_a_group_read_every_record(run: Run, cluster: LocalCluster) -> None:
    with cluster.admin() as admin:
        admin.create_topic("franz-grouped", partitions=4, replication_factor=3)
    acknowledged = run("produce", "franz-grouped", seconds=0.5).splitlines()
    assert acknowledged
    said = run("group", "franz-grouped", str(len(acknowledged)))
    assert said == f"read {len(acknowledged)} values with 2 members\n"
