"""Bugs of elections: votes, pre-votes, epochs and their announcement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.checking.mutant import Table
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.effects import ElectionState, Reply, Send
from kraftlab.quorum.core.elections import Elections
from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.leadership import Leadership
from kraftlab.quorum.core.messages import VoteRequest, VoteResponse
from kraftlab.quorum.core.outbox import Outbox
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.requests import InFlight
from kraftlab.quorum.core.states import Candidate, Follower, Prospective, Unattached
from kraftlab.quorum.core.types import NEVER_MS, Standing
from kraftlab.quorum.core.vote_tally import VoteTally
from kraftlab.quorum.storage.election_store import ElectionStateStore

from ..options import NetworkOptions, SimulationOptions
from .seeds import Seeds

MUTANTS: Table[Seeds] = Table()


def _leaders_that_go_on_alone(options: SimulationOptions) -> SimulationOptions:
    """No check quorum, which would end the reign of a leader that has missed a higher epoch."""
    return msgspec.structs.replace(
        options,
        voters=3,
        observers=0,
        dynamic_voters=False,
        auto_join=False,
        faults=("isolate",),
        heals_everything=False,
        tuning=msgspec.structs.replace(options.tuning, check_quorum=False),
    )


def _clocks_that_jump_on_long_ways(options: SimulationOptions) -> SimulationOptions:
    """Elections that are over by the candidate's clock, while answers to it are still on their way."""
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


@MUTANTS.row(Outbox, "put", Seeds("S17"))
def vote_before_store(put: Callable[..., bool], self: Outbox, message: Send | Reply) -> bool:
    """A granted vote leaves before it is stored."""
    is_vote = isinstance(message, Reply) and isinstance(message.response, VoteResponse)
    return is_vote or put(self, message)


@MUTANTS.row(ElectionStateStore, "load", Seeds("S2", "S3"))
def vote_forgotten(load: Callable[..., ElectionState | None], self: ElectionStateStore) -> ElectionState | None:
    """A restart forgets the vote."""
    state = load(self)
    return ElectionState(state.epoch, state.leader_id, None) if state is not None else None


@MUTANTS.row(ElectionStateStore, "store", Seeds("S2"))
def epoch_not_stored(store: Callable[..., None], self: ElectionStateStore, state: ElectionState) -> None:
    """An epoch without vote or leader is not stored."""
    if state.voted_key is not None or state.leader_id >= 0:
        store(self, state)


@MUTANTS.row(Elections, "poll_candidate", Seeds("S7", "S4", "S10", "S6", most=300))
def leads_before_its_vote_is_stored(poll: Callable[..., None], self: Elections, state: Candidate, now_ms: int) -> None:
    """A candidate leads before its own vote is on disk."""
    state.election_version = 0
    poll(self, state, now_ms)


@MUTANTS.row(QuorumState, "campaign", Seeds("S1", "S4", "S6", most=300))
def pre_votes_count(campaign: Callable[..., None], self: QuorumState, now_ms: int, reason: str) -> None:
    """Pre-votes are counted as votes."""
    old = self.state
    campaign(self, now_ms, reason)
    if isinstance(old, Prospective):
        for voter_id in old.tally.granting_voters():
            self.state.tally.grant(voter_id)  # type: ignore[union-attr]


@MUTANTS.row(Unattached, "grants", Seeds("S6", most=300))
def any_log_is_good_enough(
    grants: Callable[..., bool], self: Unattached, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool
) -> bool:
    """Votes ignore the candidate's log."""
    return grants(self, candidate, True, pre_vote)


@MUTANTS.row(Elections, "on_vote", Seeds("S6", most=300))
def only_length_counts(
    on_vote: Callable[..., VoteResponse], self: Elections, request: VoteRequest, standing: Standing, now_ms: int
) -> VoteResponse:
    """Votes compare the logs' lengths, not their epochs."""
    return on_vote(self, msgspec.structs.replace(request, last_epoch=self._log.view.last_epoch), standing, now_ms)


@MUTANTS.row(Elections, "on_vote", Seeds("S6", most=300))
def only_the_last_epoch_counts(
    on_vote: Callable[..., VoteResponse], self: Elections, request: VoteRequest, standing: Standing, now_ms: int
) -> VoteResponse:
    """Votes compare the logs' last epochs, not their lengths."""
    end_offset = max(request.end_offset, self._log.view.end_offset)
    return on_vote(self, msgspec.structs.replace(request, end_offset=end_offset), standing, now_ms)


@MUTANTS.row(Unattached, "grants", Seeds("InvariantViolation", most=300))
def second_vote(_: object, self: Unattached, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    """A voter forgets that it has voted in this epoch."""
    return up_to_date


@MUTANTS.row(VoteTally, "is_won", Seeds("S1", "S4", "S6", most=300, faults=("partition",)))
def half_is_a_majority(_: object, self: VoteTally) -> bool:
    """Half of the votes win an election."""
    return len(self._granted) * 2 >= self._voter_count


@MUTANTS.row(Elections, "poll_prospective", Seeds("L5", most=300))
def no_pre_vote(_: object, self: Elections, state: Prospective, now_ms: int) -> None:
    """Nobody is asked before a new epoch begins."""
    self._quorum.campaign(now_ms, "no need to ask")


@MUTANTS.row(Follower, "grants", Seeds("L5", most=300, faults=()))
def pre_vote_in_spite_of_a_leader(_: object, self: Follower, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    """A follower that hears from its leader grants pre-votes."""
    return pre_vote and up_to_date


@MUTANTS.row(QuorumState, "_unattached", Seeds("L1"))
def vote_kept_in_new_epoch(
    unattached: Callable[..., Unattached], self: QuorumState, epoch: int, now_ms: int, **settings: object
) -> Unattached:
    """A vote outlives its epoch."""
    old = getattr(self, "state", None)
    settings.setdefault("voted_key", old.voted_key if old is not None else None)
    return unattached(self, epoch, now_ms, **settings)


@MUTANTS.row(QuorumState, "stand", Seeds("S17", "S3", most=300))
def vote_lost_in_pre_vote(stand: Callable[..., None], self: QuorumState, now_ms: int, reason: str) -> None:
    """A voter that asks for pre-votes forgets its vote."""
    self.state.voted_key = None
    stand(self, now_ms, reason)


@MUTANTS.row(QuorumState, "_boot", Seeds("S4", "S10", "S18", most=300))
def epoch_led_again(_: object, self: QuorumState, log: Any, now_ms: int) -> tuple[object, str]:
    """A restarted leader leads its epoch again (KAFKA-10527)."""
    stored = self.election
    if stored.leader_id == self.config.node_id and self.membership.is_voter:
        return self._candidate(stored.epoch, now_ms), "boot: led this epoch before"
    return self._unattached(max(stored.epoch, log.last_epoch), now_ms, voted_key=stored.voted_key), "boot"


@MUTANTS.row(Elections, "_announcement_error", Seeds("InvariantViolation", most=300))
def old_leader_followed(_: object, self: Elections, epoch: int, leader_id: int, standing: Standing) -> object:
    """A leader of an older epoch is followed."""
    return ErrorCode.NONE if leader_id != self._quorum.config.node_id else ErrorCode.INVALID_REQUEST


@MUTANTS.row(Follower, "fetched", Seeds("L5", "L1", "L2", "L4"))
def timer_runs_on(_: object, self: Follower, now_ms: int) -> None:
    """A follower's timer is not reset by what its leader answers."""
    self.has_fetched = True


@MUTANTS.row(Leadership, "poll_leader", Seeds("L7", faults=("partition", "isolate")))
def never_resigns(poll: Callable[..., None], self: Leadership, leader: Leader, now_ms: int) -> None:
    """A leader without followers goes on leading."""
    leader.check_quorum_deadline_ms = NEVER_MS
    poll(self, leader, now_ms)


@MUTANTS.row(Outbox, "election_state_stored", Seeds("L1"))
def held_for_ever(_: object, self: Outbox, version: int) -> list[Send | Reply]:
    """A message that waits for the election state never leaves."""
    self._election_version = max(self._election_version, version)
    return []


@MUTANTS.row(Elections, "on_vote_response", Seeds("S4", weather=_clocks_that_jump_on_long_ways))
def older_votes_count(
    on_response: Callable[..., None], self: Elections, asked: InFlight, response: VoteResponse, now_ms: int
) -> None:
    """A vote is counted in a later epoch than the one it was given for."""
    state, request = self._quorum.state, asked.request
    if isinstance(state, Candidate) and isinstance(request, VoteRequest):
        asked = msgspec.structs.replace(asked, request=msgspec.structs.replace(request, epoch=state.epoch))
    on_response(self, asked, response, now_ms)


@MUTANTS.row(QuorumState, "adopt_epoch", Seeds("L1", weather=_leaders_that_go_on_alone))
def higher_epoch_ignored(adopt_epoch: Callable[..., None], self: QuorumState, epoch: int, now_ms: int, reason: str) -> None:
    """A leader does not hear of a higher epoch."""
    if not isinstance(self.state, Leader):
        adopt_epoch(self, epoch, now_ms, reason)
