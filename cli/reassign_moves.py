"""What `reassign-partitions` does beyond Kafka's tool: rolls plans back, and says how far each replica of a plan is."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, MoveOptions
from kraftlab.metadata.errors import ApiError, ErrorCode

from . import reassign_text as text
from .moves_text import DirectoryMove
from .reassign import ReassignmentFailed, after_of, alter_directories, describe, move_failure, partition_errors
from .reassign_plan import Plan, TopicPartition, TopicPartitionReplica
from .reassign_text import Ongoing, ReplicaState

IN_SYNC = "In sync"
_RETRY_S = 0.1


class RolledBack(msgspec.Struct, frozen=True):
    """What partitions are after a rollback (of a preview: would be), and replicas with the directories that they move to."""

    after: dict[TopicPartition, Ongoing]
    moves: dict[TopicPartitionReplica, str]


def roll_back(client: AdminClient, plan_id: str, options: MoveOptions, timeout_ms: int) -> RolledBack:
    """Rolls a plan back, directories included. ReassignmentFailed with the tool's text."""
    try:
        response = client.rollback_reassignment(plan_id, options=options)
    except ApiError as error:
        raise ReassignmentFailed(f"Error: {error.message or error}") from None
    errors = partition_errors(response)
    if errors:
        raise ReassignmentFailed("\n".join(text.error_lines(f"Error rolling back plan {plan_id} for:", errors)))
    moves = _directory_moves(client, response)
    if not options.validate_only:
        _move(client, moves, timeout_ms)
    return RolledBack(after_of(response), moves)


def _directory_moves(client: AdminClient, response: pb.AlterPartitionReassignmentsResponse) -> dict[TopicPartitionReplica, str]:
    """The directories that the answers name, as paths."""
    wanted = {
        (topic.name, entry.partition_index, move.broker_id): move.directory_id
        for topic in response.responses
        for entry in topic.partitions
        for move in entry.directory_moves
    }
    paths: dict[str, str] = {}
    for broker in {replica[2] for replica in wanted}:
        try:
            paths |= {found.directory_id: found.log_dir for found in client.describe_log_dirs(broker, []).results}
        except (ApiError, ClusterUnreachable) as error:
            raise ReassignmentFailed(f"Error: broker {broker} does not say which log directories it has: {error}") from None
    return {replica: paths[directory] for replica, directory in wanted.items() if directory in paths}


def _move(client: AdminClient, moves: Mapping[TopicPartitionReplica, str], timeout_ms: int) -> None:
    deadline = time.monotonic() + timeout_ms / 1000
    pending = dict(moves)
    while pending:
        for replica, error in alter_directories(client, pending).items():
            if error is None:
                del pending[replica]
            elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE or time.monotonic() >= deadline:
                raise ReassignmentFailed(move_failure(replica, error))
        if pending:
            time.sleep(_RETRY_S)


def directory_moves(client: AdminClient) -> list[DirectoryMove]:
    """What moves between the directories of a broker, by broker and replica. Brokers that do not answer are left out."""
    found: list[DirectoryMove] = []
    for broker in sorted(broker.broker_id for broker in client.describe_cluster().brokers):
        try:
            response = client.describe_log_dirs(broker)
        except (ApiError, ClusterUnreachable):
            continue
        homes: dict[TopicPartition, str] = {}
        moving: list[tuple[TopicPartition, str, pb.LogDirPartition]] = []
        for directory in response.results:
            for topic in directory.topics:
                for entry in topic.partitions:
                    if entry.is_future_key:
                        moving.append(((topic.name, entry.partition_index), directory.log_dir, entry))
                    else:
                        homes[topic.name, entry.partition_index] = directory.log_dir
        found += [
            DirectoryMove(
                *key, broker, homes.get(key), path, entry.bytes_left, entry.bytes_per_second, entry.started_ms, entry.error
            )
            for key, path, entry in sorted(moving, key=lambda move: move[0])
        ]
    return found


def replica_states(client: AdminClient, plan: Plan) -> dict[TopicPartitionReplica, ReplicaState]:
    """How far each replica of a plan is, in the order of the plan (KIP-179)."""
    topics = describe(client, plan.topics())
    alive = {broker.broker_id for broker in client.describe_cluster().brokers}
    partitions = {(name, entry.partition_index): entry for name, topic in topics.items() for entry in topic.partitions}
    wanted = {placement.key: {*placement.replicas} for placement in plan.partitions}
    for key, brokers in wanted.items():
        if key in partitions:
            brokers.add(partitions[key].leader_id)
    ends = _log_ends(client, wanted, alive)
    return {
        (*placement.key, broker): _state(placement.key, broker, topics, partitions, alive, ends)
        for placement in plan.partitions
        for broker in placement.replicas
    }


def _log_ends(
    client: AdminClient, wanted: Mapping[TopicPartition, set[int]], alive: set[int]
) -> dict[TopicPartitionReplica, int]:
    """Log end offsets of replicas, of those whose brokers say."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for key, brokers in wanted.items():
        for broker in brokers & alive:
            by_broker.setdefault(broker, []).append(key)
    ends: dict[TopicPartitionReplica, int] = {}
    for broker, keys in by_broker.items():
        try:
            response = client.describe_log_dirs(broker, keys)
        except (ApiError, ClusterUnreachable):
            continue
        for directory in response.results:
            for topic in directory.topics:
                for entry in topic.partitions:
                    if not entry.is_future_key:
                        ends[topic.name, entry.partition_index, broker] = entry.log_end_offset
    return ends


def _state(
    key: TopicPartition,
    broker: int,
    topics: Mapping[str, pb.DescribedTopic],
    partitions: Mapping[TopicPartition, pb.DescribedPartition],
    alive: set[int],
    ends: Mapping[TopicPartitionReplica, int],
) -> ReplicaState:
    if key[0] not in topics:
        return ReplicaState("Unknown topic")
    if key not in partitions:
        return ReplicaState("Unknown partition")
    if broker not in alive:
        return ReplicaState("Unknown broker")
    own = ends.get((*key, broker), -1)
    if own < 0:
        return ReplicaState("Broker does not host this partition")
    if broker in partitions[key].isr_nodes:
        return ReplicaState(IN_SYNC, 0)
    # One that has everything and is not in the ISR yet is still behind: by nothing that could be counted.
    behind = max(ends.get((*key, partitions[key].leader_id), own) - own, 1)
    return ReplicaState(f"Behind: {behind} messages behind", behind)
