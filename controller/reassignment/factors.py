"""Replicas to add or drop for a change of the replication factor (KIP-179): a pure, deterministic function.

A new replica goes to an active broker without one of this partition: first to the rack with the fewest of them, then to the
broker with the fewest replicas, then to the lowest id. A replica is dropped in this order: not in sync, on a broker that is
not active, not the leader, in the rack with the most of them, last in the list. So the remaining replicas keep their order, the
leader goes last, a partition with a leader keeps one, and a factor that was raised and is lowered again gives the replicas that
were there before (if they were spread evenly over racks and are healthy). Partitions are planned in
their order, and each sees the plan of the earlier ones. A partition counts with its target if it is being moved, or if a
target is queued for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage

from .arithmetic import target_replicas

NOTHING_WAITS: Mapping[int, tuple[int, ...]] = {}


def replica_counts(image: MetadataImage) -> Counter[int]:
    """Number of replicas that each broker has or will have."""
    counts: Counter[int] = Counter()
    for topic in image.topics.by_id.values():
        waiting = waiting_targets(image, topic)
        for number, partition in topic.partitions.items():
            counts.update(waiting.get(number) or target_replicas(partition))
    return counts


def waiting_targets(image: MetadataImage, topic: TopicImage) -> Mapping[int, tuple[int, ...]]:
    """Queued targets of that topic's partitions."""
    queued = image.moves.queued.get(topic.topic_id)
    return {} if queued is None else {number: move.target for number, move in queued.items()}


def plan(
    partitions: Mapping[int, PartitionImage],
    factor: int,
    brokers: Mapping[int, BrokerImage],
    counts: Counter[int],
    waiting: Mapping[int, tuple[int, ...]] = NOTHING_WAITS,
) -> dict[int, tuple[int, ...]]:
    """Return partition → replicas, for each partition that changes, and for each whose queued target must be replaced.
    `counts` is updated with the plan.

    ApiError INVALID_REPLICATION_FACTOR if there are too few brokers.
    """
    if factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"A replication factor of {factor} is not possible; request 1 or more."
        )
    targets: dict[int, tuple[int, ...]] = {}
    for number in sorted(partitions):
        partition = partitions[number]
        before = waiting.get(number) or target_replicas(partition)
        after = list(before)
        while len(after) > factor:
            after.remove(_to_drop(after, partition, brokers))
        while len(after) < factor:
            after.append(_to_add(after, factor, brokers, counts))
        if tuple(after) != before or number in waiting:
            counts.subtract(before)
            counts.update(after)
            targets[number] = tuple(after)
    return targets


def _rack(brokers: Mapping[int, BrokerImage], broker_id: int) -> str | None:
    broker = brokers.get(broker_id)
    return None if broker is None else broker.rack


def _to_add(replicas: list[int], factor: int, brokers: Mapping[int, BrokerImage], counts: Counter[int]) -> int:
    usable = [broker for broker in brokers.values() if broker.is_active and not broker.is_cordoned]
    free = [broker for broker in usable if broker.broker_id not in replicas]
    if not free:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {factor} cannot be reached: only {len(usable)} brokers are active and take replicas "
            f"({len(replicas)} hold one already). Start more, or request a lower factor.",
        )
    in_rack = Counter(_rack(brokers, broker_id) for broker_id in replicas)
    return min(free, key=lambda broker: (in_rack[broker.rack], counts[broker.broker_id], broker.broker_id)).broker_id


def _to_drop(replicas: list[int], partition: PartitionImage, brokers: Mapping[int, BrokerImage]) -> int:
    in_rack = Counter(_rack(brokers, broker_id) for broker_id in replicas)
    in_sync = partition.isr or partition.elr

    def rank(broker_id: int) -> tuple[bool, bool, bool, int, int]:
        broker = brokers.get(broker_id)
        return (
            broker_id not in in_sync,
            broker is None or not broker.is_active,
            broker_id != partition.leader,
            in_rack[_rack(brokers, broker_id)],
            replicas.index(broker_id),
        )

    return max(replicas, key=rank)
