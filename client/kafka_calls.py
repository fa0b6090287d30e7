"""Calls of the Admin service that take more than one request of Kafka's protocol, or work on its response.

Each function takes the node, which sends a request as Kafka's, and returns the response that one of our own nodes would give, as
far as Kafka knows it. A response with an error in its header is returned as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.messages.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from kraftlab.messages.generated.metadata_response import MetadataResponse, MetadataResponseTopic
from kraftlab.messages.schema import Message as KafkaMessage
from kraftlab.metadata.features import KRAFT_VERSION
from kraftlab.rpc.methods import AdminRequest, Response

_QUORUM_TOPIC = "__cluster_metadata"
_CONTROLLERS = 2
"""Endpoint type of controllers."""
_ANY = "any"
_OF_PARTITIONS = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "offline_replicas")
Partition = tuple[str, int]
Answer = TypeVar("Answer", bound=KafkaMessage)


class KafkaServer(Protocol):
    """One broker or controller of a Kafka cluster."""

    def ask(self, answer: type[Response], request: AdminRequest) -> Response: ...

    def exchange(self, request: KafkaMessage, answer: type[Answer]) -> Answer: ...

    def offers(self, api: str) -> bool: ...


# -- topics ------------------------------------------------------------------------------------------------------------------


def describe_topics(node: KafkaServer, request: pb.DescribeTopicPartitionsRequest) -> pb.DescribeTopicPartitionsResponse:
    """Describe topics with their reassignments, which Kafka lists apart. A caller who may not list them sees none, as in Kafka's
    own tool. Brokers before Kafka 3.7 are asked for Metadata.
    """
    is_offered = node.offers("DescribeTopicPartitions")
    described = node.ask(pb.DescribeTopicPartitionsResponse, request) if is_offered else _topics_of_metadata(node, request)
    if described.header.error_code:
        return described
    listed = list_reassignments(node, pb.ListPartitionReassignmentsRequest(header=request.header))
    moving = {(topic.name, entry.partition_index): entry for topic in listed.topics for entry in topic.partitions}
    for topic in described.topics:
        for entry in topic.partitions:
            if found := moving.get((topic.name, entry.partition_index)):
                for name in ("adding_replicas", "removing_replicas", "original_replicas", "target_replicas"):
                    getattr(entry, name).extend(getattr(found, name))
    return described


def _topics_of_metadata(node: KafkaServer, request: pb.DescribeTopicPartitionsRequest) -> pb.DescribeTopicPartitionsResponse:
    """Describe topics as Metadata has them."""
    asked = [MetadataRequestTopic(name=name) for name in request.topics.names] or None
    answer = node.exchange(MetadataRequest(asked), MetadataResponse)
    described = pb.DescribeTopicPartitionsResponse()
    topics = [topic for topic in answer.topics or () if isinstance(topic, MetadataResponseTopic)]
    for topic in sorted(topics, key=lambda topic: topic.name or ""):
        found = described.topics.add(
            error_code=topic.error_code, name=topic.name, topic_id=to_text(topic.topic_id), is_internal=topic.is_internal
        )
        for entry in sorted(topic.partitions, key=lambda entry: entry.partition_index):
            found.partitions.add(**{name: getattr(entry, name) for name in _OF_PARTITIONS})
    return described


def alter_partition_counts(node: KafkaServer, request: pb.AlterPartitionCountsRequest) -> pb.AlterPartitionCountsResponse:
    """Add partitions: KIP-179's call under the name that Kafka shipped."""
    asked = pb.CreatePartitionsRequest(header=request.header, validate_only=request.validate_only)
    for topic in request.topics:
        asked.topics.add(name=topic.name, count=topic.count)
    answer = node.ask(pb.CreatePartitionsResponse, asked)
    altered = pb.AlterPartitionCountsResponse(header=answer.header)
    for result in answer.results:
        text = result.error_message if result.HasField("error_message") else None
        altered.topics.add(name=result.name, error_code=result.error_code, error_message=text)
    return altered


# -- reassignments -----------------------------------------------------------------------------------------------------------


def list_reassignments(node: KafkaServer, request: pb.ListPartitionReassignmentsRequest) -> pb.ListPartitionReassignmentsResponse:
    """List reassignments with the replicas before and after. Kafka merges both lists: the order after is known, and the replicas
    before are in that order too.
    """
    listed = node.ask(pb.ListPartitionReassignmentsResponse, request)
    for topic in listed.topics:
        for entry in topic.partitions:
            entry.original_replicas.extend(broker for broker in entry.replicas if broker not in entry.adding_replicas)
            entry.target_replicas.extend(broker for broker in entry.replicas if broker not in entry.removing_replicas)
    return listed


def cancel_reassignments(node: KafkaServer, request: pb.CancelReassignmentsRequest) -> pb.CancelReassignmentsResponse:
    """Cancel the reassignments of topics, or all: the running ones are listed first."""
    listed = list_reassignments(node, pb.ListPartitionReassignmentsRequest(header=request.header))
    asked = pb.AlterPartitionReassignmentsRequest(header=request.header, validate_only=request.validate_only, force=request.force)
    for topic in listed.topics:
        if not request.HasField("topics") or topic.name in request.topics.names:
            numbers = [pb.ReassignablePartition(partition_index=entry.partition_index) for entry in topic.partitions]
            asked.topics.add(name=topic.name, partitions=numbers)
    if listed.header.error_code or not asked.topics:
        return pb.CancelReassignmentsResponse(header=listed.header)
    answer = node.ask(pb.AlterPartitionReassignmentsResponse, asked)
    return pb.CancelReassignmentsResponse(header=answer.header, responses=answer.responses)


# -- cluster -----------------------------------------------------------------------------------------------------------------


def describe_cluster(node: KafkaServer, request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
    """Describe the brokers; a controller describes the controllers and names the active one."""
    is_broker = node.offers("Metadata")
    asked = request if is_broker else pb.DescribeClusterRequest(header=request.header, endpoint_type=_CONTROLLERS)
    described = node.ask(pb.DescribeClusterResponse, asked)
    if is_broker:
        return described
    for member in described.brokers:
        described.controllers.add(controller_id=member.broker_id, host=member.host, port=member.port)
        if member.broker_id == described.controller_id:
            described.header.leader.CopyFrom(pb.Endpoint(host=member.host, port=member.port))
            described.header.leader_id = member.broker_id
    del described.brokers[:]
    return described


def describe_quorum(node: KafkaServer, request: pb.DescribeQuorumRequest) -> pb.DescribeQuorumResponse:
    """Describe the quorum, with the cluster's id, the voters' endpoints and the level of kraft.version."""
    asked = pb.DescribeQuorumRequest(header=request.header)
    asked.topics.add(topic_name=_QUORUM_TOPIC).partitions.add(partition_index=0)
    quorum = node.ask(pb.DescribeQuorumResponse, asked)
    found = next((entry for topic in quorum.topics for entry in topic.partitions), None)
    if quorum.header.error_code or found is None:
        return quorum
    quorum.header.error_code = found.error_code
    if found.HasField("error_message"):
        quorum.header.error_message = found.error_message
    quorum.leader_id, quorum.leader_epoch, quorum.high_watermark = found.leader_id, found.leader_epoch, found.high_watermark
    listeners = {described.node_id: described.listeners for described in quorum.nodes}
    for replicas, target in ((found.current_voters, quorum.current_voters), (found.observers, quorum.observers)):
        for replica in replicas:
            target.add().CopyFrom(replica)
            target[-1].endpoints.extend(listeners.get(replica.replica_id, ()))
    quorum.cluster_id = describe_cluster(node, pb.DescribeClusterRequest(header=request.header)).cluster_id
    levels = node.ask(pb.ApiVersionsResponse, pb.ApiVersionsRequest(header=request.header, **SOFTWARE))
    quorum.kraft_version = next((each.max_version_level for each in levels.finalized_features if each.name == KRAFT_VERSION), 0)
    quorum.voters_offset = -1
    return quorum


# -- log directories ---------------------------------------------------------------------------------------------------------


def describe_log_dirs(node: KafkaServer, request: pb.DescribeLogDirsRequest) -> pb.DescribeLogDirsResponse:
    """Describe log directories. Kafka filters by partition; this filters by topic, by directory and for moves. A move's progress
    follows from the sizes of both logs.
    """
    asked = pb.DescribeLogDirsRequest(header=request.header)
    whole = {topic.topic for topic in request.topics.values if topic.all_partitions}
    single = {(topic.topic, index) for topic in request.topics.values for index in topic.partitions}
    if request.HasField("topics") and not whole:
        asked.topics.CopyFrom(request.topics)
    described = node.ask(pb.DescribeLogDirsResponse, asked)
    replicas = [(found, topic, entry) for found in described.results for topic in found.topics for entry in topic.partitions]
    moving = {(topic.name, entry.partition_index) for _, topic, entry in replicas if entry.is_future_key}
    current = {
        (topic.name, entry.partition_index): (found.log_dir, entry.partition_size)
        for found, topic, entry in replicas
        if not entry.is_future_key
    }
    answer = pb.DescribeLogDirsResponse(header=described.header)
    for found in described.results:
        if request.log_dirs and found.log_dir not in request.log_dirs:
            continue
        kept = answer.results.add()
        kept.CopyFrom(found)
        del kept.topics[:]
        for topic in found.topics:
            entries = []
            for entry in topic.partitions:
                key = (topic.name, entry.partition_index)
                is_wanted = not request.HasField("topics") or topic.name in whole or key in single
                if is_wanted and (key in moving or not request.only_filling):
                    entries.append(entry)
                if entry.is_future_key and key in current:
                    entry.source_log_dir, size_bytes = current[key]
                    entry.bytes_left = max(size_bytes - entry.partition_size, 0)
            if entries:
                kept.topics.add(name=topic.name, partitions=entries)
    return answer


def alter_log_dirs(node: KafkaServer, request: pb.AlterReplicaLogDirsRequest) -> pb.AlterReplicaLogDirsResponse:
    """Move replicas to log directories. Kafka has no "any": a running move ends when its replica is moved to where it is.

    A replica that the broker does not have gets REPLICA_NOT_AVAILABLE.
    """
    wanted = {(topic.name, index): each.path for each in request.dirs for topic in each.topics for index in topic.partitions}
    dropped = [key for key, path in wanted.items() if path == _ANY]
    if not dropped:
        return node.ask(pb.AlterReplicaLogDirsResponse, request)
    places = _places(node, request.header, dropped)
    paths: dict[str, dict[str, list[int]]] = {}
    for (name, index), path in wanted.items():
        here = places.get((name, index)) if path == _ANY else path
        if here is not None:
            paths.setdefault(here, {}).setdefault(name, []).append(index)
    asked = pb.AlterReplicaLogDirsRequest(header=request.header)
    for path, topics in paths.items():
        entries = [pb.AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics.items()]
        asked.dirs.add(path=path, topics=entries)
    answer = node.ask(pb.AlterReplicaLogDirsResponse, asked) if paths else pb.AlterReplicaLogDirsResponse()
    for name, index in dropped:
        if (name, index) not in places:
            missing = answer.results.add(topic_name=name).partitions.add(partition_index=index)
            missing.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return answer


def _places(node: KafkaServer, header: pb.RequestHeader, keys: list[Partition]) -> dict[Partition, str]:
    """Return the current log directories of replicas."""
    asked = pb.DescribeLogDirsRequest(header=header)
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    asked.topics.values.extend(pb.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items())
    return {
        (topic.name, entry.partition_index): found.log_dir
        for found in node.ask(pb.DescribeLogDirsResponse, asked).results
        for topic in found.topics
        for entry in topic.partitions
        if not entry.is_future_key
    }


SOFTWARE: Mapping[str, Any] = {"client_software_name": "kraftlab", "client_software_version": "1"}
SEVERAL: Mapping[str, Callable[..., Message]] = {
    "DescribeTopicPartitions": describe_topics,
    "AlterPartitionCounts": alter_partition_counts,
    "ListPartitionReassignments": list_reassignments,
    "CancelReassignments": cancel_reassignments,
    "DescribeCluster": describe_cluster,
    "DescribeQuorum": describe_quorum,
    "DescribeLogDirs": describe_log_dirs,
    "AlterReplicaLogDirs": alter_log_dirs,
}
"""Call → the function that answers it. All other calls are one request."""
