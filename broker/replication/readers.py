"""Readers of fetches: consumers and followers.

A consumer reads to the high watermark, and its position means nothing to the leader. A follower reads to the log's end. Its
position states that it holds all records below, and it learns of a newer high watermark or log start at once.

A Kafka client may name topics by name. Its positions then have the name's bytes as `topic_id`, in requests, sessions and answers
alike. `ReadableTopics` finds the topic for each fetch, so a topic that is created again under its name is read on.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchPartition, ReplicaFetchRequest

from ..log.disks import Disks
from ..log.partition_log import PartitionLog
from .partition import FollowerRole, Partition, ReplicaId
from .replica_errors import ReplicaError
from .traffic import Traffic

if TYPE_CHECKING:
    from kraftlab.gateway.data import ReadableTopics


class Replicas(Protocol):
    """The partitions of this broker."""

    disks: Disks
    traffic: Traffic

    def hosted(self, replica: ReplicaId) -> Partition:
        """Return the partition if this broker hosts it; ReplicaError otherwise."""

    def is_leader_throttled(self, partition: Partition, follower_id: int) -> bool:
        """Return True if the follower is out of sync and in leader.replication.throttled.replicas, while a rate is set."""

    def note_fetch(self, follower_id: int) -> None:
        """Note the time of a fetch of that broker."""


class Consumer:
    """A client, which reads to the high watermark. Without `topics` it came by peer frames, and has no sessions."""

    broker_id = broker_epoch = -1

    def __init__(self, replicas: Replicas, request: ReplicaFetchRequest, topics: ReadableTopics | None = None) -> None:
        self._replicas = replicas
        self._topics = topics
        self._any_replica = request.any_replica
        self.uses_ids = topics is None or topics.uses_ids
        self.view = request.any_replica, None if topics is None else topics.view
        """Readers with equal views get the same answer about a partition that has not changed."""

    def __repr__(self) -> str:
        return "a consumer"

    def place(self, session_id: int) -> Hashable:
        """Return the place of the session among those of other readers, None for a reader without sessions."""
        return None if self._topics is None else session_id

    def partition(self, wanted: FetchPartition) -> Partition:
        """Return the partition of a position. ReplicaError."""
        found = wanted.topic_id if self._topics is None else self._topics.find(wanted.topic_id)
        if isinstance(found, ErrorCode):
            raise ReplicaError(found, found.message)
        return self._replicas.hosted((found, wanted.partition))

    def refusal(self, wanted: FetchPartition, partition: Partition) -> ErrorCode:
        """Return the error of a position that may not be read here, NONE if it may. ReplicaError by the partition's role."""
        role = partition.reader_role() if self._any_replica else partition.leader_role()
        error = epoch_error(wanted.leader_epoch, role.epoch)
        if not error and isinstance(role, FollowerRole) and wanted.fetch_offset > partition.online_log().log_end_offset:
            # Only the leader knows whether the offset exists: this follower may be behind.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def is_from_the_future(self, wanted: FetchPartition, diverging: tuple[int, int], log: PartitionLog) -> bool:
        """Return True if a Kafka client's last epoch is newer than any of the log: Kafka then knows no point of divergence."""
        epoch, end_offset = diverging
        return self._topics is not None and end_offset == log.log_end_offset and wanted.last_fetched_epoch > epoch

    def asked(self, partition: Partition) -> None:
        """Note that a fetch asks for the partition."""
        self._replicas.traffic.asked(partition.traffic)

    def refused(self, partition: Partition, error: int) -> None:
        """Note the error that answers."""
        self._replicas.traffic.refused(partition.traffic, error)

    def served(self, partition: Partition, size_bytes: int) -> None:
        """Note records that answer."""
        self._replicas.traffic.consumed(partition.traffic, size_bytes)

    def note(self, wanted: FetchPartition, partition: Partition) -> None:
        """Note a position that may be read."""

    def upto(self, log: PartitionLog) -> int:
        """Return the offset below which the reader may read."""
        return log.high_watermark

    def has_news(self, wanted: FetchPartition, log: PartitionLog) -> bool:
        """Return True if the reader could raise its high watermark or its log start."""
        return False

    def is_filling(self, partition: Partition) -> bool:
        """Return True for a follower that is out of sync."""
        return False


class Follower:
    """Another broker in one of its lanes, which reads to the log's end."""

    uses_ids = True
    view = None

    def __init__(self, replicas: Replicas, request: ReplicaFetchRequest) -> None:
        self._replicas = replicas
        self._lane = request.lane
        self.broker_id = request.replica_id
        self.broker_epoch = request.broker_epoch

    def __repr__(self) -> str:
        return f"broker {self.broker_id}"

    def place(self, session_id: int) -> Hashable:
        return self.broker_id, self._lane

    def partition(self, wanted: FetchPartition) -> Partition:
        return self._replicas.hosted((wanted.topic_id, wanted.partition))

    def refusal(self, wanted: FetchPartition, partition: Partition) -> ErrorCode:
        error = epoch_error(wanted.leader_epoch, partition.leader_role().epoch)
        return error or (ErrorCode.NONE if self.broker_id in partition.state.replicas else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def is_from_the_future(self, wanted: FetchPartition, diverging: tuple[int, int], log: PartitionLog) -> bool:
        return False

    def asked(self, partition: Partition) -> None:
        pass

    def refused(self, partition: Partition, error: int) -> None:
        pass

    def served(self, partition: Partition, size_bytes: int) -> None:
        self._replicas.traffic.replicated_from_here(size_bytes, self.broker_id in partition.state.adding)

    def note(self, wanted: FetchPartition, partition: Partition) -> None:
        partition.follower_fetched(self.broker_id, wanted.fetch_offset, wanted.log_start_offset, self.broker_epoch)

    def upto(self, log: PartitionLog) -> int:
        return log.log_end_offset

    def has_news(self, wanted: FetchPartition, log: PartitionLog) -> bool:
        high_watermark = min(log.high_watermark, wanted.fetch_offset)
        return high_watermark > wanted.high_watermark or log.log_start_offset > wanted.log_start_offset

    def is_filling(self, partition: Partition) -> bool:
        return self.broker_id not in partition.state.isr


Reader = Consumer | Follower


def epoch_error(asked: int, current: int) -> ErrorCode:
    """Return the error of a request that names a leader epoch (-1: none), NONE if it is the current one."""
    if asked == current or asked < 0:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH
