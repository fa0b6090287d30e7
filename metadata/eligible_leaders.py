"""Eligible leader replicas: the switch, and the required size of an in-sync set (KIP-966).

A partition whose in-sync set has at least its *effective min ISR* members moves its high watermark. With a smaller set the
high watermark does not move, and members that leave become eligible leader replicas (ELR): they hold everything below that
high watermark, so any of them may lead without loss once the in-sync set is empty. This requires that leaders and controllers
agree on the effective min ISR. So both compute it here, from replicated configuration alone (the topic's value, otherwise the
cluster's default).

The partition's own replication factor caps the effective min ISR. While the partition is being reassigned, its original set
counts, since replicas that are being added cannot be required yet.
"""

from __future__ import annotations

from .features import ELIGIBLE_LEADER_REPLICAS_VERSION, MIN_INSYNC_REPLICAS
from .image import MetadataImage, PartitionImage
from .records import RESOURCE_BROKER, RESOURCE_TOPIC

DEFAULT_MIN_INSYNC_REPLICAS = 1


def are_on(image: MetadataImage) -> bool:
    """Return True if the cluster keeps eligible leader replicas."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1


def min_insync_replicas(image: MetadataImage, topic: str) -> int:
    """min.insync.replicas from replicated configuration: the topic's value, otherwise the cluster's default, otherwise 1."""
    value = image.config(RESOURCE_TOPIC, topic, MIN_INSYNC_REPLICAS)
    if value is None:
        value = image.config(RESOURCE_BROKER, "", MIN_INSYNC_REPLICAS)
    return DEFAULT_MIN_INSYNC_REPLICAS if value is None else int(value)


def min_isr_if_on(image: MetadataImage, topic: str) -> int | None:
    """`min_insync_replicas`, None if eligible leader replicas are off."""
    return min_insync_replicas(image, topic) if are_on(image) else None


def effective_min_isr(configured: int, replicas: tuple[int, ...], original: tuple[int, ...]) -> int:
    """`configured`, capped by the partition's replication factor. `original` is () unless a reassignment runs."""
    return min(configured, len(original or replicas))


def partition_min_isr(partition: PartitionImage, configured: int) -> int:
    """`effective_min_isr` of a partition in its current state."""
    return effective_min_isr(configured, partition.replicas, partition.original)
