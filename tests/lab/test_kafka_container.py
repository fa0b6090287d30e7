"""KafkaContainer, as test suites use that of testcontainers, with kafka-python."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from kraftlab.lab import ClusterError, KafkaContainer

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def kafka(starts_clusters: None) -> Iterator[KafkaContainer]:
    with KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", 3) as container:
        yield container


def test_a_group_consumes_what_was_produced(kafka: KafkaContainer) -> None:
    server = kafka.get_bootstrap_server()
    assert server == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(kafka.port)}"
    with KafkaProducer(bootstrap_servers=server) as producer:
        for number in range(10):
            producer.send("orders", str(number).encode()).get(10)
    with KafkaConsumer("orders", bootstrap_servers=server, group_id="g", auto_offset_reset="earliest") as consumer:
        values = {next(consumer).value for _ in range(10)}
    assert values == {str(number).encode() for number in range(10)}
    assert b"broker 0 ready: " in kafka.get_logs()[0]


def test_variables_are_properties(kafka: KafkaContainer) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.get_bootstrap_server())
    try:
        admin.create_topics([NewTopic("three", num_partitions=-1, replication_factor=-1)])
        [topic] = admin.describe_topics(["three"])
        assert len(topic["partitions"]) == 3
    finally:
        admin.close()


def test_a_stopped_one_leaves_nothing_and_can_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_port: Callable[[], int]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    port = new_port()
    container = KafkaContainer().with_cluster_id("tests-1").with_exposed_ports(9093).with_bind_ports(9093, port)
    for force in (True, False):
        container.start()
        assert container.get_bootstrap_server().endswith(f":{port}")
        with pytest.raises(RuntimeError, match="runs already"):
            container.start()
        container.stop(force)
        assert os.listdir(tmp_path) == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("localhost", port))
        with pytest.raises(ClusterError, match=r"does not run; call start\(\)"):
            container.get_bootstrap_server()
    container.stop()


def test_a_failed_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ClusterError, match=r"listeners makes the cluster"):
        KafkaContainer().with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9092").start()
    assert os.listdir(tmp_path) == []


def test_a_variable_without_effect_is_a_warning() -> None:
    container = KafkaContainer().with_envs(KAFKA_HEAP_OPTS="-Xmx1G", KAFKA_LISTENERS="PLAINTEXT://:1")
    with pytest.raises(ClusterError), pytest.warns(UserWarning, match="these variables have no effect: KAFKA_HEAP_OPTS"):
        container.start()


@pytest.mark.parametrize("name", ["with_network", "with_volume_mapping", "get_wrapped_container", "exec"])
def test_methods_of_docker_are_refused_by_name(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^{name} means nothing without Docker"):
        getattr(KafkaContainer(), name)


def test_other_ports_and_variables_are_refused() -> None:
    with pytest.raises(ValueError, match="port 2181: the one listener"):
        KafkaContainer().with_exposed_ports(9093, 2181)
    with pytest.raises(ValueError, match=r"with_env\('TZ', …\): no process has that variable"):
        KafkaContainer().with_env("TZ", "UTC")
