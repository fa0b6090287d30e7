"""Frozen results of the calls that people use most."""

from __future__ import annotations

import msgspec
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, answer_of
from kraftlab.client import results as r
from kraftlab.common.errors import ApiError, ErrorCode


def structs() -> list[type[r.Result]]:
    return [kind for kind in vars(r).values() if isinstance(kind, type) and issubclass(kind, r.Result) and kind is not r.Result]


@pytest.mark.parametrize("kind", structs(), ids=lambda kind: kind.__name__)
def test_fields_have_the_names_of_the_messages(kind: type[r.Result]) -> None:
    messages = {
        "Config": pb.ConfigEntry,
        "DescribedConfig": pb.ConfigEntry,
        "Partition": pb.DescribedPartition,
        "Topic": pb.DescribedTopic,
        "Broker": pb.DescribedBroker,
        "Controller": pb.DescribedController,
        "Cluster": pb.DescribeClusterResponse,
        "Reassignment": pb.OngoingPartitionReassignment,
        "Reassignments": pb.ListPartitionReassignmentsResponse,
        "Quorum": pb.DescribeQuorumResponse,
        "LogDirReplica": pb.LogDirPartition,
        "LogDir": pb.LogDirResult,
    }
    message = messages[kind.__name__] if kind.__name__ in messages else getattr(pb, kind.__name__)
    own = {"topic", "replicas", "running", "leader_id", "metadata_offset"}
    names = {field.name for field in msgspec.structs.fields(kind)}
    assert names - own <= set(message.DESCRIPTOR.fields_by_name)


def test_topics_are_frozen_and_an_unknown_one_is_an_error(cluster) -> None:
    known = pb.DescribedTopic(name="t", topic_id="id", topic_authorized_operations=3576)
    known.partitions.add(partition_index=0, leader_id=-1, replica_nodes=[1, 2], isr_nodes=[2])
    known.configs.add(name="retention.ms", value="7")
    unknown = pb.DescribedTopic(name="nope", error_code=3, error_message="There is no topic named nope.")
    found = [known]
    cluster.nodes[0].answers["DescribeTopicPartitions"] = lambda _: pb.DescribeTopicPartitionsResponse(topics=found)
    with AdminClient(cluster.nodes[0].server) as client:
        topic = client.describe_topics(["t"])["t"]
        [partition] = topic.partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (None, (1, 2), (2,))
        assert topic.configs == (r.Config("retention.ms", "7"),)
        assert {topic: 1}[client.describe_topics()["t"]] == 1, "equal values are equal keys"
        with pytest.raises(AttributeError):
            partition.leader_id = 1  # type: ignore[misc]
        found.append(unknown)
        with pytest.raises(ApiError) as raised:
            client.describe_topics(["t", "nope"])
        assert answer_of(lambda: client.describe_topics(["t", "nope"])) == {"t": topic}
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_values_are_none() -> None:
    response = pb.ListPartitionReassignmentsResponse()
    entry = response.topics.add(name="t").partitions.add(partition_index=3, bytes_done=5, bytes_left=-1, eta_ms=-1)
    entry.blockers.add(broker_id=2, state="COPYING", text="broker 2 copies")
    response.queued.add(topic="u", partition_index=1, size_bytes=-1, throttle=0)
    found = r.reassignments_of(response)
    [running] = found.running
    assert (running.topic, running.partition_index, running.bytes_done, running.bytes_left) == ("t", 3, 5, None)
    assert (running.plan_id, running.limit, running.blockers[0].state) == (None, None, "COPYING")
    assert (found.queued[0].size_bytes, found.queued[0].throttle) == (None, 0)


def test_members_and_log_directories() -> None:
    described = pb.DescribeClusterResponse(cluster_id="c")
    described.header.leader_id = -1
    described.brokers.add(broker_id=1, host="h", port=2)
    members = r.cluster_of(described)
    assert (members.leader_id, members.brokers[0].rack, members.brokers[0].silent_ms) == (None, None, None)
    directories = pb.DescribeLogDirsResponse()
    entry = directories.results.add(log_dir="/d", total_bytes=-1, usable_bytes=-1)
    entry.topics.add(name="t").partitions.add(partition_index=4, partition_size=9, bytes_left=-1)
    [directory] = r.log_dirs_of(directories)
    assert (directory.total_bytes, directory.replicas[0].topic, directory.replicas[0].partition_size) == (None, "t", 9)


def test_a_topic_is_created_with_the_given_fields(cluster) -> None:
    asked: list[pb.CreateTopicsRequest] = []

    def create(request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse:
        asked.append(request)
        refused = request.topics[0].name == "bad"
        answer = pb.CreatableTopicResult(name=request.topics[0].name, topic_id="id", error_code=17 if refused else 0)
        return pb.CreateTopicsResponse(topics=[answer])

    cluster.nodes[0].answers["CreateTopics"] = create
    with AdminClient(cluster.nodes[0].server) as client:
        assert client.create_topic("t", partitions=3, configs={"retention.ms": "7"}) == "id"
        with pytest.raises(ApiError):
            client.create_topic("bad")
    topic = asked[0].topics[0]
    assert (topic.num_partitions, topic.replication_factor, topic.configs[0].value) == (3, -1, "7")
