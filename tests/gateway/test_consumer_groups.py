"""Consumers of kafka-python and librdkafka share topics in groups on a real cluster, also when a coordinator dies."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata, TopicPartition

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.lab.local import LocalCluster

from ..helpers.waiting import wait_until

OVERRIDES = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "200",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "2097152",
}
CLUSTER = (1, 3, 1)
PARTITIONS, RECORDS = 4, 40


@pytest.fixture(scope="module")
def cluster(cluster: LocalCluster) -> LocalCluster:
    """One controller and three brokers, with a topic that has records in all partitions."""
    servers = cluster.kafka_bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic("orders", PARTITIONS, 3)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(RECORDS):
        producer.send("orders", value=str(number).encode(), partition=number % PARTITIONS)
    producer.flush()
    producer.close()
    return cluster


def kafka_python(cluster: LocalCluster, group_id: str) -> KafkaConsumer:
    return KafkaConsumer(
        "orders",
        group_id=group_id,
        bootstrap_servers=cluster.kafka_bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
    )


def librdkafka(cluster: LocalCluster, group_id: str) -> Consumer:
    settings = {
        "bootstrap.servers": cluster.kafka_bootstrap_servers,
        "group.id": group_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6000,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    return consumer


def poll(consumer: Any) -> list[str]:
    """Return the next values, soon."""
    if isinstance(consumer, Consumer):
        message = consumer.poll(0.05)
        return [message.value().decode()] if message is not None and message.error() is None else []
    return [record.value.decode() for records in consumer.poll(timeout_ms=200).values() for record in records]


@pytest.mark.parametrize("make", [kafka_python, pytest.param(librdkafka, marks=pytest.mark.nightly)])
def test_two_members_share_a_topic_and_one_takes_over(cluster: LocalCluster, make: Callable[..., Any]) -> None:
    consumers = [make(cluster, make.__name__) for _ in range(2)]
    seen: list[str] = []
    try:

        def are_sharing() -> bool:
            # Both poll at once: kafka-python joins its group again and again while the other member does not poll.
            with ThreadPoolExecutor() as threads:
                for values in threads.map(poll, consumers):
                    seen.extend(values)
            return len(set(seen)) == RECORDS and all(len(each.assignment()) == PARTITIONS // 2 for each in consumers)

        wait_until(are_sharing, "every record is read, and each member has half of the partitions")
        for consumer in consumers:
            wait_until(lambda consumer=consumer: _commits(consumer), "what a member has read is committed")
        consumers.pop().close()
        wait_until(lambda: poll(consumers[0]) == [] and len(consumers[0].assignment()) == PARTITIONS, "the other takes over")
        assert poll(consumers[0]) == [], "committed records are not read again"
    finally:
        for consumer in consumers:
            consumer.close()


def coordinator_of(cluster: LocalCluster, group_id: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers})
    (found,) = admin.describe_consumer_groups([group_id]).values()
    return int(found.result(30).coordinator.id)


def test_a_group_survives_its_coordinator(cluster: LocalCluster) -> None:
    consumer = kafka_python(cluster, "survivor")
    try:
        wait_until(lambda: bool(poll(consumer)), "records are read")
        wait_until(lambda: len(consumer.assignment()) == PARTITIONS, "all partitions are assigned")
        place = TopicPartition("orders", 0)
        consumer.commit({place: OffsetAndMetadata(7, "half way", -1)})
        coordinator = coordinator_of(cluster, "survivor")
        cluster.kill_node(coordinator)
        try:
            half_way = {place: OffsetAndMetadata(8, "", -1)}
            wait_until(lambda: _commits(consumer, half_way, timeout_ms=1000), "offsets are committed at the next coordinator")
            assert consumer.committed(place) == 8
        finally:
            cluster.start_node(coordinator)
            cluster.wait_ready()
    finally:
        consumer.close()


def _commits(consumer: Any, *offsets: dict[TopicPartition, OffsetAndMetadata], **options: int) -> bool:
    """Commit the offsets, by default those of what was read. A client refuses while its group rebalances."""
    try:
        consumer.commit(*offsets, **options)
    except Exception:
        poll(consumer)
        return False
    return True


def test_the_topic_of_offsets_is_compacted_with_the_settings_of_brokers(cluster: LocalCluster) -> None:
    consumer = kafka_python(cluster, "any")
    wait_until(lambda: poll(consumer) is not None and bool(consumer.assignment()), "the group is formed")
    consumer.close()
    with cluster.admin() as admin:
        configs = admin.call(
            pb.DescribeConfigsResponse,
            pb.DescribeConfigsRequest(
                resources=[pb.DescribeConfigsResource(resource_type=2, resource_name="__consumer_offsets")]
            ),
        )
        values = {entry.name: entry.value for entry in configs.results[0].configs}
        described = admin.call(pb.DescribeTopicPartitionsResponse, pb.DescribeTopicPartitionsRequest())
    assert values["cleanup.policy"] == "compact"
    assert values["compression.type"] == "producer"
    assert values["segment.bytes"] == OVERRIDES["offsets.topic.segment.bytes"]
    (offsets,) = [each for each in described.topics if each.name == "__consumer_offsets"]
    assert (len(offsets.partitions), offsets.is_internal) == (3, True)
