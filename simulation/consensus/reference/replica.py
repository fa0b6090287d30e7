"""One replica of the model: an immutable value."""

from __future__ import annotations

import msgspec

from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.core.types import ReplicaKey, VoterSet

from .ghosts import Config, Entry


class Replica(msgspec.Struct, frozen=True):
    """`leader` -1: none known; `voted` None: no vote in this epoch; `high_watermark` -1: unknown.

    `durable`: the part of `log` that is on the disk. `writing`, `storing`: what is on its way there, oldest first, under the ids
    by which the disk will say that it is done. `grants`: who has promised or given a vote in this epoch, as (id, pre-vote).
    `acknowledged`: of a leader, who has shown to hold its log up to where.
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
    """The voters where the log names none."""
    repair_until: int = 0
    """Rot has damaged the log below: no vote before everything up to there has been durable again, once. 0: it is whole."""
    high_watermark: int = -1
    epoch_start: int = -1
    """Of a leader: where its epoch begins."""
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
        """It votes, or did until a record that may never be committed; and its log is whole."""
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
        """What must be stored of it."""
        return ElectionState(self.epoch, self.leader, self.voted)

    def has_stored_vote(self, epoch: int, candidate: ReplicaKey) -> bool:
        """Whether a crash could not make it forget that it voted so; or it is in a later epoch, for good."""
        stored = self.stored
        return stored is not None and (stored.epoch > epoch or (stored.epoch == epoch and stored.voted_key == candidate))

    def end_of(self, key: ReplicaKey) -> int:
        """Of a leader: how much of its log that voter has shown to hold durably; -1: nothing."""
        if key.node_id == self.key.node_id:
            return self.durable.end if self.key.matches(key) else -1
        return next((end for other, end in self.acknowledged if other.matches(key)), -1)
