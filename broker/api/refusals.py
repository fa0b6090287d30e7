"""Refusals of whole requests, for the broker's own calls whose answers repeat the request: `(request, response, error)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError


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


def describe_producers(
    request: admin_pb2.DescribeProducersRequest, response: admin_pb2.DescribeProducersResponse, error: ApiError
) -> None:
    for topic in request.topics:
        result = response.topics.add(name=topic.name)
        for index in topic.partition_indexes:
            result.partitions.add(partition_index=index, error_code=error.code, error_message=error.message)


def init_producer_id(
    request: admin_pb2.InitProducerIdRequest, response: admin_pb2.InitProducerIdResponse, error: ApiError
) -> None:
    response.producer_id = response.producer_epoch = -1


def find_coordinator(
    request: admin_pb2.FindCoordinatorRequest, response: admin_pb2.FindCoordinatorResponse, error: ApiError
) -> None:
    response.node_id = response.port = -1


def join_group(request: admin_pb2.JoinGroupRequest, response: admin_pb2.JoinGroupResponse, error: ApiError) -> None:
    response.member_id = request.member_id


def offset_commit(request: admin_pb2.OffsetCommitRequest, response: admin_pb2.OffsetCommitResponse, error: ApiError) -> None:
    for topic in request.topics:
        result = response.topics.add(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            result.partitions.add(partition_index=partition.partition_index, error_code=error.code)


REFUSALS: Mapping[str, Callable[[Any, Any, ApiError], None]] = {
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "DeleteRecords": delete_records,
    "FindCoordinator": find_coordinator,
    "DescribeProducers": describe_producers,
    "InitProducerId": init_producer_id,
    "JoinGroup": join_group,
    "OffsetCommit": offset_commit,
}
