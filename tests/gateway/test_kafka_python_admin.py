"""The admin clients of kafka-python and librdkafka drive a real cluster over the KAFKA listener."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import admin as librdkafka
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from kraftlab.lab.local import LocalCluster


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Start one controller and two brokers; return the KAFKA listeners."""
    with LocalCluster(tmp_path_factory.mktemp("kafka"), 1, 2, 1) as cluster:
        yield cluster.kafka_bootstrap_servers.split(",")


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
