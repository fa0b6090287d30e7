"""Log directories of moves: those that a plan names, and those that a rollback restores.

Only brokers place replicas in directories. So a move into a directory is two calls, AlterReplicaLogDirs and
AlterPartitionReassignments, in the order of `kraftlab reassign-partitions`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.entries import EntriesFailed
from kraftlab.client.log_dirs import LogDirFilter
from kraftlab.common.errors import ErrorCode

from .rows import BadQuery

TIMEOUT_MS = 20_000
Request = pb.AlterPartitionReassignmentsRequest
LogDirs = Mapping[str, tuple[str, ...]]
"""Log directory of each replica, by the partition's name."""
Replica = tuple[str, int, int]
"""Topic, partition, broker."""


def entries(request: Request) -> list[tuple[str, pb.ReassignablePartition]]:
    return [(topic.name, each) for topic in request.topics for each in topic.partitions]


def named_directories(request: Request, log_dirs: LogDirs) -> dict[Replica, str]:
    """Return the directories that a plan names, by replica. BadQuery."""
    found: dict[Replica, str] = {}
    for topic, each in entries(request) if log_dirs else ():
        paths = log_dirs.get(f"{topic}-{each.partition_index}") or ("any",) * len(each.replicas.values)
        if len(paths) != len(each.replicas.values):
            text = f"{topic}-{each.partition_index} has {len(each.replicas.values)} replicas and {len(paths)} log_dirs"
            raise BadQuery(f"{text}; give one for each replica")
        pairs = zip(each.replicas.values, paths, strict=True)
        found |= {(topic, each.partition_index, broker): path for broker, path in pairs if path != "any"}
    return found


def start_in(named: Mapping[Replica, str], request: Request, client: AdminClient) -> pb.AlterPartitionReassignmentsResponse:
    """Start moves into directories as `reassign-partitions --execute` does: brokers learn the directories of new replicas before
    the start, so that a wrong one ends it, and replicas that stay change directories after it.
    """
    check = pb.AlterPartitionReassignmentsRequest()
    check.CopyFrom(request)
    check.validate_only = True
    would = client.call(pb.AlterPartitionReassignmentsResponse, check, timeout_ms=TIMEOUT_MS)
    adding = {
        (topic.name, each.partition_index, broker)
        for topic in would.responses
        for each in topic.partitions
        for broker in each.adding_replicas
    }
    new = {replica: path for replica, path in named.items() if replica in adding}
    _tell(client, new)
    try:
        answer = client.call(pb.AlterPartitionReassignmentsResponse, request, timeout_ms=TIMEOUT_MS)
    except EntriesFailed:
        _tell(client, dict.fromkeys(new, "any"))
        raise
    _tell(client, {replica: path for replica, path in named.items() if replica not in adding})
    return answer


def _tell(client: AdminClient, moves: Mapping[Replica, str]) -> None:
    """Name directories to brokers. A broker without the replica remembers the directory, and answers REPLICA_NOT_AVAILABLE."""
    for broker in {broker for _, _, broker in moves}:
        paths = {(topic, index): path for (topic, index, at), path in moves.items() if at == broker}
        try:
            client.alter_replica_log_dirs(broker, paths, timeout_ms=TIMEOUT_MS)
        except EntriesFailed as error:
            if any(each.code is not ErrorCode.REPLICA_NOT_AVAILABLE for each in error.failures.values()):
                raise


def restore_directories(answer: pb.RollbackPlanResponse, client: AdminClient) -> None:
    """Move replicas that stayed on their broker back to their directories, as `reassign-partitions --rollback` does."""
    wanted: dict[int, dict[tuple[str, int], str]] = {}
    for topic in answer.responses:
        for each in topic.partitions:
            for move in each.directory_moves:
                wanted.setdefault(move.broker_id, {})[topic.name, each.partition_index] = move.directory_id
    if not wanted:
        return
    brokers = client.all_log_dirs(LogDirFilter(topics=()), brokers=wanted).brokers.values()
    paths = {each.directory_id: each.log_dir for broker in brokers for each in broker.log_dirs if not each.error_code}
    for broker_id, moves in wanted.items():
        lost = [f"{topic}-{index}" for (topic, index), directory in moves.items() if directory not in paths]
        client.alter_replica_log_dirs(broker_id, {key: paths[each] for key, each in moves.items() if each in paths})
        if lost:
            raise BadQuery(
                f"{', '.join(lost)} of broker {broker_id} cannot return to the log directory from before the plan: bring it "
                "online and roll back again. Everything else is being rolled back"
            )
