"""Builds the PartitionChange record of one partition (KIP-455, KIP-841, KIP-858, KIP-966).

Every change goes through `build_change`: a fence, an ISR request, an election, a reassignment, a directory assignment. The
order is fixed. A reassignment that is complete is completed. Members that leave an in-sync set smaller than the effective min
ISR become eligible leader replicas (ELR). A leader is elected for the resulting replicas and sets. The leader epoch is raised
if replicas were dropped, which fences them. Every list that differs is written. The first three steps happen in *every* build,
so any trigger may complete a reassignment or elect a leader.

Eligible leader replicas hold everything that was committed, because the high watermark does not move while the in-sync set is
too small. They are cleared once the set is large enough again, or after an unclean election. With them the in-sync set may
become empty, and the last leader is remembered. They are always replicas. With the feature off, the last member of the in-sync
set stays, and the partition has no leader; a replica that was eligible when the feature was switched off may still be elected
where the in-sync set is empty.

In a large cluster most changes are plain: the partition does not move, no replica is eligible, and the in-sync set is large
enough. Then only in-sync set and leader can change, and `build_change` takes a short cut. `build_change_in_full` gives the
same result.

The record is minimal: a field is present only if it differs, and there is no record if nothing differs. The lists of a
reassignment are the exception: adding, removing, original and target are written together or not at all. A shrink of the
in-sync set alone raises the leader epoch only below metadata.version 12, where brokers have no other way to learn of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from kraftlab.common.uuids import Uuid
from kraftlab.metadata.eligible_leaders import effective_min_isr
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.records import NO_LEADER, RECOVERING, PartitionChange

from ..reassignment import arithmetic as reassignment
from ..reassignment.arithmetic import Reassignment
from .election import Candidates, Election, ElectionResult, elect, first_in_sync

Accepts = Callable[[PartitionImage, int], bool]
"""Returns True if a broker is active and its directory for the partition is online (KIP-858)."""


class _Standing(NamedTuple):
    """Replicas that hold everything that was committed, and the last leader."""

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]


def build_change(
    partition: PartitionImage,
    partition_id: int,
    topic_id: Uuid,
    *,
    accepts: Accepts,
    default_directory: Callable[[int], Uuid],
    min_isr: int | None,
    target_isr: tuple[int, ...] | None = None,
    reassign: Reassignment | None = None,
    election: Election = Election.ONLINE,
    directories: Mapping[int, Uuid] | None = None,
    recovery_state: int | None = None,
    uncleanly_stopped: Collection[int] = (),
    shrink_raises_epoch: bool = False,
) -> PartitionChange | None:
    """Build the record of the requested change; None if nothing has to change. An argument left at None keeps its part as it
    is.

    `accepts`: see `Accepts`. `min_isr`: min.insync.replicas from replicated configuration, None if eligible leader replicas
    are off. `reassign`: the result of `reassignment.start` or `reassignment.cancel`. Brokers that are `uncleanly_stopped` may
    have lost records and are not eligible. `directories`: directories of some replicas; other replicas keep theirs, and new
    ones get `default_directory(broker_id)`. `shrink_raises_epoch`: a leader that stays gets a new epoch when a member leaves
    its in-sync set, as below metadata.version 12 (KAFKA-15021). Only a caller with a `target_isr` has to pass it, since
    nothing else removes members and keeps the leader.
    """
    if reassign is None and not directories and (recovery_state is None or recovery_state == partition.leader_recovery_state):
        isr = partition.isr if target_isr is None else target_isr
        leader = plain_leader(partition, isr, min_isr, election, accepts)
        if leader != NO_LEADER:
            return plain_change(partition, partition_id, topic_id, isr, leader, shrink_raises_epoch)
    return build_change_in_full(
        partition,
        partition_id,
        topic_id,
        accepts=accepts,
        default_directory=default_directory,
        min_isr=min_isr,
        target_isr=target_isr,
        reassign=reassign,
        election=election,
        directories=directories,
        recovery_state=recovery_state,
        uncleanly_stopped=uncleanly_stopped,
        shrink_raises_epoch=shrink_raises_epoch,
    )


def plain_leader(
    partition: PartitionImage,
    isr: tuple[int, ...],
    min_isr: int | None,
    election: Election,
    accepts: Accepts,
) -> int:
    """Leader with this in-sync set, if nothing but the two can change. NO_LEADER if more can change, or if no member may lead."""
    if partition.adding or partition.removing or partition.elr or partition.last_known_elr or not partition.isr:
        return NO_LEADER
    if min_isr is not None and len(isr) < min_isr and len(isr) < len(partition.replicas):
        return NO_LEADER
    leader = partition.leader
    if election is not Election.PREFERRED and leader in isr and accepts(partition, leader):
        return leader
    return first_in_sync(election, partition.replicas, isr, leader, partial(accepts, partition))


def plain_change(
    partition: PartitionImage,
    partition_id: int,
    topic_id: Uuid,
    isr: tuple[int, ...],
    leader: int,
    shrink_raises_epoch: bool,
) -> PartitionChange | None:
    """Record that gives a partition this in-sync set and its `plain_leader`; None if it has both."""
    is_raised = leader != partition.leader or (shrink_raises_epoch and not set(partition.isr) <= set(isr))
    if isr == partition.isr:
        return PartitionChange(0, partition_id, topic_id, None, leader) if is_raised else None
    return PartitionChange(0, partition_id, topic_id, isr, leader if is_raised else None)


def build_change_in_full(
    partition: PartitionImage,
    partition_id: int,
    topic_id: Uuid,
    *,
    accepts: Accepts,
    default_directory: Callable[[int], Uuid],
    min_isr: int | None,
    target_isr: tuple[int, ...] | None,
    reassign: Reassignment | None,
    election: Election,
    directories: Mapping[int, Uuid] | None,
    recovery_state: int | None,
    uncleanly_stopped: Collection[int],
    shrink_raises_epoch: bool = False,
) -> PartitionChange | None:
    """As `build_change`, without the short cut."""
    wanted = reassign or reassignment.current(partition)
    isr = partition.isr if target_isr is None else target_isr
    completed = reassignment.complete(wanted, isr)
    if completed is not None:
        replicas, isr = completed
        wanted = Reassignment(replicas)

    needed = None if min_isr is None else effective_min_isr(min_isr, wanted.replicas, wanted.original)
    before = _before_election(partition, wanted.replicas, isr, needed, uncleanly_stopped)
    elected = elect(election, Candidates(wanted.replicas, *before), partition.leader, partial(accepts, partition))
    if elected.unclean:
        recovery_state = RECOVERING
    isr, elr, last_known = _after_election(partition, wanted.replicas, before, elected, needed)
    is_in_place = wanted.replicas == partition.replicas
    is_dropping = not is_in_place and not set(partition.replicas) <= set(wanted.replicas)
    is_raised = is_dropping or (shrink_raises_epoch and not set(partition.isr) <= set(isr))
    placed = partition.directories
    if directories or not is_in_place:
        placed = _placed(partition, wanted.replicas, directories or {}, default_directory)
    is_other_move = wanted[1:] != reassignment.current(partition)[1:]
    change = PartitionChange(
        0,
        partition_id,
        topic_id,
        isr=isr if isr != partition.isr else None,
        leader=elected.leader if elected.unclean or is_raised or elected.leader != partition.leader else None,
        replicas=None if is_in_place else wanted.replicas,
        removing_replicas=wanted.removing if is_other_move else None,
        adding_replicas=wanted.adding if is_other_move else None,
        leader_recovery_state=recovery_state if recovery_state != partition.leader_recovery_state else None,
        eligible_leader_replicas=elr if elr != partition.elr else None,
        last_known_elr=last_known if last_known != partition.last_known_elr else None,
        directories=placed if placed != partition.directories else None,
        original_replicas=wanted.original if is_other_move else None,
        target_replicas=wanted.target if is_other_move else None,
    )
    return None if change == PartitionChange(0, partition_id, topic_id) else change


def _before_election(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    needed: int | None,
    uncleanly_stopped: Collection[int],
) -> _Standing:
    """Candidates of the election, for the requested in-sync set. `needed`: the effective min ISR, None if the feature is off."""
    if partition.isr if needed is None else len(isr) >= needed:
        return _Standing(isr, (), ())
    left = {*partition.elr, *partition.isr}.difference(isr, uncleanly_stopped).intersection(replicas)
    return _Standing(isr, tuple(sorted(left)), tuple(member for member in partition.last_known_elr if member in replicas))


def _after_election(
    partition: PartitionImage, replicas: tuple[int, ...], before: _Standing, elected: ElectionResult, needed: int | None
) -> _Standing:
    """In-sync and eligible replicas after the election."""
    isr, elr, last_known = before
    leader = elected.leader
    if leader != NO_LEADER:
        if elected.unclean or not isr:
            isr = (leader,)
        is_small = needed is not None and len(isr) < needed and not elected.unclean
        return _Standing(isr, tuple(member for member in elr if member != leader) if is_small else (), ())
    if isr or last_known:
        return before
    if needed is None and partition.isr:
        return _Standing(partition.isr, (), ())
    led = (partition.leader,) if partition.leader != NO_LEADER else partition.isr
    return _Standing(isr, elr, led if len(led) == 1 and led[0] in replicas else ())


def build_cancel(
    partition: PartitionImage,
    partition_id: int,
    topic_id: Uuid,
    name: str,
    *,
    accepts: Accepts,
    default_directory: Callable[[int], Uuid],
    min_isr: int | None,
    unclean_allowed: bool,
) -> PartitionChange | None:
    """Cancel the running reassignment. ApiError as `reassignment.cancel`.

    Where unclean elections are allowed, the cancel may hold one: if no original replica is in sync, one that may lack records
    leads and recovers. With eligible leader replicas the election picks the best one. The cancel may leave the partition
    without a leader.
    """
    cancellation = reassignment.cancel(partition, name, unclean_allowed)
    is_elected = cancellation.forced and min_isr is not None
    return build_change(
        partition,
        partition_id,
        topic_id,
        accepts=accepts,
        default_directory=default_directory,
        min_isr=min_isr,
        target_isr=() if is_elected else cancellation.isr,
        reassign=cancellation.reassignment,
        election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
        recovery_state=RECOVERING if cancellation.forced and not is_elected else None,
    )


def _placed(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    directories: Mapping[int, Uuid],
    default_directory: Callable[[int], Uuid],
) -> tuple[Uuid, ...]:
    """Directory of each replica: the given one, otherwise its current one, otherwise its broker's default."""
    present = dict(zip(partition.replicas, partition.directories, strict=True))
    return tuple(directories.get(replica) or present.get(replica) or default_directory(replica) for replica in replicas)
