"""Refusals of whole requests, for calls whose response repeats the error per entry.

One function per call, `(request, response, error)`: it adds to the response the entries that Kafka's response has. The header
already has the error. `rpc/calls.py` has the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import ZERO, to_text

from . import NOT_ASKED

Refuse = Callable[[Any, Any, ApiError], None]
BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of DescribeCluster: brokers describe brokers, controllers describe controllers (KIP-919)."""
_ENDPOINT_TYPES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


class HasError(Protocol):
    """A response, or an entry of one, with an error code and a text."""

    error_code: int
    error_message: str


def set_error(target: HasError, error: ApiError) -> None:
    """Set code and text. An empty text stays absent (Kafka's null)."""
    target.error_code = error.code
    if error.message:
        target.error_message = error.message


def no_entries(request: object, response: object, error: ApiError) -> None:
    """Add nothing: the header says it all."""


def each(entries: str, answers: str, *copied: str) -> Refuse:
    """Return a function that answers each of the request's `entries` with the error, in the response's `answers`. `copied`:
    the fields that identify an entry.
    """

    def refuse(request: Any, response: Any, error: ApiError) -> None:
        for entry in getattr(request, entries):
            set_error(getattr(response, answers).add(**{field: getattr(entry, field) for field in copied}), error)

    return refuse


# --- topics and cluster --------------------------------------------------------------------------------------------------


def create_topics(request: admin_pb2.CreateTopicsRequest, response: admin_pb2.CreateTopicsResponse, error: ApiError) -> None:
    for topic in request.topics:
        set_error(response.topics.add(name=topic.name, topic_id=to_text(ZERO), num_partitions=-1, replication_factor=-1), error)


def delete_topics(request: admin_pb2.DeleteTopicsRequest, response: admin_pb2.DeleteTopicsResponse, error: ApiError) -> None:
    for entry in request.topics:
        result = response.responses.add(topic_id=entry.topic_id or to_text(ZERO))
        if entry.HasField("name"):
            result.name = entry.name
        set_error(result, error)
    for name in request.topic_names:
        set_error(response.responses.add(name=name, topic_id=to_text(ZERO)), error)


def elect_leaders(request: admin_pb2.ElectLeadersRequest, response: admin_pb2.ElectLeadersResponse, error: ApiError) -> None:
    for topic in request.topic_partitions.values:
        result = response.replica_election_results.add(topic=topic.topic)
        for number in topic.partitions:
            set_error(result.partition_result.add(partition_id=number), error)


def describe_topic_partitions(
    request: admin_pb2.DescribeTopicPartitionsRequest, response: admin_pb2.DescribeTopicPartitionsResponse, error: ApiError
) -> None:
    for name in request.topics.names:
        set_error(response.topics.add(name=name, topic_id=to_text(ZERO), topic_authorized_operations=NOT_ASKED), error)


def alter_partition_reassignments(
    request: admin_pb2.AlterPartitionReassignmentsRequest,
    response: admin_pb2.AlterPartitionReassignmentsResponse,
    error: ApiError,
) -> None:
    """Repeat the entries, and KIP-860's flag, which is true if it is absent."""
    is_given = request.HasField("allow_replication_factor_change")
    response.allow_replication_factor_change = request.allow_replication_factor_change or not is_given
    for topic in request.topics:
        answers = response.responses.add(name=topic.name)
        for entry in topic.partitions:
            set_error(answers.partitions.add(partition_index=entry.partition_index), error)


def list_partition_reassignments(
    request: admin_pb2.ListPartitionReassignmentsRequest,
    response: admin_pb2.ListPartitionReassignmentsResponse,
    error: ApiError,
) -> None:
    """Repeat the requested partitions, without replicas."""
    for topic in request.topics.topics:
        answer = response.topics.add(name=topic.name)
        for index in topic.partition_indexes:
            answer.partitions.add(partition_index=index)


def alter_user_scram_credentials(
    request: admin_pb2.AlterUserScramCredentialsRequest,
    response: admin_pb2.AlterUserScramCredentialsResponse,
    error: ApiError,
) -> None:
    users = [*(entry.name for entry in request.deletions), *(entry.name for entry in request.upsertions)]
    for user in dict.fromkeys(users):
        set_error(response.results.add(user=user), error)


def describe_scram_credentials(
    request: admin_pb2.DescribeUserScramCredentialsRequest,
    response: admin_pb2.DescribeUserScramCredentialsResponse,
    error: ApiError,
) -> None:
    """Add one entry with an empty user name."""
    set_error(response.results.add(), error)


def check_endpoint_type(request: admin_pb2.DescribeClusterRequest, own: int) -> None:
    """Raise ApiError if another type of endpoint is requested than this node's (`own`)."""
    if request.HasField("endpoint_type"):
        is_first_version = request.header.HasField("api_version") and request.header.api_version == 0
        check_endpoint(request.endpoint_type, own, is_first_version=is_first_version)


def check_endpoint(wanted: int, own: int, *, is_first_version: bool) -> None:
    """Raise ApiError if `wanted` is not this node's type of endpoint. The first version has no error codes for this."""
    if wanted == own:
        return
    if wanted not in _ENDPOINT_TYPES:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}"
    else:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"The request was sent to an endpoint of type {_ENDPOINT_TYPES[own]}, "
            f"but we wanted an endpoint of type {_ENDPOINT_TYPES[wanted]}"
        )
    raise ApiError(ErrorCode.INVALID_REQUEST if is_first_version else code, message)


# --- calls of brokers ----------------------------------------------------------------------------------------------------


def alter_replica_log_dirs(
    request: admin_pb2.AlterReplicaLogDirsRequest, response: admin_pb2.AlterReplicaLogDirsResponse, error: ApiError
) -> None:
    """List each replica once, even if it was to go to two directories."""
    replicas: dict[str, dict[int, None]] = {}
    for place in request.dirs:
        for topic in place.topics:
            replicas.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    for name, indexes in replicas.items():
        result = response.results.add(topic_name=name)
        for index in indexes:
            result.partitions.add(partition_index=index, error_code=error.code)


def delete_records(request: admin_pb2.DeleteRecordsRequest, response: admin_pb2.DeleteRecordsResponse, error: ApiError) -> None:
    for topic in request.topics:
        result = response.topics.add(name=topic.name)
        for partition in topic.partitions:
            result.partitions.add(partition_index=partition.partition_index, low_watermark=-1, error_code=error.code)
