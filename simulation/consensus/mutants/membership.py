"""Bugs of membership: when a voter set is in force, the gates of a change, and the replicas that count."""

from __future__ import annotations

import copy
from collections.abc import Callable

from kraftlab.checking.mutant import Table
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.leader import Leader, ReplicaProgress, VoterChange
from kraftlab.quorum.core.leadership import Leadership
from kraftlab.quorum.core.membership import Membership
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.reconfiguration import Reconfiguration
from kraftlab.quorum.core.voter_set_history import VoterSetHistory

from .seeds import Seeds

MUTANTS: Table[Seeds] = Table()

CHURN = (
    "add-voter",
    "remove-voter",
    "hasty-change",
    "transfer-leadership",
    "replace-disk",
    "move-node",
    "partition",
    "isolate",
    "clog",
    "resign",
    "pause",
    "kill",
)


@MUTANTS.row(Membership, "_refresh", Seeds("S8", "S12", "S13", "S6", "S1", "InvariantViolation", "L1", "L2", "L3", faults=CHURN))
def voters_effective_on_commit(refresh: Callable[..., None], self: Membership) -> None:
    """A voter set is in force only when it is committed."""
    history = self.history
    self.history = copy.deepcopy(history)
    self.history.truncate(max(0, self._high_watermark))
    refresh(self)
    self.history = history
    self.is_eligible = 2 if self.is_eligible else None  # type: ignore[assignment]


@MUTANTS.row(
    VoterSetHistory,
    "truncate",
    Seeds("S8", "S12", "S13", "S6", "InvariantViolation", "CorruptBatch", "L1", "L2", "L3", most=150, faults=CHURN),
)
def voters_not_undone(_: object, self: VoterSetHistory, to_offset: int) -> None:
    """A truncated voters record stays in force."""


@MUTANTS.row(Reconfiguration, "_is_settled", Seeds("S12", "InvariantViolation", "CorruptBatch", most=150, faults=CHURN))
def no_settled_gate(_: object, self: Reconfiguration, leader: Leader) -> bool:
    """Voters change again before the last change is committed."""
    return True


@MUTANTS.row(Reconfiguration, "on_request", Seeds("S12", faults=CHURN))
def overdue_change_forgotten(
    on_request: Callable[..., None], self: Reconfiguration, correlation: int, request: object, now_ms: int
) -> None:
    """A change whose time is up is forgotten although its record is not committed, and the next change begins (KAFKA-20740)."""
    leader = self._quorum.state
    if not isinstance(leader, Leader) or leader.change is not None or leader.high_watermark < 0:
        on_request(self, correlation, request, now_ms)
        return
    high_watermark = leader.high_watermark
    leader.high_watermark = max(high_watermark, self._quorum.membership.voters_offset + 1)
    on_request(self, correlation, request, now_ms)
    leader.high_watermark = high_watermark


@MUTANTS.row(Reconfiguration, "on_request", Seeds("S12", most=100, faults=CHURN))
def no_committed_in_epoch_gate(
    on_request: Callable[..., None], self: Reconfiguration, correlation: int, request: object, now_ms: int
) -> None:
    """A new leader changes the voters by what an earlier epoch has committed (Ongaro 2015)."""
    leader = self._quorum.state
    if not isinstance(leader, Leader) or leader.high_watermark >= 0:
        on_request(self, correlation, request, now_ms)
        return
    leader.high_watermark = self._log.high_watermark
    on_request(self, correlation, request, now_ms)
    leader.high_watermark = -1


@MUTANTS.row(Leadership, "advance_high_watermark", Seeds("S8", "S6", most=150, faults=CHURN))
def removed_leader_counts_itself(advance: Callable[..., None], self: Leadership, leader: Leader, now_ms: int) -> None:
    """A leader that is no longer a voter counts its own log (KAFKA-16530)."""
    membership, voters = self._quorum.membership, leader.voters
    if not membership.is_voter:
        own = ReplicaProgress(membership.own_key)
        own.end_offset = self._log.flushes.durable_end_offset
        leader.voters = {**voters, membership.own_key.node_id: own}
    advance(self, leader, now_ms)
    leader.voters = voters


@MUTANTS.row(Leader, "reseat", Seeds("S8", "S6", "L2", "L3", "InvariantViolation", "S12", "L1", most=100, faults=CHURN))
def old_set_commits(_: object, self: Leader, other_voters: object) -> None:
    """A leader goes on counting with the voters that it began with."""


@MUTANTS.row(
    ReplicaKey,
    "matches",
    Seeds("S1", "S3", "S6", "S8", "S12", "S0", "S11", "LogTruncationRefused", "InvariantViolation", most=100, faults=CHURN),
)
def directory_ignored(_: object, self: ReplicaKey, stored: ReplicaKey) -> bool:
    """A node with an empty disk votes and acknowledges in its predecessor's name."""
    return self.node_id == stored.node_id


@MUTANTS.row(QuorumState, "may_stand", Seeds("S12", faults=CHURN))
def anybody_may_stand(_: object, self: QuorumState) -> bool:
    """Observers and removed voters stand for election."""
    return bool(self.membership.voters.voters) and not self.repair.is_on


@MUTANTS.row(QuorumState, "asks_anybody", Seeds("L1", "L2", "L4", most=100, faults=("move-node",)))
def asks_only_whom_it_knows(_: object, self: QuorumState) -> bool:
    """A node that does not find its leader asks nobody but the voters in its log, wherever they were."""
    return not self.membership.others


@MUTANTS.row(Reconfiguration, "_pursue", Seeds("S12", faults=CHURN))
def change_answered_at_once(
    pursue: Callable[..., None], self: Reconfiguration, leader: Leader, change: VoterChange, now_ms: int
) -> None:
    """A change of the voters is answered when it is appended."""
    end_offset, high_watermark = change.end_offset, leader.high_watermark
    if end_offset >= 0:
        leader.high_watermark = end_offset
    pursue(self, leader, change, now_ms)
    leader.high_watermark = high_watermark
