"""Traps into which other servers of the Kafka protocol fell: a test for each, on a real cluster.

The numbers are those of a collection of public issues and findings of other servers (Redpanda, tansu, KoP, AutoMQ, Crabka and
others): a client that met them hung, lost data, or refused to work.
"""

from __future__ import annotations

import datetime
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from kraftlab.client import AdminClient
from kraftlab.common.errors import ErrorCode
from kraftlab.lab.local import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

from .conftest import ask, topic_id

pytestmark = pytest.mark.cluster

NOT_READY = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}
"""Errors of a leader that does not have its log yet."""
SECOND = datetime.timedelta(seconds=1)


CLUSTER = (1, 3, 1)


class Kafka:
    """Asks one broker, or the leader of a partition."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def __call__(self, key: int, version: int, *, to: int = 0, **fields: Any) -> Any:
        return ask(self.cluster.node(to).kafka, key, version, **fields)

    def create(self, name: str, partitions: int = 1, factor: int = 1, **configs: str) -> bytes:
        """Create a topic; return its id once every broker knows it."""
        entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": factor, "configs": entries}
        [created] = self(19, 7, topics=[topic], timeout=20 * SECOND).topics
        assert int(created.error_code) == 0, created.error_message
        self.until(lambda: all(self.describe(name, to=to) for to in range(3)))
        return created.topic_id.bytes  # type: ignore[no-any-return]

    def describe(self, name: str, to: int = 0) -> Any:
        """The topic's partitions as one broker describes them, None if one has no leader yet."""
        [topic] = self(3, 12, to=to, topics=[{"name": name}], allow_auto_topic_creation=False).topics
        ready = topic.partitions and all(part.leader_id >= 0 for part in topic.partitions)
        return topic.partitions if ready else None

    def leader(self, name: str, index: int = 0) -> int:
        return int(self.describe(name)[index].leader_id)

    def produce(self, name: str, records: bytes, acks: int = -1) -> Any:
        """Produce to partition 0, once its leader has the log."""
        data = [{"name": name, "partition_data": [{"index": 0, "records": records}]}]
        answers: list[Any] = []

        def is_answered() -> bool:
            [topic] = self(0, 9, to=self.leader(name), acks=acks, timeout=10 * SECOND, topic_data=data).responses
            answers.append(topic.partition_responses[0])
            return int(answers[-1].error_code) not in NOT_READY

        self.until(is_answered)
        return answers[-1]

    def fetch(self, name: str, offset: int, *, limit: int = 1_000_000, version: int = 12, **fields: Any) -> Any:
        wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": limit}
        topics = [{"topic": name, "partitions": [wanted]}]
        [topic] = self(1, version, to=self.leader(name), max_bytes=limit, topics=topics, **fields).responses
        return topic.partitions[0]

    def until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < deadline


@pytest.fixture
def kafka(cluster: LocalCluster) -> Kafka:
    return Kafka(cluster)


def records(count: int = 1, value: bytes = b"value", key: bytes | None = b"key") -> bytes:
    return build_batch([Record(key, value, 1) for _ in range(count)])


def numbered(producer_id: int, sequence: int, epoch: int = 0) -> bytes:
    """A batch of one record of an idempotent producer."""
    return build_batch(
        [Record(b"key", b"%d" % sequence, 1)], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def test_trap_01_api_versions_in_an_unknown_version_is_answered_in_version_0(kafka: Kafka) -> None:
    at = kafka.cluster.node(0).kafka
    assert at is not None
    with socket.create_connection((at.host, at.port), timeout=20) as client, client.makefile("rb") as answers:
        client.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))
        (size,) = struct.unpack(">i", answers.read(4))
        body = answers.read(size)
    correlation_id, error, count = struct.unpack(">ihi", body[:10])
    offered = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[10:])}
    assert (correlation_id, error, count) == (7, 35, len(offered))
    assert offered[18][0] == 0


def test_trap_02_versions_are_offered_without_gaps_from_kafkas_baseline(kafka: Kafka) -> None:
    versions = {each.api_key: each for each in kafka(18, 3, client_software_name="a", client_software_version="1").api_keys}
    assert versions[0].min_version == 0, "librdkafka looks for version 0 of Produce"
    for key, baseline in {1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 11: 0, 19: 2, 20: 1}.items():
        assert versions[key].min_version == baseline


def test_trap_03_a_broker_that_is_asked_for_controllers_says_which_kind_it_is(kafka: Kafka) -> None:
    answer = kafka(60, 1, endpoint_type=2)
    assert int(answer.error_code) == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert "endpoint of type BROKER" in answer.error_message


def test_trap_04_topics_have_ids_and_old_fetches_find_them_by_name(kafka: Kafka) -> None:
    known = kafka.create("t04")
    [topic] = kafka(3, 12, topics=[{"name": "t04"}]).topics
    assert topic.topic_id.bytes == known != bytes(16)
    assert kafka.produce("t04", records()).base_offset == 0
    assert kafka.fetch("t04", 0, version=12).records
    wanted = {"topic_id": topic_id(known), "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
    leader = kafka.leader("t04")
    begun = kafka(1, 13, to=leader, max_bytes=1000, session_epoch=0, topics=[wanted])
    assert begun.responses[0].partitions[0].records
    forgotten = [{"topic_id": topic_id(known), "partitions": (0,)}]
    ended = kafka(1, 13, to=leader, session_id=begun.session_id, session_epoch=1, topics=[], forgotten_topics_data=forgotten)
    assert (int(ended.error_code), ended.responses) == (0, ())


def test_trap_05_the_leader_epoch_is_real_everywhere(kafka: Kafka) -> None:
    kafka.create("t05")
    kafka.produce("t05", records())
    leader = kafka.leader("t05")
    [described] = kafka.describe("t05")
    partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": described.leader_epoch}
    [listed] = kafka(2, 7, to=leader, replica_id=-1, topics=[{"name": "t05", "partitions": [partition]}]).topics
    partition = {"partition": 0, "leader_epoch": described.leader_epoch, "current_leader_epoch": -1}
    [ended] = kafka(23, 4, to=leader, replica_id=-1, topics=[{"topic": "t05", "partitions": [partition]}]).topics
    epochs = {described.leader_epoch, listed.partitions[0].leader_epoch, ended.partitions[0].leader_epoch}
    assert epochs == {0}
    assert ended.partitions[0].end_offset == 1
    stale = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": described.leader_epoch + 1}
    [refused] = kafka(2, 7, to=leader, replica_id=-1, topics=[{"name": "t05", "partitions": [stale]}]).topics
    assert int(refused.partitions[0].error_code) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_trap_06_idempotent_producers_are_numbered_and_their_sequences_checked(kafka: Kafka) -> None:
    kafka.create("t06")
    identity = kafka(22, 4, transactional_id=None, transaction_timeout=SECOND, producer_id=-1, producer_epoch=-1)
    assert int(identity.error_code) == 0
    first, gap = (numbered(identity.producer_id, sequence) for sequence in (0, 5))
    assert kafka.produce("t06", first).base_offset == 0
    again = kafka.produce("t06", first)
    assert (int(again.error_code), again.base_offset) == (0, 0)
    assert int(kafka.produce("t06", gap).error_code) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    refused = kafka(22, 4, transactional_id="tx", transaction_timeout=SECOND, producer_id=-1, producer_epoch=-1)
    assert int(refused.error_code) != 0


def test_trap_07_a_fetch_within_a_batch_gets_the_whole_batch_however_small_its_limit(kafka: Kafka) -> None:
    kafka.create("t07")
    batch = records(5, b"x" * 1000)
    kafka.produce("t07", batch)
    found = kafka.fetch("t07", 3, limit=1)
    assert len(found.records) == len(batch)


def test_trap_08_topics_are_created_on_demand_but_not_with_wrong_names(kafka: Kafka) -> None:
    [bad] = kafka(3, 12, topics=[{"name": "bad name!"}], allow_auto_topic_creation=True).topics
    assert int(bad.error_code) == ErrorCode.INVALID_TOPIC_EXCEPTION
    [unwanted] = kafka(3, 12, topics=[{"name": "t08"}], allow_auto_topic_creation=False).topics
    assert int(unwanted.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [created] = kafka(3, 12, topics=[{"name": "t08"}], allow_auto_topic_creation=True).topics
    assert (int(created.error_code), len(created.partitions)) == (0, 1)


def test_trap_09_all_configs_are_described_and_lists_can_be_appended_to(kafka: Kafka) -> None:
    kafka.create("t09")
    resource = {"resource_type": 2, "resource_name": "t09"}

    def configs() -> dict[str, Any]:
        [result] = kafka(32, 4, resources=[resource | {"configuration_keys": None}], include_synonyms=True).results
        return {config.name: config for config in result.configs}

    found = configs()
    assert found.keys() >= {"cleanup.policy", "retention.ms", "max.message.bytes", "segment.bytes", "min.insync.replicas"}
    assert all(config.config_source and (config.value is not None) for config in found.values())
    for operation, expected in ((2, "delete,compact"), (3, "delete")):
        change = {"name": "cleanup.policy", "config_operation": operation, "value": "compact"}
        [done] = kafka(44, 1, resources=[resource | {"configs": [change]}]).responses
        assert (int(done.error_code), configs()["cleanup.policy"].value) == (0, expected)


def test_trap_10_offsets_are_found_by_time_and_by_every_special_timestamp(kafka: Kafka) -> None:
    kafka.create("t10")
    for timestamp in (100, 300, 200):
        kafka.produce("t10", build_batch([Record(b"k", b"v", timestamp)]))
    wanted = [(-1, 3), (-2, 0), (-3, 1), (-4, 0), (-5, -1), (250, 1), (301, -1)]

    def offset(timestamp: int) -> int:
        topics = [{"name": "t10", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
        [topic] = kafka(2, 9, to=kafka.leader("t10"), replica_id=-1, topics=topics).topics
        assert int(topic.partitions[0].error_code) == 0
        return int(topic.partitions[0].offset)

    assert [(timestamp, offset(timestamp)) for timestamp, _ in wanted] == wanted


def test_trap_11_each_topic_of_a_request_is_answered_also_if_some_fail(kafka: Kafka) -> None:
    kafka.create("t11")
    new = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("t11", "t11-b", "bad name!")]
    codes = {topic.name: int(topic.error_code) for topic in kafka(19, 7, topics=new, timeout=20 * SECOND).topics}
    assert codes == {"t11": 36, "t11-b": 0, "bad name!": 17}
    more = [{"name": name, "count": 2, "assignments": None} for name in ("t11", "no-such")]
    codes = {result.name: int(result.error_code) for result in kafka(37, 3, topics=more, timeout=20 * SECOND).results}
    assert codes == {"t11": 0, "no-such": 3}
    gone = [{"name": name, "topic_id": None} for name in ("t11-b", "no-such")]
    codes = {result.name: int(result.error_code) for result in kafka(20, 6, topics=gone, timeout=20 * SECOND).responses}
    assert codes == {"t11-b": 0, "no-such": 3}


def test_trap_12_features_are_finalized_with_their_epoch_and_only_if_they_are_served(kafka: Kafka) -> None:
    answer = kafka(18, 4, client_software_name="a", client_software_version="1")
    assert answer.finalized_features_epoch >= 0
    supported = {feature.name for feature in answer.supported_features}
    finalized = {feature.name for feature in answer.finalized_features}
    assert "metadata.version" in supported & finalized
    assert not (supported | finalized) & {"transaction.version", "group.version", "share.version", "streams.version"}


def offered(kafka: Kafka) -> set[int]:
    return {each.api_key for each in kafka(18, 3, client_software_name="a", client_software_version="1").api_keys}


def test_trap_13_groups_of_the_new_protocol_are_not_offered(kafka: Kafka) -> None:
    """Consumers that ask for group.protocol=consumer hear of it from their own library (KIP-848)."""
    assert not offered(kafka) & {68, 69}


def test_trap_14_telemetry_is_not_offered(kafka: Kafka) -> None:
    """As in Kafka without a receiver. `make interop` fails if Java's clients log a warning."""
    assert not offered(kafka) & {71, 72}


def test_trap_15_the_controller_of_metadata_is_a_broker_of_metadata(kafka: Kafka) -> None:
    for to in range(3):
        answer = kafka(3, 12, to=to, topics=[])
        assert answer.controller_id == to
        assert {broker.node_id for broker in answer.brokers} == {0, 1, 2}


def test_trap_17_brokers_are_advertised_by_address(kafka: Kafka) -> None:
    assert {broker.host for broker in kafka(3, 12, topics=[]).brokers} == {"127.0.0.1"}


def test_trap_18_a_user_has_credentials_of_both_kinds_with_enough_iterations(kafka: Kafka) -> None:
    def alter(mechanism: int, iterations: int) -> int:
        change = {
            "name": "alice",
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": b"salt",
            "salted_password": b"p" * 64,
        }
        [result] = kafka(51, 0, deletions=[], upsertions=[change]).results
        return int(result.error_code)

    assert [alter(mechanism, 4096) for mechanism in (1, 2)] == [0, 0]
    assert alter(1, 4095) == ErrorCode.UNACCEPTABLE_CREDENTIAL
    [user] = kafka(50, 0, users=[{"name": "alice"}]).results
    assert sorted((info.mechanism, info.iterations) for info in user.credential_infos) == [(1, 4096), (2, 4096)]
    assert offered(kafka) >= {17, 36}


def test_trap_19_large_batches_and_records_without_keys_are_refused(kafka: Kafka) -> None:
    kafka.create("t19", max_message_bytes="1000")
    assert int(kafka.produce("t19", records(1, b"x" * 2000)).error_code) == ErrorCode.MESSAGE_TOO_LARGE
    kafka.create("t19-compacted", cleanup_policy="compact")
    refused = kafka.produce("t19-compacted", records(2, key=None))
    assert int(refused.error_code) == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [0, 1]


def test_trap_20_members_get_an_id_first_and_offsets_keep_their_metadata(kafka: Kafka) -> None:
    kafka.create("t20")

    def find() -> Any:
        [found] = kafka(10, 4, key_type=0, coordinator_keys=("g20",)).coordinators
        return found

    kafka.until(lambda: int(find().error_code) == 0)
    to = find().node_id
    protocols = [{"name": "range", "metadata": b"subscription"}]
    member = {"group_id": "g20", "group_instance_id": None, "protocol_type": "consumer", "protocols": protocols, "reason": None}
    timeouts = {"session_timeout": 10 * SECOND, "rebalance_timeout": 10 * SECOND}

    def join(member_id: str) -> Any:
        return kafka(11, 9, to=to, member_id=member_id, **member, **timeouts)

    kafka.until(lambda: int(join("").error_code) == ErrorCode.MEMBER_ID_REQUIRED)
    joined = join(join("").member_id)
    assert (int(joined.error_code), joined.leader) == (0, joined.member_id)
    known = {"group_id": "g20", "member_id": joined.member_id, "group_instance_id": None}
    assigned = [{"member_id": joined.member_id, "assignment": b"all"}]
    chosen = {"protocol_type": "consumer", "protocol_name": "range"}
    synced = kafka(14, 5, to=to, generation_id=joined.generation_id, assignments=assigned, **known, **chosen)
    assert (int(synced.error_code), synced.assignment) == (0, b"all")
    offset = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 3, "committed_metadata": "notes"}
    committed = kafka(
        *(8, 9),
        to=to,
        generation_id_or_member_epoch=joined.generation_id,
        topics=[{"name": "t20", "partitions": [offset]}],
        **known,
    )
    assert int(committed.topics[0].partitions[0].error_code) == 0
    [fetched] = kafka(9, 7, to=to, group_id="g20", topics=[{"name": "t20", "partition_indexes": (0,)}]).topics
    [kept] = fetched.partitions
    assert (kept.committed_offset, kept.committed_leader_epoch, kept.metadata) == (7, 3, "notes")
    stranger = kafka(12, 4, to=to, group_id="g20", generation_id=1, member_id="nobody", group_instance_id=None)
    assert int(stranger.error_code) == ErrorCode.UNKNOWN_MEMBER_ID


def test_trap_21_throttles_are_set_at_any_broker_also_for_one_that_is_down(tmp_path: Any) -> None:
    with LocalCluster(tmp_path / "down", 1, 2, 1, overrides={"broker.session.timeout.ms": "1000"}) as cluster:
        cluster.kill_node(1)
        change = {"name": "leader.replication.throttled.rate", "config_operation": 0, "value": "1000"}
        resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
        deadline = time.monotonic() + 20
        while int(ask(cluster.node(0).kafka, 44, 1, resources=[resource]).responses[0].error_code):
            assert time.monotonic() < deadline, "not even when the broker is fenced"


def test_trap_22_topics_are_described_page_by_page_in_the_order_of_names(kafka: Kafka) -> None:
    for name in ("t22-b", "t22-a"):
        kafka.create(name, partitions=2)
    names = [{"name": "t22-b"}, {"name": "t22-a"}]
    answer = kafka(75, 0, topics=names, response_partition_limit=3, cursor=None)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("t22-a", 2), ("t22-b", 1)]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t22-b", 1)
    rest = kafka(75, 0, topics=names, response_partition_limit=3, cursor=answer.next_cursor)
    assert [(topic.name, [part.partition_index for part in topic.partitions]) for topic in rest.topics] == [("t22-b", [1])]
    everything = kafka(75, 0, topics=[], response_partition_limit=2000, cursor=None)
    assert {"t22-a", "t22-b"} <= {topic.name for topic in everything.topics}


def test_trap_23_a_reassignment_may_be_repeated_and_only_new_replicas_must_be_known(kafka: Kafka) -> None:
    kafka.create("t23")
    (leader,) = kafka.describe("t23")[0].replica_nodes
    target = (leader + 1) % 3

    def reassign(*replicas: int) -> int:
        partition = {"partition_index": 0, "replicas": replicas}
        topics = [{"name": "t23", "partitions": [partition]}]
        answer = kafka(45, 0, topics=topics, timeout=20 * SECOND)
        return int(answer.responses[0].partitions[0].error_code)

    assert [reassign(target), reassign(target)] == [0, 0]
    kafka.until(lambda: kafka.describe("t23")[0].replica_nodes == (target,))
    assert reassign(target, 99) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_trap_16_a_client_of_the_last_cluster_finds_the_new_one_at_the_same_port(tmp_path: Any) -> None:
    with LocalCluster(tmp_path / "first", 1, 1, 1) as first:
        port = first.plan.brokers[0].kafka_port
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 30_000, "log_level": 0})
        producer.produce("t16", b"first")
        assert producer.flush(20) == 0
    with LocalCluster(tmp_path / "second", 1, 1, 1, kafka_port=port) as second:
        delivered: list[object] = []
        producer.produce("t16", b"second", on_delivery=lambda error, message: delivered.append(error))
        assert producer.flush(30) == 0
        assert delivered == [None]
        with AdminClient(second.bootstrap_servers) as admin:
            assert "t16" in admin.describe_topics(["t16"])
