"""Actions of `reassign-partitions` beyond Kafka's tool: rollback of plans, and the progress of each replica of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, MoveOptions, answer_of
from kraftlab.client.log_dirs import LogDirFilter, moves_of
from kraftlab.client.results import (
    AllLogDirs,
    LogDirMove,
    LogDirMoves,
    LogDirReplica,
    MoveBlocker,
    Partition,
    QueuedReassignment,
    Reassignment,
)
from kraftlab.common.errors import ApiError
from kraftlab.common.sizes import bytes_text

from . import text
from .actions import after_of, describe, partition_errors
from .directories import ReassignmentFailed, move_directories
from .plan import Plan, TopicPartition, TopicPartitionReplica
from .text import OngoingReassignment, Progress, ReplicaState

IN_SYNC = "In sync"


class RolledBack(msgspec.Struct, frozen=True):
    """Partitions after a rollback or its preview, the changed partitions, and the target directories of replicas."""

    after: dict[TopicPartition, OngoingReassignment]
    changed: list[TopicPartition]
    moves: dict[TopicPartitionReplica, str]


def roll_back(client: AdminClient, plan_id: str, options: MoveOptions, timeout_ms: int) -> RolledBack:
    """Roll a plan back, directories included. ReassignmentFailed with the tool's text."""
    preview = _request_rollback(client, plan_id, msgspec.structs.replace(options, validate_only=True))
    before = _sets_of(client, {topic.name for topic in preview.responses})
    response = preview if options.validate_only else _request_rollback(client, plan_id, options)
    moves, lost = _directory_moves(client, response)
    if not options.validate_only:
        list(move_directories(client, moves, timeout_ms / 1000))
    if lost:
        complaints = "; ".join(
            f"{'-'.join(map(str, replica))} stays in its log directory: {why}" for replica, why in lost.items()
        )
        raise ReassignmentFailed(
            f"Error: {complaints}; everything else {'would be' if options.validate_only else 'is being'} rolled back"
        )
    after = after_of(response)
    return RolledBack(after, [key for key in after if after[key] != before.get(key)], moves)


def _request_rollback(client: AdminClient, plan_id: str, options: MoveOptions) -> pb.RollbackPlanResponse:
    try:
        response = answer_of(lambda: client.rollback_plan(plan_id, options=options))
    except ApiError as error:
        raise ReassignmentFailed(f"Error: {error.message or error}") from None
    errors = partition_errors(response)
    if errors:
        raise ReassignmentFailed("\n".join(text.error_lines(f"Error rolling back plan {plan_id} for:", errors)))
    return response


def _sets_of(client: AdminClient, topics: Set[str]) -> dict[TopicPartition, OngoingReassignment]:
    """Return the replicas of all partitions of the topics, with adding and removing replicas."""
    return {
        (name, entry.partition_index): OngoingReassignment(entry.replica_nodes, entry.adding_replicas, entry.removing_replicas)
        for name, topic in describe(client, topics).items()
        for entry in topic.partitions
    }


def _directory_moves(
    client: AdminClient, response: pb.RollbackPlanResponse
) -> tuple[dict[TopicPartitionReplica, str], dict[TopicPartitionReplica, str]]:
    """Return (target paths by replica, reasons by replica that cannot return to its directory)."""
    wanted = {
        (topic.name, entry.partition_index, move.broker_id): move.directory_id
        for topic in response.responses
        for entry in topic.partitions
        for move in entry.directory_moves
    }
    described = client.all_log_dirs(LogDirFilter(partitions=[]), brokers={replica[2] for replica in wanted})
    found = {each.directory_id: each for broker in described.brokers.values() for each in broker.log_dirs}
    moves: dict[TopicPartitionReplica, str] = {}
    lost: dict[TopicPartitionReplica, str] = {}
    for replica, directory_id in wanted.items():
        log_dir = found.get(directory_id)
        if log_dir is not None and not log_dir.error_code:
            moves[replica] = log_dir.log_dir
        elif log_dir is not None:
            lost[replica] = f"its previous log directory {log_dir.log_dir} is offline: {log_dir.error_message}"
        elif replica[2] in described.silent:
            lost[replica] = f"broker {replica[2]} does not describe its log directories: {described.silent[replica[2]]}"
        else:
            lost[replica] = "its previous log directory is gone"
    return moves, lost


def directory_moves(client: AdminClient) -> LogDirMoves:
    """Return the moves between log directories, by broker and replica, and the brokers that do not answer."""
    found = client.log_dir_moves()
    return LogDirMoves(tuple(move for move in found.moves if move.replica.is_future_key), found.silent)


def replica_states(client: AdminClient, plan: Plan) -> dict[TopicPartitionReplica, ReplicaState]:
    """Return the progress of each replica of a plan, in the order of the plan (KIP-179).

    As for `--verify`, a replica that the plan puts into a log directory is done when it is there, and no replica is done while
    the reassignment of its partition runs or waits.
    """
    topics = describe(client, plan.topics())
    listed = client.list_partition_reassignments()
    brokers = {broker.broker_id: broker.is_fenced for broker in client.describe_cluster(include_fenced_brokers=True).brokers}
    partitions = {(name, entry.partition_index): entry for name, topic in topics.items() for entry in topic.partitions}
    wanted = {placement.key: {*placement.replicas} for placement in plan.partitions}
    for key, replicas in wanted.items():
        if key in partitions and (leader := partitions[key].leader_id) is not None:
            replicas.add(leader)
    asked = {broker for replicas in wanted.values() for broker in replicas if not brokers.get(broker, True)}
    described = client.all_log_dirs(LogDirFilter(partitions=sorted(wanted)), brokers=asked)
    seen = _Seen(
        topics.keys(),
        partitions,
        brokers,
        _logs(described),
        {_replica_of(move): move for move in moves_of(described).moves if move.replica.is_future_key},
        plan.moves(),
        described.silent.keys(),
        {(entry.topic, entry.partition_index): entry for entry in listed.running},
        {(entry.topic, entry.partition_index): entry for entry in listed.queued},
    )
    found = {
        (*placement.key, broker): _with_directory(
            seen, (*placement.key, broker), _with_move(seen, placement.key, broker, _state(seen, placement.key, broker))
        )
        for placement in plan.partitions
        for broker in placement.replicas
    }
    for placement in plan.partitions:
        states = [found[*placement.key, broker] for broker in placement.replicas]
        if text.overall(states) is Progress.DONE and (placement.key in seen.moving or placement.key in seen.queued):
            found |= {(*placement.key, broker): _unfinished(seen, placement.key) for broker in placement.replicas}
    return found


class _Seen(msgspec.Struct, frozen=True):
    """State of the cluster as read once. `brokers`: id → is fenced. `logs`: directories and logs of replicas, on brokers that are
    not `silent`. `moves` are those between log directories, `targets` the directories that the plan names.
    """

    topics: Set[str]
    partitions: Mapping[TopicPartition, Partition]
    brokers: Mapping[int, bool]
    logs: Mapping[TopicPartitionReplica, tuple[str, LogDirReplica]]
    moves: Mapping[TopicPartitionReplica, LogDirMove]
    targets: Mapping[TopicPartitionReplica, str]
    silent: Set[int]
    moving: Mapping[TopicPartition, Reassignment]
    queued: Mapping[TopicPartition, QueuedReassignment]


def _logs(described: AllLogDirs) -> dict[TopicPartitionReplica, tuple[str, LogDirReplica]]:
    """Return the current directory and log of each replica."""
    return {
        (each.topic, each.partition_index, broker_id): (log_dir.log_dir, each)
        for broker_id, broker in described.brokers.items()
        for log_dir in broker.log_dirs
        for each in log_dir.replicas
        if not each.is_future_key
    }


def _replica_of(move: LogDirMove) -> TopicPartitionReplica:
    return move.replica.topic, move.replica.partition_index, move.broker_id


def _state(seen: _Seen, key: TopicPartition, broker: int) -> ReplicaState:
    if key[0] not in seen.topics:
        return ReplicaState("Unknown topic")
    if key not in seen.partitions:
        return ReplicaState("Unknown partition")
    if broker not in seen.brokers:
        return ReplicaState("Unknown broker")
    if seen.brokers[broker]:
        return ReplicaState("Broker is down", waits=True, why=f"broker {broker} is fenced; start it")
    if broker in seen.silent:
        return ReplicaState("Broker does not answer", waits=True, why=f"broker {broker} does not answer; start it again")
    partition = seen.partitions[key]
    if (*key, broker) not in seen.logs:
        if key in seen.queued and broker in seen.queued[key].target_replicas:
            return ReplicaState("Queued", waits=True, why=seen.queued[key].waits_for)
        if broker in partition.replica_nodes:
            return ReplicaState("Not there yet", waits=True)
        return ReplicaState("Broker does not host this partition")
    if broker in partition.isr_nodes:
        return ReplicaState(IN_SYNC, 0)
    if partition.leader_id is None:
        return ReplicaState("Behind", waits=True, why="the partition has no leader to copy from")
    if (*key, partition.leader_id) not in seen.logs:
        return ReplicaState(
            "Behind", waits=True, why=f"its leader, broker {partition.leader_id}, does not answer; start it again"
        )
    # A replica with every record that is not in the ISR yet counts as behind by one.
    _, own = seen.logs[*key, broker]
    _, leader = seen.logs[*key, partition.leader_id]
    if own.log_end_offset < 0:  # Kafka's brokers report sizes only.
        bytes_behind = max(leader.partition_size - own.partition_size, 1)
        return ReplicaState(f"Behind: {bytes_text(bytes_behind)} behind", bytes_behind=bytes_behind)
    behind = max(leader.log_end_offset - own.log_end_offset, 1)
    return ReplicaState(f"Behind: {behind} messages behind", behind)


def _with_directory(seen: _Seen, replica: TopicPartitionReplica, state: ReplicaState) -> ReplicaState:
    """Return the state of a replica's move to the log directory in the plan, if the replica is in sync otherwise."""
    target, move = seen.targets.get(replica), seen.moves.get(replica)
    if target is None or state.progress is not Progress.DONE:
        return state
    if move is None:
        here, _ = seen.logs[replica]
        return state if here == target else ReplicaState(f"In {here}, not moving to {target}")
    left, rate, eta_ms = move.replica.bytes_left, move.replica.bytes_per_second, move.eta_ms
    where = target if move.log_dir == target else f"{move.log_dir} instead of {target}"
    return ReplicaState(
        f"Moving to {where}: {bytes_text(left)} left",
        bytes_behind=max(left or 0, 1),
        bytes_per_second=-1 if rate is None else rate,
        eta_ms=-1 if eta_ms is None else eta_ms,
        why=move.replica.error,
    )


def _unfinished(seen: _Seen, key: TopicPartition) -> ReplicaState:
    """Return the state of an in-sync replica whose partition's reassignment waits in the queue, or is about to complete."""
    waits_for = seen.queued[key].waits_for if key in seen.queued else _blockers_text(seen.moving[key].blockers)
    return ReplicaState("In sync, reassignment not complete", waits=True, why=waits_for)


def _blockers_text(blockers: Iterable[MoveBlocker]) -> str:
    return "; ".join(blocker.text for blocker in blockers)


def with_rates(
    states: Mapping[TopicPartitionReplica, ReplicaState], before: Mapping[TopicPartitionReplica, ReplicaState], elapsed_s: float
) -> dict[TopicPartitionReplica, ReplicaState]:
    """Return the states with the rates since earlier ones, for replicas of which only sizes are known."""
    return {replica: _with_rate(state, before.get(replica, state), elapsed_s) for replica, state in states.items()}


def _with_rate(state: ReplicaState, before: ReplicaState, elapsed_s: float) -> ReplicaState:
    if state.bytes_behind < 0 or before.bytes_behind < 0 or state.bytes_per_second >= 0 or elapsed_s <= 0:
        return state
    rate = max(before.bytes_behind - state.bytes_behind, 0) / elapsed_s
    eta_ms = int(state.bytes_behind * 1000 / rate) if rate else -1
    return msgspec.structs.replace(state, bytes_per_second=rate, eta_ms=eta_ms)


def _with_move(seen: _Seen, key: TopicPartition, broker: int, state: ReplicaState) -> ReplicaState:
    """Add the progress and blockers that the active controller reports for the replica."""
    entry = seen.moving.get(key)
    if entry is None or state.progress is Progress.DONE:
        return state
    why = _blockers_text(blocker for blocker in entry.blockers if blocker.broker_id == broker) or state.why
    copied = next((progress for progress in entry.progress if progress.broker_id == broker), None)
    if copied is None or state.waits:
        return msgspec.structs.replace(state, why=why)
    rate, eta_ms = (-1 if each is None else each for each in (copied.bytes_per_second, copied.eta_ms))
    return msgspec.structs.replace(state, bytes_per_second=rate, eta_ms=eta_ms, why=why)
