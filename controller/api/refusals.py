"""Refusals of whole requests, for calls whose response repeats the error per entry.

One function per call, `(request, response, error)`: it adds to the response the entries that Kafka's response has. The header
already has the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftlab.access.authorizer import NOT_ASKED
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import ZERO, to_text
from kraftlab.rpc.endpoint_types import BROKERS

from ..engine.state import set_error
from ..reassignment import reassignments
from ..topics import topics

Refuse = Callable[[Any, Any, ApiError], None]


def each(entries: str, answers: str, *copied: str) -> Refuse:
    """Return a function that answers each of the request's `entries` with the error, in the response's `answers`. `copied`:
    the fields that identify an entry.
    """

    def refuse(request: Any, response: Any, error: ApiError) -> None:
        for entry in getattr(request, entries):
            set_error(getattr(response, answers).add(**{field: getattr(entry, field) for field in copied}), error)

    return refuse


def create_topics(request: admin_pb2.CreateTopicsRequest, response: admin_pb2.CreateTopicsResponse, error: ApiError) -> None:
    response.topics.extend(topics.failed_creation(topic.name, error) for topic in request.topics)


def delete_topics(request: admin_pb2.DeleteTopicsRequest, response: admin_pb2.DeleteTopicsResponse, error: ApiError) -> None:
    for entry in request.topics:
        result = response.responses.add(topic_id=entry.topic_id or to_text(ZERO))
        if entry.HasField("name"):
            result.name = entry.name
        set_error(result, error)


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


def metadata(request: admin_pb2.MetadataRequest, response: admin_pb2.MetadataResponse, error: ApiError) -> None:
    response.controller_id = -1
    response.cluster_authorized_operations = NOT_ASKED
    for topic in request.topics.values:
        response.topics.add(
            name=topic.name,
            topic_id=topic.topic_id or to_text(ZERO),
            error_code=error.code,
            topic_authorized_operations=NOT_ASKED,
        )


def describe_cluster(
    request: admin_pb2.DescribeClusterRequest, response: admin_pb2.DescribeClusterResponse, error: ApiError
) -> None:
    response.controller_id = -1
    response.endpoint_type = BROKERS
    response.cluster_authorized_operations = NOT_ASKED


def api_versions(request: admin_pb2.ApiVersionsRequest, response: admin_pb2.ApiVersionsResponse, error: ApiError) -> None:
    response.finalized_features_epoch = -1


def init_producer_id(
    request: admin_pb2.InitProducerIdRequest, response: admin_pb2.InitProducerIdResponse, error: ApiError
) -> None:
    response.producer_id = response.producer_epoch = -1


def alter_partition_reassignments(
    request: admin_pb2.AlterPartitionReassignmentsRequest,
    response: admin_pb2.AlterPartitionReassignmentsResponse,
    error: ApiError,
) -> None:
    response.allow_replication_factor_change = reassignments.allows_size_change(request)
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


def describe_user_scram_credentials(
    request: admin_pb2.DescribeUserScramCredentialsRequest,
    response: admin_pb2.DescribeUserScramCredentialsResponse,
    error: ApiError,
) -> None:
    """Add one entry with an empty user name."""
    set_error(response.results.add(), error)
