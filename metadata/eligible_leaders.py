"""Eligible leader replicas: whether they are on, and how large an in-sync set has to be (KIP-966).

A partition whose in-sync set is at least as large as its *effective min ISR* moves its high watermark; one with a smaller set
does not, and remembers who left as eligible leader replicas (ELR): they hold everything below that high watermark, so any of
them may lead without loss once the in-sync set is empty. This rests on leaders and controllers agreeing on the effective min
ISR. So it comes from replicated configuration alone (the topic's, else the cluster's default), and both sides compute it here.

It is capped by the replication factor of the partition itself: of one that is being reassigned by that of its original set, since
the replicas that are being added cannot be asked for yet.
"""

from __future__ import annotations

from .features import ELIGIBLE_LEADER_REPLICAS_VERSION, MIN_INSYNC_REPLICAS
from .image import MetadataImage, PartitionImage
from .records import RESOURCE_BROKER, RESOURCE_TOPIC

DEFAULT_MIN_INSYNC_REPLICAS = 1


def are_on(image: MetadataImage) -> bool:
    """Whether the cluster keeps eligible leader replicas."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1


def min_insync_replicas(image: MetadataImage, topic: str) -> int:
    """What replicated configuration asks for: the topic's value, else the cluster's default, else 1."""
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
    """`effective_min_isr` of a partition as it is."""
    return effective_min_isr(configured, partition.replicas, partition.original)
