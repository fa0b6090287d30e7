"""The actions of a replica: each function returns the replica's next value, or refuses the action.

The guards are Raft's rules in the form of KIP-595, KIP-853 and KIP-996. A guard that does not hold raises IllegalAction
with a reason.
"""

from __future__ import annotations

from msgspec.structs import replace

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import BatchHeader
from kraftlab.quorum.core.effects import ElectionState

from ..voter_trail import differ_by_one
from .ghosts import Entry, Ghosts
from .replica import Replica

NOBODY = -1


class IllegalAction(Exception):
    """An action that Raft does not allow."""


# Elections


def begin(replica: Replica, ghosts: Ghosts, role: str, epoch: int, leader: int, voted: ReplicaKey | None) -> Replica:
    """Start a process from its disk. It never starts as a candidate or a leader."""
    stored = replica.stored or ElectionState(0, NOBODY, None)
    led = stored.leader_id == replica.key.node_id
    if epoch not in (stored.epoch, replica.log.epoch, stored.epoch + led):
        raise IllegalAction(f"it begins in epoch {epoch}, and had stored {stored}")
    if epoch < stored.epoch:
        raise IllegalAction(f"it begins in epoch {epoch}, and had stored {stored}")
    if epoch <= stored.epoch and voted != stored.voted_key:
        raise IllegalAction(f"it begins with a vote for {voted}, and had stored {stored}")
    if epoch != stored.epoch and voted is not None:
        raise IllegalAction(f"it begins epoch {epoch} with a vote")
    if epoch != stored.epoch and leader != NOBODY:
        raise IllegalAction(f"it begins epoch {epoch} with leader {leader}, the leader of epoch {stored.epoch}")
    if role == "follower":
        if (epoch, leader) != (stored.epoch, stored.leader_id) or led:
            raise IllegalAction(f"it follows {leader}, and had stored {stored}")
    elif role == "resigned":
        if not led or epoch != stored.epoch:
            raise IllegalAction(f"it begins as one that led epoch {epoch}, and had stored {stored}")
    else:
        if role != "unattached":
            raise IllegalAction(f"it begins as {role}")
        if leader not in (NOBODY, stored.leader_id) or (led and epoch == stored.epoch):
            raise IllegalAction(f"it begins with leader {leader}")
    ghosts.epochs.add(epoch)
    return replace(replica, role=role, epoch=epoch, leader=leader, voted=voted)


def see_epoch(replica: Replica, ghosts: Ghosts, epoch: int, named: frozenset[int]) -> Replica:
    """Adopt a higher epoch that a message has `named`, or open the next epoch after resigning."""
    if epoch <= replica.epoch:
        raise IllegalAction(f"it goes from epoch {replica.epoch} back to {epoch}")
    if replica.role == "resigned" and epoch == replica.epoch + 1 and epoch not in named:
        ghosts.epochs.add(epoch)
    else:
        if epoch not in named:
            raise IllegalAction(f"it goes to epoch {epoch}, and no message has named that: {sorted(named)}")
        if epoch not in ghosts.epochs:
            raise IllegalAction(f"it goes to epoch {epoch}, which no replica has opened")
    return _in_epoch(replica, epoch, "unattached")


def _in_epoch(replica: Replica, epoch: int, role: str) -> Replica:
    return replace(
        replica, role=role, epoch=epoch, leader=NOBODY, voted=None, grants=frozenset(), acknowledged=(), epoch_start=-1
    )


def follow(replica: Replica, ghosts: Ghosts, epoch: int, leader: int, named: frozenset[tuple[int, int]]) -> Replica:
    """Follow the leader that a message has named, or the known leader again."""
    if ghosts.leaders.get(epoch) != leader:
        raise IllegalAction(f"it follows {leader} in epoch {epoch}, which {ghosts.leaders.get(epoch)} leads")
    if leader == replica.key.node_id:
        raise IllegalAction("it follows itself")
    if epoch < replica.epoch:
        raise IllegalAction(f"it goes from epoch {replica.epoch} back to {epoch}")
    if epoch > replica.epoch:
        replica = _in_epoch(replica, epoch, "unattached")
    if replica.leader not in (NOBODY, leader):
        raise IllegalAction(f"it follows {leader} in epoch {epoch}, but {replica.leader} leads that")
    if replica.leader != leader and (epoch, leader) not in named:
        raise IllegalAction(f"it follows {leader} in epoch {epoch}, and no message has named that leader")
    if replica.role in ("leader", "resigned"):
        raise IllegalAction(f"it follows {leader} in the epoch in which it is {replica.role}")
    return replace(replica, role="follower", leader=leader)


def lose_leader(replica: Replica) -> Replica:
    """Stop looking for the leader, or asking for pre-votes. Epoch, leader and vote stay."""
    if replica.role not in ("follower", "prospective", "unattached"):
        raise IllegalAction(f"it becomes unattached as {replica.role}")
    return replace(replica, role="unattached")


def vote(replica: Replica, candidate: ReplicaKey, asked: tuple[int, int, int] | None) -> Replica:
    """Vote for `candidate`, which has `asked`: (epoch, last epoch, end offset)."""
    if asked is None:
        raise IllegalAction(f"it votes for {candidate}, which has not asked for a vote")
    epoch, last_epoch, end = asked
    if replica.role not in ("unattached", "prospective"):
        raise IllegalAction(f"it votes for {candidate} as {replica.role}")
    if epoch != replica.epoch:
        raise IllegalAction(f"it votes for {candidate} in epoch {replica.epoch}, and the request is for epoch {epoch}")
    if replica.voted not in (None, candidate):
        raise IllegalAction(f"it votes for {candidate} after {replica.voted}")
    if replica.leader != NOBODY:
        raise IllegalAction(f"it votes for {candidate} though {replica.leader} leads")
    if not is_up_to_date(replica, last_epoch, end):
        raise IllegalAction(f"it votes for {candidate}, whose log {end}@{last_epoch} is older than its own")
    if not replica.is_whole:
        raise IllegalAction(f"it votes for {candidate} and repairs its log up to {replica.repair_until}")
    return replace(replica, role="unattached", voted=candidate)


def is_up_to_date(replica: Replica, last_epoch: int, end: int) -> bool:
    return (last_epoch, end) >= (replica.log.epoch, replica.log.end)


def stand(replica: Replica) -> Replica:
    """Ask for pre-votes."""
    if replica.role not in ("unattached", "follower", "candidate"):
        raise IllegalAction(f"it stands as {replica.role}")
    if not replica.may_stand:
        raise IllegalAction(f"it stands, and {replica.config} are the voters (repair up to {replica.repair_until})")
    return replace(replica, role="prospective")


def campaign(replica: Replica, ghosts: Ghosts, does_not_know_pre_votes: bool) -> Replica:
    """Open the next epoch with a vote for itself, after a majority of pre-votes."""
    if replica.role != "prospective":
        raise IllegalAction(f"it campaigns as {replica.role}")
    if not does_not_know_pre_votes and not _has_majority(replica, True, replica.votes):
        raise IllegalAction(f"it campaigns with {sorted(replica.grants)}")
    ghosts.epochs.add(replica.epoch + 1)
    return replace(_in_epoch(replica, replica.epoch + 1, "candidate"), voted=replica.key)


def count_grant(replica: Replica, source: ReplicaKey, pre_vote: bool) -> Replica:
    """Count a vote or a pre-vote of this epoch."""
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
    """Lead after a majority of votes. Its own vote counts if it is a voter and the vote is on its disk."""
    if replica.role != "candidate":
        raise IllegalAction(f"it begins to lead as {replica.role}")
    counts_itself = replica.votes and replica.has_stored_vote(replica.epoch, replica.key)
    if not _has_majority(replica, False, counts_itself):
        raise IllegalAction(f"it leads epoch {replica.epoch} with {sorted(replica.grants)}")
    first = ghosts.leaders.get(replica.epoch, replica.key.node_id)
    if first != replica.key.node_id:
        raise IllegalAction(f"it leads epoch {replica.epoch}, which {first} leads")
    committed = ghosts.committed_before(replica.epoch)
    if not replica.log.holds(committed):
        raise IllegalAction(f"it leads epoch {replica.epoch} with {replica.log}, and {committed} is committed")
    ghosts.leaders[replica.epoch] = replica.key.node_id
    return replace(replica, role="leader", leader=replica.key.node_id, epoch_start=replica.log.end, acknowledged=())


def resign(replica: Replica) -> Replica:
    if replica.role != "leader":
        raise IllegalAction(f"it resigns as {replica.role}")
    return replace(replica, role="resigned", acknowledged=(), epoch_start=-1)


# The log


def write(replica: Replica, ghosts: Ghosts, header: BatchHeader, data: bytes) -> Replica:
    """Append a leader's own batch."""
    if replica.role != "leader":
        raise IllegalAction(f"it writes {header} as {replica.role}")
    if header.epoch != replica.epoch:
        raise IllegalAction(f"it writes {header} in epoch {replica.epoch}")
    if not _continues(replica.log, header):
        raise IllegalAction(f"it writes {header} after {replica.log}")
    if ghosts.find(header.end_offset, header.crc) is not None:
        raise IllegalAction(f"it writes {header}, which was there before")
    before = replica.config
    entry = ghosts.entry(header, data, replica.log, replica.base)
    after = entry.config
    if after is not None and after != before and not ghosts.is_forced(header, data):
        if before.offset == -1:
            if after.voters != before.voters:
                raise IllegalAction(f"its log begins with {after.voters}, and it was configured with {before}")
        else:
            if not differ_by_one(before.voters, after.voters):
                raise IllegalAction(f"it changes {before.voters} to {after.voters}")
            if before.offset >= replica.high_watermark:
                raise IllegalAction(f"it changes {before}, which is not committed")
            if replica.high_watermark <= replica.epoch_start:
                raise IllegalAction(f"it changes {before} before it has committed in its epoch")
    return replace(replica, log=ghosts.written(entry))


def _continues(log: Entry, header: BatchHeader) -> bool:
    return (header.base_offset, header.previous_crc) == (log.end, log.crc) and header.epoch >= log.epoch


def copy(replica: Replica, ghosts: Ghosts, headers: list[BatchHeader], source: Entry) -> Replica:
    """Append batches that the leader, whose log was `source`, has sent to a follower."""
    if replica.role != "follower":
        raise IllegalAction(f"it copies batches as {replica.role}")
    log = replica.log
    for header in headers:
        if not _continues(log, header):
            raise IllegalAction(f"it copies {header} after {log}")
        entry = ghosts.find(header.end_offset, header.crc)
        if entry is None:
            raise IllegalAction(f"it copies {header}, which was never written")
        if entry.epoch > replica.epoch:
            raise IllegalAction(f"it copies {header} in epoch {replica.epoch}")
        log = entry
    if not source.holds(log):
        raise IllegalAction(f"it copies {log} from a leader whose log was {source}")
    return replace(replica, log=log)


def truncate(replica: Replica, to_offset: int, source: Entry) -> Replica:
    """Drop a follower's records that the leader, whose log was `source`, does not have, and no others."""
    if replica.role != "follower":
        raise IllegalAction(f"it truncates as {replica.role}")
    if to_offset >= replica.log.end:
        raise IllegalAction(f"it truncates {replica.log} to {to_offset}")
    if to_offset < replica.high_watermark:
        raise IllegalAction(f"it truncates to {to_offset}, and knows {replica.high_watermark} as committed")
    log, shared = replica.log.at(to_offset), replica.log.shared_with(source)
    if log is None:
        raise IllegalAction(f"it truncates to {to_offset}, inside a batch")
    if to_offset < shared.end:
        raise IllegalAction(f"it truncates to {to_offset}, and shares {shared} with its leader")
    return replace(cut_promises(replica, to_offset), log=log)


def cut_promises(replica: Replica, to_offset: int) -> Replica:
    """Forget that records above `to_offset` are durable, or will be after the writes in progress."""
    writing = tuple((write_id, entry.cut(to_offset)) for write_id, entry in replica.writing)
    return replace(replica, durable=replica.durable.cut(to_offset), writing=writing)


def flush(replica: Replica, durable: Entry, writing: tuple[tuple[int, Entry], ...]) -> Replica:
    """Note that the disk has `durable`. A repair that has ended stays ended: a later leader cuts only uncommitted records."""
    repair_until = 0 if durable.end >= replica.repair_until else replica.repair_until
    return replace(replica, durable=durable, writing=writing, repair_until=repair_until)


def install(replica: Replica, ghosts: Ghosts, end: int, crc: int) -> Replica:
    """Replace the log by a committed snapshot. A log that continues beyond the snapshot must stay, since its end can have been
    acknowledged (Raft §7).
    """
    entry = ghosts.find(end, crc)
    if entry is None:
        raise IllegalAction(f"it installs a snapshot of {end} with crc {crc:08x}, which was never written")
    if not ghosts.committed.holds(entry):
        raise IllegalAction(f"it installs a snapshot of {entry}, and only {ghosts.committed} is committed")
    if end < replica.high_watermark:
        raise IllegalAction(f"it installs a snapshot of {entry} below its high watermark {replica.high_watermark}")
    if replica.log.holds(entry):
        raise IllegalAction(f"it installs a snapshot of {entry}, which is the beginning of its {replica.log}")
    return replace(cut_promises(replica, max(0, replica.high_watermark)), log=entry)


# Commits


def acknowledge(replica: Replica, sender: ReplicaKey, offset: int, last_epoch: int, promised: Entry) -> Replica:
    """Note a fetch from `offset`: it acknowledges everything below, if it is of the leader's log. `promised` is the log on the
    sender's disk.
    """
    entry = replica.log.at(offset)
    if replica.role != "leader" or entry is None or entry.epoch != last_epoch:
        return replica
    if not promised.holds(entry):
        raise IllegalAction(f"{sender} acknowledges {entry}, and has only {promised} on its disk")
    others = tuple((key, end) for key, end in replica.acknowledged if key != sender)
    return replace(replica, acknowledged=(*others, (sender, max(offset, replica.end_of(sender)))))


def commit(replica: Replica, ghosts: Ghosts, offset: int, of_leader: int) -> Replica:
    """Raise the high watermark. `of_leader` is the high watermark in the leader's answer to a follower, -1 if unknown."""
    if offset <= replica.high_watermark:
        raise IllegalAction(f"its high watermark goes from {replica.high_watermark} to {offset}")
    entry = replica.log.at(offset)
    if entry is None:
        raise IllegalAction(f"it commits {offset}, inside a batch of {replica.log}")
    if replica.role == "leader":
        holders = [voter.key for voter in replica.voters.voters if replica.end_of(voter.key) >= offset]
        if len(holders) < replica.voters.majority():
            raise IllegalAction(f"it commits {offset}, which {holders} of {replica.voters} hold")
        if offset <= replica.epoch_start:
            raise IllegalAction(f"it commits {offset} by counting, and its epoch starts at {replica.epoch_start}")
        is_one_log = entry.holds(ghosts.committed) or ghosts.committed.holds(entry)
        if not is_one_log:
            raise IllegalAction(f"it commits {entry}, and {ghosts.committed} is committed")
        ghosts.commits(replica.epoch, entry)
    else:
        if of_leader >= 0 and offset > of_leader:
            raise IllegalAction(f"it commits {offset}, and its leader's high watermark is {of_leader}")
        if not ghosts.committed.holds(entry):
            raise IllegalAction(f"it commits {entry}, and leaders only {ghosts.committed}")
    return replace(replica, high_watermark=offset)
