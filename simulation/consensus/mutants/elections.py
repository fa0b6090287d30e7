"""Bugs of elections: votes, pre-votes, epochs and who is told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.checking.mutant import Mutant
from kraftlab.quorum.core.effects import ElectionState, Reply, Send
from kraftlab.quorum.core.elections import Elections
from kraftlab.quorum.core.errors import ErrorCode
from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.leadership import Leadership
from kraftlab.quorum.core.messages import VoteRequest, VoteResponse
from kraftlab.quorum.core.outbox import Outbox
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.requests import InFlight
from kraftlab.quorum.core.states import Candidate, Follower, Prospective, Unattached
from kraftlab.quorum.core.types import NEVER_MS, ReplicaKey
from kraftlab.quorum.core.vote_tally import VoteTally
from kraftlab.quorum.storage.election_store import ElectionStateStore

from ..options import NetworkOptions, SimulationOptions


def _vote_before_store(put: Callable[[Outbox, Send | Reply], bool]) -> Callable[[Outbox, Send | Reply], bool]:
    def mutated(self: Outbox, message: Send | Reply) -> bool:
        is_vote = isinstance(message, Reply) and isinstance(message.response, VoteResponse)
        return True if is_vote else put(self, message)

    return mutated


def _vote_forgotten(
    load: Callable[[ElectionStateStore], ElectionState | None],
) -> Callable[[ElectionStateStore], ElectionState | None]:
    def mutated(self: ElectionStateStore) -> ElectionState | None:
        state = load(self)
        return ElectionState(state.epoch, state.leader_id, None) if state is not None else None

    return mutated


def _epoch_not_stored(store: Callable[[ElectionStateStore, ElectionState], None]) -> Callable[..., None]:
    def mutated(self: ElectionStateStore, state: ElectionState) -> None:
        if state.voted_key is not None or state.leader_id >= 0:
            store(self, state)

    return mutated


def _leads_before_its_vote_is_stored(poll: Callable[..., None]) -> Callable[[Elections, Candidate, int], None]:
    def mutated(self: Elections, state: Candidate, now_ms: int) -> None:
        state.election_version = 0
        poll(self, state, now_ms)

    return mutated


def _pre_votes_count(campaign: Callable[..., None]) -> Callable[[QuorumState, int, str], None]:
    def mutated(self: QuorumState, now_ms: int, reason: str) -> None:
        old = self.state
        campaign(self, now_ms, reason)
        if isinstance(old, Prospective):
            for voter_id in old.tally.granting_voters():
                self.state.tally.grant(voter_id)  # type: ignore[union-attr]

    return mutated


def _any_log_is_good_enough(grants: Callable[..., bool]) -> Callable[..., bool]:
    def mutated(self: Unattached, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return grants(self, candidate, True, pre_vote)

    return mutated


def _only_length_counts(on_vote: Callable[..., VoteResponse]) -> Callable[[Elections, VoteRequest, int], VoteResponse]:
    def mutated(self: Elections, request: VoteRequest, now_ms: int) -> VoteResponse:
        return on_vote(self, msgspec.structs.replace(request, last_epoch=self._log.view.last_epoch), now_ms)

    return mutated


def _only_the_last_epoch_counts(on_vote: Callable[..., VoteResponse]) -> Callable[[Elections, VoteRequest, int], VoteResponse]:
    def mutated(self: Elections, request: VoteRequest, now_ms: int) -> VoteResponse:
        end_offset = max(request.end_offset, self._log.view.end_offset)
        return on_vote(self, msgspec.structs.replace(request, end_offset=end_offset), now_ms)

    return mutated


def _second_vote(_original: object) -> Callable[..., bool]:
    def mutated(self: Unattached, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return up_to_date

    return mutated


def _half_is_a_majority(_original: object) -> property:
    def mutated(self: VoteTally) -> bool:
        return len(self._granted) * 2 >= self._voter_count

    return property(mutated)


def _no_pre_vote(_original: object) -> Callable[[Elections, Prospective, int], None]:
    def mutated(self: Elections, state: Prospective, now_ms: int) -> None:
        self._quorum.campaign(now_ms, "no need to ask")

    return mutated


def _pre_vote_in_spite_of_a_leader(_original: object) -> Callable[..., bool]:
    def mutated(self: Follower, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date

    return mutated


def _vote_kept_in_new_epoch(unattached: Callable[..., Unattached]) -> Callable[..., Unattached]:
    def mutated(self: QuorumState, epoch: int, now_ms: int, **settings: Any) -> Unattached:
        old = getattr(self, "state", None)
        settings.setdefault("voted_key", old.voted_key if old is not None else None)
        return unattached(self, epoch, now_ms, **settings)

    return mutated


def _vote_lost_in_pre_vote(stand: Callable[..., None]) -> Callable[[QuorumState, int, str], None]:
    def mutated(self: QuorumState, now_ms: int, reason: str) -> None:
        self.state.voted_key = None
        stand(self, now_ms, reason)

    return mutated


def _epoch_led_again(_original: object) -> Callable[..., tuple[object, str]]:
    def mutated(self: QuorumState, log: Any, now_ms: int) -> tuple[object, str]:
        stored = self.election
        if stored.leader_id == self.config.node_id and self.membership.is_voter:
            return self._candidate(stored.epoch, now_ms), "boot: led this epoch before"
        return self._unattached(max(stored.epoch, log.last_epoch), now_ms, voted_key=stored.voted_key), "boot"

    return mutated


def _old_leader_followed(_original: object) -> Callable[..., Any]:
    def mutated(self: Elections, epoch: int, leader_id: int) -> Any:
        return ErrorCode.NONE if leader_id != self._quorum.config.node_id else ErrorCode.INVALID_REQUEST

    return mutated


def _timer_runs_on(_original: object) -> Callable[[Follower, int], None]:
    def mutated(self: Follower, now_ms: int) -> None:
        self.has_fetched = True

    return mutated


def _never_resigns(poll: Callable[..., None]) -> Callable[[Leadership, Leader, int], None]:
    def mutated(self: Leadership, leader: Leader, now_ms: int) -> None:
        leader.check_quorum_deadline_ms = NEVER_MS
        poll(self, leader, now_ms)

    return mutated


def _held_for_ever(_original: object) -> Callable[[Outbox, int], list[Send | Reply]]:
    def mutated(self: Outbox, version: int) -> list[Send | Reply]:
        self._election_version = max(self._election_version, version)
        return []

    return mutated


def _older_votes_count(on_response: Callable[..., None]) -> Callable[[Elections, InFlight, VoteResponse, int], None]:
    def mutated(self: Elections, asked: InFlight, response: VoteResponse, now_ms: int) -> None:
        state, request = self._quorum.state, asked.request
        if isinstance(state, Candidate) and isinstance(request, VoteRequest):
            asked = msgspec.structs.replace(asked, request=msgspec.structs.replace(request, epoch=state.epoch))
        on_response(self, asked, response, now_ms)

    return mutated


def _clocks_that_jump_on_long_ways(options: SimulationOptions) -> SimulationOptions:
    """Elections that are over for the candidate, whose clock says so, while answers to it are still on their way."""
    return msgspec.structs.replace(
        options,
        voters=5,
        observers=0,
        dynamic_voters=False,
        auto_join=False,
        network=NetworkOptions(delay_us=20_000, reordering=True),
        faults=("clock-jump", "clog"),
        fault_pace=15,
    )


def _higher_epoch_ignored(adopt_epoch: Callable[..., None]) -> Callable[[QuorumState, int, int, str], None]:
    def mutated(self: QuorumState, epoch: int, now_ms: int, reason: str) -> None:
        if not isinstance(self.state, Leader):
            adopt_epoch(self, epoch, now_ms, reason)

    return mutated


MUTANTS = (
    Mutant("vote-before-store", "a granted vote leaves before it is stored", Outbox, "put", _vote_before_store, rules=("S17",)),
    Mutant("vote-forgotten", "a restart forgets the vote", ElectionStateStore, "load", _vote_forgotten, rules=("S2", "S3")),
    Mutant(
        "epoch-not-stored",
        "an epoch without vote or leader is not stored",
        ElectionStateStore,
        "store",
        _epoch_not_stored,
        rules=("S2",),
    ),
    Mutant(
        "leads-before-its-vote-is-stored",
        "a candidate leads before its own vote is on disk",
        Elections,
        "poll_candidate",
        _leads_before_its_vote_is_stored,
        rules=("S7", "S4", "S10", "S6"),
        seeds_max=300,
    ),
    Mutant(
        "pre-votes-count",
        "pre-votes are counted as votes",
        QuorumState,
        "campaign",
        _pre_votes_count,
        rules=("S1", "S4", "S6"),
        seeds_max=300,
    ),
    Mutant(
        "any-log-is-good-enough",
        "votes ignore the candidate's log",
        Unattached,
        "grants",
        _any_log_is_good_enough,
        rules=("S6",),
        seeds_max=300,
    ),
    Mutant(
        "only-length-counts",
        "votes compare the logs' lengths, not their epochs",
        Elections,
        "on_vote",
        _only_length_counts,
        rules=("S6",),
        seeds_max=300,
    ),
    Mutant(
        "only-the-last-epoch-counts",
        "votes compare the logs' last epochs, not their lengths",
        Elections,
        "on_vote",
        _only_the_last_epoch_counts,
        rules=("S6",),
        seeds_max=300,
    ),
    Mutant(
        "second-vote",
        "a voter forgets that it has voted in this epoch",
        Unattached,
        "grants",
        _second_vote,
        rules=("InvariantViolation",),
        seeds_max=300,
    ),
    Mutant(
        "half-is-a-majority",
        "half of the votes win an election",
        VoteTally,
        "is_won",
        _half_is_a_majority,
        rules=("S1", "S4", "S6"),
        seeds_max=300,
        faults=("partition",),
    ),
    Mutant(
        "no-pre-vote",
        "nobody is asked before a new epoch begins",
        Elections,
        "poll_prospective",
        _no_pre_vote,
        rules=("L5",),
        seeds_max=300,
    ),
    Mutant(
        "pre-vote-in-spite-of-a-leader",
        "a follower that hears from its leader grants pre-votes",
        Follower,
        "grants",
        _pre_vote_in_spite_of_a_leader,
        rules=("L5",),
        seeds_max=300,
        faults=(),
    ),
    Mutant(
        "vote-kept-in-new-epoch", "a vote outlives its epoch", QuorumState, "_unattached", _vote_kept_in_new_epoch, rules=("L1",)
    ),
    Mutant(
        "vote-lost-in-pre-vote",
        "who asks for pre-votes forgets its vote",
        QuorumState,
        "stand",
        _vote_lost_in_pre_vote,
        rules=("S17", "S3"),
        seeds_max=300,
    ),
    Mutant(
        "epoch-led-again",
        "a restarted leader leads its epoch again (KAFKA-10527)",
        QuorumState,
        "_boot",
        _epoch_led_again,
        rules=("S4", "S10", "S18"),
        seeds_max=300,
    ),
    Mutant(
        "old-leader-followed",
        "a leader of an older epoch is followed",
        Elections,
        "_announcement_error",
        _old_leader_followed,
        rules=("InvariantViolation",),
        seeds_max=300,
    ),
    Mutant(
        "timer-runs-on",
        "a follower's timer is not set anew by what its leader answers",
        Follower,
        "fetched",
        _timer_runs_on,
        rules=("L5", "L1", "L2", "L4"),
    ),
    Mutant(
        "never-resigns",
        "a leader that nobody follows any more goes on leading",
        Leadership,
        "poll_leader",
        _never_resigns,
        rules=("L7",),
        faults=("partition", "isolate"),
    ),
    Mutant(
        "held-for-ever",
        "what waits for the election state never leaves",
        Outbox,
        "election_state_stored",
        _held_for_ever,
        rules=("L1",),
    ),
    Mutant(
        "older-votes-count",
        "a vote is counted in a later epoch than the one it was given for",
        Elections,
        "on_vote_response",
        _older_votes_count,
        rules=("S19",),
        weather=_clocks_that_jump_on_long_ways,
        refine=True,
    ),
    Mutant(
        "higher-epoch-ignored",
        "a leader does not hear of a higher epoch",
        QuorumState,
        "adopt_epoch",
        _higher_epoch_ignored,
        rules=("S19",),
        faults=("isolate", "clog"),
        refine=True,
    ),
)
