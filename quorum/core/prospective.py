"""Prospective: asks whether an election could be won before it disturbs anybody with a new epoch (KIP-996).

The epoch does not change, and the leader and the vote of the epoch are remembered: after a refusal the node goes back to
following.
"""

from __future__ import annotations

from .epoch_state import NO_LEADER, EpochState
from .types import Endpoint, ReplicaKey
from .vote_tally import VoteTally


class Prospective(EpochState):
    """`tally` counts pre-votes."""

    __slots__ = ("election_deadline_ms", "tally")
    name = "prospective"

    def __init__(
        self,
        epoch: int,
        *,
        tally: VoteTally,
        election_deadline_ms: int,
        leader_id: int,
        voted_key: ReplicaKey | None,
        leader_endpoints: dict[str, Endpoint] | None,
    ) -> None:
        super().__init__(epoch, leader_id, voted_key, leader_endpoints)
        self.tally = tally
        self.election_deadline_ms = election_deadline_ms

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """As Unattached: a node that only asks around has promised nothing."""
        if pre_vote:
            return up_to_date
        if self.voted_key is not None:
            return self.voted_key == candidate
        return self.leader_id == NO_LEADER and up_to_date

    def next_deadline_ms(self) -> int:
        ask_ms = self.tally.next_ask_ms
        return ask_ms if ask_ms < self.election_deadline_ms else self.election_deadline_ms

    def __repr__(self) -> str:
        return f"{self._who()} {self.tally!r}"
