"""A running cluster as a document: its metadata, and directories and sizes from DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .documents import Broker, ClusterDocument, LogDir, Partition, Topic, validated

if TYPE_CHECKING:
    from kraftlab.client import AdminClient, results

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
        brokers.append(Broker(broker.broker_id, broker.rack or None, alive, directories))
    topics = tuple(
        Topic(name, tuple(_partition(name, entry, placed) for entry in topic.partitions))
        for name, topic in client.describe_topics(min_offset=described.metadata_offset).items()
    )
    offset = described.metadata_offset
    return validated(ClusterDocument(tuple(brokers), topics, cluster_id=described.cluster_id, as_of_offset=offset))


def _directories(client: AdminClient, broker: results.Broker, placed: Placed, warn: Callable[[str], None]) -> tuple[LogDir, ...]:
    from kraftlab.client import ClusterUnreachable
    from kraftlab.common.errors import ApiError

    try:
        found = client.describe_log_dirs(broker.broker_id)
    except (ApiError, ClusterUnreachable) as error:
        warn(f"broker {broker.broker_id} did not describe its log directories, its sizes count as unknown: {error}")
        return ()
    for each in found:
        for replica in each.replicas:
            if not replica.is_future_key:
                placed[replica.topic, replica.partition_index, broker.broker_id] = (each.log_dir, replica.partition_size)
    return tuple(
        LogDir(
            path=each.log_dir,
            id=each.directory_id,
            total_bytes=-1 if each.total_bytes is None else each.total_bytes,
            usable_bytes=-1 if each.usable_bytes is None else each.usable_bytes,
            online=not each.error_code,
            cordoned=each.is_cordoned,
        )
        for each in found
    )


def _partition(topic: str, entry: results.Partition, placed: Placed) -> Partition:
    here = {broker: placed.get((topic, entry.partition_index, broker)) for broker in entry.replica_nodes}
    leader = None if entry.leader_id is None else here.get(entry.leader_id)
    sizes = [found[1] for found in here.values() if found is not None]
    size = leader[1] if leader is not None else max(sizes, default=None)
    return Partition(
        partition=entry.partition_index,
        replicas=entry.replica_nodes,
        leader=-1 if entry.leader_id is None else entry.leader_id,
        size_bytes=size,
        log_dirs=tuple(found[0] if found is not None else None for found in here.values()),
        adding=entry.adding_replicas,
        removing=entry.removing_replicas,
    )
