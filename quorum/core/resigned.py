"""Resigned: led this epoch and never will again; waits for somebody else, or for its timer, which opens the next epoch.

Also the state of a leader that restarts: records it had written but not flushed may be gone, so leading the same epoch again
could write two records with the same offset and epoch (KAFKA-10527). Memory only: on disk it still is the epoch's leader.
"""

from __future__ import annotations

from .epoch_state import NO_LEADER, EpochState
from .types import ReplicaKey


class Resigned(EpochState):
    """The epoch's former leader."""

    __slots__ = ("election_deadline_ms",)
    name = "resigned"

    def __init__(self, epoch: int, *, own_key: ReplicaKey, voted_key: ReplicaKey | None, election_deadline_ms: int) -> None:
        super().__init__(epoch, own_key.node_id, voted_key)
        self.election_deadline_ms = election_deadline_ms

    def announced_leader_id(self) -> int:
        """Nobody: to name itself would draw followers back to a leader that does not lead."""
        return NO_LEADER

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Pre-vote: log up to date. Vote: never, the epoch had its leader."""
        return pre_vote and up_to_date

    def next_deadline_ms(self) -> int:
        return self.election_deadline_ms
