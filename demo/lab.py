"""The cluster of the demo, and the story's queries."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable, DataClient
from kraftlab.client.config_parts import config_changes
from kraftlab.client.results import Partition
from kraftlab.common.endpoint import Endpoint
from kraftlab.config.resources import ResourceType
from kraftlab.lab import LocalCluster
from kraftlab.metadata.peer_rpc import ReplicaDigest

POLL_S = 0.05

TopicPartition = tuple[str, int]


class StoryError(RuntimeError):
    """The story cannot continue: an expected event did not happen in time. The text names the event."""


class ReplicaOnDisk(msgspec.Struct, frozen=True):
    """One directory of one replica, as its broker describes it. Sizes are in bytes. `bytes_left`: of a copy in progress."""

    broker: int
    log_dir: str
    is_future: bool
    size_bytes: int
    bytes_left: int | None
    bytes_per_second: float
    error: str


def wait_until(what: str, condition: Callable[[], bool], *, timeout_s: float = 30.0) -> float:
    """Poll until the condition holds; return the seconds it took. StoryError names the missing event.

    An unreachable node is polled again: the awaited event can be its return.
    """
    started = time.monotonic()
    while True:
        unreachable: ClusterUnreachable | None = None
        try:
            if condition():
                return time.monotonic() - started
        except ClusterUnreachable as error:
            unreachable = error
        if time.monotonic() - started > timeout_s:
            reason = f": {unreachable}" if unreachable else ""
            raise StoryError(f"{what}: not within {timeout_s:.0f} s{reason}") from unreachable
        time.sleep(POLL_S)


class Lab:
    """A running cluster with clients. Closing closes the clients, not the cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.admin = cluster.admin()
        self.data = DataClient(self.admin)

    def close(self) -> None:
        self.data.close()
        self.admin.close()

    def brokers(self) -> list[int]:
        return sorted(broker.broker_id for broker in self.admin.describe_cluster().brokers)

    def active_controller(self) -> int:
        leader = self.admin.describe_cluster().leader_id
        if leader is None:
            raise StoryError("no controller leads")
        return leader

    def partitions(self, *, min_offset: int = 0) -> dict[TopicPartition, Partition]:
        topics = self.admin.describe_topics(min_offset=min_offset)
        return {(name, item.partition_index): item for name, topic in topics.items() for item in topic.partitions}

    def reassigning(self) -> set[TopicPartition]:
        return {(entry.topic, entry.partition_index) for entry in self.admin.list_partition_reassignments().running}

    def replicas_on_disk(self) -> dict[TopicPartition, list[ReplicaOnDisk]]:
        """Return the replicas of every broker, current and future logs."""
        found: dict[TopicPartition, list[ReplicaOnDisk]] = {}
        for broker in self.brokers():
            for log_dir in self.admin.describe_log_dirs(broker):
                for item in log_dir.replicas:
                    replica = ReplicaOnDisk(
                        broker,
                        log_dir.log_dir,
                        item.is_future_key,
                        item.partition_size,
                        item.bytes_left,
                        item.bytes_per_second or 0,
                        item.error,
                    )
                    found.setdefault((item.topic, item.partition_index), []).append(replica)
        return found

    def strays(self) -> list[str]:
        """Return directories that brokers have set aside, and any unexpected ones on disk."""
        return [
            f"{result.log_dir}/{stray}"
            for broker in self.brokers()
            for result in self.admin.describe_log_dirs(broker)
            for stray in result.strays
        ]

    def digests(self) -> dict[TopicPartition, dict[int, ReplicaDigest]]:
        """Return every broker's digest of every replica it hosts, of existing topics."""
        found: dict[TopicPartition, dict[int, ReplicaDigest]] = {}
        names = {self.data.topic_id(topic.name): topic.name for topic in self.admin.describe_topics().values()}
        for broker in self.brokers():
            for digest in self.data.log_digest(broker).replicas:
                if digest.topic_id in names:
                    found.setdefault((names[digest.topic_id], digest.partition), {})[broker] = digest
        return found

    def set_broker_configs(self, configs: dict[str, str | None]) -> None:
        """Set (or, with None, delete) dynamic configs of every broker: the cluster default."""
        resource = config_changes(ResourceType.BROKER, "", configs)
        self.admin.incremental_alter_configs([resource])

    def small_write(self, topic: str, value: int, *, timeout_ms: int = 30_000) -> int:
        """Make one small metadata write; return its offset once committed."""
        resource = config_changes(ResourceType.TOPIC, topic, {"retention.ms": str(value)})
        return self.admin.incremental_alter_configs([resource], timeout_ms=timeout_ms).header.metadata_offset

    def metadata_of(self, endpoint: Endpoint, *, at_offset: int = 0, reread_log: bool = False) -> pb.DescribeMetadataResponse:
        request = pb.DescribeMetadataRequest(at_offset=at_offset, reread_log=reread_log)
        return self.admin.call_at(endpoint, pb.DescribeMetadataResponse, request)

    def log_dir_paths(self) -> dict[tuple[int, int], str]:
        """Return (broker, index of the log dir) → absolute path."""
        return {
            (broker, index): str(pathlib.Path(path).absolute())
            for broker in self.brokers()
            for index, path in enumerate(self.cluster.log_dirs(broker))
        }
