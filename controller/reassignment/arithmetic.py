"""The arithmetic of reassignment (KIP-455, KIP-860): where a partition goes, when it has arrived, and how to go back.

A partition remembers two sets while it moves. *original* is its replica set before the first of a run of reassignments, order
included; *target* is the set that was asked for last. Everything else follows from these and from the replicas it has now:

    adding    AR = sorted(target - original)
    removing  RR = sorted((original + whatever else is in replicas) - target)
    replicas  R  = target followed by RR

So AR and RR are disjoint, a replacement is measured from where the run began (not from the half-way state), going back to the
original set completes at once, and a cancel restores the original exactly, order included. When neither AR nor RR is left the
partition is not moving: a mere change of order is no reassignment.

A reassignment is complete when every adding replica is in sync and at least one target replica is; a replica that is kept may lag
behind, unless the set shrinks: then all of the target must be in sync.

Nothing here looks at brokers' state: whether somebody can lead afterwards is the election's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import PartitionImage


class Reassignment(NamedTuple):
    """The five lists of a partition that change together. All but `replicas` are () when nothing moves."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    original: tuple[int, ...] = ()
    target: tuple[int, ...] = ()

    @property
    def is_running(self) -> bool:
        return bool(self.adding or self.removing)


class Cancellation(NamedTuple):
    """What a cancel restores. `forced`: no original replica was in sync, so `isr` holds one that must recover."""

    reassignment: Reassignment
    isr: tuple[int, ...]
    forced: bool


def current(partition: PartitionImage) -> Reassignment:
    """The partition's five lists as they are."""
    return Reassignment(partition.replicas, partition.adding, partition.removing, partition.original, partition.target)


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """What a cancel would restore: the stored original set, or the replicas of a partition that is not moving."""
    return partition.original if partition.is_reassigning else partition.replicas


def target_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Where the partition is going: the stored target set, or the replicas of a partition that is not moving."""
    return partition.target if partition.is_reassigning else partition.replicas


def start(partition: PartitionImage, target: tuple[int, ...]) -> Reassignment:
    """Sets out for `target`, or replaces the target of a running reassignment. `target` has passed `check_target`."""
    original = original_replicas(partition)
    adding = tuple(sorted(set(target) - set(original)))
    removing = tuple(sorted({*original, *partition.replicas} - set(target)))
    if not adding and not removing:
        return Reassignment(target)
    return Reassignment(target + removing, adding, removing, original, target)


def complete(reassignment: Reassignment, isr: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(replicas, isr) after the reassignment if it is complete with that in-sync set, None if it has to wait or nothing moves."""
    if not reassignment.is_running:
        return None
    target = tuple(replica for replica in reassignment.replicas if replica not in reassignment.removing)
    remaining = tuple(replica for replica in isr if replica not in reassignment.removing)
    if not target or not remaining or not set(reassignment.adding) <= set(remaining):
        return None
    if len(target) < len(reassignment.original) and not set(target) <= set(remaining):
        return None
    return target, remaining


def cancel(partition: PartitionImage, name: str, unclean_allowed: bool) -> Cancellation:
    """Goes back to the original set in its old order; the in-sync set keeps its members that were there before.

    If none is left, the first original replica is forced into it where unclean elections are allowed; it has to recover then.
    Raises ApiError: NO_REASSIGNMENT_IN_PROGRESS (no text, as in KIP-455), or INVALID_REPLICA_ASSIGNMENT if going back would need
    an unclean election. `name` is `topic:partition` for that text.
    """
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    original = partition.original
    isr = tuple(replica for replica in partition.isr if replica in original)
    if not isr and not unclean_allowed:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name} because it would require an unclean leader election.",
        )
    return Cancellation(Reassignment(original), isr or original[:1], forced=not isr)


def check_target(target: tuple[int, ...], is_registered: Callable[[int], bool]) -> None:
    """Refuses a replica list (of a reassignment or a manual assignment) with INVALID_REPLICA_ASSIGNMENT.

    Brokers are taken in the order of their ids; the first that is unregistered, or named again, is named in the refusal.
    Fenced brokers are fine.
    """
    if not target:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list.")
    previous: int | None = None
    for broker_id in sorted(target):
        if not is_registered(broker_id):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
            )
        if broker_id == previous:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker_id} more than once.",
            )
        previous = broker_id


def check_replication_factor(partition: PartitionImage, target: tuple[int, ...]) -> None:
    """Refuses a target of another size than the one being moved to (KIP-860, for requests that do not allow such a change)."""
    size = len(target_replicas(partition))
    if len(target) != size:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {size} to {len(target)}")
