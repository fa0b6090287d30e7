"""Partitions that nobody leads, because all their replicas are kept offline after damage."""

from __future__ import annotations

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.log_dirs import LogDirFilter, doubts_of, promotion_of
from kraftlab.common.errors import ApiError

TIMEOUT_MS = 2000


def all_in_doubt(client: AdminClient) -> tuple[str, ...]:
    """Return a line for each partition of which every replica is in doubt, with the next step; none if the cluster does not
    answer.

    The brokers are asked, not the metadata: a leader there may not yet be reported as offline. Fenced brokers are not asked.
    """
    try:
        brokers = [broker.broker_id for broker in client.describe_cluster(timeout_ms=TIMEOUT_MS).brokers]
        doubts = doubts_of(client.all_log_dirs(LogDirFilter(only_filling=True), brokers=brokers, timeout_ms=TIMEOUT_MS))
        if not doubts:
            return ()
        topics = client.describe_topics({topic for topic, _ in doubts}, timeout_ms=TIMEOUT_MS)
    except (ApiError, ClusterUnreachable):
        return ()
    return tuple(
        f"{topic}-{number} has no leader, because all its replicas are in doubt: {promotion_of(copies)}"
        for (topic, number), copies in doubts.items()
        for partition in topics[topic].partitions
        if partition.partition_index == number and copies.keys() >= {*partition.replica_nodes}
    )
