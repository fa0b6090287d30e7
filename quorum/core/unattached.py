"""Unattached: knows an epoch but follows nobody in it.

A voter waits for its election timer and meanwhile may grant its one vote; an observer waits for nothing. Both ask voters, one
fetch at a time, who leads. A leader may be remembered (an observer lost it, or its endpoints are unknown): then no vote is
granted.
"""

from __future__ import annotations

from .epoch_state import NO_LEADER, EpochState
from .types import Endpoint, ReplicaKey


class Unattached(EpochState):
    """`election_deadline_ms` never comes on an observer. `fetch_correlation` None: no discovery fetch is in flight."""

    __slots__ = ("election_deadline_ms", "fetch_at_ms", "fetch_correlation")
    name = "unattached"

    def __init__(
        self,
        epoch: int,
        *,
        election_deadline_ms: int,
        fetch_at_ms: int,
        leader_id: int = NO_LEADER,
        voted_key: ReplicaKey | None = None,
        leader_endpoints: dict[str, Endpoint] | None = None,
    ) -> None:
        super().__init__(epoch, leader_id, voted_key, leader_endpoints)
        self.election_deadline_ms = election_deadline_ms
        self.fetch_at_ms = fetch_at_ms
        self.fetch_correlation: int | None = None

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Pre-vote: log up to date. Vote: the same candidate again, or no vote and no leader known and log up to date."""
        if pre_vote:
            return up_to_date
        if self.voted_key is not None:
            return self.voted_key == candidate
        return self.leader_id == NO_LEADER and up_to_date

    def next_deadline_ms(self) -> int:
        if self.fetch_correlation is None and self.fetch_at_ms < self.election_deadline_ms:
            return self.fetch_at_ms
        return self.election_deadline_ms
