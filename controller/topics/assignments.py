"""Replicas of new partitions, assigned by the request or spread over racks, and the records of new partitions.

A partition starts with the active members of its replicas as ISR and the first of them as leader, each replica in its broker's
default directory. Fenced brokers may be among the replicas, but not alone. Brokers in controlled shutdown, and brokers whose
directories are all cordoned (KIP-1066), get replicas only if a request assigns them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import Partition

from ..engine.state import Context
from ..partitions.partitions import default_directory
from ..reassignment import arithmetic as reassignment
from .placement import UsableBroker, place


def check_assignments(
    image: MetadataImage, assignments: Iterable[tuple[int, tuple[int, ...]]], size: int | None = None
) -> dict[int, tuple[int, ...]]:
    """Return replicas by partition number, in the order of the request. ApiError INVALID_REPLICA_ASSIGNMENT.

    `size`: replication factor that all must have (None: the factor of the first).
    """
    lists: dict[int, tuple[int, ...]] = {}
    for index, replicas in assignments:
        if index in lists:
            raise bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        reassignment.check_target(replicas, image.cluster.brokers.__contains__)
        if size not in (None, len(replicas)):
            raise bad_assignment(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
                f"consistent with previous partitions, which have {size} replica(s)."
            )
        if not any(image.cluster.brokers[broker_id].is_active for broker_id in replicas):
            raise bad_assignment(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )
        lists[index] = replicas
        size = len(replicas)
    return lists


def bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def spread(image: MetadataImage, partition_count: int, replication_factor: int, context: Context) -> list[tuple[int, ...]]:
    """Replicas of new partitions, spread over racks. ApiError INVALID_REPLICATION_FACTOR if there are too few brokers."""
    usable = [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in image.cluster.brokers.values()
        if not broker.in_controlled_shutdown and not broker.is_cordoned
    ]
    return place(usable, partition_count, replication_factor, context.random)


def new_partition(image: MetadataImage, topic_id: Uuid, index: int, replicas: tuple[int, ...]) -> Partition:
    """Record of a new partition. One of its replicas has to be active."""
    brokers = image.cluster.brokers
    isr = tuple(broker_id for broker_id in replicas if brokers[broker_id].is_active)
    directory_for = default_directory(brokers)
    return Partition(
        0,
        index,
        topic_id,
        replicas,
        isr,
        leader=isr[0],
        directories=tuple(directory_for(broker_id) for broker_id in replicas),
    )
