"""The leader's half of membership: adds, removes and updates voters, one at a time, and transfers its leadership (KIP-853).

Theory of operation. A change of the voters is one control record, KRaftVoters, with the whole new set. It is in force as soon as
it is appended, on every node that appends it. It is committed like any other record, but by a majority of the *new* set. This is
safe because two sets that can be in force at the same time differ by one voter, so that every majority of the one meets every
majority of the other. Hence the gates, which every request passes in the order of `GATES`:

- *idle*: no other change is in progress;
- *committed in this epoch*: this leader knows its high watermark. Otherwise two leaders could each start from the last committed
  set with a change of its own that the other has not seen, and their majorities need not meet (Ongaro, raft-dev 2015). A record
  of the own epoch at a majority fences everything that an earlier leader left uncommitted;
- *dynamic*: kraft.version is 1, so the voters are in the log;
- *settled*: the newest voters record is committed.

*Adding*: the leader asks the new node for its identity (ProbeVoter), so that a wrong address or directory is found before it can
do harm. Then the node's fetches must reach the leader's log end, because a voter that lacks half of the log would stop the next
commit. Then the record is appended. *Removing*: appended at once, unless the remaining voters could not commit it: when one of
three is dead, removing another would stop the quorum for good (KIP-853 leaves that to the operator). A voter that repairs its log
counts as dead here: it could commit with the leader, but not elect one, and without a leader its repair never ends (repair.py).
For that reason nobody becomes a voter or gets the leadership before its log is whole. Both are answered when the record is
committed. *Updating* (a voter's endpoints) is answered when the record is appended: the sender repeats the request until its log
shows the change. The leader updates its own entry without a request.

*A leader that is no longer in its set* continues until the set without it is committed, counting only the others, and then
resigns; the others elect one of themselves. It replicates to a removed voter as to any observer.

*Transfer*: the leader waits until the target holds its whole log, then resigns and names the target as the first to stand. After
half of the timeout it takes no more proposals, so that a busy log cannot delay the transfer forever.

An answer other than NONE names the obstacle and what to do. When the time is up, or the leadership ends, the request is answered,
but a record that was appended stays: it may still be committed, and only the log can tell. Nothing here is durable, and all of it
dies with the leadership: a client without an answer describes the quorum and repeats its request.

`poll` runs at the end of every step of a leader and sees every result of the step (a commit, a fetch, an answer, time), so no
other module needs to know of pending changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kraftlab.common.endpoint import ENDPOINTS_MAX, Endpoint, are_sane_endpoints
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import NODE_ID_MAX, ReplicaKey
from kraftlab.common.uuids import ZERO

from .batch import KRaftVoters
from .effects import Reply
from .leader import Leader, VoterChange
from .leadership import Leadership
from .local_log import LocalLog
from .messages import (
    AddVoterRequest,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from .quorum_state import QuorumState
from .requests import InFlight, RequestManager
from .types import Voter, VoterSet
from .voter_set_history import KRAFT_VERSION_MAX


class Refusal(NamedTuple):
    """The reason why a request is refused. The message says what to do."""

    error: ErrorCode
    message: str


class Reconfiguration:
    """The leader's management of its voters."""

    __slots__ = ("_leadership", "_log", "_quorum", "_requests")

    def __init__(self, quorum: QuorumState, log: LocalLog, requests: RequestManager, leadership: Leadership) -> None:
        self._quorum = quorum
        self._log = log
        self._requests = requests
        self._leadership = leadership

    # Requests

    def on_request(self, correlation: int, request: VoterChangeRequest, now_ms: int) -> None:
        """Refuse, answer at once, or begin a change that is answered later."""
        leader = self._quorum.state
        if not isinstance(leader, Leader):
            self._answer(correlation, *self._not_leading())
            return
        is_transfer_to_self = isinstance(request, TransferLeadershipRequest) and request.target == self._quorum.config.key
        for gate in GATES[type(request)]:
            refusal = gate(self, leader, request, now_ms)
            if refusal is not None and not is_transfer_to_self:
                self._answer(correlation, *refusal)
                return
        if is_transfer_to_self:
            self._answer(correlation, ErrorCode.NONE, "")
        elif isinstance(request, UpdateVoterRequest):
            self._update(leader, request.voter, now_ms)
            self._answer(correlation, ErrorCode.NONE, "")
        else:
            leader.change = VoterChange(correlation, request, now_ms)
            if isinstance(request, RemoveVoterRequest):
                voters = self._quorum.membership.voters.without(request.voter.node_id)
                leader.change.end_offset = self._append(leader, voters, repr(request), now_ms)

    def _answer(self, correlation: int, error: ErrorCode, message: str) -> None:
        response = VoterChangeResponse(error, self._quorum.view, message)
        self._quorum.out.append(Reply(correlation, response, self._quorum.barrier))

    def _not_leading(self) -> Refusal:
        leader_id = self._quorum.leader_id
        who = f"node {leader_id} leads epoch {self._quorum.epoch}: ask it" if leader_id >= 0 else "no leader is known: ask again"
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self._quorum.config.node_id} does not lead; {who}")

    def _append(self, leader: Leader, voters: VoterSet, reason: str, now_ms: int) -> int:
        """Append the record that puts `voters` in force; return its end offset."""
        before = self._quorum.membership.voters
        self._quorum.trace("voters", f"{before!r} -> {voters!r} at {self._log.view.end_offset}: {reason}")
        self._leadership.append_control(leader, [KRaftVoters(0, voters)], now_ms)
        return self._log.view.end_offset

    def _update(self, leader: Leader, voter: Voter, now_ms: int) -> None:
        membership = self._quorum.membership
        node_id = voter.key.node_id
        if membership.endpoints_of(node_id) != voter.endpoints:
            voters = membership.voters.with_voter(Voter(membership.key_of(node_id), voter.endpoints))
            self._append(leader, voters, f"node {node_id} has other endpoints", now_ms)

    # Gates, in the order of the table below

    def _epoch(self, leader: Leader, request: VoterChangeRequest, now_ms: int) -> Refusal | None:
        if request.epoch in (-1, leader.epoch):
            return None
        error = ErrorCode.FENCED_LEADER_EPOCH if request.epoch < leader.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return Refusal(error, f"meant for epoch {request.epoch}, but this is epoch {leader.epoch}")

    def _sane_timeout(self, leader: Leader, request: Any, now_ms: int) -> Refusal | None:
        if request.timeout_ms > 0:
            return None
        return Refusal(ErrorCode.INVALID_REQUEST, f"the timeout must be positive, but is {request.timeout_ms} ms")

    def _sane_voter(self, leader: Leader, request: AddVoterRequest, now_ms: int) -> Refusal | None:
        key = request.voter.key
        if 0 <= key.node_id <= NODE_ID_MAX and len(key.directory_id) == len(ZERO) and key.directory_id != ZERO:
            return None
        message = f"a voter needs a node id and the id of its metadata directory, unlike {key.described()}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)

    def _sane_endpoints(self, leader: Leader, request: AddVoterRequest | UpdateVoterRequest, now_ms: int) -> Refusal | None:
        """Refuse endpoints that cannot be valid: they would stay in the log, and every node would have to handle them.

        A node to be added must answer a probe, which detects missing endpoints.
        """
        endpoints = request.voter.endpoints
        has_some = bool(endpoints) or isinstance(request, AddVoterRequest)
        if has_some and are_sane_endpoints(endpoints):
            return None
        message = (
            f"a voter needs 1 to {ENDPOINTS_MAX} endpoints with a listener name, a host and a port from 1 to 65535, unlike what "
            f"node {request.voter.key.node_id} is given: check its listeners"
        )
        return Refusal(ErrorCode.INVALID_REQUEST, message)

    def _idle(self, leader: Leader, request: VoterChangeRequest, now_ms: int) -> Refusal | None:
        if leader.change is None:
            return None
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"another change is under way, {leader.change.request!r}: ask again later")

    def _committed_in_epoch(self, leader: Leader, request: VoterChangeRequest, now_ms: int) -> Refusal | None:
        if leader.high_watermark >= 0:
            return None
        message = f"the leader of epoch {leader.epoch} has not committed anything so far: ask again when a majority follows it"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)

    def _dynamic(self, leader: Leader, request: VoterChangeRequest, now_ms: int) -> Refusal | None:
        if self._quorum.membership.kraft_version > 0:
            return None
        message = (
            "kraft.version is 0: the voters are static, as controller.quorum.voters says on every node, and can not be changed"
        )
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)

    def _settled(self, leader: Leader, request: VoterChangeRequest, now_ms: int) -> Refusal | None:
        if self._is_settled(leader):
            return None
        membership = self._quorum.membership
        message = (
            f"the voters {membership.voters!r} at offset {membership.voters_offset} are not committed so far: ask again later"
        )
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)

    def _is_settled(self, leader: Leader) -> bool:
        return self._quorum.membership.voters_offset < leader.high_watermark

    def _id_is_free(self, leader: Leader, request: AddVoterRequest, now_ms: int) -> Refusal | None:
        voter = self._quorum.membership.voters.get(request.voter.key.node_id)
        if voter is None:
            return None
        message = f"{voter.key.described()} is a voter already: if that disk is gone, remove the voter first"
        return Refusal(ErrorCode.DUPLICATE_VOTER, message)

    def _is_a_voter(self, key: ReplicaKey) -> Refusal | None:
        if self._quorum.membership.has(key):
            return None
        message = f"{key.described()} is not a voter: describe the quorum to see who is"
        return Refusal(ErrorCode.VOTER_NOT_FOUND, message)

    def _removed_is_voter(self, leader: Leader, request: RemoveVoterRequest, now_ms: int) -> Refusal | None:
        if len(self._quorum.membership.voters.voters) == 1:
            message = f"{self._quorum.membership.voters!r} is the last voter, which can not be removed"
            return self._is_a_voter(request.voter) or Refusal(ErrorCode.VOTER_NOT_FOUND, message)
        return self._is_a_voter(request.voter)

    def _rest_is_alive(self, leader: Leader, request: RemoveVoterRequest, now_ms: int) -> Refusal | None:
        """Refuse unless a majority of the remaining voters fetches and votes. A dead voter may go, unless another one repairs."""
        membership = self._quorum.membership
        rest = membership.voters.without(request.voter.node_id)
        since_ms = now_ms - self._quorum.config.check_quorum_timeout_ms
        alive = [v.key.node_id for v in rest.voters if self._is_alive(leader, v.key.node_id, since_ms)]
        repairing = [node_id for node_id in alive if self._is_repairing(leader, node_id)]
        if len(alive) - len(repairing) >= rest.majority():
            return None
        message = f"of {rest!r}, which would be left, {rest.majority()} are needed, but only {alive} are alive"
        if repairing:
            message += f", and {repairing} do not vote until they have repaired their logs: ask again then"
        else:
            message += ": start or replace the others"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)

    def _is_alive(self, leader: Leader, node_id: int, since_ms: int) -> bool:
        progress = leader.voters.get(node_id)
        return progress.last_fetch_ms > since_ms if progress is not None else node_id == self._quorum.config.node_id

    def _is_repairing(self, leader: Leader, node_id: int) -> bool:
        progress = leader.voters.get(node_id)
        return progress is not None and progress.is_repairing

    def _updated_is_voter(self, leader: Leader, request: UpdateVoterRequest, now_ms: int) -> Refusal | None:
        return self._is_a_voter(request.voter.key)

    def _target_is_voter(self, leader: Leader, request: TransferLeadershipRequest, now_ms: int) -> Refusal | None:
        return self._is_a_voter(request.target)

    # Progress

    def poll(self, leader: Leader, now_ms: int) -> None:
        """Take the next step of a change if possible; answer it if it is complete or overdue. May resign."""
        if leader.change is not None:
            self._pursue(leader, leader.change, now_ms)
            if self._quorum.state is not leader:
                return
        membership = self._quorum.membership
        if not membership.is_voter:
            if self._is_settled(leader):
                self._leadership.resign("no longer a voter", now_ms)
        elif membership.has_moved and leader.change is None and self._is_settled(leader):
            self._update(leader, membership.own, now_ms)

    def _pursue(self, leader: Leader, change: VoterChange, now_ms: int) -> None:
        request = change.request
        if change.end_offset >= 0:
            if leader.high_watermark >= change.end_offset:
                self._finish(leader, change, ErrorCode.NONE, "")
        elif isinstance(request, TransferLeadershipRequest):
            if self._has_everything(leader, request.target, now_ms):
                self._finish(leader, change, ErrorCode.NONE, "")
                self._leadership.resign(f"makes way for node {request.target.node_id}", now_ms, preferred=request.target)
        elif isinstance(request, AddVoterRequest):
            self._pursue_add(leader, change, request.voter, now_ms)
        if leader.change is change and now_ms >= change.deadline_ms:
            self._finish(leader, change, ErrorCode.REQUEST_TIMED_OUT, self._obstacle(leader, change))

    def _pursue_add(self, leader: Leader, change: VoterChange, voter: Voter, now_ms: int) -> None:
        if not change.is_probed:
            if now_ms >= change.probe_at_ms:
                request = ProbeVoterRequest(leader.epoch, voter.key)
                change.probing(self._requests.send(voter.key.node_id, request, self._quorum.barrier, self._probe_timeout_ms))
        elif self._is_caught_up(leader, voter.key, now_ms):
            voters = self._quorum.membership.voters.with_voter(voter)
            change.end_offset = self._append(leader, voters, repr(change.request), now_ms)

    @property
    def _probe_timeout_ms(self) -> int:
        return self._quorum.config.election_timeout_ms

    def _is_caught_up(self, leader: Leader, key: ReplicaKey, now_ms: int) -> bool:
        """Return True if the observer recently had the leader's whole log."""
        observer = leader.observers.get(key)
        if observer is None or observer.is_repairing:
            return False
        return observer.was_caught_up_since(now_ms - self._quorum.config.fetch_timeout_ms)

    def _has_everything(self, leader: Leader, key: ReplicaKey, now_ms: int) -> bool:
        voter = leader.voters.get(key.node_id)
        if voter is None or voter.is_repairing or voter.end_offset != self._log.view.end_offset:
            return False
        return voter.last_fetch_ms >= now_ms - self._quorum.config.fetch_timeout_ms

    def _finish(self, leader: Leader, change: VoterChange, error: ErrorCode, message: str) -> None:
        leader.change = None
        if change.correlation is not None:
            self._answer(change.correlation, error, message)

    def _obstacle(self, leader: Leader, change: VoterChange) -> str:
        """Return the message for a change whose time is up: what it was waiting for."""
        request, end_offset = change.request, self._log.view.end_offset
        if change.end_offset >= 0:
            voters = self._quorum.membership.voters
            return (
                f"the voters {voters!r} at offset {change.end_offset - 1} are in force but not committed so far; they still may "
                "be, as soon as a majority of them has fetched up to there: describe the quorum"
            )
        if isinstance(request, AddVoterRequest) and not change.is_probed:
            shown = ", ".join(f"{name}://{endpoint}" for name, endpoint in request.voter.endpoints.items()) or "no endpoint"
            return f"node {request.voter.key.node_id} did not answer at {shown}: is it running, and is that its address?"
        key = request.target if isinstance(request, TransferLeadershipRequest) else _key_of(request)
        progress = leader.voters.get(key.node_id) if self._quorum.membership.has(key) else leader.observers.get(key)
        if progress is not None and progress.is_repairing:
            return f"node {key.node_id} repairs its log and does not vote until it is whole: ask again then"
        if progress is None or progress.end_offset < 0:
            return f"{key.described()} does not fetch from this leader: is it running?"
        if progress.end_offset >= end_offset:
            return f"node {key.node_id} has everything, but has not fetched for long: is it running?"
        return f"node {key.node_id} has fetched only up to offset {progress.end_offset} of {end_offset}: ask again later"

    # Probing

    def on_probe(self, request: ProbeVoterRequest) -> ProbeVoterResponse:
        """Answer with this node's identity. An older epoch is refused: its leader has been deposed."""
        quorum = self._quorum
        error = ErrorCode.NONE
        if request.epoch < quorum.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif request.voter != quorum.config.key:
            error = ErrorCode.INVALID_VOTER_KEY
        return ProbeVoterResponse(error, quorum.view, quorum.config.key, KRAFT_VERSION_MAX)

    def _probing(self, asked: InFlight) -> tuple[Leader, VoterChange] | None:
        """Return the change that waits for this probe."""
        leader = self._quorum.state
        change = leader.change if isinstance(leader, Leader) else None
        if not isinstance(leader, Leader) or change is None or change.probe_correlation != asked.correlation:
            return None
        return leader, change

    def on_probe_response(self, asked: InFlight, response: ProbeVoterResponse, now_ms: int) -> None:
        waiting = self._probing(asked)
        if waiting is None:
            return
        leader, change = waiting
        key = _key_of(change.request)
        if response.error is ErrorCode.INVALID_VOTER_KEY or (response.error is ErrorCode.NONE and response.key != key):
            message = f"the node that answers there is {response.key.described()}, not {key.described()}"
            self._finish(leader, change, ErrorCode.INVALID_REQUEST, message)
        elif response.error is not ErrorCode.NONE:
            change.probe_later(now_ms + self._quorum.config.retry_backoff_ms)
        elif response.kraft_version_max < self._quorum.membership.kraft_version:
            message = f"node {key.node_id} knows kraft.version up to {response.kraft_version_max} only: upgrade it first"
            self._finish(leader, change, ErrorCode.UNSUPPORTED_VERSION, message)
        else:
            change.is_probed = True

    def on_probe_failed(self, asked: InFlight, now_ms: int) -> None:
        waiting = self._probing(asked)
        if waiting is not None:
            waiting[1].probe_later(now_ms + self._quorum.config.retry_backoff_ms)

    # Queries

    def pending_endpoints_of(self, node_id: int) -> dict[str, Endpoint]:
        """Return the endpoints of the node if it is about to be added."""
        leader = self._quorum.state
        change = leader.change if isinstance(leader, Leader) else None
        if change is not None and isinstance(change.request, AddVoterRequest) and change.request.voter.key.node_id == node_id:
            return change.request.voter.endpoints
        return {}


def _key_of(request: AddVoterRequest | RemoveVoterRequest | TransferLeadershipRequest) -> ReplicaKey:
    if isinstance(request, AddVoterRequest):
        return request.voter.key
    return request.voter if isinstance(request, RemoveVoterRequest) else request.target


Gate = Callable[[Reconfiguration, Leader, Any, int], Refusal | None]

_R = Reconfiguration
GATES: dict[type[VoterChangeRequest], tuple[Gate, ...]] = {
    AddVoterRequest: (
        _R._epoch,
        _R._sane_timeout,
        _R._sane_voter,
        _R._sane_endpoints,
        _R._idle,
        _R._committed_in_epoch,
        _R._dynamic,
        _R._settled,
        _R._id_is_free,
    ),
    RemoveVoterRequest: (
        _R._epoch,
        _R._sane_timeout,
        _R._idle,
        _R._committed_in_epoch,
        _R._dynamic,
        _R._settled,
        _R._removed_is_voter,
        _R._rest_is_alive,
    ),
    UpdateVoterRequest: (
        _R._epoch,
        _R._idle,
        _R._committed_in_epoch,
        _R._dynamic,
        _R._settled,
        _R._updated_is_voter,
        _R._sane_endpoints,
    ),
    TransferLeadershipRequest: (_R._epoch, _R._sane_timeout, _R._idle, _R._target_is_voter),
}
"""The checks before each change, in their order."""
