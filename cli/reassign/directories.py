"""Log directories of replicas: where they are, checks of the directories that a plan names, and requests to move there."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from kraftlab.client import AdminClient, ClusterUnreachable, answer_of
from kraftlab.client.errors import api_error
from kraftlab.client.log_dirs import LogDirFilter
from kraftlab.client.results import BrokerLogDirs
from kraftlab.common.errors import ApiError, ErrorCode

from .plan import TopicPartition, TopicPartitionReplica

_MOVE_RETRY_S = 0.1

Directories = dict[TopicPartitionReplica, tuple[str | None, str | None]]
"""Replica → (its directory, the directory that it moves to)."""


class ReassignmentFailed(Exception):
    """A failure of the tool itself. The text is printed unchanged."""


def directories(client: AdminClient, replicas: Iterable[TopicPartitionReplica]) -> tuple[Directories, dict[int, str]]:
    """Return the directories of existing replicas, and the brokers that do not answer, with the reason."""
    asked = list(replicas)
    if not asked:
        return {}, {}
    described = client.replica_log_dirs(asked)
    found = {replica: (each.current_log_dir, each.future_log_dir) for replica, each in described.replicas.items()}
    return {replica: places for replica, places in found.items() if places != (None, None)}, described.silent


def check_directories(client: AdminClient, moves: Mapping[TopicPartitionReplica, str]) -> None:
    """Ask brokers for the directories that a plan names, before anything is started. ReassignmentFailed with a line for each
    replica whose broker does not have the directory, cannot use it, or does not answer.
    """
    if not moves:
        return
    wanted = LogDirFilter(partitions=sorted({replica[:2] for replica in moves}))
    described = client.all_log_dirs(wanted, brokers={replica[2] for replica in moves})
    refused: dict[TopicPartitionReplica, ApiError] = {}
    for replica, path in moves.items():
        if replica[2] in described.silent:
            text = f"broker {replica[2]} does not describe its log directories: {described.silent[replica[2]]}"
            refused[replica] = ApiError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        else:
            fault = refusal(described.brokers[replica[2]], replica, path)
            if fault is not None:
                refused[replica] = fault
    if refused:
        raise ReassignmentFailed(move_failures(refused))


def refusal(broker: BrokerLogDirs, replica: TopicPartitionReplica, path: str) -> ApiError | None:
    """Return why a broker would not move its replica to a directory, with the error that it would answer."""
    found = next((each for each in broker.log_dirs if each.log_dir == path), None)
    if found is None:
        names = ", ".join(sorted(each.log_dir for each in broker.log_dirs)) or "none"
        return ApiError(
            ErrorCode.LOG_DIR_NOT_FOUND, f"{path!r} is not a log directory of broker {broker.broker_id}; it has {names}"
        )
    if found.error_code:
        reason = found.error_message or "its disk failed"
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} of broker {broker.broker_id} is offline: {reason}")
    is_there = any((each.topic, each.partition_index) == replica[:2] for each in found.replicas)
    if found.is_cordoned and not is_there:
        text = f"log directory {path} of broker {broker.broker_id} is cordoned; choose another directory"
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return None


def move_failures(errors: Mapping[TopicPartitionReplica, ApiError]) -> str:
    """Return a line for each move that was refused."""
    return "\n".join(
        f"Error: Failed to alter dir for {'-'.join(map(str, replica))}: {error.message or error.code.name}"
        for replica, error in errors.items()
    )


def alter_directories(client: AdminClient, moves: Mapping[TopicPartitionReplica, str]) -> dict[TopicPartitionReplica, ApiError]:
    """Send moves to their brokers and return the errors of those that were not accepted."""
    by_broker: dict[int, dict[TopicPartition, str]] = {}
    for (topic, partition, broker), path in moves.items():
        by_broker.setdefault(broker, {})[topic, partition] = path
    errors: dict[TopicPartitionReplica, ApiError] = {}
    for broker, paths in by_broker.items():
        try:
            response = answer_of(partial(client.alter_replica_log_dirs, broker, paths))
        except (ApiError, ClusterUnreachable) as error:
            failure = error if isinstance(error, ApiError) else ApiError(ErrorCode.BROKER_NOT_AVAILABLE, str(error))
            errors |= {(*partition, broker): failure for partition in paths}
            continue
        errors |= {
            (topic.topic_name, entry.partition_index, broker): api_error(entry.error_code, entry.error_message)
            for topic in response.results
            for entry in topic.partitions
            if entry.error_code
        }
    return errors


def move_directories(
    client: AdminClient,
    moves: Mapping[TopicPartitionReplica, str],
    timeout_s: float,
    absent: Collection[TopicPartitionReplica] = (),
) -> Iterator[TopicPartitionReplica]:
    """Ask brokers to move replicas, and yield each replica whose move its broker has accepted. A broker that does not have the
    replica yet is asked again until the timeout. For `absent` replicas it remembers the directory instead (KIP-113).
    ReassignmentFailed with a line for each refused move, after all others are accepted.
    """
    pending = dict(moves)
    refused: dict[TopicPartitionReplica, ApiError] = {}
    deadline = time.monotonic() + timeout_s
    while pending:
        errors = alter_directories(client, pending)
        for replica in list(pending):
            error = errors.get(replica)
            is_missing = error is not None and error.code is ErrorCode.REPLICA_NOT_AVAILABLE
            if error is None or (is_missing and replica in absent):
                del pending[replica]
                yield replica
            elif not is_missing:
                del pending[replica]
                refused[replica] = error
        if pending and time.monotonic() >= deadline:
            waiting = ",".join("-".join(map(str, replica)) for replica in pending)
            lines = [move_failures(refused)] if refused else []
            raise ReassignmentFailed("\n".join([*lines, f"Timed out before log directory move could be started for: {waiting}"]))
        if pending:
            time.sleep(_MOVE_RETRY_S)
    if refused:
        raise ReassignmentFailed(move_failures(refused))
