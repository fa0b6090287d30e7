"""Replay rules of one partition as pure functions (KIP-455, KIP-858).

Every change record raises the partition epoch by one. A record with a `leader`, even the same one, also raises the leader
epoch. Any other field that is present replaces the old value. A partition that was written before directories existed gets
MIGRATING for each replica; from then on a record that changes the number of replicas must include their directories.
"""

from __future__ import annotations

from msgspec.structs import replace

from kraftlab.common.uuids import MIGRATING, Uuid

from .image import PartitionImage
from .records import Partition, PartitionChange
from .replay_error import ReplayError


def partition_from(record: Partition) -> PartitionImage:
    """The partition of a Partition record. ReplayError if the record contradicts itself."""
    if record.directories and len(record.directories) != len(record.replicas):
        raise ReplayError(f"it has {len(record.replicas)} replicas and {len(record.directories)} directories")
    is_moving = bool(record.adding_replicas or record.removing_replicas)
    if is_moving != bool(record.original_replicas and record.target_replicas):
        raise ReplayError("adding or removing replicas go with original and target replicas, and not without them")
    return PartitionImage(
        record.replicas,
        record.directories or (MIGRATING,) * len(record.replicas),
        record.isr,
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.adding_replicas,
        record.removing_replicas,
        record.original_replicas or (),
        record.target_replicas or (),
        record.leader_recovery_state,
        record.eligible_leader_replicas,
        record.last_known_elr,
    )


def partition_record(topic_id: Uuid, partition_id: int, partition: PartitionImage) -> Partition:
    """The record of a partition from scratch: the inverse of `partition_from`."""
    return Partition(
        0,
        partition_id,
        topic_id,
        partition.replicas,
        partition.isr,
        partition.removing,
        partition.adding,
        partition.leader,
        partition.leader_recovery_state,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.directories,
        partition.elr,
        partition.last_known_elr,
        partition.original or None,
        partition.target or None,
    )


def partition_after(before: PartitionImage, change: PartitionChange) -> PartitionImage:
    """`before` with the change applied. ReplayError if the two do not fit. Most changes have only an in-sync set and a leader."""
    is_plain = (
        change.replicas is None
        and change.removing_replicas is None
        and change.adding_replicas is None
        and change.leader_recovery_state is None
        and change.eligible_leader_replicas is None
        and change.last_known_elr is None
        and change.directories is None
        and change.original_replicas is None
        and change.target_replicas is None
    )
    if is_plain:
        isr = before.isr if change.isr is None else change.isr
        epoch = before.partition_epoch + 1
        if change.leader is None:
            return replace(before, isr=isr, partition_epoch=epoch)
        return replace(before, isr=isr, leader=change.leader, leader_epoch=before.leader_epoch + 1, partition_epoch=epoch)
    adding, removing, original, target = before.adding, before.removing, before.original, before.target
    if change.adding_replicas is not None:
        if change.removing_replicas is None or change.original_replicas is None or change.target_replicas is None:
            raise ReplayError("it changes the adding replicas without the removing, original and target ones")
        adding, removing = change.adding_replicas, change.removing_replicas
        original, target = change.original_replicas, change.target_replicas
    elif change.removing_replicas is not None or change.original_replicas is not None or change.target_replicas is not None:
        raise ReplayError("it changes removing, original or target replicas without the adding ones")
    replicas = before.replicas if change.replicas is None else change.replicas
    directories = before.directories if change.directories is None else change.directories
    if len(directories) != len(replicas):
        raise ReplayError(f"it leaves {len(replicas)} replicas with {len(directories)} directories")
    elr, last_known_elr = change.eligible_leader_replicas, change.last_known_elr
    recovery_state = change.leader_recovery_state
    return PartitionImage(
        replicas,
        directories,
        before.isr if change.isr is None else change.isr,
        before.leader if change.leader is None else change.leader,
        before.leader_epoch if change.leader is None else before.leader_epoch + 1,
        before.partition_epoch + 1,
        adding,
        removing,
        original,
        target,
        before.leader_recovery_state if recovery_state is None else recovery_state,
        before.elr if elr is None else elr,
        before.last_known_elr if last_known_elr is None else last_known_elr,
    )
