"""Builds the PartitionChange record for one partition, from what is wanted to what changes (KIP-455, KIP-841, KIP-858).

Whatever triggers a change (a fence, an ISR request, an election, a reassignment, a directory assignment) goes through
`build_change`, in one fixed order: a reassignment that is complete is completed, then a leader is elected for the replicas and
in-sync set that came out of it, then the leader epoch is raised if replicas were dropped (so that they get fenced), then every
list that differs is written. Because the first two happen in *every* build, any trigger may complete a reassignment or elect a
leader.

What the record says is minimal: a field is there only if it differs, and nothing at all is built if nothing differs. The lists
of a reassignment are the exception: adding, removing, original and target are written together or not at all. A shrink of the
in-sync set alone does not raise the leader epoch (metadata.version 12 and later). The in-sync set never becomes empty: its last
member stays, and the partition has no leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.records import RECOVERING, PartitionChange
from kraftlab.metadata.uuids import Uuid

from ..reassignment import arithmetic as reassignment
from ..reassignment.arithmetic import Reassignment
from .election import Election, elect


def build_change(
    partition: PartitionImage,
    partition_id: int,
    topic_id: Uuid,
    *,
    acceptable: Callable[[int], bool],
    default_directory: Callable[[int], Uuid],
    target_isr: tuple[int, ...] | None = None,
    reassign: Reassignment | None = None,
    election: Election = Election.ONLINE,
    directories: Mapping[int, Uuid] | None = None,
    recovery_state: int | None = None,
) -> PartitionChange | None:
    """The record that brings `partition` to what is asked for, None if nothing has to change. None for an argument: as it is.

    `acceptable` says whether a broker is active and its directory for this partition online. `reassign` comes from
    `reassignment.start` or `reassignment.cancel`. `directories` sets directories of replicas explicitly; other replicas keep
    theirs, newcomers get `default_directory(broker_id)`.
    """
    wanted = reassign or reassignment.current(partition)
    isr = partition.isr if target_isr is None else target_isr
    completed = reassignment.complete(wanted, isr)
    if completed is not None:
        replicas, isr = completed
        wanted = Reassignment(replicas)

    elected = elect(election, wanted.replicas, isr, partition.leader, acceptable)
    if elected.unclean:
        isr, recovery_state = (elected.leader,), RECOVERING
    is_in_place = wanted.replicas == partition.replicas
    is_dropping = not is_in_place and not set(partition.replicas) <= set(wanted.replicas)
    placed = partition.directories
    if directories or not is_in_place:
        placed = _placed(partition, wanted.replicas, directories or {}, default_directory)
    is_other_move = wanted[1:] != reassignment.current(partition)[1:]
    clears_elr = bool(partition.elr or partition.last_known_elr)
    change = PartitionChange(
        0,
        partition_id,
        topic_id,
        isr=isr if isr and isr != partition.isr else None,
        leader=elected.leader if elected.unclean or is_dropping or elected.leader != partition.leader else None,
        replicas=None if is_in_place else wanted.replicas,
        removing_replicas=wanted.removing if is_other_move else None,
        adding_replicas=wanted.adding if is_other_move else None,
        leader_recovery_state=recovery_state if recovery_state != partition.leader_recovery_state else None,
        eligible_leader_replicas=() if clears_elr else None,
        last_known_elr=() if clears_elr else None,
        directories=placed if placed != partition.directories else None,
        original_replicas=wanted.original if is_other_move else None,
        target_replicas=wanted.target if is_other_move else None,
    )
    return None if change == PartitionChange(0, partition_id, topic_id) else change


def build_target(
    partition: PartitionImage,
    partition_id: int,
    topic_id: Uuid,
    target: tuple[int, ...],
    *,
    acceptable: Callable[[int], bool],
    default_directory: Callable[[int], Uuid],
) -> PartitionChange | None:
    """Starts a reassignment to `target` or replaces the running one's target; None if that is where the partition is or goes."""
    return build_change(
        partition,
        partition_id,
        topic_id,
        acceptable=acceptable,
        default_directory=default_directory,
        reassign=reassignment.start(partition, target),
    )


def build_cancel(
    partition: PartitionImage,
    partition_id: int,
    topic_id: Uuid,
    name: str,
    *,
    acceptable: Callable[[int], bool],
    default_directory: Callable[[int], Uuid],
    unclean_allowed: bool,
) -> PartitionChange | None:
    """Cancels the running reassignment; raises ApiError as `reassignment.cancel` does.

    Where unclean elections are allowed they are allowed in the cancel too. An original replica forced into the in-sync set has to
    recover. The cancel may leave the partition without leader.
    """
    cancellation = reassignment.cancel(partition, name, unclean_allowed)
    return build_change(
        partition,
        partition_id,
        topic_id,
        acceptable=acceptable,
        default_directory=default_directory,
        target_isr=cancellation.isr,
        reassign=cancellation.reassignment,
        election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
        recovery_state=RECOVERING if cancellation.forced else None,
    )


def _placed(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    directories: Mapping[int, Uuid],
    default_directory: Callable[[int], Uuid],
) -> tuple[Uuid, ...]:
    """The directory of each replica: the one set explicitly, else the one it has, else its broker's default."""
    present = dict(zip(partition.replicas, partition.directories, strict=True))
    return tuple(directories.get(replica) or present.get(replica) or default_directory(replica) for replica in replicas)
