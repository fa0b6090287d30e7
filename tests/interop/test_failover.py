"""Producers and consumers go on while the active controller and a leader are killed. Nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kraftlab.lab.local import LocalCluster

from ..helpers.waiting import wait_until
from .conftest import KafkaTools

PATIENCE_S = 60
STEP = 300
"""Acknowledgements between two faults."""


class Running:
    """A client in the background. Each line of its output file is a record, unless `value_of` returns None for the line."""

    def __init__(self, command: list[str], output: Path, value_of: Callable[[str], int | None]) -> None:
        self._output, self._value_of = output, value_of
        with open(output, "w") as file, open(output.with_suffix(".err"), "w") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=errors)

    def values(self) -> list[int]:
        """Return the values of the lines that are complete."""
        complete = self._output.read_text().rpartition("\n")[0]
        found = (self._value_of(line) for line in complete.splitlines())
        return [value for value in found if value is not None]

    def stop(self) -> None:
        """Let the client end, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(PATIENCE_S)


def acknowledged(line: str) -> int | None:
    """Return the value that the verifiable producer reports as acknowledged."""
    event = json.loads(line)
    return int(event["value"]) if event["name"] == "producer_send_success" else None


class Clients(NamedTuple):
    """A producer of 0, 1, 2, … and a consumer of their topic."""

    topic: str
    producer: Running
    consumer: Running


@pytest.fixture(params=["kafka", "kafka-group", "franz-go"])
def clients(request: pytest.FixtureRequest, cluster: LocalCluster, tmp_path: Path) -> Iterator[Clients]:
    """Start a producer and a consumer of a topic with one partition and three replicas."""
    topic = f"kept-by-{request.param}"
    with cluster.admin() as admin:
        admin.create_topic(topic, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
    acks, reads = tmp_path / "acknowledged", tmp_path / "read"
    if request.param != "franz-go":
        tools: KafkaTools = request.getfixturevalue("kafka")
        retries = tmp_path / "producer.properties"
        retries.write_text("retries=2147483647\nenable.idempotence=true\n")
        options = ("--topic", topic, "--throughput", "500", "--command-config", str(retries))
        producer = Running(tools.command("kafka-verifiable-producer", *options), acks, acknowledged)
        alone = ("--partition", "0", "--offset", "earliest")
        how = ("--group", topic, "--from-beginning") if request.param == "kafka-group" else alone
        consumer = Running(tools.command("kafka-console-consumer", "--topic", topic, *how), reads, int)
    else:
        program = str(request.getfixturevalue("franz_go"))
        where = (cluster.kafka_bootstrap_servers, topic)
        producer = Running([program, "produce", *where], acks, int)
        consumer = Running([program, "read", *where], reads, int)
    try:
        yield Clients(topic, producer, consumer)
    finally:
        producer.stop()
        consumer.stop()


def restart_after(cluster: LocalCluster, node_id: int, producer: Running) -> None:
    """Kill a node, wait until the producer has gone on, and start the node again."""
    cluster.kill_node(node_id)
    before = len(producer.values())
    try:
        wait_until(lambda: len(producer.values()) > before + STEP, f"{STEP} acknowledgements without node {node_id}")
    finally:
        cluster.start_node(node_id)
        cluster.wait_ready()


def test_nothing_acknowledged_is_lost(clients: Clients, cluster: LocalCluster) -> None:
    topic, producer, consumer = clients
    wait_until(lambda: len(producer.values()) > STEP, "the producer begins")
    with cluster.admin() as admin:
        restart_after(cluster, admin.describe_quorum().leader_id, producer)
        restart_after(cluster, admin.describe_topics([topic])[topic].partitions[0].leader_id, producer)
    producer.stop()
    wanted = set(producer.values())
    wait_until(lambda: wanted <= set(consumer.values()), "the consumer reads every acknowledged record")
    read = consumer.values()
    assert topic.endswith("group") or read == sorted(set(read)), "without a group records are read once and in order"
