"""A follower's own requests to its leader: to become a voter, and to have its endpoints updated (KIP-853).

Theory of operation. Both follow from the log: is this node in the voter set, and with its own endpoints? So nothing needs to be
remembered, a request ends as soon as the log fulfils it, and a change that is truncated is requested again. One request is in
flight at a time, only to a leader that this follower has caught up with. After any answer the next one waits: briefly after a
success, since the log will show it, otherwise for three fetch timeouts.

*Automatic joining* (`auto_join`) is for observers that are to become voters: a new controller, or one whose disk was replaced.
The latter is still in the set under its node id with the directory id that is gone. That voter is removed first, because two
voters cannot have the same node id and only one voter may change at a time; then this node is added. To remove a voter that joins
automatically, the operator must stop it first. A node that repairs its log would be of no use as a voter and waits until the
repair is over.
"""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode

from .messages import AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest, VoterChangeResponse
from .quorum_state import QuorumState
from .requests import InFlight, RequestManager
from .states import Follower
from .types import NEVER_MS


class Joining:
    """A follower's requests about the voter set."""

    __slots__ = ("_quorum", "_requests")

    def __init__(self, quorum: QuorumState, requests: RequestManager) -> None:
        self._quorum = quorum
        self._requests = requests

    def poll(self, state: Follower, now_ms: int) -> None:
        """Send the next request if there is one and its time has come."""
        if now_ms >= state.join_at_ms:
            state.join_at_ms = NEVER_MS
        if state.join_correlation is not None or state.join_at_ms != NEVER_MS or not state.is_caught_up:
            return
        request = self._next_request(state)
        if request is not None:
            timeout_ms = self._pause_ms + self._quorum.config.fetch_answer_ms
            state.join_correlation = self._requests.send(state.leader_id, request, self._quorum.barrier, timeout_ms)

    @property
    def _pause_ms(self) -> int:
        return 3 * self._quorum.config.fetch_timeout_ms

    def _next_request(self, state: Follower) -> AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | None:
        membership = self._quorum.membership
        if membership.has_moved:
            return UpdateVoterRequest(state.epoch, membership.own)
        may_join = self._quorum.config.auto_join and membership.kraft_version > 0 and not self._quorum.repair.is_on
        if membership.is_voter or not may_join:
            return None
        former = membership.voters.get(membership.own_key.node_id)
        if former is not None:
            return RemoveVoterRequest(state.epoch, former.key, self._pause_ms)
        return AddVoterRequest(state.epoch, membership.own, self._pause_ms)

    def on_response(self, asked: InFlight, response: VoterChangeResponse, now_ms: int) -> None:
        """Schedule the next request."""
        if response.error is not ErrorCode.NONE:
            self._quorum.trace("join", f"{asked.request!r}: {response.error.name} {response.message}")
        is_done = response.error is ErrorCode.NONE
        self._wait(asked, now_ms + (self._quorum.config.fetch_max_wait_ms if is_done else self._pause_ms))

    def on_failed(self, asked: InFlight, now_ms: int) -> None:
        self._wait(asked, now_ms + self._pause_ms)

    def _wait(self, asked: InFlight, until_ms: int) -> None:
        state = self._quorum.state
        if isinstance(state, Follower) and state.join_correlation == asked.correlation:
            state.join_correlation = None
            state.join_at_ms = until_ms
