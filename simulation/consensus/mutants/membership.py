"""Bugs of membership: who votes from when on, what a change must wait for, and who counts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from kraftlab.checking.mutant import Mutant
from kraftlab.quorum.core.leader import Leader, ReplicaProgress, VoterChange
from kraftlab.quorum.core.leadership import Leadership
from kraftlab.quorum.core.membership import Membership
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.reconfiguration import Reconfiguration
from kraftlab.quorum.core.types import ReplicaKey
from kraftlab.quorum.core.voter_set_history import VoterSetHistory

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


def _effective_on_commit(refresh: Callable[[Membership], None]) -> Callable[[Membership], None]:
    def mutated(self: Membership) -> None:
        history = self.history
        self.history = copy.deepcopy(history)
        self.history.truncate(max(0, self._high_watermark))
        refresh(self)
        self.history = history
        self.is_eligible = 2 if self.is_eligible else None  # type: ignore[assignment]

    return mutated


def _not_undone(_original: object) -> Callable[[VoterSetHistory, int], None]:
    def mutated(self: VoterSetHistory, to_offset: int) -> None:
        return

    return mutated


def _gate_open(_original: object) -> Callable[[Reconfiguration, Leader], bool]:
    def mutated(self: Reconfiguration, leader: Leader) -> bool:
        return True

    return mutated


def _any_commit_will_do(on_request: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: Reconfiguration, correlation: int, request: Any, now_ms: int) -> None:
        leader = self._quorum.state
        if not isinstance(leader, Leader) or leader.high_watermark >= 0:
            on_request(self, correlation, request, now_ms)
            return
        leader.high_watermark = self._log.high_watermark
        on_request(self, correlation, request, now_ms)
        leader.high_watermark = -1

    return mutated


def _counts_itself(advance: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: Leadership, leader: Leader, now_ms: int) -> None:
        membership, voters = self._quorum.membership, leader.voters
        if not membership.is_voter:
            own = ReplicaProgress(membership.own_key)
            own.end_offset = self._log.flushes.durable_end_offset
            leader.voters = {**voters, membership.own_key.node_id: own}
        advance(self, leader, now_ms)
        leader.voters = voters

    return mutated


def _old_set_commits(_original: object) -> Callable[..., None]:
    def mutated(self: Leader, other_voters: object) -> None:
        return

    return mutated


def _directory_ignored(_original: object) -> Callable[[ReplicaKey, ReplicaKey], bool]:
    def mutated(self: ReplicaKey, stored: ReplicaKey) -> bool:
        return self.node_id == stored.node_id

    return mutated


def _anybody_may_stand(_original: object) -> property:
    def mutated(self: QuorumState) -> bool:
        return bool(self.membership.voters.voters) and not self.repair.is_on

    return property(mutated)


def _answered_at_once(pursue: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: Reconfiguration, leader: Leader, change: VoterChange, now_ms: int) -> None:
        end_offset, high_watermark = change.end_offset, leader.high_watermark
        if end_offset >= 0:
            leader.high_watermark = end_offset
        pursue(self, leader, change, now_ms)
        leader.high_watermark = high_watermark

    return mutated


def _asks_only_whom_it_knows(_original: object) -> property:
    def mutated(self: QuorumState) -> bool:
        return not self.membership.others

    return property(mutated)


MUTANTS = (
    Mutant(
        "voters-effective-on-commit",
        "a voter set is in force only when it is committed",
        Membership,
        "_refresh",
        _effective_on_commit,
        rules=("S8", "S12", "S13", "S6", "S1", "InvariantViolation", "L1", "L2", "L3"),
        faults=CHURN,
    ),
    Mutant(
        "voters-not-undone",
        "a truncated voters record stays in force",
        VoterSetHistory,
        "truncate",
        _not_undone,
        rules=("S8", "S12", "S13", "S6", "InvariantViolation", "CorruptBatch", "L1", "L2", "L3"),
        seeds_max=150,
        faults=CHURN,
    ),
    Mutant(
        "no-settled-gate",
        "voters change again before the last change is committed",
        Reconfiguration,
        "_is_settled",
        _gate_open,
        rules=("S12", "InvariantViolation", "CorruptBatch"),
        seeds_max=150,
        faults=CHURN,
    ),
    Mutant(
        "no-committed-in-epoch-gate",
        "a new leader changes the voters by what an earlier epoch has committed (Ongaro 2015)",
        Reconfiguration,
        "on_request",
        _any_commit_will_do,
        rules=("S12",),
        seeds_max=100,
        faults=CHURN,
    ),
    Mutant(
        "removed-leader-counts-itself",
        "a leader that is no voter any more counts its own log (KAFKA-16530)",
        Leadership,
        "advance_high_watermark",
        _counts_itself,
        rules=("S8", "S6"),
        seeds_max=150,
        faults=CHURN,
    ),
    Mutant(
        "old-set-commits",
        "a leader goes on counting with the voters that it began with",
        Leader,
        "reseat",
        _old_set_commits,
        rules=("S8", "S6", "L2", "L3", "InvariantViolation", "S12", "L1"),
        seeds_max=100,
        faults=CHURN,
    ),
    Mutant(
        "directory-ignored",
        "a node with an empty disk votes and acknowledges in its predecessor's name",
        ReplicaKey,
        "matches",
        _directory_ignored,
        rules=("S1", "S3", "S6", "S8", "S12", "S0", "S11", "LogTruncationRefused", "InvariantViolation"),
        seeds_max=100,
        faults=CHURN,
    ),
    Mutant(
        "anybody-may-stand",
        "observers and removed voters stand for election",
        QuorumState,
        "may_stand",
        _anybody_may_stand,
        rules=("S12",),
        faults=CHURN,
    ),
    Mutant(
        "asks-only-whom-it-knows",
        "who does not find its leader asks nobody but the voters in its log, wherever they were",
        QuorumState,
        "asks_anybody",
        _asks_only_whom_it_knows,
        rules=("L1", "L2", "L4"),
        seeds_max=100,
        faults=("move-node",),
    ),
    Mutant(
        "change-answered-at-once",
        "a change of the voters is answered when it is appended",
        Reconfiguration,
        "_pursue",
        _answered_at_once,
        rules=("S12",),
        faults=CHURN,
    ),
)
