"""Metrics of a cluster under the names of danielqsj/kafka_exporter, from one look at its offsets.

kafka_exporter's `kafka_consumergroup_lag_zookeeper` is left out: no group keeps offsets in ZooKeeper. So is
`kafka_consumergroup_members` of groups of the protocol `consumer` (KIP-848), of which members are not known.

A group has two lines for each partition of its topics, so labels of a partition are made once for all lines.
"""

from __future__ import annotations

from kraftlab.client.cluster_offsets import ClusterOffsets, GroupOffsets
from kraftlab.metrics.exposition import Exposition, escaped

UNKNOWN = -1
"""Offset and lag of a partition without a committed offset, in a topic where the group has committed others."""
Numbered = dict[str, dict[int, str]]
"""By topic and partition: the end of the labels, which name both."""


def write(page: Exposition, seen: ClusterOffsets) -> None:
    """Write what was seen."""
    page.add("kafka_brokers", len(seen.brokers))
    for broker, at in seen.brokers.items():
        page.add("kafka_broker_info", 1, id=broker, address=at)
    topics: Numbered = {}
    for topic, number in seen.partitions:
        topics.setdefault(topic, {})[number] = f'topic="{escaped(topic)}",partition="{number}"}} '
    for topic, partitions in topics.items():
        page.add("kafka_topic_partitions", len(partitions), topic=topic)
    _write_partitions(page, seen, topics)
    for group_id, group in seen.groups.items():
        _write_group(page, group_id, group, seen, topics)


def _write_partitions(page: Exposition, seen: ClusterOffsets, topics: Numbered) -> None:
    for name, values in (
        ("current_offset", {key: each.end for key, each in seen.partitions.items()}),
        ("oldest_offset", {key: each.first for key, each in seen.partitions.items()}),
        ("leader", {key: each.leader for key, each in seen.partitions.items()}),
        ("leader_is_preferred", {key: int(each.leader in each.replicas[:1]) for key, each in seen.partitions.items()}),
        ("replicas", {key: len(each.replicas) for key, each in seen.partitions.items()}),
        ("in_sync_replica", {key: len(each.isr) for key, each in seen.partitions.items()}),
        (
            "under_replicated_partition",
            {key: int(len(each.isr) < len(each.replicas)) for key, each in seen.partitions.items()},
        ),
    ):
        family = f"kafka_topic_partition_{name}"
        known = ((topics[topic][number], value) for (topic, number), value in values.items() if value is not None)
        page.extend(family, (f"{family}{{{labels}{value}" for labels, value in known))


def _write_group(page: Exposition, group_id: str, group: GroupOffsets, seen: ClusterOffsets, topics: Numbered) -> None:
    """Write a group's offsets in the topics that are there. Lag is never negative."""
    if group.members is not None:
        page.add("kafka_consumergroup_members", group.members, consumergroup=group_id)
    labels = f'{{consumergroup="{escaped(group_id)}",'
    offset_lines, lag_lines = [], []
    for topic in sorted({topic for topic, _ in group.committed} & topics.keys()):
        offsets = lags = 0
        for number, ends in topics[topic].items():
            offset = group.committed.get((topic, number), UNKNOWN)
            end = seen.partitions[topic, number].end
            offset_lines.append(f"kafka_consumergroup_current_offset{labels}{ends}{offset}")
            if offset == UNKNOWN:
                lag_lines.append(f"kafka_consumergroup_lag{labels}{ends}{UNKNOWN}")
                continue
            offsets += offset
            if end is not None:
                lag = max(0, end - offset)
                lag_lines.append(f"kafka_consumergroup_lag{labels}{ends}{lag}")
                lags += lag
        page.add("kafka_consumergroup_current_offset_sum", offsets, consumergroup=group_id, topic=topic)
        page.add("kafka_consumergroup_lag_sum", lags, consumergroup=group_id, topic=topic)
    page.extend("kafka_consumergroup_current_offset", offset_lines)
    page.extend("kafka_consumergroup_lag", lag_lines)
