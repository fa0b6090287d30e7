"""`kraftlab exporter` on a real cluster, with groups of kafka-python."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from kraftlab.lab.local import LocalCluster

from ...helpers.commands import Ran, run_command
from ...helpers.waiting import wait_until

OVERRIDES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
CLUSTER = (1, 2, 1)
LONG = "x" * 249
ODD = 'dead "group"\n\\ ünï'
Values = dict[tuple[str, ...], float]


def values(text: str, family: str, *labels: str) -> Values:
    """Return the value of each sample of a family by its labels."""
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for each in text_string_to_metric_families(text)
        if each.name == family
        for sample in each.samples
    }


def of_group(text: str, name: str) -> Values:
    return values(text, f"kafka_consumergroup_{name}", "consumergroup", "topic", "partition")


@pytest.fixture(scope="module")
def cluster(cluster: LocalCluster) -> LocalCluster:
    """Two brokers; ten records in each of the two partitions of `orders` and in another topic, and two groups: one with a
    member, and a dead one.
    """
    with cluster.admin() as admin:
        admin.create_topic("orders", partitions=2, replication_factor=2)
        admin.create_topic(LONG, partitions=1, replication_factor=1)
        admin.create_topic("brief", partitions=1, replication_factor=1)
    producer = KafkaProducer(bootstrap_servers=cluster.kafka_bootstrap_servers)
    for number in range(10):
        for topic, partition in (("orders", 0), ("orders", 1), (LONG, 0), ("brief", 0)):
            producer.send(topic, value=b"%d" % number, partition=partition)
    producer.flush()
    producer.close()
    return cluster


@pytest.fixture(scope="module")
def active(cluster: LocalCluster) -> Iterator[str]:
    """A group with one member, which has read seven records of the first partition."""
    where = cluster.kafka_bootstrap_servers
    consumer = KafkaConsumer("orders", group_id="active", bootstrap_servers=where, enable_auto_commit=False)
    wait_until(lambda: consumer.poll(timeout_ms=50) is not None and len(consumer.assignment()) == 2, "the group is formed")
    consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(7, "", -1)})
    yield "active"
    consumer.close()


@pytest.fixture(scope="module")
def dead(cluster: LocalCluster) -> str:
    """A group without members, with an odd name and offsets in two topics."""
    consumer = KafkaConsumer(group_id=ODD, bootstrap_servers=cluster.kafka_bootstrap_servers)
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(4, "", -1) for topic in (LONG, "brief")})
    consumer.close()
    return ODD


@pytest.fixture(params=["grpc", "kafka"])
def once(request: pytest.FixtureRequest, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs `kraftlab exporter --once` at gRPC endpoints, or at KAFKA listeners."""
    servers = {"grpc": cluster.bootstrap_servers, "kafka": cluster.kafka_bootstrap_servers}[request.param]
    return lambda *more: run_command(capsys, "exporter", "--once", "--bootstrap-server", servers, *more)


def test_the_lag_of_groups_is_what_they_have_not_read(once: Callable[..., Ran], active: str, dead: str) -> None:
    ran = once()
    assert (ran.code, ran.err) == (0, "")
    assert of_group(ran.out, "lag") == {
        (active, "orders", "0"): 3,
        (active, "orders", "1"): -1,
        (dead, LONG, "0"): 6,
        (dead, "brief", "0"): 6,
    }
    assert values(ran.out, "kafka_consumergroup_members", "consumergroup") == {(active,): 1, (dead,): 0}
    assert values(ran.out, "kafka_consumergroup_lag_sum", "consumergroup", "topic")[active, "orders"] == 3
    ends = values(ran.out, "kafka_topic_partition_current_offset", "topic", "partition")
    assert {key: end for key, end in ends.items() if key[0] != "__consumer_offsets"} == {
        ("orders", "0"): 10,
        ("orders", "1"): 10,
        (LONG, "0"): 10,
        ("brief", "0"): 10,
    }
    assert values(ran.out, "kafka_brokers") == {(): 2}
    assert values(ran.out, "kafka_topic_partition_replicas", "topic", "partition")["orders", "1"] == 2
    assert values(ran.out, "kraftlab_exporter_up") == {(): 1}


def test_filters_choose_topics_and_groups(once: Callable[..., Ran], active: str, dead: str) -> None:
    ran = once("--topic-filter", "^(orders|brief)$", "--group-filter", "dead")
    assert {*of_group(ran.out, "current_offset")} == {(dead, "brief", "0")}
    assert {*values(ran.out, "kafka_topic_partitions", "topic")} == {("orders",), ("brief",)}


def test_a_filter_that_is_none_and_an_address_that_is_none_are_wrong_use(once: Callable[..., Ran]) -> None:
    for arguments in (("--topic-filter", "("), ("--listen", "9308"), ("--listen", "h:99999"), ("--interval", "-1")):
        ran = once(*arguments)
        assert (ran.code, arguments[0] in ran.err) == (64, True), ran


def test_a_cluster_that_is_not_there_is_down(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    ran = run_command(capsys, "exporter", "--once", "--bootstrap-server", "127.0.0.1:1")
    assert (ran.code, values(ran.out, "kraftlab_exporter_up"), "kafka_" in ran.out) == (1, {(): 0}, False)
    (record,) = [record for record in caplog.records if record.name == "kraftlab.exporter"]
    assert "check the addresses and that the nodes run" in record.getMessage()


def test_a_port_that_is_taken_is_named(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        ran = run_command(capsys, "exporter", "--listen", listen, "--bootstrap-server", cluster.bootstrap_servers)
    assert (ran.code, ran.err) == (
        1,
        f"Error: cannot listen on {listen}: Address already in use; is another process using the port? Choose another address: "
        "--listen HOST:PORT\n",
    )


@contextmanager
def serving(new_port: int, *arguments: str) -> Iterator[Callable[[], str]]:
    """An exporter in a process of its own; yields a scrape. It ends by SIGTERM, with code 0."""
    command = [sys.executable, "-m", "kraftlab.cli.main", "exporter", "--listen", f"127.0.0.1:{new_port}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = re.match(r"http://\S+/metrics", line)
        assert url is not None, line

        def scrape() -> str:
            with urllib.request.urlopen(url[0], timeout=20) as page:
                text: str = page.read().decode()
            return text

        yield scrape
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_topic_that_is_deleted_between_two_scrapes_is_gone_from_the_second(
    cluster: LocalCluster, dead: str, new_port: Callable[[], int]
) -> None:
    with serving(new_port(), "--interval", "0", "--bootstrap-server", cluster.kafka_bootstrap_servers) as scrape:
        assert (dead, "brief", "0") in of_group(scrape(), "lag")
        with cluster.admin() as admin:
            admin.delete_topics(["brief"])
            wait_until(lambda: "brief" not in admin.describe_topics(), "the topic is deleted")
        wait_until(lambda: ("brief",) not in values(scrape(), "kafka_topic_partitions", "topic"), "the broker knows")
        after = scrape()
        assert "brief" not in after
        assert of_group(after, "lag")[dead, LONG, "0"] == 6
        with cluster.admin() as admin:
            admin.create_topic("brief", partitions=1, replication_factor=1)


def test_an_exporter_sees_a_cluster_that_starts_after_it_and_stops_before_it(
    starts_clusters: None, tmp_path: Path, new_port: Callable[[], int]
) -> None:
    cluster = LocalCluster(tmp_path / "lab", 1, 1, 1)
    try:
        with serving(new_port(), "--interval", "0", "--bootstrap-server", cluster.kafka_bootstrap_servers) as scrape:
            assert values(scrape(), "kraftlab_exporter_up") == {(): 0}
            cluster.start()
            cluster.wait_ready()
            wait_until(lambda: values(scrape(), "kraftlab_exporter_up") == {(): 1}, "the exporter reads the cluster")
            cluster.close()
            wait_until(lambda: values(scrape(), "kraftlab_exporter_up") == {(): 0}, "the exporter has noticed")
    finally:
        cluster.close()
