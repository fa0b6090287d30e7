"""What a replica may do: one function for each action, which makes the replica's next value or refuses.

The guards are Raft's rules, as KIP-595, KIP-853 and KIP-996 have them. A guard that does not hold raises Refused, which says why.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...core.batch import BatchHeader
from ...core.effects import ElectionState
from ...core.types import ReplicaKey
from ..voter_trail import differ_by_one
from .ghosts import Entry, Ghosts
from .replica import Replica

NOBODY = -1


class Refused(Exception):
    """Raft does not allow this."""


def require(is_allowed: bool, why: str) -> None:
    if not is_allowed:
        raise Refused(why)


# Elections


def begin(replica: Replica, ghosts: Ghosts, role: str, epoch: int, leader: int, voted: ReplicaKey | None) -> Replica:
    """A process starts with what its disk holds. It never begins as one that asks for votes or leads."""
    stored = replica.stored or ElectionState(0, NOBODY, None)
    led = stored.leader_id == replica.key.node_id
    require(
        epoch in (stored.epoch, replica.log.epoch, stored.epoch + led), f"it begins in epoch {epoch}, and had stored {stored}"
    )
    require(epoch >= stored.epoch, f"it begins in epoch {epoch}, and had stored {stored}")
    require(epoch > stored.epoch or voted == stored.voted_key, f"it begins with a vote for {voted}, and had stored {stored}")
    require(epoch == stored.epoch or voted is None, f"it begins epoch {epoch} with a vote")
    require(epoch == stored.epoch or leader == NOBODY, f"it begins epoch {epoch} with leader {leader}, who led {stored.epoch}")
    if role == "follower":
        require((epoch, leader) == (stored.epoch, stored.leader_id) and not led, f"it follows {leader}, and had stored {stored}")
    elif role == "resigned":
        require(led and epoch == stored.epoch, f"it begins as one that led epoch {epoch}, and had stored {stored}")
    else:
        require(role == "unattached", f"it begins as {role}")
        require(leader in (NOBODY, stored.leader_id) and not (led and epoch == stored.epoch), f"it begins with leader {leader}")
    ghosts.epochs.add(epoch)
    return replace(replica, role=role, epoch=epoch, leader=leader, voted=voted)


def see_epoch(replica: Replica, ghosts: Ghosts, epoch: int, heard: frozenset[int]) -> Replica:
    """It learns of a higher epoch, or opens the next because the one it led is over."""
    require(epoch > replica.epoch, f"it goes from epoch {replica.epoch} back to {epoch}")
    if replica.role == "resigned" and epoch == replica.epoch + 1 and epoch not in heard:
        ghosts.epochs.add(epoch)
    else:
        require(epoch in heard, f"it goes to epoch {epoch}, of which it has not heard: {sorted(heard)}")
        require(epoch in ghosts.epochs, f"it goes to epoch {epoch}, which nobody has opened")
    return _in_epoch(replica, epoch, "unattached")


def _in_epoch(replica: Replica, epoch: int, role: str) -> Replica:
    return replace(
        replica, role=role, epoch=epoch, leader=NOBODY, voted=None, grants=frozenset(), acknowledged=(), epoch_start=-1
    )


def follow(replica: Replica, ghosts: Ghosts, epoch: int, leader: int, named: frozenset[tuple[int, int]]) -> Replica:
    """It learns who leads, or goes back to the leader it knows."""
    require(ghosts.leaders.get(epoch) == leader, f"it follows {leader} in epoch {epoch}, which {ghosts.leaders.get(epoch)} leads")
    require(leader != replica.key.node_id, "it follows itself")
    require(epoch >= replica.epoch, f"it goes from epoch {replica.epoch} back to {epoch}")
    if epoch > replica.epoch:
        replica = _in_epoch(replica, epoch, "unattached")
    require(replica.leader in (NOBODY, leader), f"it follows {leader} in epoch {epoch}, but {replica.leader} leads that")
    require(replica.leader == leader or (epoch, leader) in named, f"nobody has told it that {leader} leads epoch {epoch}")
    require(replica.role not in ("leader", "resigned"), f"it follows {leader} in the epoch in which it is {replica.role}")
    return replace(replica, role="follower", leader=leader)


def lose_leader(replica: Replica) -> Replica:
    """It gives up looking for its leader, or asking for pre-votes; epoch, leader and vote stay."""
    require(replica.role in ("follower", "prospective", "unattached"), f"it becomes unattached as {replica.role}")
    return replace(replica, role="unattached")


def vote(replica: Replica, candidate: ReplicaKey, asked: tuple[int, int, int] | None) -> Replica:
    """It votes for `candidate`, who has asked: (epoch, last epoch, end offset)."""
    require(asked is not None, f"it votes for {candidate}, who has not asked for a vote")
    assert asked is not None
    epoch, last_epoch, end = asked
    require(replica.role in ("unattached", "prospective"), f"it votes for {candidate} as {replica.role}")
    require(epoch == replica.epoch, f"it votes for {candidate} in epoch {replica.epoch}, who asked for one in {epoch}")
    require(replica.voted in (None, candidate), f"it votes for {candidate} after {replica.voted}")
    require(replica.leader == NOBODY, f"it votes for {candidate} though {replica.leader} leads")
    require(is_up_to_date(replica, last_epoch, end), f"it votes for {candidate}, whose log {end}@{last_epoch} is behind its own")
    require(replica.is_whole, f"it votes for {candidate} and repairs its log up to {replica.repair_until}")
    return replace(replica, role="unattached", voted=candidate)


def is_up_to_date(replica: Replica, last_epoch: int, end: int) -> bool:
    return (last_epoch, end) >= (replica.log.epoch, replica.log.end)


def stand(replica: Replica) -> Replica:
    """It asks whether it could win an election."""
    require(replica.role in ("unattached", "follower", "candidate"), f"it stands as {replica.role}")
    require(replica.may_stand, f"it stands, and {replica.config} are the voters (repair up to {replica.repair_until})")
    return replace(replica, role="prospective")


def campaign(replica: Replica, ghosts: Ghosts, does_not_know_pre_votes: bool) -> Replica:
    """A majority would vote for it: it opens the next epoch with its own vote."""
    require(replica.role == "prospective", f"it campaigns as {replica.role}")
    require(does_not_know_pre_votes or _has_majority(replica, True, replica.votes), f"it campaigns with {sorted(replica.grants)}")
    ghosts.epochs.add(replica.epoch + 1)
    return replace(_in_epoch(replica, replica.epoch + 1, "candidate"), voted=replica.key)


def hear_grant(replica: Replica, source: ReplicaKey, pre_vote: bool) -> Replica:
    """A vote, or the promise of one, in this epoch."""
    voter = replica.voters.get(source.node_id)
    if voter is None or not source.matches(voter.key):
        return replica
    return replace(replica, grants=replica.grants | {(source.node_id, pre_vote)})


def _has_majority(replica: Replica, pre_vote: bool, counts_itself: bool) -> bool:
    granted = {node_id for node_id, is_pre in replica.grants if is_pre == pre_vote}
    if counts_itself:
        granted.add(replica.key.node_id)
    return len(granted) >= replica.voters.majority()


def lead(replica: Replica, ghosts: Ghosts) -> Replica:
    """A majority has voted for it, itself included if it votes and its vote is on its disk."""
    require(replica.role == "candidate", f"it begins to lead as {replica.role}")
    counts_itself = replica.votes and replica.has_stored_vote(replica.epoch, replica.key)
    require(_has_majority(replica, False, counts_itself), f"it leads epoch {replica.epoch} with {sorted(replica.grants)}")
    first = ghosts.leaders.get(replica.epoch, replica.key.node_id)
    require(first == replica.key.node_id, f"it leads epoch {replica.epoch}, which {first} leads")
    committed = ghosts.committed_before(replica.epoch)
    require(replica.log.holds(committed), f"it leads epoch {replica.epoch} with {replica.log}, and {committed} is committed")
    ghosts.leaders[replica.epoch] = replica.key.node_id
    return replace(replica, role="leader", leader=replica.key.node_id, epoch_start=replica.log.end, acknowledged=())


def resign(replica: Replica) -> Replica:
    require(replica.role == "leader", f"it resigns as {replica.role}")
    return replace(replica, role="resigned", acknowledged=(), epoch_start=-1)


# The log


def write(replica: Replica, ghosts: Ghosts, header: BatchHeader, data: bytes) -> Replica:
    """A leader appends a batch of its own."""
    require(replica.role == "leader", f"it writes {header} as {replica.role}")
    require(header.epoch == replica.epoch, f"it writes {header} in epoch {replica.epoch}")
    require(_continues(replica.log, header), f"it writes {header} behind {replica.log}")
    require(ghosts.find(header.end_offset, header.crc) is None, f"it writes {header}, which was there before")
    before = replica.config
    entry = ghosts.entry(header, data, replica.log, replica.base)
    after = entry.config
    if after is not None and after != before and not ghosts.is_forced(header, data):
        if before.offset == -1:
            require(after.voters == before.voters, f"its log begins with {after.voters}, and it was configured with {before}")
        else:
            require(differ_by_one(before.voters, after.voters), f"it changes {before.voters} to {after.voters}")
            require(before.offset < replica.high_watermark, f"it changes {before}, which is not committed")
            require(replica.high_watermark > replica.epoch_start, f"it changes {before} before it has committed in its epoch")
    return replace(replica, log=ghosts.written(entry))


def _continues(log: Entry, header: BatchHeader) -> bool:
    return (header.base_offset, header.previous_crc) == (log.end, log.crc) and header.epoch >= log.epoch


def copy(replica: Replica, ghosts: Ghosts, headers: list[BatchHeader], source: Entry) -> Replica:
    """A follower appends what its leader, whose log was `source`, has sent."""
    require(replica.role == "follower", f"it copies batches as {replica.role}")
    log = replica.log
    for header in headers:
        require(_continues(log, header), f"it copies {header} behind {log}")
        entry = ghosts.find(header.end_offset, header.crc)
        require(entry is not None, f"it copies {header}, which nobody wrote")
        assert entry is not None
        require(entry.epoch <= replica.epoch, f"it copies {header} in epoch {replica.epoch}")
        log = entry
    require(source.holds(log), f"it copies {log} from a leader whose log was {source}")
    return replace(replica, log=log)


def truncate(replica: Replica, to_offset: int, source: Entry) -> Replica:
    """A follower drops what its leader, whose log was `source`, does not have; and nothing that both have."""
    require(replica.role == "follower", f"it truncates as {replica.role}")
    require(to_offset < replica.log.end, f"it truncates {replica.log} to {to_offset}")
    require(to_offset >= replica.high_watermark, f"it truncates to {to_offset}, and knows {replica.high_watermark} as committed")
    log, shared = replica.log.at(to_offset), replica.log.shared_with(source)
    require(log is not None, f"it truncates to {to_offset}, inside a batch")
    assert log is not None
    require(to_offset >= shared.end, f"it truncates to {to_offset}, and shares {shared} with its leader")
    return replace(cut_promises(replica, to_offset), log=log)


def cut_promises(replica: Replica, to_offset: int) -> Replica:
    """What lies above `to_offset` does not count as durable any more, on the disk or on its way."""
    writing = tuple((write_id, entry.cut(to_offset)) for write_id, entry in replica.writing)
    return replace(replica, durable=replica.durable.cut(to_offset), writing=writing)


def install(replica: Replica, ghosts: Ghosts, end: int, crc: int) -> Replica:
    """The log is replaced by what a snapshot stands for, which must be committed. Not the log that has all of that and goes on:
    its end may have been acknowledged (Raft §7).
    """
    entry = ghosts.find(end, crc)
    require(entry is not None, f"it installs a snapshot of {end} with crc {crc:08x}, which nobody wrote")
    assert entry is not None
    require(ghosts.committed.holds(entry), f"it installs a snapshot of {entry}, and only {ghosts.committed} is committed")
    require(end >= replica.high_watermark, f"it installs a snapshot of {entry} below its high watermark {replica.high_watermark}")
    require(not replica.log.holds(entry), f"it installs a snapshot of {entry}, which is the beginning of its {replica.log}")
    return replace(cut_promises(replica, max(0, replica.high_watermark)), log=entry)


# What is committed


def acknowledge(replica: Replica, sender: ReplicaKey, offset: int, last_epoch: int, promised: Entry) -> Replica:
    """A fetch from `offset` tells a leader that its sender holds what lies below, if it is of the same log. `promised`: what of
    its log the sender had on its disk.
    """
    entry = replica.log.at(offset)
    if replica.role != "leader" or entry is None or entry.epoch != last_epoch:
        return replica
    require(promised.holds(entry), f"{sender} acknowledges {entry}, and has only {promised} on its disk")
    others = tuple((key, end) for key, end in replica.acknowledged if key != sender)
    return replace(replica, acknowledged=(*others, (sender, max(offset, replica.end_of(sender)))))


def commit(replica: Replica, ghosts: Ghosts, offset: int, told: int) -> Replica:
    """The high watermark rises. `told`: what the leader has said it to be, to who follows; -1: nothing."""
    require(offset > replica.high_watermark, f"its high watermark goes from {replica.high_watermark} to {offset}")
    entry = replica.log.at(offset)
    require(entry is not None, f"it commits {offset}, inside a batch of {replica.log}")
    assert entry is not None
    if replica.role == "leader":
        holders = [voter.key for voter in replica.voters.voters if replica.end_of(voter.key) >= offset]
        require(len(holders) >= replica.voters.majority(), f"it commits {offset}, which {holders} of {replica.voters} hold")
        require(offset > replica.epoch_start, f"it commits {offset} by counting, and its epoch starts at {replica.epoch_start}")
        is_one_log = entry.holds(ghosts.committed) or ghosts.committed.holds(entry)
        require(is_one_log, f"it commits {entry}, and {ghosts.committed} is committed")
        ghosts.commits(replica.epoch, entry)
    else:
        require(told < 0 or offset <= told, f"it commits {offset}, and its leader has told it {told}")
        require(ghosts.committed.holds(entry), f"it commits {entry}, and leaders only {ghosts.committed}")
    return replace(replica, high_watermark=offset)
