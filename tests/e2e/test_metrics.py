"""/metrics of every node of a cluster under load, as prometheus_client reads it: all of the catalogue, and sums that agree."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator, Mapping

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from prometheus_client.parser import text_string_to_metric_families

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.config_parts import config_changes
from kraftlab.config.resources import ResourceType
from kraftlab.lab import LocalCluster
from kraftlab.metrics.catalogue import METRICS

from ..helpers.waiting import wait_until

pytestmark = pytest.mark.cluster
OVERRIDES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}
RECORDS = 600
LARGE_RECORDS, LARGE_BYTES = 40, 20_000
RATE = 20_000
"""Bytes per second of both moves: each would take twenty seconds."""
TRAFFIC = "kafka_server_brokertopicmetrics"
MANAGER = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
MAX_LAG = "kafka_server_replicafetchermanager_maxlag"

NEEDS_AN_EVENT = {
    "kraftlab_certificate_expiry_timestamp_seconds": "a listener with TLS",
    "kafka_controller_controllereventmanager_eventqueueprocessingtimems": "the active controller alone",
    "kafka_controller_controllereventmanager_eventqueuetimems": "the active controller alone",
    "kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms": "the active controller alone",
    "kraftlab_moves_queued": "the active controller alone",
    "kraftlab_moves_running": "the active controller alone",
    "kraftlab_voter_lag_records": "the leader alone",
    "kraftlab_voter_silence_seconds": "the leader alone",
    "kafka_server_raftmetrics_number_of_observers": "the leader alone",
    "kafka_server_raftmetrics_uncommitted_voter_change": "the leader alone",
}
"""Families that a node of the right kind may lack, and the event or the role that gives them."""


def as_written(name: str) -> str:
    """Return a sample's name without the _total that prometheus_client adds to a counter like `…_count`."""
    return name if name in METRICS else name.removesuffix("_total") if name.removesuffix("_total") in METRICS else name


class Scrape:
    """The samples of one node."""

    def __init__(self, cluster: LocalCluster, node_id: int) -> None:
        at = cluster.node(node_id).metrics
        with urllib.request.urlopen(f"http://{at}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        self.kinds = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
        families = text_string_to_metric_families(text)
        self.samples = [each._replace(name=as_written(each.name)) for family in families for each in family.samples]

    def sum(self, name: str, **labels: object) -> float:
        """Sum up the samples that have just these labels, or these among others if a label is `...`."""
        wanted = {key: str(value) for key, value in labels.items() if value is not ...}
        return sum(
            each.value
            for each in self.samples
            if each.name == name and each.labels.keys() == labels.keys() and wanted.items() <= each.labels.items()
        )


def total(scrapes: Mapping[int, Scrape], name: str, **labels: object) -> float:
    return sum(scrape.sum(name, **labels) for scrape in scrapes.values())


@pytest.fixture(scope="module")
def cluster(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("metrics") / "lab", 3, 3, 2, overrides=OVERRIDES) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    with cluster.admin() as client:
        yield client


def servers(cluster: LocalCluster) -> list[str]:
    return cluster.kafka_bootstrap_servers.split(",")


def produce(cluster: LocalCluster, topic: str, count: int, size_bytes: int) -> None:
    """Produce records, of which each is acknowledged."""
    with KafkaProducer(bootstrap_servers=servers(cluster), acks="all") as producer:
        for sent in [producer.send(topic, b"x" * size_bytes) for _ in range(count)]:
            sent.get(30)


def place(admin: AdminClient, topic: str, *assignment: list[int]) -> None:
    """Create a topic with its replicas on the given brokers."""
    created = pb.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)
    for index, brokers in enumerate(assignment):
        created.assignments.add(partition_index=index, broker_ids=brokers)
    admin.create_topics([created])


def throttle(cluster: LocalCluster, admin: AdminClient, rate: int | None) -> None:
    """Throttle the replicas of topic large, and moves between directories."""
    sides = ("leader", "follower")
    rates = [f"{side}.replication.throttled.rate" for side in sides] + ["replica.alter.log.dirs.io.max.bytes.per.second"]
    configs = dict.fromkeys(rates, None if rate is None else str(rate))
    resources = [config_changes(ResourceType.BROKER, str(broker_id), configs) for broker_id in cluster.broker_ids]
    every = dict.fromkeys((f"{side}.replication.throttled.replicas" for side in sides), None if rate is None else "*")
    admin.incremental_alter_configs([*resources, config_changes(ResourceType.TOPIC, "large", every)])


def other_directory(admin: AdminClient, cluster: LocalCluster, topic: str, number: int) -> str:
    """The log directory of broker 0 that does not hold its replica."""
    [holder] = [each.log_dir for each in admin.describe_log_dirs(0, [(topic, number)]) if each.replicas]
    [other] = [str(path) for path in cluster.log_dirs(0) if str(path) != str(holder)]
    return other


class Load:
    """Scrapes of every node: `during` a load with both kinds of moves under throttles, and `after` it."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient) -> None:
        self._cluster = cluster
        admin.create_topic("orders", partitions=6, replication_factor=3)
        admin.create_topic("background", partitions=1, replication_factor=3)
        admin.create_topic("flushed", partitions=1, replication_factor=3, configs={"flush.messages": "1"})
        admin.create_topic("past", partitions=1, replication_factor=1, configs={"message.timestamp.before.max.ms": "1000"})
        place(admin, "large", [0, 1], [0, 1])
        produce(cluster, "orders", RECORDS, 100)
        produce(cluster, "large", LARGE_RECORDS, LARGE_BYTES)
        produce(cluster, "flushed", 5, 100)
        with KafkaProducer(bootstrap_servers=servers(cluster), retries=0) as producer, pytest.raises(KafkaError):
            producer.send("past", b"too old", timestamp_ms=1).get(30)
        for node in cluster.plan.controllers:
            with AdminClient(f"kafka://{node.kafka}") as of_controller:
                of_controller.describe_cluster()
        throttle(cluster, admin, RATE)
        admin.alter_partition_reassignments({("large", 0): [2, 1]})
        admin.alter_replica_log_dirs(0, {("large", 1): other_directory(admin, cluster, "large", 1)})
        with KafkaConsumer(
            "orders", bootstrap_servers=servers(cluster), group_id="readers", auto_offset_reset="earliest"
        ) as reader:
            for _ in range(RECORDS):
                next(reader)
            reader.commit()
            working = threading.Thread(target=produce, args=(cluster, "background", RECORDS, 100))
            working.start()
            wait_until(lambda: self._moves_in("THROTTLED") == 2, "both moves are seen")
            self.during = self._scrapes()
            working.join()
        throttle(cluster, admin, None)
        wait_until(lambda: not any(self._moves_in(state) for state in ("THROTTLED", "COPYING", "QUEUED", "OUT_OF_SYNC")), "moved")
        wait_until(lambda: total(self._scrapes(), f"{MANAGER}_reassigningpartitions") == 0, "the reassignment is over")
        wait_until(lambda: total(self._scrapes(), MAX_LAG, clientId="Replica") == 0, "followers have everything")
        self.after = self._scrapes()

    def _scrapes(self) -> dict[int, Scrape]:
        return {node.node_id: Scrape(self._cluster, node.node_id) for node in self._cluster.plan.nodes}

    def _moves_in(self, state: str) -> float:
        return total(self._scrapes(), "kraftlab_move_blocked", state=state)


@pytest.fixture(scope="module")
def load(cluster: LocalCluster, admin: AdminClient) -> Load:
    return Load(cluster, admin)


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_a_node_serves_every_family_of_its_kind_with_the_catalogues_type_and_labels(
    load: Load, cluster: LocalCluster, role: str
) -> None:
    wanted = {name for name, metric in METRICS.items() if metric.nodes in (role, "every node")}
    served: set[str] = set()
    for node in cluster.plan.nodes:
        if node.role != role:
            continue
        scrape = load.during[node.node_id]
        assert wanted - scrape.kinds.keys() - NEEDS_AN_EVENT.keys() == set()
        assert scrape.kinds == {name: METRICS[name].kind for name in scrape.kinds}
        assert scrape.kinds.keys() <= wanted
        served |= scrape.kinds.keys()
        for each in scrape.samples:
            metric = METRICS.get(each.name) or METRICS[each.name.rpartition("_")[0]]
            assert each.labels.keys() - {"le", "is_future"} <= set(metric.labels), each
    missing = wanted - served
    assert {NEEDS_AN_EVENT[name] for name in missing} <= {"a listener with TLS"}


def test_all_that_was_acknowledged_is_counted_once_and_nothing_else(load: Load) -> None:
    brokers = load.after
    for topic, count in (("orders", RECORDS), ("large", LARGE_RECORDS), ("flushed", 5), ("background", RECORDS)):
        assert total(brokers, f"{TRAFFIC}_messagesin_total", topic=topic) == count
        assert total(brokers, "kafka_log_log_logendoffset", topic=topic, partition=...) == count * replicas_of(topic)
        bytes_in = total(brokers, f"{TRAFFIC}_bytesin_total", topic=topic)
        assert total(brokers, "kafka_log_log_size", topic=topic, partition=...) == bytes_in * replicas_of(topic)
    for name in ("messagesin", "bytesin", "bytesout", "totalproducerequests", "totalfetchrequests"):
        for scrape in brokers.values():
            family = f"{TRAFFIC}_{name}_total"
            assert scrape.sum(family) == scrape.sum(family, topic=...)
    assert total(brokers, f"{TRAFFIC}_failedproducerequests_total", topic="past") == 1
    assert total(brokers, f"{TRAFFIC}_failedproducerequests_total") == 1


def test_what_the_group_has_read_went_out(load: Load) -> None:
    read = total(load.after, f"{TRAFFIC}_bytesout_total", topic="orders")
    assert read >= total(load.after, f"{TRAFFIC}_bytesin_total", topic="orders")
    groups = "kafka_coordinator_group_groupmetadatamanager"
    assert total(load.during, f"{groups}_numgroups") == total(load.during, f"{groups}_numgroupsstable") == 1
    assert total(load.after, f"{groups}_numgroupsempty") == 1
    assert total(load.after, f"{groups}_numoffsets") == 6


def test_requests_are_counted_by_name_and_error(load: Load) -> None:
    brokers = load.after
    errors, requests = "kafka_network_requestmetrics_errors_total", "kafka_network_requestmetrics_requests_total"
    produced = total(brokers, f"{TRAFFIC}_totalproducerequests_total") - offsets_written(load)
    assert total(brokers, errors, request="Produce", error=...) == produced
    assert total(brokers, errors, request="Produce", error="INVALID_TIMESTAMP") == 1
    for name in ("Fetch", "OffsetCommit", "Produce"):
        answered = total(brokers, "kafka_network_requestmetrics_totaltimems_count", request=name)
        assert 0 < answered <= total(brokers, requests, request=name, version=...)
    assert total(load.after, requests, request="DescribeCluster", version=...) >= 3


def test_both_kinds_of_moves_are_seen_and_end(load: Load) -> None:
    during, after = load.during, load.after
    assert total(during, f"{MANAGER}_reassigningpartitions") == total(during, "kraftlab_reassignments") / 3 == 1
    assert total(during, f"{MANAGER}_underreplicatedpartitions") == 0, "KIP-352"
    assert during[2].sum("kraftlab_move_blocked", state="THROTTLED") == 1
    assert during[0].sum("kraftlab_move_blocked", state="THROTTLED") == 1
    assert during[0].sum("kafka_log_log_size", topic="large", partition=1, is_future="true") > 0
    assert 0 < total(during, "kraftlab_move_bytes_left") < LARGE_RECORDS * (LARGE_BYTES + 200)
    size = after[2].sum("kafka_log_log_size", topic="large", partition=0)
    assert total(after, f"{TRAFFIC}_reassignmentbytesin_total") == after[2].sum(f"{TRAFFIC}_reassignmentbytesin_total") == size
    assert total(after, f"{TRAFFIC}_reassignmentbytesout_total") >= size
    assert total(after, f"{TRAFFIC}_replicationbytesin_total") <= total(after, f"{TRAFFIC}_replicationbytesout_total")
    assert after[0].sum("kafka_log_log_size", topic="large", partition=1, is_future="true") == 0
    assert total(after, "kraftlab_move_bytes_left") == 0


def test_sums_over_brokers_are_those_of_the_controller(load: Load, cluster: LocalCluster) -> None:
    [partitions] = {load.after[node.node_id].sum(f"{CONTROLLER}_globalpartitioncount") for node in cluster.plan.controllers}
    assert total(load.after, f"{MANAGER}_leadercount") == partitions
    assert total(load.after, "kafka_cluster_partition_replicascount", topic=..., partition=...) == total(
        load.after, f"{MANAGER}_partitioncount"
    )
    for broker_id in cluster.broker_ids:
        scrape = load.after[broker_id]
        used = scrape.sum("kraftlab_log_dir_used_bytes", log_dir=...)
        logs = scrape.sum("kafka_log_log_size", topic=..., partition=...)
        assert used == logs - scrape.sum("kafka_log_log_size", topic="__cluster_metadata", partition=0)


def replicas_of(topic: str) -> int:
    return 2 if topic == "large" else 3


def offsets_written(load: Load) -> float:
    """Produce requests that groups have made, not clients: none."""
    return total(load.after, f"{TRAFFIC}_totalproducerequests_total", topic="__consumer_offsets")
