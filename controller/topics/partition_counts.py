"""CreatePartitions: more partitions for existing topics (KIP-195).

Theory of operation. Topics are checked one by one, in one order of checks, and a topic's records are added only when it is
complete. Everything that is accepted is one atomic batch. A request for more partitions than a batch holds is refused before
any is placed. New partitions have the topic's replication factor: the size of its first partition's replica set, or of its
target while it is being reassigned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage, TopicImage
from kraftlab.metadata.records import Partition
from kraftlab.quorum.core.batch import MAX_RECORDS

from ..engine.state import Context, ControllerState, Outcome, check_record_count
from ..reassignment.arithmetic import target_replicas
from .assignments import bad_assignment, check_assignments, new_partition, spread
from .topics import LONG_PARTITIONS


def create_partitions(
    state: ControllerState, request: admin_pb2.CreatePartitionsRequest, context: Context
) -> Outcome[admin_pb2.CreatePartitionsResponse]:
    """Add partitions. Answers are in the order of the request; duplicate names come last, once. ApiError POLICY_VIOLATION for
    too many partitions.
    """
    topics = state.image.topics
    added = sum(max(0, entry.count - _partition_count(topics.get(entry.name))) for entry in request.topics)
    if added > MAX_RECORDS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {added} new ones are more than {MAX_RECORDS}; nothing was "
            "changed. Split the request.",
        )
    appearances = Counter(entry.name for entry in request.topics)
    response = admin_pb2.CreatePartitionsResponse()
    records: list[Partition] = []
    for entry in request.topics:
        if appearances[entry.name] > 1:
            continue
        result = response.results.add(name=entry.name)
        try:
            records += _grow_one(state.image, entry, context)
        except ApiError as error:
            set_error(result, error)
    duplicate = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    for name, count in appearances.items():
        if count > 1:
            set_error(response.results.add(name=name), duplicate)
    check_record_count(records)
    return Outcome([] if request.validate_only else records, response)


def is_long(state: ControllerState, request: admin_pb2.CreatePartitionsRequest | admin_pb2.AlterPartitionCountsRequest) -> bool:
    """Return True if the request adds very many partitions."""
    added = sum(max(0, entry.count - _partition_count(state.image.topics.get(entry.name))) for entry in request.topics)
    return added > LONG_PARTITIONS


def _partition_count(topic: TopicImage | None) -> int:
    """Number of partitions. A missing topic counts as full, since it gets no partitions."""
    return (1 << 31) if topic is None else len(topic.partitions)


def _grow_one(image: MetadataImage, entry: admin_pb2.CreatePartitionsTopic, context: Context) -> list[Partition]:
    topic = image.topics.get(entry.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    assignments = None
    if entry.HasField("assignments"):
        assignments = [tuple(assignment.broker_ids) for assignment in entry.assignments.values]
    return grow(image, topic, entry.count, assignments, context)


def grow(
    image: MetadataImage, topic: TopicImage, count: int, assignments: Sequence[tuple[int, ...]] | None, context: Context
) -> list[Partition]:
    """Partitions that a topic lacks to have `count`. `assignments`: their replicas, None: spread over racks.

    ApiError INVALID_PARTITIONS (no increase), INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR (too few brokers), or
    THROTTLING_QUOTA_EXCEEDED.
    """
    first = len(topic.partitions)
    if count == first:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {first} partition(s).")
    if count < first:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {first} partition(s); {count} would not be an increase.",
        )
    added = count - first
    if assignments is not None and len(assignments) != added:
        raise bad_assignment(
            f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were specified."
        )
    context.mutations.take(added)
    factor = len(target_replicas(topic.partitions[min(topic.partitions)]))
    if assignments is None:
        replica_lists = spread(image, added, factor, context)
    else:
        replica_lists = list(check_assignments(image, enumerate(assignments, first), factor).values())
    return [new_partition(image, topic.topic_id, index, replicas) for index, replicas in enumerate(replica_lists, first)]
