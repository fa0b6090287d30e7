"""The RPCs of the quorum, one class per request and response (KIP-595, KIP-996).

Cluster id, generation and sender travel in the frame around the body, so a message holds only what the RPC itself says.
Instances are immutable and print as one short transcript line.
"""

from __future__ import annotations

import msgspec

from .errors import ErrorCode
from .types import Endpoint, OffsetAndEpoch, ReplicaKey


class Api:
    """Api numbers, Kafka's where Kafka has the RPC."""

    FETCH = 1
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54


class LeaderView(msgspec.Struct, frozen=True, array_like=True):
    """What every response says about the leadership, as its sender sees it. `leader_id` -1: none known."""

    epoch: int
    leader_id: int = -1
    endpoints: dict[str, Endpoint] = {}

    def __repr__(self) -> str:
        return f"e{self.epoch}/L{self.leader_id if self.leader_id >= 0 else '-'}"


class VoteRequest(msgspec.Struct, frozen=True, array_like=True):
    """Asks for a vote. A pre-vote carries the current, unbumped epoch (KIP-996)."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool

    def __repr__(self) -> str:
        return f"{'PreVote' if self.pre_vote else 'Vote'}(e{self.epoch} log={self.end_offset}@{self.last_epoch})"


def _shown(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f" {error.name}"


class VoteResponse(msgspec.Struct, frozen=True, array_like=True):
    error: ErrorCode
    leader: LeaderView
    granted: bool
    pre_vote: bool

    def __repr__(self) -> str:
        kind, answer = "PreVote" if self.pre_vote else "Vote", "yes" if self.granted else "no"
        return f"{kind}Reply({answer} {self.leader}{_shown(self.error)})"


class BeginQuorumEpochRequest(msgspec.Struct, frozen=True, array_like=True):
    """The leader of `epoch` tells a voter that it leads."""

    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: dict[str, Endpoint]

    def __repr__(self) -> str:
        return f"Begin(e{self.epoch} L{self.leader_id})"


class BeginQuorumEpochResponse(msgspec.Struct, frozen=True, array_like=True):
    error: ErrorCode
    leader: LeaderView

    def __repr__(self) -> str:
        return f"BeginReply({self.leader}{_shown(self.error)})"


class EndQuorumEpochRequest(msgspec.Struct, frozen=True, array_like=True):
    """The leader of `epoch` resigns; `preferred` orders those that should stand next, best first."""

    epoch: int
    leader_id: int
    preferred: tuple[ReplicaKey, ...]

    def __repr__(self) -> str:
        return f"End(e{self.epoch} L{self.leader_id} next={[k.node_id for k in self.preferred]})"


class EndQuorumEpochResponse(msgspec.Struct, frozen=True, array_like=True):
    error: ErrorCode
    leader: LeaderView

    def __repr__(self) -> str:
        return f"EndReply({self.leader}{_shown(self.error)})"


class FetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """Pulls records, and by asking for `fetch_offset` acknowledges everything below it as durable.

    `replica.node_id` -1 is an anonymous observer. `high_watermark` -1: unknown to the sender.
    `read_round` echoes the newest round seen from this leader (linearizable reads).
    """

    epoch: int
    replica: ReplicaKey
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int
    read_round: int = 0

    def __repr__(self) -> str:
        echo = f" round={self.read_round}" if self.read_round else ""
        return f"Fetch(e{self.epoch} {self.fetch_offset}@{self.last_fetched_epoch} hw={self.high_watermark}{echo})"


class Records(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Whole batches from the fetch offset on; may be empty."""

    data: bytes

    def __repr__(self) -> str:
        return f"{len(self.data)}B"


class Diverging(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The follower's log is not a prefix of the leader's: the largest epoch they may share, and its end."""

    epoch: int
    end_offset: int

    def __repr__(self) -> str:
        return f"diverging {self.end_offset}@{self.epoch}"


class SnapshotRequired(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The leader's log no longer holds the fetch offset: fetch this snapshot."""

    end_offset: int
    epoch: int

    @property
    def id(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.epoch)

    def __repr__(self) -> str:
        return f"snapshot {self.id}"


FetchOutcome = Records | Diverging | SnapshotRequired


class FetchResponse(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a Fetch. `high_watermark` -1: unknown to this leader so far."""

    error: ErrorCode
    leader: LeaderView
    high_watermark: int
    log_start_offset: int
    read_round: int
    outcome: FetchOutcome

    def __repr__(self) -> str:
        return f"FetchReply({self.leader} hw={self.high_watermark} {self.outcome}{_shown(self.error)})"


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest
Response = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse

API_OF: dict[type[Request], int] = {
    FetchRequest: Api.FETCH,
    VoteRequest: Api.VOTE,
    BeginQuorumEpochRequest: Api.BEGIN_QUORUM_EPOCH,
    EndQuorumEpochRequest: Api.END_QUORUM_EPOCH,
}
REQUEST_OF: dict[int, type[Request]] = {api: request for request, api in API_OF.items()}
RESPONSE_OF: dict[int, type[Response]] = {
    Api.FETCH: FetchResponse,
    Api.VOTE: VoteResponse,
    Api.BEGIN_QUORUM_EPOCH: BeginQuorumEpochResponse,
    Api.END_QUORUM_EPOCH: EndQuorumEpochResponse,
}
