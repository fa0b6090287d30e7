"""The RPCs of the quorum, one class per request and response (KIP-595, KIP-996).

Cluster id, generation and sender are in the frame around the body, so a message holds only the RPC's own fields. Instances are
immutable and print as one short transcript line. Like events and effects they hold no reference cycles, so the garbage collector
does not track them (`gc=False`).
"""

from __future__ import annotations

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey

from .types import OffsetAndEpoch, Voter


class RaftApi:
    """Api numbers, Kafka's for RPCs that Kafka has."""

    FETCH = 1
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    FETCH_SNAPSHOT = 59
    ADD_VOTER = 80
    REMOVE_VOTER = 81
    UPDATE_VOTER = 82
    PROBE_VOTER = 1010
    TRANSFER_LEADERSHIP = 1011


class LeaderView(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The leadership as the sender of a response knows it. `leader_id` -1: unknown."""

    epoch: int
    leader_id: int = -1
    endpoints: dict[str, Endpoint] = {}

    def __repr__(self) -> str:
        return f"e{self.epoch}/L{self.leader_id if self.leader_id >= 0 else '-'}"


class VoteRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Request a vote. A pre-vote carries the current, unbumped epoch (KIP-996).

    `initial_voters` distinguishes voter sets from formatting; 0 if the candidate's set comes from its log or its configuration.
    `endpoints` are those of a voter that has moved since the voter set was written: without a leader nobody can write them down,
    and the receiver may have to send a request back.
    """

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool
    initial_voters: int = 0
    endpoints: dict[str, Endpoint] = {}

    def __repr__(self) -> str:
        moved = " from elsewhere" if self.endpoints else ""
        return f"{'PreVote' if self.pre_vote else 'Vote'}(e{self.epoch} log={self.end_offset}@{self.last_epoch}{moved})"


def _shown(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f" {error.name}"


class VoteResponse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    error: ErrorCode
    leader: LeaderView
    granted: bool
    pre_vote: bool

    def __repr__(self) -> str:
        kind, answer = "PreVote" if self.pre_vote else "Vote", "yes" if self.granted else "no"
        return f"{kind}Reply({answer} {self.leader}{_shown(self.error)})"


class BeginQuorumEpochRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Announce to a voter that the sender leads `epoch`."""

    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: dict[str, Endpoint]

    def __repr__(self) -> str:
        return f"Begin(e{self.epoch} L{self.leader_id})"


class BeginQuorumEpochResponse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    error: ErrorCode
    leader: LeaderView

    def __repr__(self) -> str:
        return f"BeginReply({self.leader}{_shown(self.error)})"


class EndQuorumEpochRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Announce that the leader of `epoch` resigns. `preferred` orders the voters that should stand next, best first."""

    epoch: int
    leader_id: int
    preferred: tuple[ReplicaKey, ...]

    def __repr__(self) -> str:
        return f"End(e{self.epoch} L{self.leader_id} next={[k.node_id for k in self.preferred]})"


class EndQuorumEpochResponse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    error: ErrorCode
    leader: LeaderView

    def __repr__(self) -> str:
        return f"EndReply({self.leader}{_shown(self.error)})"


class FetchRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Pull records. Asking for `fetch_offset` acknowledges everything below it as durable.

    `replica.node_id` -1 is an anonymous observer. `high_watermark` -1: unknown to the sender. `read_round` echoes the newest
    round of linearizable reads from this leader. `is_repairing`: the sender's log is not whole, and it grants no votes.
    """

    epoch: int
    replica: ReplicaKey
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int
    read_round: int = 0
    is_repairing: bool = False

    def __repr__(self) -> str:
        echo = f" round={self.read_round}" if self.read_round else ""
        return f"Fetch(e{self.epoch} {self.fetch_offset}@{self.last_fetched_epoch} hw={self.high_watermark}{echo})"


class Records(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """Whole batches from the fetch offset on; can be empty."""

    data: bytes

    def __repr__(self) -> str:
        return f"{len(self.data)}B"


class Diverging(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The follower's log is not a prefix of the leader's. `epoch` is the largest epoch that they may share, with its end."""

    epoch: int
    end_offset: int

    def __repr__(self) -> str:
        return f"diverging {self.end_offset}@{self.epoch}"


class SnapshotRequired(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """The leader's log no longer holds the fetch offset: fetch this snapshot."""

    end_offset: int
    epoch: int

    @property
    def id(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.epoch)

    def __repr__(self) -> str:
        return f"snapshot {self.id}"


FetchOutcome = Records | Diverging | SnapshotRequired


class FetchResponse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Answer to a Fetch. `high_watermark` -1: unknown to this leader so far."""

    error: ErrorCode
    leader: LeaderView
    high_watermark: int
    log_start_offset: int
    read_round: int
    outcome: FetchOutcome

    def __repr__(self) -> str:
        return f"FetchReply({self.leader} hw={self.high_watermark} {self.outcome}{_shown(self.error)})"


class FetchSnapshotRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Pull up to `max_bytes` of a snapshot from `position` on (KIP-630); 0: only its size.

    Shows that the sender is alive, as a Fetch does.
    """

    epoch: int
    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int
    is_repairing: bool = False

    def __repr__(self) -> str:
        what = f"from {self.position}" if self.max_bytes else "size only"
        return f"FetchSnapshot(e{self.epoch} {self.snapshot} {what})"


class FetchSnapshotResponse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Bytes at `position` of a file of `size_bytes`. SNAPSHOT_NOT_FOUND: gone; start over with a Fetch."""

    error: ErrorCode
    leader: LeaderView
    snapshot: OffsetAndEpoch
    size_bytes: int
    position: int
    data: bytes

    def __repr__(self) -> str:
        what = f"{self.snapshot} {self.position}+{len(self.data)}/{self.size_bytes}"
        return f"FetchSnapshotReply({self.leader} {what}{_shown(self.error)})"


class ProbeVoterRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Ask a node that is to become a voter for its identity (that part of ApiVersions in KIP-853)."""

    epoch: int
    voter: ReplicaKey

    def __repr__(self) -> str:
        return f"Probe(e{self.epoch} {self.voter})"


class ProbeVoterResponse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The identity of the node is `key`. INVALID_VOTER_KEY: its directory is not the expected one."""

    error: ErrorCode
    leader: LeaderView
    key: ReplicaKey
    kraft_version_max: int

    def __repr__(self) -> str:
        return f"ProbeReply({self.leader} {self.key}{_shown(self.error)})"


class AddVoterRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Make `voter` a voter (KIP-853). Answered when the new voter set is committed, or has failed to be, within `timeout_ms`.

    `epoch` -1, here and below: any leader.
    """

    epoch: int
    voter: Voter
    timeout_ms: int

    def __repr__(self) -> str:
        return f"AddVoter({self.voter})"


class RemoveVoterRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Make the voter `voter` an observer (KIP-853). Answered when the new voter set is committed."""

    epoch: int
    voter: ReplicaKey
    timeout_ms: int

    def __repr__(self) -> str:
        return f"RemoveVoter({self.voter})"


class UpdateVoterRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Replace a voter's endpoints (KIP-853). Answered when the new voter set is appended."""

    epoch: int
    voter: Voter

    def __repr__(self) -> str:
        return f"UpdateVoter(e{self.epoch} {self.voter})"


class TransferLeadershipRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Hand the leadership over to the voter `target`.

    Answered when the leader resigns in the target's favour, which it does once the target has its whole log. REQUEST_TIMED_OUT if
    that takes longer than `timeout_ms`.
    """

    epoch: int
    target: ReplicaKey
    timeout_ms: int

    def __repr__(self) -> str:
        return f"Transfer(to {self.target})"


class VoterChangeResponse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Answer to the four requests above. `message` names the obstacle and what to do; empty on success."""

    error: ErrorCode
    leader: LeaderView
    message: str = ""

    def __repr__(self) -> str:
        return f"VoterChangeReply({self.leader}{_shown(self.error)}{': ' + self.message if self.message else ''})"


VoterChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | TransferLeadershipRequest
Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | ProbeVoterRequest
    | VoterChangeRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ProbeVoterResponse
    | VoterChangeResponse
)

API_OF: dict[type[Request], int] = {
    FetchRequest: RaftApi.FETCH,
    VoteRequest: RaftApi.VOTE,
    BeginQuorumEpochRequest: RaftApi.BEGIN_QUORUM_EPOCH,
    EndQuorumEpochRequest: RaftApi.END_QUORUM_EPOCH,
    FetchSnapshotRequest: RaftApi.FETCH_SNAPSHOT,
    ProbeVoterRequest: RaftApi.PROBE_VOTER,
    AddVoterRequest: RaftApi.ADD_VOTER,
    RemoveVoterRequest: RaftApi.REMOVE_VOTER,
    UpdateVoterRequest: RaftApi.UPDATE_VOTER,
    TransferLeadershipRequest: RaftApi.TRANSFER_LEADERSHIP,
}
REQUEST_OF: dict[int, type[Request]] = {api: request for request, api in API_OF.items()}
RESPONSE_OF: dict[int, type[Response]] = {
    RaftApi.FETCH: FetchResponse,
    RaftApi.VOTE: VoteResponse,
    RaftApi.BEGIN_QUORUM_EPOCH: BeginQuorumEpochResponse,
    RaftApi.END_QUORUM_EPOCH: EndQuorumEpochResponse,
    RaftApi.FETCH_SNAPSHOT: FetchSnapshotResponse,
    RaftApi.PROBE_VOTER: ProbeVoterResponse,
    RaftApi.ADD_VOTER: VoterChangeResponse,
    RaftApi.REMOVE_VOTER: VoterChangeResponse,
    RaftApi.UPDATE_VOTER: VoterChangeResponse,
    RaftApi.TRANSFER_LEADERSHIP: VoterChangeResponse,
}
