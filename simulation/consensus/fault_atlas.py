"""The fault atlas: decides which disks can be damaged or lost. A majority of every voter set in force stays whole.

Theory of operation. Committed records are on a majority of disks. As long as a majority of disks is whole, one of these has the
records and can be elected by the others. So before a disk is damaged or replaced, all voter sets that a node can act on are
checked: a voter whose disk is lost, rotten, or about to be counts as lost (as in TigerBeetle's simulator, for whole disks).

Rot goes where it can be distinguished from a torn tail: into batches below a high watermark in another committed batch, into
finished snapshots, or into the election state, which a start must refuse. Rot above that looks like a torn tail and is not tried.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from kraftlab.quorum.core.batch import decode
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.core.types import VoterSet
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES
from kraftlab.quorum.storage.snapshot_file import BOOTSTRAP_ID, snapshot_id, snapshot_name

from .cluster import Cluster
from .machine import DIRECTORY, Machine
from .observed import Rot
from .process import SimulatedProcess


class Target(NamedTuple):
    """Bytes `[start, end)` of a file that can rot, and the records lost with them. The log is committed below `until`."""

    path: str
    start: int
    end: int
    until: int
    unreadable: range
    is_fatal: bool = False


class BatchOnDisk(NamedTuple):
    """A committed batch on a disk."""

    path: str
    position: int
    size_bytes: int
    base_offset: int
    end_offset: int
    high_watermark: int


def sets_in_force(world: Cluster) -> list[VoterSet]:
    """Return every voter set that a node acts on, or would after a restart."""
    found = [world.voters.committed.latest]
    for machine in world.machines:
        found.append(world.voters.trail_of(machine.durable).latest)
        if machine.process is not None:
            found.append(machine.process.voter_trail.latest)
    return found


def is_whole(machine: Machine | None) -> bool:
    return machine is not None and machine.rot is None and not machine.is_gone


def may_be_lost(world: Cluster, machine: Machine) -> bool:
    """Return True if majorities stay whole without this disk."""
    for voters in sets_in_force(world):
        if voters.has(machine.key):
            others = [world.machine_of(voter.key) for voter in voters.voters if voter.key.node_id != machine.node_id]
            if sum(is_whole(other) for other in others) < voters.majority():
                return False
    return True


def targets(world: Cluster, machine: Machine) -> list[Target]:
    """Return the parts of this disk that can rot."""
    directory, files = partition_directory(DIRECTORY), machine.file_system
    found: list[Target] = []
    batches: list[BatchOnDisk] = []
    for name in files.names(directory):
        path = f"{directory}/{name}"
        data = files.durable_bytes(path)
        position = snapshot_id(name)
        if name.endswith(".log"):
            batches += _committed_batches(world, machine, path, data)
        elif position not in (None, BOOTSTRAP_ID) and data and world.history.is_position(position):
            found.append(Target(path, 0, len(data), position.offset, range(-1, position.offset)))
        elif name == "quorum-state" and data:
            found.append(Target(path, 0, len(data), 0, range(0), is_fatal=True))
    *_, second, first = 0, 0, *sorted(batch.high_watermark for batch in batches)
    for batch in batches:
        stamp = second if batch.high_watermark == first else first  # the highest of the others
        if batch.base_offset < stamp:
            end, unreadable = batch.position + batch.size_bytes, range(batch.base_offset, batch.end_offset)
            found.append(Target(batch.path, batch.position, end, min(stamp, world.history.end_offset), unreadable))
    return found


def _committed_batches(world: Cluster, machine: Machine, path: str, data: bytes) -> list[BatchOnDisk]:
    batches: list[BatchOnDisk] = []
    position = HEADER_PAGE_BYTES
    while position < len(data):
        try:
            header = decode(data, position).header  # decodes the whole batch: the header of a torn batch can look valid
        except CorruptBatch:
            break
        end_offset = header.base_offset + header.record_count
        if world.history.crc_at(end_offset) != header.crc or machine.durable.crc_at(end_offset) != header.crc:
            break
        batches.append(BatchOnDisk(path, position, header.size_bytes, header.base_offset, end_offset, header.high_watermark))
        position += header.size_bytes
    return batches


def damage(machine: Machine, target: Target, random: Random) -> None:
    """Flip some bits of the target."""
    for _ in range(random.choice((1, 1, 3))):
        machine.file_system.flip(target.path, random.randrange(target.start, target.end), random.randrange(8))
    machine.rot = Rot(target.path, target.until, target.unreadable, target.is_fatal)
    if snapshot_id(target.path.rpartition("/")[2]) is not None:
        machine.world.has_rotten_snapshots = True


def rot_newest_snapshot(world: Cluster, leader: SimulatedProcess, random: Random) -> None:
    """Let the leader's newest snapshot rot, and give an empty disk to an observer, which needs the snapshot then. Nothing happens
    without an observer, or if too many disks are damaged already.
    """
    machine = world.machines[leader.node_id]
    path = f"{partition_directory(DIRECTORY)}/{snapshot_name(leader.raft.snapshots[-1])}"
    found = [target for target in targets(world, machine) if target.path == path]
    others = [other for other in world.machines if not any(voters.has(other.key) for voters in sets_in_force(world))]
    if found and others and machine.rot is None and may_be_lost(world, machine):
        world.note(f"rot on n{machine.node_id}, which leads: {found[0]}")
        damage(machine, found[0], random)
        random.choice(others).wipe("and needs what has rotted")
