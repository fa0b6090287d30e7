"""How the refusal of a whole request is told, for calls whose entries repeat it.

One function per call, `(request, response, error)`: it adds to the response what Kafka's own would hold. The header has
the error already.
"""

from __future__ import annotations

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.errors import ApiError

from ..engine.state import set_error
from ..reassignment import reassignments
from ..topics import topics


def create_topics(request: admin_pb2.CreateTopicsRequest, response: admin_pb2.CreateTopicsResponse, error: ApiError) -> None:
    response.topics.extend(topics.failed_creation(topic.name, error) for topic in request.topics)


def delete_topics(request: admin_pb2.DeleteTopicsRequest, response: admin_pb2.DeleteTopicsResponse, error: ApiError) -> None:
    for entry in request.topics:
        result = response.responses.add(topic_id=entry.topic_id)
        if entry.HasField("name"):
            result.name = entry.name
        set_error(result, error)


def create_partitions(
    request: admin_pb2.CreatePartitionsRequest, response: admin_pb2.CreatePartitionsResponse, error: ApiError
) -> None:
    for topic in request.topics:
        set_error(response.results.add(name=topic.name), error)


def elect_leaders(request: admin_pb2.ElectLeadersRequest, response: admin_pb2.ElectLeadersResponse, error: ApiError) -> None:
    for topic in request.topic_partitions.values:
        result = response.replica_election_results.add(topic=topic.topic)
        for number in topic.partitions:
            set_error(result.partition_result.add(partition_id=number), error)


def incremental_alter_configs(
    request: admin_pb2.IncrementalAlterConfigsRequest,
    response: admin_pb2.IncrementalAlterConfigsResponse,
    error: ApiError,
) -> None:
    for resource in request.resources:
        result = response.responses.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        set_error(result, error)


def init_producer_id(
    request: admin_pb2.InitProducerIdRequest, response: admin_pb2.InitProducerIdResponse, error: ApiError
) -> None:
    response.producer_id = response.producer_epoch = -1


def alter_configs(
    request: admin_pb2.AlterConfigsRequest, response: admin_pb2.AlterConfigsResponse, error: ApiError
) -> None:
    for resource in request.resources:
        result = response.responses.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        set_error(result, error)


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
