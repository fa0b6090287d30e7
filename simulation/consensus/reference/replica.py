"""One replica of the model: an immutable value."""

from __future__ import annotations

import msgspec

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.core.types import VoterSet

from .ghosts import Config, Entry


class Replica(msgspec.Struct, frozen=True):
    """A replica. `leader` -1: unknown; `voted` None: no vote in this epoch; `high_watermark` -1: unknown.

    `durable` is the part of `log` that is on the disk. `writing` and `storing` are operations in progress, oldest first, each
    with the id in its completion. `grants` are the votes and pre-votes of this epoch as (id, is a pre-vote). `acknowledged` has,
    for a leader, the end of each voter's log.
    """

    key: ReplicaKey
    role: str
    epoch: int
    leader: int
    voted: ReplicaKey | None
    log: Entry
    durable: Entry
    stored: ElectionState | None
    base: VoterSet
    """The voters if the log names no voters."""
    repair_until: int = 0
    """End of the damaged part of the log: the replica does not vote before everything below was durable again. 0: no damage."""
    high_watermark: int = -1
    epoch_start: int = -1
    """Start of a leader's epoch; -1 for others."""
    grants: frozenset[tuple[int, bool]] = frozenset()
    acknowledged: tuple[tuple[ReplicaKey, int], ...] = ()
    writing: tuple[tuple[int, Entry], ...] = ()
    storing: tuple[tuple[int, ElectionState], ...] = ()

    @property
    def config(self) -> Config:
        return self.log.config or Config(self.base, -1, None)

    @property
    def voters(self) -> VoterSet:
        return self.config.voters

    @property
    def votes(self) -> bool:
        return self.voters.has(self.key)

    @property
    def may_stand(self) -> bool:
        """True if the log is whole and the replica is a voter, or was one before an uncommitted change."""
        config = self.config
        is_removed_perhaps = (
            config.previous is not None and config.previous.has(self.key) and config.offset >= self.high_watermark
        )
        return (self.votes or is_removed_perhaps) and self.is_whole

    @property
    def is_whole(self) -> bool:
        return not self.repair_until

    @property
    def election(self) -> ElectionState:
        """The election state that must be stored."""
        return ElectionState(self.epoch, self.leader, self.voted)

    def has_stored_vote(self, epoch: int, candidate: ReplicaKey) -> bool:
        """Return True if the stored election state has that vote, or a later epoch: a crash cannot undo it."""
        stored = self.stored
        return stored is not None and (stored.epoch > epoch or (stored.epoch == epoch and stored.voted_key == candidate))

    def end_of(self, key: ReplicaKey) -> int:
        """Return the end of the leader's log that is durable on that voter, as far as the leader knows; -1: unknown."""
        if key.node_id == self.key.node_id:
            return self.durable.end if self.key.matches(key) else -1
        return next((end for other, end in self.acknowledged if other.matches(key)), -1)
