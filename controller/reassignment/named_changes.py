"""Calls of KIP-179 that Kafka never shipped: replication factors, partition counts and throttles by their own names.

Each is another call under its own name. A change of factors is planned (`factors.py`) and then reassigned like any other, with
the same options. Counts are CreatePartitions. A throttle of a broker is two of its configs.
"""

from __future__ import annotations

from collections import Counter

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.resources import ConfigOperation
from kraftlab.config.throttled_replicas import FOLLOWER_RATE, LEADER_RATE
from kraftlab.metadata.records import RESOURCE_BROKER

from ..configs import configs
from ..engine.state import Context, ControllerState, Outcome
from ..topics.partition_counts import create_partitions
from . import reassignments
from .arithmetic import target_replicas
from .factors import plan, replica_counts, waiting_targets
from .policy import SIZE_CHANGE, policy_of


def alter_replication_factors(
    state: ControllerState, request: admin_pb2.AlterReplicationFactorsRequest, context: Context
) -> Outcome[admin_pb2.AlterReplicationFactorsResponse]:
    """Plan and start the changes of all topics. A topic that cannot be planned gets an error, and the others proceed.

    ApiError for the whole request: POLICY_VIOLATION if it makes more than one atomic change holds, or if the cluster's policy
    forbids it; INVALID_REQUEST for invalid options.
    """
    if not policy_of(state.image, context.settings).allows_size_change:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster has {SIZE_CHANGE}=false: replication factors stay as they are. Set it to true.",
        )
    response = admin_pb2.AlterReplicationFactorsResponse()
    moves = _as_reassignments(request)
    appearances = Counter(entry.name for entry in request.topics)
    counts = replica_counts(state.image)
    planned: dict[str, admin_pb2.TopicReplicationFactorResponse] = {}
    for entry in request.topics:
        answer = response.topics.add(name=entry.name)
        try:
            if appearances[entry.name] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"Topic {entry.name} is named more than once; nothing was changed for it."
                )
            _plan_topic(state, entry, answer, moves, counts)
        except ApiError as error:
            set_error(answer, error)
            continue
        planned[entry.name] = answer
    if not moves.topics:
        return Outcome([], response)
    outcome = reassignments.alter(state, moves, context)
    for topic in outcome.response.responses:
        _copy_outcome(planned[topic.name], topic)
    return Outcome(outcome.records, response, transaction=outcome.transaction)


def are_long_factors(state: ControllerState, request: admin_pb2.AlterReplicationFactorsRequest) -> bool:
    """Return True if the request moves very many partitions."""
    topics = [state.image.topics.get(entry.name) for entry in request.topics]
    return sum(len(topic.partitions) for topic in topics if topic is not None) > reassignments.LONG_PARTITIONS


def _as_reassignments(request: admin_pb2.AlterReplicationFactorsRequest) -> admin_pb2.AlterPartitionReassignmentsRequest:
    """A reassignment request with the same options and no entries yet."""
    moves = admin_pb2.AlterPartitionReassignmentsRequest(
        validate_only=request.validate_only,
        reason=request.reason or "change of the replication factor",
        queued=request.queued,
        priority=request.priority,
    )
    for field in ("initiator", "throttle", "throttle_expires_ms", "plan_id"):
        if request.HasField(field):
            setattr(moves, field, getattr(request, field))
    return moves


def _plan_topic(
    state: ControllerState,
    entry: admin_pb2.TopicReplicationFactor,
    answer: admin_pb2.TopicReplicationFactorResponse,
    moves: admin_pb2.AlterPartitionReassignmentsRequest,
    counts: Counter[int],
) -> None:
    topic = state.image.topics.get(entry.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {entry.name}.")
    trial = Counter(counts)
    targets = plan(
        topic.partitions, entry.replication_factor, state.image.cluster.brokers, trial, waiting_targets(state.image, topic)
    )
    counts.clear()
    counts.update(trial)
    if targets:
        requested = moves.topics.add(name=entry.name)
        for number, target in targets.items():
            requested.partitions.add(partition_index=number).replicas.values.extend(target)
            answer.partitions.add(
                partition_index=number, replicas=target_replicas(topic.partitions[number]), target_replicas=target
            )


def _copy_outcome(answer: admin_pb2.TopicReplicationFactorResponse, topic: admin_pb2.ReassignableTopicResponse) -> None:
    """Copy the outcome of a topic's moves. The first refused partition is the topic's error."""
    for shown, entry in zip(answer.partitions, topic.partitions, strict=True):
        shown.move_id, shown.queued = entry.move_id, entry.queued
        if entry.error_code and not answer.error_code:
            answer.error_code = entry.error_code
            answer.error_message = f"Partition {entry.partition_index}: {entry.error_message}"


def alter_partition_counts(
    state: ControllerState, request: admin_pb2.AlterPartitionCountsRequest, context: Context
) -> Outcome[admin_pb2.AlterPartitionCountsResponse]:
    """CreatePartitions under the KIP's name."""
    requested = admin_pb2.CreatePartitionsRequest(validate_only=request.validate_only)
    for entry in request.topics:
        requested.topics.add(name=entry.name, count=entry.count)
    outcome = create_partitions(state, requested, context)
    response = admin_pb2.AlterPartitionCountsResponse()
    for result in outcome.response.results:
        answer = response.topics.add(name=result.name, error_code=result.error_code)
        if result.HasField("error_message"):
            answer.error_message = result.error_message
    return Outcome(outcome.records, response, transaction=outcome.transaction)


def alter_inter_broker_throttle(
    state: ControllerState, request: admin_pb2.AlterInterBrokerThrottleRequest, context: Context
) -> Outcome[admin_pb2.AlterInterBrokerThrottleResponse]:
    """Set or remove the rates of one broker, or of all brokers without rates of their own. ApiError as
    IncrementalAlterConfigs, INVALID_REQUEST if no rate is given.
    """
    name = str(request.broker_id) if request.HasField("broker_id") else ""
    requested = admin_pb2.IncrementalAlterConfigsRequest(validate_only=request.validate_only)
    resource = requested.resources.add(resource_type=RESOURCE_BROKER, resource_name=name)
    for field, key in (("leader_rate", LEADER_RATE), ("follower_rate", FOLLOWER_RATE)):
        if request.HasField(field):
            rate = getattr(request, field)
            operation = ConfigOperation.SET if rate >= 0 else ConfigOperation.DELETE
            resource.configs.add(name=key, config_operation=operation, value=str(rate) if rate >= 0 else None)
    if not resource.configs:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Nothing was changed: give leader_rate, follower_rate or both.")
    outcome = configs.alter(state, requested, context)
    refused = outcome.response.responses[0]
    if refused.error_code:
        raise ApiError(ErrorCode(refused.error_code), refused.error_message)
    return Outcome(outcome.records, admin_pb2.AlterInterBrokerThrottleResponse())
