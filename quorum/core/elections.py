"""Votes and the announcements around them: Vote with pre-vote (KIP-996), BeginQuorumEpoch, EndQuorumEpoch (KIP-595).

Every handler of a request takes the same steps: (1) refuse requests that no correct peer sends (INVALID_REQUEST) or that are
meant for another disk (INVALID_VOTER_KEY); (2) refuse an older epoch (FENCED_LEADER_EPOCH); (3) refuse strangers
(VOTER_NOT_FOUND); (4) adopt a higher epoch; (5) decide. A refusal changes nothing.
Each state has its own rule for granting (`grants`). This module only defines "up to date", and grants nothing while the log is
being repaired (repair.py). A pre-vote never touches a timer.

A candidate needs a majority of the voters in its own log. That set cannot change meanwhile, because only followers and leaders
append. A node answers a vote request even if its own log does not name the candidate, or itself, as a voter: logs differ in
length, and a new voter whose vote decides may not know yet that it is one (Raft §6). A candidate that does not vote here has to
be a controller that the shell knows (`Standing`). The request also names the directory, so a wiped disk does not vote in its
predecessor's name. A voter that has moved since the set was written sends its endpoints along: its log may be too short to win,
and then a candidate with a longer one must be able to reach it.
"""

from __future__ import annotations

from kraftlab.common.endpoint import are_sane_endpoints
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import NODE_ID_MAX, ReplicaKey
from kraftlab.common.uuids import UUID_BYTES

from .leadership import Leadership
from .local_log import LocalLog
from .messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from .quorum_state import QuorumState
from .requests import InFlight, RequestManager
from .states import Candidate, Follower, Prospective, Resigned, Unattached
from .types import NEVER_MS, Standing


def end_quorum_epoch_delay_ms(position: int, count: int, backoff_max_ms: int) -> int:
    """Return the delay of the successor at `position` of `count`: none for the first, and twice as long for each further one.

    `position` -1: not among the successors, so the last of all.
    """
    if position < 0:
        return backoff_max_ms
    return 0 if position == 0 else backoff_max_ms >> (count - 1) << (position - 1)


class Elections:
    """Candidacies of this node, and its answers to those of others."""

    __slots__ = ("_leadership", "_log", "_quorum", "_requests")

    def __init__(self, quorum: QuorumState, log: LocalLog, requests: RequestManager, leadership: Leadership) -> None:
        self._quorum = quorum
        self._log = log
        self._requests = requests
        self._leadership = leadership

    # Requests

    def on_vote(self, request: VoteRequest, standing: Standing, now_ms: int) -> VoteResponse:
        quorum = self._quorum
        error = self._vote_error(request)
        if error is ErrorCode.NONE and not self._may_lead(request.candidate, standing):
            error = ErrorCode.VOTER_NOT_FOUND
        if error is not ErrorCode.NONE:
            return VoteResponse(error, quorum.view, False, request.pre_vote)
        if quorum.membership.note_endpoints(request.candidate, request.endpoints):
            quorum.trace("peer", f"{request.candidate!r} is reached elsewhere than the voter set says")
        if request.epoch > quorum.epoch:
            quorum.adopt_epoch(request.epoch, now_ms, f"{request.candidate!r} asks for a vote")
        view = self._log.view
        up_to_date = (request.last_epoch, request.end_offset) >= (view.last_epoch, view.end_offset)
        granted = not quorum.repair.is_on and quorum.state.grants(request.candidate, up_to_date, request.pre_vote)
        if granted and not request.pre_vote:
            quorum.vote_for(request.candidate, now_ms)
        return VoteResponse(ErrorCode.NONE, quorum.view, granted, request.pre_vote)

    def _vote_error(self, request: VoteRequest) -> ErrorCode:
        if not self._is_mine(request.voter):
            return ErrorCode.INVALID_VOTER_KEY
        if 0 <= request.epoch < self._quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
        sane = (
            self._quorum.believes(request.epoch)
            and 0 <= request.last_epoch <= last_epoch_max
            and request.end_offset >= 0
            and 0 <= request.candidate.node_id <= NODE_ID_MAX
            and request.candidate.node_id != self._quorum.config.node_id
            and len(request.candidate.directory_id) == UUID_BYTES
        )
        if sane and request.initial_voters and self._quorum.membership.initial_voters not in (0, request.initial_voters):
            who = f"node {request.candidate.node_id}"
            self._quorum.trace(
                "peer", f"{who} was formatted with other initial voters than this node: format one of the two again"
            )
            sane = False
        return ErrorCode.NONE if sane else ErrorCode.INVALID_REQUEST

    def on_begin(self, request: BeginQuorumEpochRequest, standing: Standing, now_ms: int) -> BeginQuorumEpochResponse:
        error = self._announcement_error(request.epoch, request.leader_id, standing)
        if error is ErrorCode.NONE and not self._is_mine(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE and not are_sane_endpoints(request.endpoints):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE:
            if self._follows(request.epoch, request.leader_id):
                self._quorum.relocate_leader(request.leader_id, request.endpoints, request.leader_id)
            elif request.epoch != self._quorum.resigned_epoch:
                self._quorum.follow(request.epoch, request.leader_id, request.endpoints, now_ms, "BeginQuorumEpoch")
        return BeginQuorumEpochResponse(error, self._quorum.view)

    def on_end(self, request: EndQuorumEpochRequest, standing: Standing, now_ms: int) -> EndQuorumEpochResponse:
        quorum = self._quorum
        error = self._announcement_error(request.epoch, request.leader_id, standing)
        if error is not ErrorCode.NONE:
            return EndQuorumEpochResponse(error, quorum.view)
        if request.epoch > quorum.epoch or quorum.state.leader_id < 0:
            quorum.follow(request.epoch, request.leader_id, {}, now_ms, "EndQuorumEpoch")
        quorum.note_resigned(request.epoch)
        state = quorum.state
        if isinstance(state, Follower):
            own_key = quorum.config.key
            position = next((i for i, key in enumerate(request.preferred) if own_key.matches(key)), -1)
            delay_ms = end_quorum_epoch_delay_ms(position, len(request.preferred), quorum.config.election_backoff_max_ms)
            state.leader_gone(now_ms + delay_ms)
        return EndQuorumEpochResponse(ErrorCode.NONE, quorum.view)

    def _may_lead(self, key: ReplicaKey, standing: Standing) -> bool:
        """Return True if this node may be the next leader, as far as is known here: no stranger's word changes anything."""
        return standing is Standing.CONTROLLER or self._quorum.membership.has(key)

    def _announcement_error(self, epoch: int, leader_id: int, standing: Standing) -> ErrorCode:
        quorum = self._quorum
        if 0 <= epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        is_somebody = 0 <= leader_id <= NODE_ID_MAX and leader_id != quorum.config.node_id
        if not quorum.believes(epoch) or not is_somebody:
            return ErrorCode.INVALID_REQUEST
        if standing is not Standing.CONTROLLER and quorum.membership.voters.get(leader_id) is None:
            return ErrorCode.VOTER_NOT_FOUND
        if not quorum.consistent(epoch, leader_id):
            quorum.trace("peer", f"node {leader_id} claims epoch {epoch}, which node {quorum.state.leader_id} leads")
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _follows(self, epoch: int, leader_id: int) -> bool:
        state = self._quorum.state
        return isinstance(state, Follower) and state.epoch == epoch and state.leader_id == leader_id

    def _is_mine(self, key: ReplicaKey) -> bool:
        return self._quorum.membership.own_key.matches(key)

    # Responses

    def on_vote_response(self, asked: InFlight, response: VoteResponse, now_ms: int) -> None:
        state = self._quorum.state
        request = asked.request
        if (
            not isinstance(request, VoteRequest)
            or not isinstance(state, (Prospective, Candidate))
            or request.epoch != state.epoch
        ):
            return
        if request.pre_vote != isinstance(state, Prospective):
            return
        if response.granted and response.error is ErrorCode.NONE:
            state.tally.grant(asked.destination)
        elif response.error is ErrorCode.UNSUPPORTED_VERSION and request.pre_vote:
            self._quorum.campaign(now_ms, f"node {asked.destination} does not know pre-votes")
        else:
            state.tally.refuse(asked.destination)
            if request.pre_vote:
                state.tally.ask_again(asked.destination, now_ms + self._quorum.config.retry_backoff_ms)

    def on_vote_failed(self, asked: InFlight, now_ms: int) -> None:
        state = self._quorum.state
        if isinstance(state, (Prospective, Candidate)) and asked.request.epoch == state.epoch:
            state.tally.ask_again(asked.destination, now_ms + self._quorum.config.retry_backoff_ms)

    # Time

    def poll_unattached(self, state: Unattached, now_ms: int) -> None:
        if now_ms >= state.election_deadline_ms:
            self._quorum.stand(now_ms, "election timeout")

    def poll_resigned(self, state: Resigned, now_ms: int) -> None:
        if now_ms < state.election_deadline_ms:
            return
        if self._quorum.is_last_epoch:
            state.election_deadline_ms = NEVER_MS
        else:
            self._quorum.adopt_epoch(state.epoch + 1, now_ms, "election timeout")

    def poll_prospective(self, state: Prospective, now_ms: int) -> None:
        if not self._quorum.config.pre_vote:
            self._quorum.campaign(now_ms, "pre-votes are turned off")
        elif state.tally.is_won:
            self._quorum.campaign(now_ms, "majority of pre-votes")
        elif state.tally.is_lost:
            self._quorum.stand_down(now_ms, "refused by a majority")
        elif now_ms >= state.election_deadline_ms:
            self._quorum.stand_down(now_ms, "election timeout")
        else:
            self._ask(state, now_ms)

    def poll_candidate(self, state: Candidate, now_ms: int) -> None:
        is_vote_stored = self._quorum.durable_election_version >= state.election_version
        if is_vote_stored and state.election_deadline_ms == NEVER_MS:
            state.election_deadline_ms = self._quorum.random_election_deadline_ms(now_ms)
        if state.tally.is_won and is_vote_stored:
            self._leadership.begin(state.tally.granting_voters(), now_ms)
        elif now_ms >= state.election_deadline_ms and not self._quorum.is_last_epoch:
            self._quorum.stand(now_ms, "election timeout")
        else:
            if now_ms >= state.election_deadline_ms:
                state.election_deadline_ms = self._quorum.random_election_deadline_ms(now_ms)
            self._ask(state, now_ms)

    def _ask(self, state: Prospective | Candidate, now_ms: int) -> None:
        quorum, view = self._quorum, self._log.view
        for voter_id in state.tally.due(now_ms):
            request = VoteRequest(
                epoch=state.epoch,
                candidate=quorum.membership.own_key,
                voter=quorum.membership.key_of(voter_id),
                last_epoch=view.last_epoch,
                end_offset=view.end_offset,
                pre_vote=isinstance(state, Prospective),
                initial_voters=quorum.membership.initial_voters,
                endpoints=quorum.membership.own.endpoints if quorum.membership.has_moved else {},
            )
            self._requests.send(voter_id, request, quorum.barrier, quorum.config.election_timeout_ms)
