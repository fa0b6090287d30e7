"""Candidate: has voted for itself in a new epoch and asks the others for theirs.

Its own vote counts once the election state that holds it is durable; requests wait for the same version, so answers never come
earlier, but a sole voter has nobody to wait for. (Who has been removed by a record that may never be committed stands too, and
does not count itself: membership.py.) A lost election is waited out: the timer, then Prospective. The timer starts
when the own vote is durable: on a disk slower than the timer, each epoch would end before its vote is stored.
"""

from __future__ import annotations

from .epoch_state import NEVER_MS, NO_LEADER, EpochState
from .types import ReplicaKey
from .vote_tally import VoteTally


class Candidate(EpochState):
    """`election_version` is the stored election state that holds this node's vote for itself."""

    __slots__ = ("election_deadline_ms", "election_version", "tally")
    name = "candidate"

    def __init__(self, epoch: int, *, own_key: ReplicaKey, tally: VoteTally, election_version: int) -> None:
        super().__init__(epoch, NO_LEADER, own_key)
        self.tally = tally
        self.election_deadline_ms = NEVER_MS
        self.election_version = election_version

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Pre-vote: log up to date. Vote: never, it went to this node itself."""
        return pre_vote and up_to_date

    def next_deadline_ms(self) -> int:
        ask_ms = self.tally.next_ask_ms
        return ask_ms if ask_ms < self.election_deadline_ms else self.election_deadline_ms

    def __repr__(self) -> str:
        return f"{self._who()} {self.tally!r}"
