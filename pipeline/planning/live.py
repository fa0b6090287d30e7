"""A running cluster as a document: its metadata, and directories and sizes from DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .documents import Broker, ClusterDocument, LogDir, Partition, Topic, validated

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import AdminClient

Placed = dict[tuple[str, int, int], tuple[str, int]]
"""(topic, partition, broker) → (path, bytes)."""


def read_live(client: AdminClient, warn: Callable[[str], None]) -> ClusterDocument:
    """Return the current cluster. `warn` gets a line for each broker that does not answer. BadCluster, ApiError,
    ClusterUnreachable.
    """
    described = client.describe_cluster(include_fenced_brokers=True)
    placed: Placed = {}
    brokers = []
    for broker in sorted(described.brokers, key=lambda one: one.broker_id):
        alive = not broker.is_fenced and not broker.in_controlled_shutdown
        directories = _directories(client, broker, placed, warn) if alive else ()
        rack = broker.rack if broker.HasField("rack") and broker.rack else None
        brokers.append(Broker(broker.broker_id, rack, alive, directories))
    response = client.describe_topics()
    topics = tuple(
        Topic(topic.name, tuple(_partition(topic.name, entry, placed) for entry in topic.partitions))
        for topic in response.topics
        if not topic.error_code
    )
    offset = int(response.header.metadata_offset)
    return validated(ClusterDocument(tuple(brokers), topics, cluster_id=described.cluster_id, as_of_offset=offset))


def _directories(
    client: AdminClient, broker: pb.DescribedBroker, placed: Placed, warn: Callable[[str], None]
) -> tuple[LogDir, ...]:
    from kraftlab.client import ClusterUnreachable
    from kraftlab.common.errors import ApiError

    try:
        results = client.describe_log_dirs(broker.broker_id).results
    except (ApiError, ClusterUnreachable) as error:
        warn(f"broker {broker.broker_id} did not describe its log directories, its sizes count as unknown: {error}")
        return ()
    for result in results:
        for topic in result.topics:
            for entry in topic.partitions:
                if not entry.is_future_key:
                    placed[topic.name, entry.partition_index, broker.broker_id] = (result.log_dir, entry.partition_size)
    return tuple(
        LogDir(
            path=result.log_dir,
            id=result.directory_id,
            total_bytes=result.total_bytes,
            usable_bytes=result.usable_bytes,
            online=not result.error_code,
            cordoned=result.is_cordoned,
        )
        for result in results
    )


def _partition(topic: str, entry: pb.DescribedPartition, placed: Placed) -> Partition:
    here = {broker: placed.get((topic, entry.partition_index, broker)) for broker in entry.replica_nodes}
    leader = here.get(entry.leader_id)
    sizes = [found[1] for found in here.values() if found is not None]
    size = leader[1] if leader is not None else max(sizes, default=None)
    return Partition(
        partition=entry.partition_index,
        replicas=tuple(entry.replica_nodes),
        leader=entry.leader_id,
        size_bytes=size,
        log_dirs=tuple(found[0] if found is not None else None for found in here.values()),
        adding=tuple(entry.adding_replicas),
        removing=tuple(entry.removing_replicas),
    )
