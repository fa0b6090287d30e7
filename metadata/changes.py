"""Differences between two images, and the part of them that concerns one broker.

A delta knows its changes as a by-product (`MetadataDelta.changes`). `changes_between` compares two images, for callers without
a delta: the first publication to a new publisher, a loaded snapshot, and tests. Partitions and topics are exact. Brokers,
controllers, configs, features, ACLs and credentials of a delta may include entries that were written and ended unchanged.

`local_changes` sorts changed partitions by the broker's next step (KIP-631): delete first, then lead, then follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

import immutables

from kraftlab.common.uuids import Uuid

from .image import ConfigResource, MetadataImage, PartitionImage
from .moves import TopicPartition
from .quotas import QuotaEntity
from .scram import ScramKey

K = TypeVar("K")
V = TypeVar("V")


class MetadataChanges(NamedTuple):
    """Keys that differ. `partitions` has every partition that was created, changed or removed, also together with its topic."""

    created_topics: frozenset[Uuid]
    deleted_topics: frozenset[Uuid]
    partitions: Mapping[Uuid, frozenset[int]]
    brokers: frozenset[int]
    controllers: frozenset[int]
    configs: frozenset[ConfigResource]
    features: frozenset[str]
    acls: frozenset[Uuid] = frozenset()
    scram: frozenset[ScramKey] = frozenset()
    quotas: frozenset[QuotaEntity] = frozenset()

    def each_partition(
        self, before: MetadataImage, after: MetadataImage
    ) -> Iterator[tuple[TopicPartition, PartitionImage | None, PartitionImage | None]]:
        """Each changed partition with its state in both images, None where it does not exist. The order is always the same."""
        for topic_id, numbers in sorted(self.partitions.items()):
            old, new = before.topics.by_id.get(topic_id), after.topics.by_id.get(topic_id)
            for number in sorted(numbers):
                yield (
                    (topic_id, number),
                    None if old is None else old.partitions.get(number),
                    None if new is None else new.partitions.get(number),
                )


class LocalChanges(NamedTuple):
    """Steps of one broker, in this order.

    `deleted`: replicas that the broker loses (their last state), also because the topic is gone. `leading` and `following`:
    replicas whose partition changed (their new state). `elected`: replicas of `leading` with a new leader epoch, or new to
    this broker. `directories`: replicas with a new assigned directory.
    """

    deleted: dict[TopicPartition, PartitionImage]
    leading: dict[TopicPartition, PartitionImage]
    elected: frozenset[TopicPartition]
    following: dict[TopicPartition, PartitionImage]
    directories: dict[TopicPartition, Uuid]


def local_changes(changes: MetadataChanges, before: MetadataImage, after: MetadataImage, broker_id: int) -> LocalChanges:
    """Steps of that broker for `changes`, which lead from `before` to `after`."""
    deleted: dict[TopicPartition, PartitionImage] = {}
    leading: dict[TopicPartition, PartitionImage] = {}
    elected: set[TopicPartition] = set()
    following: dict[TopicPartition, PartitionImage] = {}
    directories: dict[TopicPartition, Uuid] = {}
    for key, old, new in changes.each_partition(before, after):
        held = old is not None and broker_id in old.replicas
        if new is None or broker_id not in new.replicas:
            if held and old is not None:
                deleted[key] = old
            continue
        if new.leader == broker_id:
            leading[key] = new
            if old is None or old.leader_epoch != new.leader_epoch:
                elected.add(key)
        else:
            following[key] = new
        directory = new.directory_of(broker_id)
        if directory is not None and (old is None or old.directory_of(broker_id) != directory):
            directories[key] = directory
    return LocalChanges(deleted, leading, frozenset(elected), following, directories)


def _differing(before: immutables.Map[K, V], after: immutables.Map[K, V]) -> frozenset[K]:
    """Keys that only one of the maps has, or that have different values."""
    if before is after:
        return frozenset()
    return frozenset(key for key in {*before, *after} if key not in before or key not in after or before[key] != after[key])


def changes_between(before: MetadataImage, after: MetadataImage) -> MetadataChanges:
    """All differences between any two images."""
    old_topics, new_topics = before.topics.by_id, after.topics.by_id
    partitions: dict[Uuid, frozenset[int]] = {}
    for topic_id in {*old_topics, *new_topics}:
        old, new = old_topics.get(topic_id), new_topics.get(topic_id)
        if old is new:
            continue
        numbers = _differing(old.partitions if old else immutables.Map(), new.partitions if new else immutables.Map())
        if numbers:
            partitions[topic_id] = numbers
    return MetadataChanges(
        frozenset(topic_id for topic_id in new_topics if topic_id not in old_topics),
        frozenset(topic_id for topic_id in old_topics if topic_id not in new_topics),
        partitions,
        _differing(before.cluster.brokers, after.cluster.brokers),
        _differing(before.cluster.controllers, after.cluster.controllers),
        _differing(before.configs, after.configs),
        _differing(before.features, after.features),
        acls=_differing(before.acls.by_id, after.acls.by_id),
        scram=_differing(before.scram, after.scram),
        quotas=_differing(before.quotas, after.quotas),
    )
