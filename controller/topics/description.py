"""Descriptions of topics: DescribeTopicPartitions, with all facts, and Metadata, for Kafka's clients.

A limit counts partitions, and the rest starts at `next_cursor`. Without a limit all partitions are described, as of one
metadata offset. If they do not fit one message between nodes, the rest starts at `next_cursor` as well. `access.admission`
removes topics that the caller may not see, and adds authorized operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import ZERO, to_text
from kraftlab.metadata.image import MetadataImage, PartitionImage, TopicImage
from kraftlab.metadata.records import RESOURCE_TOPIC
from kraftlab.metadata.topic_names import INTERNAL_TOPICS, name_problem

from ..engine.state import ControllerState

MAX_PARTITIONS = 2000
"""Highest limit (Kafka's max.request.partition.size.limit)."""
ANSWER_BYTES = 8 * 1024 * 1024
"""An answer of this size gets no more partitions: it has to pass through a broker, in a frame of 16 MiB."""
LONG_FROM_PARTITIONS = 5000
"""Describing this many partitions takes about a tenth of a second."""


def is_long_description(state: ControllerState, request: admin_pb2.DescribeTopicPartitionsRequest) -> bool:
    """Return True if an answer without a limit describes very many partitions."""
    if request.HasField("response_partition_limit"):
        return False
    return _are_many(state.image, request.topics.names if request.HasField("topics") else state.image.topics.by_name)


def _are_many(image: MetadataImage, names: Iterable[str]) -> bool:
    found = (image.topics.get(name) for name in names)
    counts = itertools.accumulate(len(topic.partitions) for topic in found if topic is not None)
    return any(count >= LONG_FROM_PARTITIONS for count in counts)


# --- DescribeTopicPartitions --------------------------------------------------------------------------------------------


def describe(
    state: ControllerState, request: admin_pb2.DescribeTopicPartitionsRequest
) -> admin_pb2.DescribeTopicPartitionsResponse:
    """Topics with partitions, reassignments and dynamic configs, sorted by name; all topics if none is named.

    ApiError INVALID_REQUEST if the cursor has a negative partition, or a topic that is not requested.
    """
    _check_cursor(request)
    first = request.cursor.topic_name if request.HasField("cursor") else ""
    topics = state.image.topics
    names = request.topics.names if request.HasField("topics") else topics.by_name.keys()
    wanted = {name for name in names if name >= first}
    response = admin_pb2.DescribeTopicPartitionsResponse()
    limit, size_bytes = None, 0
    if request.HasField("response_partition_limit"):
        limit = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    for name in sorted(wanted):
        begin = request.cursor.partition_index if request.HasField("cursor") and name == first else 0
        if limit == 0 or size_bytes >= ANSWER_BYTES:
            response.next_cursor.topic_name = name
            break
        topic = topics.get(name)
        if topic is None:
            set_error(response.topics.add(name=name, topic_id=to_text(ZERO)), unknown_topic(name))
            continue
        rest = [index for index in sorted(topic.partitions) if index >= begin]
        described = _described_topic(state.image, topic)
        size_bytes += described.ByteSize()
        for index in rest[:limit]:
            if size_bytes >= ANSWER_BYTES and described.partitions:
                break
            partition = _described_partition(state.image, index, topic.partitions[index])
            size_bytes += partition.ByteSize()
            described.partitions.append(partition)
        response.topics.append(described)
        shown = len(described.partitions)
        if shown < len(rest):
            response.next_cursor.topic_name = name
            response.next_cursor.partition_index = rest[shown]
            break
        limit = None if limit is None else limit - shown
    return response


def empty_means_all(request: admin_pb2.DescribeTopicPartitionsRequest) -> None:
    """An empty list of names requests all topics, as a missing list does (KIP-966)."""
    if not request.topics.names:
        request.ClearField("topics")


def _check_cursor(request: admin_pb2.DescribeTopicPartitionsRequest) -> None:
    if not request.HasField("cursor"):
        return
    cursor = request.cursor
    if cursor.partition_index < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The cursor is at partition {cursor.partition_index}; take a cursor from a response, or 0 for a topic's first "
            "partition.",
        )
    if request.HasField("topics") and cursor.topic_name not in request.topics.names:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The cursor is at topic {cursor.topic_name!r}, which is not among the requested topics; name it, or give no cursor.",
        )


def unknown_topic(name: str) -> ApiError:
    """Error for a topic that does not exist."""
    problem = name_problem(name)
    if problem is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named {name}.")


def _described_topic(image: MetadataImage, topic: TopicImage) -> admin_pb2.DescribedTopic:
    """A topic without its partitions."""
    values = image.configs.get((RESOURCE_TOPIC, topic.name))
    return admin_pb2.DescribedTopic(
        name=topic.name,
        topic_id=to_text(topic.topic_id),
        is_internal=topic.name in INTERNAL_TOPICS,
        configs=[
            admin_pb2.ConfigEntry(name=name, value=value, config_source=admin_pb2.CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG)
            for name, value in sorted(values.items() if values is not None else ())
        ],
    )


def _described_partition(image: MetadataImage, index: int, partition: PartitionImage) -> admin_pb2.DescribedPartition:
    return admin_pb2.DescribedPartition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
        offline_replicas=_offline(image, partition),
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        original_replicas=partition.original,
        target_replicas=partition.target,
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=partition.leader_recovery_state,
        directories=[to_text(directory) for directory in partition.directories],
    )


def _offline(image: MetadataImage, partition: PartitionImage) -> Sequence[int]:
    """Replicas whose broker is unregistered or fenced, or whose directory is offline."""
    offline = []
    for broker_id, directory in zip(partition.replicas, partition.directories, strict=True):
        broker = image.cluster.brokers.get(broker_id)
        if broker is None or broker.fenced or not broker.has_online(directory):
            offline.append(broker_id)
    return offline
