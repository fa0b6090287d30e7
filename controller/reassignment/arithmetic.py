"""The arithmetic of reassignment (KIP-455, KIP-860): start, replace, complete and cancel.

A partition remembers two sets while it moves. *original* is its replica set before the first of a run of reassignments, order
included. *target* is the set of the last request. Everything else follows from these and from the current replicas:

    adding    AR = sorted(target - original)
    removing  RR = sorted((original + the other current replicas) - target)
    replicas  R  = target followed by RR

So AR and RR are disjoint. A replacement is measured from the start of the run, not from the half-way state. Going back to the
original set completes at once, and a cancel restores the original exactly, order included. When AR and RR are both empty the
partition is not moving: a mere change of order is not a reassignment.

A reassignment is complete when every adding replica and at least one target replica are in sync. A replica that is kept may
lag, unless the set shrinks: then the whole target must be in sync.

Nothing here looks at the state of brokers. The election decides whether a replica can lead afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraftlab.common.errors import ApiError, ErrorCode
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
    """State that a cancel restores. `forced`: no original replica was in sync, so `isr` holds one that must recover."""

    reassignment: Reassignment
    isr: tuple[int, ...]
    forced: bool


def current(partition: PartitionImage) -> Reassignment:
    """Current lists of the partition."""
    return Reassignment(partition.replicas, partition.adding, partition.removing, partition.original, partition.target)


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Replicas that a cancel restores: the stored original set, or the replicas of a partition that is not moving."""
    return partition.original if partition.is_reassigning else partition.replicas


def target_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Replicas that the partition moves to: the stored target set, or the replicas of a partition that is not moving."""
    return partition.target if partition.is_reassigning else partition.replicas


def start(partition: PartitionImage, target: tuple[int, ...]) -> Reassignment:
    """Start a move to `target`, or replace the target of a running reassignment. `target` has passed `check_target`."""
    original = original_replicas(partition)
    adding = tuple(sorted(set(target) - set(original)))
    removing = tuple(sorted({*original, *partition.replicas} - set(target)))
    if not adding and not removing:
        return Reassignment(target)
    return Reassignment(target + removing, adding, removing, original, target)


def complete(reassignment: Reassignment, isr: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(replicas, isr) after the reassignment if it is complete with that in-sync set. None if it has to wait, or if nothing
    moves.
    """
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
    """Restore the original set in its old order. The in-sync set keeps its original members.

    If no original member is in sync, the first original replica is forced into the set where unclean elections are allowed,
    and has to recover. ApiError NO_REASSIGNMENT_IN_PROGRESS (without a text, as in KIP-455), or INVALID_REPLICA_ASSIGNMENT if
    the cancel needs an unclean election. `name` is `topic:partition` for that text.
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
    """Refuse a replica list (of a reassignment or a manual assignment) with INVALID_REPLICA_ASSIGNMENT.

    Brokers are checked in the order of their ids. The refusal names the first unregistered or repeated broker. Fenced brokers
    pass.
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
    """Refuse a target with another size than the current target (KIP-860, for requests that do not allow such a change)."""
    size = len(target_replicas(partition))
    if len(target) != size:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {size} to {len(target)}")
