"""Answers of `AdminClient` as frozen values.

Fields have the names in docs/reference/calls.md. Lists are tuples. A result has None where a response has -1 or nothing (an
unknown number, a partition without a leader).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb

Ids = tuple[int, ...]
T = TypeVar("T", bound="Result")


class Result(msgspec.Struct, frozen=True):
    """Base of a result: a part of a response."""


class Config(Result, frozen=True):
    """A dynamic config. A sensitive config has no value."""

    name: str
    value: str | None


class ConfigSynonym(Result, frozen=True):
    """A value of a config, with the number of its source."""

    name: str
    value: str | None
    source: int


class DescribedConfig(Config, frozen=True):
    """An effective config. `synonyms`: all its values, in order of precedence."""

    config_source: int
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()


class Partition(Result, frozen=True):
    """A partition. `original_replicas` and `target_replicas` are empty without a running reassignment."""

    partition_index: int
    leader_id: int | None
    leader_epoch: int
    replica_nodes: Ids
    isr_nodes: Ids
    eligible_leader_replicas: Ids
    last_known_elr: Ids
    offline_replicas: Ids
    adding_replicas: Ids
    removing_replicas: Ids
    original_replicas: Ids
    target_replicas: Ids
    partition_epoch: int
    directories: tuple[str, ...]


class Topic(Result, frozen=True):
    """A topic with its partitions, sorted by number, and its own configs."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[Partition, ...]
    configs: tuple[Config, ...]


class Broker(Result, frozen=True):
    """A registered broker. `host` and `port` are its gRPC endpoint; `silent_ms` is the time since its last heartbeat."""

    broker_id: int
    host: str
    port: int
    peer_host: str
    peer_port: int
    rack: str | None
    is_fenced: bool
    broker_epoch: int
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...]
    cordoned_log_dirs: tuple[str, ...]
    silent_ms: int | None


class Controller(Result, frozen=True):
    """A registered controller and its gRPC endpoint."""

    controller_id: int
    host: str
    port: int


class Cluster(Result, frozen=True):
    """The cluster and its members, including fenced brokers. `leader_id` is the active controller."""

    cluster_id: str
    leader_id: int | None
    brokers: tuple[Broker, ...]
    controllers: tuple[Controller, ...]
    metadata_offset: int


class MoveBlocker(Result, frozen=True):
    """A replica that holds a move up, with the reason."""

    broker_id: int
    state: str
    text: str


class ReplicaProgress(Result, frozen=True):
    """Progress of a replica that is being added."""

    broker_id: int
    bytes_done: int | None
    bytes_left: int | None
    bytes_per_second: float | None
    eta_ms: int | None


class Reassignment(Result, frozen=True):
    """A running reassignment. Sizes are in bytes, rates in bytes per second."""

    topic: str
    partition_index: int
    replicas: Ids
    adding_replicas: Ids
    removing_replicas: Ids
    original_replicas: Ids
    target_replicas: Ids
    move_id: str
    plan_id: str | None
    initiator: str
    reason: str
    started_ms: int
    throttle: int | None
    throttle_until_ms: int | None
    limit: int | None
    partition_epoch: int
    bytes_done: int | None
    bytes_left: int | None
    bytes_per_second: float | None
    eta_ms: int | None
    progress: tuple[ReplicaProgress, ...]
    blockers: tuple[MoveBlocker, ...]


class QueuedReassignment(Result, frozen=True):
    """A queued reassignment, which waits for a free slot."""

    topic: str
    partition_index: int
    position: int
    move_id: str
    replicas: Ids
    target_replicas: Ids
    plan_id: str | None
    initiator: str
    reason: str
    queued_ms: int
    priority: int
    size_bytes: int | None
    waits_for: str
    throttle: int | None


class ReassignmentPlan(Result, frozen=True):
    """A plan that can be rolled back, with counts of its partitions."""

    plan_id: str
    created_ms: int
    initiator: str
    reason: str
    partitions: int
    running: int
    queued: int


class Reassignments(Result, frozen=True):
    """Running and queued reassignments, and plans that can be rolled back. Only the active controller knows progress."""

    running: tuple[Reassignment, ...]
    queued: tuple[QueuedReassignment, ...]
    plans: tuple[ReassignmentPlan, ...]
    has_progress: bool
    metadata_offset: int


class QuorumEndpoint(Result, frozen=True):
    """A listener of a controller."""

    name: str
    host: str
    port: int


class QuorumReplica(Result, frozen=True):
    """A voter or observer. Timestamps are in milliseconds since 1970."""

    replica_id: int
    replica_directory_id: str
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None
    endpoints: tuple[QuorumEndpoint, ...]


class Quorum(Result, frozen=True):
    """The metadata quorum as its leader sees it, replicas sorted by id. `kraft_version` 1: the voters are in the log (KIP-853).
    `generation` counts lost majorities that were forced.
    """

    cluster_id: str
    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    current_voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    kraft_version: int
    log_start_offset: int
    generation: int


class LostRecords(Result, frozen=True):
    """Records that a replica has lost since its broker started (KIP-966). `acknowledged_records`: those below the high watermark.
    `unclean_elections`: times that the replica led although it was not in sync.
    """

    truncations: int
    records: int
    acknowledged_records: int
    size_bytes: int
    unclean_elections: int
    last_ms: int


class LogDirReplica(Result, frozen=True):
    """A replica in a log directory. `is_future_key`: the replica is moving there, from `source_log_dir`."""

    topic: str
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
    bytes_left: int | None
    bytes_per_second: float | None
    started_ms: int | None
    error: str
    log_end_offset: int
    source_log_dir: str | None
    lost: LostRecords | None = None


class KeptReplicaCopy(Result, frozen=True):
    """A copy that a broker keeps for a person to decide on. `lost_log_end_offset`: end of the replica's own log when its
    directory failed. `doubt`: why the broker does not serve this directory of the replica; "" for other copies. If the directory
    is missing, the `doubt` says so, and the log end offset is None.
    """

    path: str
    topic_name: str
    partition_index: int
    size_bytes: int
    log_end_offset: int | None
    is_stray: bool
    lost_log_end_offset: int | None
    doubt: str


class LogDir(Result, frozen=True):
    """A log directory of a broker. An offline directory has no sizes; `error_message` says why it is offline."""

    log_dir: str
    directory_id: str
    error_code: int
    is_cordoned: bool
    total_bytes: int | None
    usable_bytes: int | None
    strays: tuple[str, ...]
    error_message: str
    kept_copies: tuple[KeptReplicaCopy, ...]
    replicas: tuple[LogDirReplica, ...]


class BrokerLogDirs(msgspec.Struct, frozen=True):
    """Log directories of a broker. `move_limit`: bytes per second of all its moves between directories, None without a limit."""

    broker_id: int
    log_dirs: tuple[LogDir, ...]
    move_limit: int | None


class AllLogDirs(msgspec.Struct, frozen=True):
    """Log directories by broker, and the brokers without an answer, with the reason."""

    brokers: dict[int, BrokerLogDirs]
    silent: dict[int, str]


class ReplicaLogDirs(msgspec.Struct, frozen=True):
    """Log directories of one replica: the current one and, while it moves, the future one. Lags are numbers of records. None: the
    replica has no log there, or the lag is unknown.
    """

    current_log_dir: str | None = None
    current_offset_lag: int | None = None
    future_log_dir: str | None = None
    future_offset_lag: int | None = None


class AllReplicaLogDirs(msgspec.Struct, frozen=True):
    """Directories by replica (topic, partition, broker), and the brokers without an answer, with the reason."""

    replicas: dict[tuple[str, int, int], ReplicaLogDirs]
    silent: dict[int, str]


class LogDirMove(msgspec.Struct, frozen=True):
    """A replica that is being filled in `log_dir`: if `replica.is_future_key`, from `replica.source_log_dir` of the same broker,
    otherwise from the partition's leader. `limit`: bytes per second of all moves of the broker between directories, None without
    one; `shared_bytes_left`: the rest of all of them.
    """

    broker_id: int
    log_dir: str
    replica: LogDirReplica
    limit: int | None = None
    shared_bytes_left: int = 0

    @property
    def eta_ms(self) -> int | None:
        """Time until the replica is filled, None if that is unknown."""
        left, rate = self.replica.bytes_left, self.replica.bytes_per_second
        if left == 0:
            return 0
        if left is None or self.replica.error:
            return None
        if self.limit is not None:
            return self.shared_bytes_left * 1000 // self.limit if self.limit else None
        return int(left / rate * 1000) if rate else None


class LogDirMoves(msgspec.Struct, frozen=True):
    """Replicas that are being filled, by broker and name, and the brokers without an answer, with the reason."""

    moves: tuple[LogDirMove, ...]
    silent: dict[int, str]


def topics_of(response: pb.DescribeTopicPartitionsResponse) -> dict[str, Topic]:
    """Return the topics without those that were refused."""
    return {topic.name: _result(Topic, topic) for topic in response.topics if not topic.error_code}


def quorum_of(response: pb.DescribeQuorumResponse) -> Quorum:
    replicas = {
        name: tuple(_result(QuorumReplica, each) for each in sorted(getattr(response, name), key=lambda each: each.replica_id))
        for name in ("current_voters", "observers")
    }
    return _result(Quorum, response, **replicas)


def configs_of(response: pb.DescribeConfigsResponse) -> dict[tuple[int, str], tuple[DescribedConfig, ...]]:
    """Return the configs by type and name of the resource, without those that were refused."""
    return {
        (found.resource_type, found.resource_name): tuple(_result(DescribedConfig, entry) for entry in found.configs)
        for found in response.results
        if not found.error_code
    }


def cluster_of(response: pb.DescribeClusterResponse) -> Cluster:
    leader_id = response.header.leader_id
    own = {"leader_id": None if leader_id < 0 else leader_id, "metadata_offset": response.header.metadata_offset}
    return _result(Cluster, response, **own)


def reassignments_of(response: pb.ListPartitionReassignmentsResponse) -> Reassignments:
    return Reassignments(
        tuple(
            _result(Reassignment, entry, topic=topic.name)
            for topic in response.topics
            for entry in sorted(topic.partitions, key=lambda entry: entry.partition_index)
        ),
        tuple(_result(QueuedReassignment, entry) for entry in response.queued),
        tuple(_result(ReassignmentPlan, entry) for entry in response.plans),
        response.has_progress,
        response.header.metadata_offset,
    )


def log_dirs_of(response: pb.DescribeLogDirsResponse) -> tuple[LogDir, ...]:
    return tuple(
        _result(
            LogDir,
            entry,
            replicas=tuple(
                _result(
                    LogDirReplica,
                    replica,
                    topic=topic.name,
                    lost=_result(LostRecords, replica.lost) if replica.HasField("lost") else None,
                )
                for topic in entry.topics
                for replica in topic.partitions
            ),
        )
        for entry in response.results
    )


def _result(kind: type[T], message: Message, **own: object) -> T:
    """Return the fields of a message as a result; `own` are fields that the message lacks."""
    return kind(**{name: own[name] if name in own else convert(message, name) for name, convert in _fields(kind)})


@cache
def _fields(kind: type[Result]) -> tuple[tuple[str, Any], ...]:
    """Return each field with the function that reads it."""
    return tuple(_reading(kind))


def _reading(kind: type[Result]) -> Iterator[tuple[str, Any]]:
    for name, hint in get_type_hints(kind).items():
        element = get_args(hint)[0] if get_origin(hint) is tuple else None
        if isinstance(element, type) and issubclass(element, Result):
            yield name, lambda message, name, element=element: tuple(_result(element, each) for each in getattr(message, name))
        elif element is not None:
            yield name, lambda message, name: tuple(getattr(message, name))
        elif type(None) in get_args(hint):
            yield name, _known
        else:
            yield name, getattr


def _known(message: Message, name: str) -> object:
    """Return the value of a field, None for an absent field or a negative number."""
    if message.DESCRIPTOR.fields_by_name[name].has_presence and not message.HasField(name):
        return None
    value = getattr(message, name)
    return None if isinstance(value, int | float) and value < 0 else value
