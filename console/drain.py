"""A plan that leaves a broker without replicas: a pure, deterministic function.

Each partition of the broker gets one replica more elsewhere, by the rule for a higher replication factor: the rack with the
fewest replicas of the partition first, then the broker with the fewest replicas. The new replica takes the place of the broker's
own in the list, so that preferred leaders stay spread. Partitions are planned in order, and each sees the plan of the earlier
ones. A partition counts with its target if it is being moved, or if a target is queued for it.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from kraftlab.controller.reassignment.arithmetic import target_replicas
from kraftlab.controller.reassignment.factors import plan, replica_counts, waiting_targets
from kraftlab.metadata.image import MetadataImage


class Replacement(msgspec.Struct, frozen=True):
    """A partition of the plan: the replicas that it has or was to get, and those of the plan. `to`: the broker that is new."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    to: int


class Drain(msgspec.Struct, frozen=True):
    """A plan. `before`, `after`: number of replicas of each broker."""

    partitions: tuple[Replacement, ...]
    before: dict[int, int]
    after: dict[int, int]


def drain(image: MetadataImage, broker_id: int) -> Drain:
    """Return the plan. ApiError INVALID_REPLICATION_FACTOR if a partition has a replica on every other active broker."""
    others = {each: broker for each, broker in image.cluster.brokers.items() if each != broker_id}
    before = replica_counts(image)
    counts = Counter(before)
    found = []
    for topic in sorted(image.topics.by_id.values(), key=lambda topic: topic.name):
        waiting = waiting_targets(image, topic)
        for number, partition in sorted(topic.partitions.items()):
            replicas = waiting.get(number) or target_replicas(partition)
            if broker_id not in replicas:
                continue
            rest = tuple(each for each in replicas if each != broker_id)
            resting = msgspec.structs.replace(partition, replicas=rest, adding=(), removing=(), original=(), target=())
            to = plan({number: resting}, len(replicas), others, counts)[number][-1]
            counts[broker_id] -= 1
            after = tuple(to if each == broker_id else each for each in replicas)
            found.append(Replacement(topic.name, number, replicas, after, to))
    brokers = sorted({*image.cluster.brokers, *before})
    return Drain(tuple(found), {each: before[each] for each in brokers}, {each: counts[each] for each in brokers})
