"""Bugs that the simulators do not show, for which the table of mutations says why."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kraftlab.quorum.core.candidate import Candidate
from kraftlab.quorum.core.elections import Elections
from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.messages import VoteRequest, VoteResponse
from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.quorum.core.requests import InFlight
from kraftlab.quorum.simulation.mutants import Mutant


def _older_votes_count(on_response: Callable[..., None]) -> Callable[[Elections, InFlight, VoteResponse, int], None]:
    def mutated(self: Elections, asked: InFlight, response: VoteResponse, now_ms: int) -> None:
        state, request = self._quorum.state, asked.request
        if isinstance(state, Candidate) and isinstance(request, VoteRequest):
            asked = msgspec.structs.replace(asked, request=msgspec.structs.replace(request, epoch=state.epoch))
        on_response(self, asked, response, now_ms)

    return mutated


def _higher_epoch_ignored(adopt_epoch: Callable[..., None]) -> Callable[[QuorumState, int, int, str], None]:
    def mutated(self: QuorumState, epoch: int, now_ms: int, reason: str) -> None:
        if not isinstance(self.state, Leader):
            adopt_epoch(self, epoch, now_ms, reason)

    return mutated


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "older-votes-count",
            "a vote is counted in a later epoch than the one it was given for",
            Elections,
            "on_vote_response",
            _older_votes_count,
        ),
        Mutant(
            "higher-epoch-ignored", "a leader does not hear of a higher epoch", QuorumState, "adopt_epoch", _higher_epoch_ignored
        ),
    )
}
