"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860).

Theory of operation. Every entry is judged against the state before the request; entries that fail do not stop the others,
and all records of a request form one atomic batch. A partition that a request names twice is refused in each place:
whichever entry won, the other's answer would be a lie. The arithmetic is `reassignment.py`; a new target over a running
reassignment replaces it, a cancel restores the stored original set exactly.

Lists come from committed state, with the full intermediate replica set and the stored original and target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.eligible_leaders import min_isr_if_on
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import PartitionImage, TopicImage
from kraftlab.metadata.records import PartitionChange
from kraftlab.quorum.core.batch import MAX_RECORDS

from ..configs.configs import unclean_election_enabled
from ..engine.state import Context, ControllerState, Outcome, set_error
from ..partitions.partition_change import build_cancel, build_target
from ..partitions.partitions import Eligibility, default_directory
from . import arithmetic as reassignment


def alter(
    state: ControllerState, request: admin_pb2.AlterPartitionReassignmentsRequest, context: Context
) -> Outcome[admin_pb2.AlterPartitionReassignmentsResponse]:
    """Starts, replaces and cancels reassignments. ApiError POLICY_VIOLATION for the whole request if it has too many
    entries.
    """
    entries = sum(len(topic.partitions) for topic in request.topics)
    if entries > MAX_RECORDS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The request names {entries} partitions, more than the {MAX_RECORDS} that fit one atomic change; "
            "nothing was changed. Split it.",
        )
    allow_size_change = allows_size_change(request)
    appearances = Counter((topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions)
    response = admin_pb2.AlterPartitionReassignmentsResponse(allow_replication_factor_change=allow_size_change)
    records: list[PartitionChange] = []
    for topic in request.topics:
        answers = response.responses.add(name=topic.name)
        for entry in topic.partitions:
            answer = answers.partitions.add(partition_index=entry.partition_index)
            try:
                if appearances[topic.name, entry.partition_index] > 1:
                    raise _named_twice(topic.name, entry.partition_index)
                record = _alter_one(state, topic.name, entry, allow_size_change, context)
            except ApiError as error:
                set_error(answer, error)
                continue
            if record is not None:
                records.append(record)
    return Outcome(records, response)


def allows_size_change(request: admin_pb2.AlterPartitionReassignmentsRequest) -> bool:
    """KIP-860's flag, true if it is absent."""
    return not request.HasField("allow_replication_factor_change") or request.allow_replication_factor_change


def _named_twice(topic: str, partition: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"Partition {topic}:{partition} is named more than once in this request; nothing was changed for it.",
    )


def _alter_one(
    state: ControllerState,
    topic_name: str,
    entry: admin_pb2.ReassignablePartition,
    allow_size_change: bool,
    context: Context,
) -> PartitionChange | None:
    """The record for one entry, None if nothing has to change."""
    image = state.image
    topic = image.topics.get(topic_name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic_name}.")
    partition = topic.partitions.get(entry.partition_index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic_name}:{entry.partition_index}.")
    brokers = image.cluster.brokers
    acceptable = Eligibility(brokers).for_partition(partition)
    if not entry.HasField("replicas"):
        return build_cancel(
            partition,
            entry.partition_index,
            topic.topic_id,
            f"{topic_name}:{entry.partition_index}",
            acceptable=acceptable,
            default_directory=default_directory(brokers),
            min_isr=min_isr_if_on(image, topic_name),
            unclean_allowed=unclean_election_enabled(image, topic_name, context.settings),
        )
    target = tuple(entry.replicas.values)
    reassignment.check_target(target, brokers.__contains__)
    if not allow_size_change:
        reassignment.check_replication_factor(partition, target)
    return build_target(
        partition,
        entry.partition_index,
        topic.topic_id,
        target,
        acceptable=acceptable,
        default_directory=default_directory(brokers),
        min_isr=min_isr_if_on(image, topic_name),
    )


def listing(
    state: ControllerState, request: admin_pb2.ListPartitionReassignmentsRequest
) -> admin_pb2.ListPartitionReassignmentsResponse:
    """What is being reassigned: everything, sorted, or what was asked for in the order of the request.

    Unknown names and partitions, and partitions that are not being reassigned, are left out.
    """
    response = admin_pb2.ListPartitionReassignmentsResponse()
    topics = state.image.topics
    if not request.HasField("topics"):
        moving = sorted((topics.by_id[topic_id] for topic_id in topics.reassigning), key=lambda topic: topic.name)
        for topic in moving:
            _list_topic(response, topic, topics.reassigning[topic.topic_id])
        return response
    for asked in request.topics.topics:
        known = topics.get(asked.name)
        if known is not None:
            _list_topic(response, known, asked.partition_indexes)
    return response


def _list_topic(
    response: admin_pb2.ListPartitionReassignmentsResponse, topic: TopicImage, partition_indexes: Iterable[int]
) -> None:
    ongoing = [
        _ongoing(index, partition)
        for index in partition_indexes
        for partition in [topic.partitions.get(index)]
        if partition is not None and partition.is_reassigning
    ]
    if ongoing:
        response.topics.add(name=topic.name, partitions=ongoing)


def _ongoing(index: int, partition: PartitionImage) -> admin_pb2.OngoingPartitionReassignment:
    return admin_pb2.OngoingPartitionReassignment(
        partition_index=index,
        replicas=partition.replicas,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        original_replicas=partition.original,
        target_replicas=partition.target,
    )
