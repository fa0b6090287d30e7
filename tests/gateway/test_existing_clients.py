"""kafka-python and librdkafka (confluent-kafka) drive a real cluster, also while a controller and a broker are killed."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import admin as librdkafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import TopicPartitionReplica

from kraftlab.client import AdminClient
from kraftlab.lab.local import LocalCluster

from ..helpers.waiting import wait_until

pytestmark = pytest.mark.cluster


CLUSTER = (1, 2, 2)


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> list[str]:
    """KAFKA listeners of the brokers."""
    return cluster.kafka_bootstrap_servers.split(",")


def test_brokers_are_found_at_localhost_too(bootstrap: list[str]) -> None:
    port = bootstrap[0].rpartition(":")[2]
    admin = librdkafka.AdminClient({"bootstrap.servers": f"localhost:{port}", "allow.auto.create.topics": False})
    brokers = admin.list_topics(timeout=20).brokers.values()
    assert sorted(f"{broker.host}:{broker.port}" for broker in brokers) == sorted(bootstrap)


def test_topics_are_created_described_and_deleted(bootstrap: list[str]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic("orders", 3, 2)])
        assert "orders" in admin.list_topics()
        (described,) = admin.describe_topics(["orders"])
        assert [sorted(each["replica_nodes"]) for each in described["partitions"]] == [[0, 1]] * 3
        admin.delete_topics(["orders"])
        assert "orders" not in admin.list_topics()
    finally:
        admin.close()


def test_brokers_are_named_by_their_kafka_listeners(bootstrap: list[str]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        named = {f"{broker['host']}:{broker['port']}" for broker in admin.describe_cluster()["brokers"]}
    finally:
        admin.close()
    assert named == set(bootstrap)


@pytest.mark.parametrize(
    "bytes_sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", struct.pack(">ihhi", 8, 999, 0, 1)]
)
def test_other_protocols_are_hung_up_on(bootstrap: list[str], bytes_sent: bytes) -> None:
    host, _, port = bootstrap[0].partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(bytes_sent)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(bootstrap: list[str]) -> None:
    host, _, port = bootstrap[0].partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client, client.makefile("rb") as answers:
        client.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))
        (size,) = struct.unpack(">i", answers.read(4))
        correlation_id, error, count = struct.unpack(">ihi", answers.read(size)[:10])
    assert (correlation_id, error) == (7, 35)
    assert count > 0


def test_librdkafka_creates_a_topic_and_reads_its_configs(bootstrap: list[str]) -> None:
    admin = librdkafka.AdminClient({"bootstrap.servers": ",".join(bootstrap)})
    created = admin.create_topics([librdkafka.NewTopic("clicks", 2, 1, config={"retention.ms": "1000"})])
    assert created["clicks"].result(timeout=20) is None
    assert len(admin.list_topics(timeout=20).topics["clicks"].partitions) == 2
    (described,) = admin.describe_configs([librdkafka.ConfigResource("topic", "clicks")]).values()
    assert described.result(timeout=20)["retention.ms"].value == "1000"


def test_the_log_says_why_transactions_of_librdkafka_time_out(cluster: LocalCluster, bootstrap: list[str]) -> None:
    assert error_of_transactions(bootstrap[0]) == KafkaError._TIMED_OUT
    logs = "".join(cluster.log_path(broker).read_text() for broker in cluster.broker_ids)
    assert "client 'payments' of 127.0.0.1 sent FindCoordinator for a transaction: transactions are not served" in logs


def error_of_transactions(server: str) -> int:
    """Return librdkafka's error of init_transactions. The producer ends with the function."""
    producer = Producer({"bootstrap.servers": server, "client.id": "payments", "transactional.id": "payments-1"})
    try:
        producer.init_transactions(3)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def test_a_broker_survives_connections_that_are_reset_at_once(bootstrap: list[str]) -> None:
    host, _, port = bootstrap[1].partition(":")
    for _ in range(200):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.connect((host, int(port)))
        client.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap[1])
    try:
        assert len(admin.describe_cluster()["brokers"]) == 2
    finally:
        admin.close()


def test_the_command_of_kafka_python_administers_a_cluster(bootstrap: list[str]) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "kafka.admin", "-b", bootstrap[0], "--format", "json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert len(json.loads(run("cluster", "describe"))["brokers"]) == 2
    run("topics", "create", "--topic", "commands", "--num-partitions", "2", "--replication-factor", "2")
    assert "commands" in run("topics", "list")
    (described,) = json.loads(run("topics", "describe", "--topic", "commands"))
    assert len(described["partitions"]) == 2
    run("topics", "delete", "--topic", "commands")


def test_kafka_python_moves_a_partition_and_a_replica(bootstrap: list[str]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic("moved", 1, 1)])
        (described,) = admin.describe_topics(["moved"])
        (replica,) = described["partitions"][0]["replica_nodes"]
        partition = TopicPartition("moved", 0)
        admin.alter_partition_reassignments({partition: [1 - replica]})
        wait_until(lambda: not admin.list_partition_reassignments(), "the partition is moved")
        wait_until(lambda: admin.describe_topics(["moved"])[0]["partitions"][0]["replica_nodes"] == [1 - replica], "it shows")
        here, elsewhere = _directories(admin, 1 - replica)
        admin.alter_replica_log_dirs({TopicPartitionReplica("moved", 0, 1 - replica): elsewhere})
        wait_until(lambda: _directories(admin, 1 - replica) == (elsewhere, here), "the replica is in the other directory")
    finally:
        admin.close()


def _directories(admin: KafkaAdminClient, broker: int) -> tuple[str, str]:
    """The broker's log directory that has the replica of the topic moved, and the other one."""
    (described,) = (each for each in admin.describe_log_dirs() if each["broker"] == broker)
    moved = {
        each["log_dir"]: [part for topic in each["topics"] if topic["name"] == "moved" for part in topic["partitions"]]
        for each in described["log_dirs"]
    }
    here = [path for path, parts in moved.items() if any(not part["is_future_key"] for part in parts)]
    other = [path for path in moved if path not in here]
    return here[0], other[0]


@pytest.mark.parametrize("client", ["kafka-python", pytest.param("confluent-kafka", marks=pytest.mark.nightly)])
def test_nothing_acknowledged_is_lost_while_a_controller_and_a_broker_are_killed(client: str, tmp_path: Path) -> None:
    """Produce all the time, kill the active controller, then a leader; read every acknowledged record once, in order."""
    settings = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
    with LocalCluster(tmp_path, 3, 3, 1, overrides=settings) as cluster, AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topic("kept", partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
        with PRODUCERS[client](cluster.kafka_bootstrap_servers) as producer:
            producer.until(100)
            cluster.kill_node(admin.describe_quorum().leader_id)
            producer.until(producer.acknowledged + 100)
            cluster.kill_node(admin.describe_topics(["kept"])["kept"].partitions[0].leader_id)
            producer.until(producer.acknowledged + 100)
        acknowledged = producer.acknowledged
        consumer = KafkaConsumer(bootstrap_servers=cluster.kafka_bootstrap_servers, group_id=None, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("kept", 0)])
        read = [int(message.value) for _, message in zip(range(acknowledged), consumer, strict=False)]
        consumer.close()
        assert read == list(range(acknowledged))


class KafkaPythonProducer:
    """Sends the numbers from 0 on. `acknowledged`: all below are acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), delivery_timeout_ms=60_000)
        self._sent: list[Any] = []
        self.acknowledged = 0

    def until(self, count: int) -> None:
        """Go on until that many are acknowledged."""
        while self.acknowledged < count:
            self._sent.append(self._producer.send("kept", str(len(self._sent)).encode()))
            if len(self._sent) - self.acknowledged > 20:
                assert self._sent[self.acknowledged].get(timeout=60).offset == self.acknowledged
                self.acknowledged += 1

    def __enter__(self) -> KafkaPythonProducer:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._sent[self.acknowledged :]:
            future.get(timeout=60)
        self.acknowledged = len(self._sent)
        self._producer.close()


class LibrdkafkaProducer:
    """As `KafkaPythonProducer`."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        self._producer = Producer(settings)
        self._sent = 0
        self._failures: list[object] = []
        self.acknowledged = 0

    def _note(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(error)
        self.acknowledged += 1

    def until(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while self.acknowledged < count:
            if self._sent - self.acknowledged < 20:
                self._producer.produce("kept", str(self._sent).encode(), on_delivery=self._note)
                self._sent += 1
            self._producer.poll(0.01)
            assert not self._failures and time.monotonic() < deadline

    def __enter__(self) -> LibrdkafkaProducer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._producer.flush(60) == 0
        assert not self._failures


PRODUCERS: dict[str, Any] = {"kafka-python": KafkaPythonProducer, "confluent-kafka": LibrdkafkaProducer}
