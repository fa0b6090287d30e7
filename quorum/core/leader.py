"""Leader: the progress of the replicas that fetch from this node, and the requests that it still has to answer.

All of it is deliberately lost with the leadership: a new leader knows no high watermark and no follower's position. `QuorumState`
answers the open requests (`owed_replies`, `change`) when the state ends.

`voters` and `observers` divide the replicas by the voter set in force. When the set changes, `reseat` moves the progress of a
replica from one to the other, so that an observer that becomes a voter counts from its last fetch on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey

from .messages import AddVoterRequest, FetchRequest, FetchSnapshotRequest, RemoveVoterRequest, TransferLeadershipRequest
from .purgatory import FetchPurgatory
from .read_index import ReadIndex
from .states import EpochState
from .types import NEVER_MS, Voter


class ReplicaProgress:
    """The progress of one replica. `end_offset` -1: not fetched in this epoch. Times are milliseconds, 0 = never.

    `echoed_round` is the newest round of linearizable reads that it has echoed while any waited. `is_repairing`: it grants no
    votes (repair.py).
    """

    __slots__ = (
        "_end_offset_at_last_fetch",
        "echoed_round",
        "end_offset",
        "is_repairing",
        "key",
        "last_caught_up_ms",
        "last_fetch_ms",
    )

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        self.echoed_round = 0
        self.is_repairing = False
        self.last_fetch_ms = 0
        self.last_caught_up_ms = 0
        self._end_offset_at_last_fetch = -1

    def fetched(self, offset: int, log_end_offset: int, now_ms: int) -> None:
        """Note that the replica durably holds everything below `offset`; the leader's log ends at `log_end_offset`."""
        if offset >= log_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms and offset >= self._end_offset_at_last_fetch:
            self.last_caught_up_ms = self.last_fetch_ms
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self._end_offset_at_last_fetch = log_end_offset

    def was_caught_up_since(self, time_ms: int) -> bool:
        """Return True if the replica had the leader's whole log at `time_ms` or later."""
        return self.last_caught_up_ms > 0 and self.last_caught_up_ms >= time_ms

    def asked_for_snapshot(self, log_end_offset: int, now_ms: int) -> None:
        """Note that the replica copies a snapshot: it is alive, and has nothing usable of the log yet."""
        self.last_fetch_ms = now_ms
        self._end_offset_at_last_fetch = log_end_offset

    def __repr__(self) -> str:
        return f"{self.key!r}:{self.end_offset}"


class PendingRead(msgspec.Struct, frozen=True, gc=False):
    """A fetch whose records, or whose part of a snapshot, are being read."""

    correlation: int
    request: FetchRequest | FetchSnapshotRequest


class VoterChange:
    """A voter change or leadership transfer in progress (reconfiguration.py).

    `correlation` None: nobody waits for the answer now. `end_offset` -1: nothing is appended so far; otherwise the change is
    complete when the high watermark reaches it. `probe_correlation` is that of the ProbeVoter in flight.
    """

    __slots__ = (
        "_closing_ms",
        "correlation",
        "deadline_ms",
        "end_offset",
        "is_probed",
        "probe_at_ms",
        "probe_correlation",
        "request",
    )

    def __init__(
        self, correlation: int, request: AddVoterRequest | RemoveVoterRequest | TransferLeadershipRequest, now_ms: int
    ) -> None:
        self.correlation: int | None = correlation
        self.request = request
        self.deadline_ms = now_ms + request.timeout_ms
        self.end_offset = -1
        self.is_probed = False
        self.probe_at_ms = now_ms if isinstance(request, AddVoterRequest) else NEVER_MS
        self.probe_correlation: int | None = None
        self._closing_ms = now_ms + request.timeout_ms // 2 if isinstance(request, TransferLeadershipRequest) else NEVER_MS

    def probing(self, correlation: int) -> None:
        """Note that a probe was sent."""
        self.probe_correlation = correlation
        self.probe_at_ms = NEVER_MS

    def probe_later(self, at_ms: int) -> None:
        """Schedule another probe: the last one failed."""
        self.probe_correlation = None
        self.probe_at_ms = at_ms

    def stops_proposals(self, now_ms: int) -> bool:
        """Return True after half of a transfer's timeout: from then on it needs a log that does not grow."""
        return now_ms >= self._closing_ms

    def next_deadline_ms(self) -> int:
        return min(self.deadline_ms, self.probe_at_ms)


class Leader(EpochState):
    """The state of a leader. `high_watermark` -1: unknown until a majority holds a record of this epoch."""

    __slots__ = (
        "begin_at_ms",
        "change",
        "check_quorum_deadline_ms",
        "epoch_start_offset",
        "fetched_voters",
        "high_watermark",
        "observers",
        "purgatory",
        "read_index",
        "reads",
        "uncommitted",
        "uncommitted_bytes",
        "voters",
    )
    name = "leader"

    def __init__(
        self,
        epoch: int,
        *,
        own_key: ReplicaKey,
        voted_key: ReplicaKey | None,
        endpoints: dict[str, Endpoint],
        epoch_start_offset: int,
        other_voters: tuple[Voter, ...],
        check_quorum_deadline_ms: int,
        begin_at_ms: int,
    ) -> None:
        super().__init__(epoch, own_key.node_id, voted_key, endpoints)
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = -1
        self.voters = {voter.key.node_id: ReplicaProgress(voter.key) for voter in other_voters}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.fetched_voters: dict[int, None] = {}
        """Voters that have fetched since check-quorum last had its majority."""
        self.check_quorum_deadline_ms = check_quorum_deadline_ms
        self.begin_at_ms = begin_at_ms
        self.purgatory = FetchPurgatory()
        self.reads: dict[int, PendingRead] = {}
        self.read_index = ReadIndex()
        self.change: VoterChange | None = None
        """The membership change in progress; one at a time."""
        self.uncommitted: deque[tuple[int, int]] = deque()
        """(end offset, size in bytes) of the batches of this epoch above the high watermark."""
        self.uncommitted_bytes = 0

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Return False: a leader never grants a vote of its own epoch."""
        return False

    def owed_replies(self) -> list[PendingRead]:
        """Remove and return the fetches without an answer."""
        owed = [PendingRead(fetch.correlation, fetch.request) for fetch in self.purgatory.take_all()]
        owed += self.reads.values()
        self.reads.clear()
        return owed

    def abandon(self, correlation: int) -> None:
        """Forget the request of a sender that has closed its connection. A change of voters that has not begun is dropped."""
        self.purgatory.discard(correlation)
        if self.change is not None and self.change.correlation == correlation:
            self.change.correlation = None
            if self.change.end_offset < 0:
                self.change = None
        for read_id, read in self.reads.items():
            if read.correlation == correlation:
                del self.reads[read_id]
                return

    def committed(self, high_watermark: int) -> None:
        """Note a risen high watermark: everything below is no longer uncommitted."""
        self.high_watermark = high_watermark
        while self.uncommitted and self.uncommitted[0][0] <= high_watermark:
            self.uncommitted_bytes -= self.uncommitted.popleft()[1]

    def furthest_observer(self) -> int | None:
        """Return the lowest end offset of the observers that have fetched; None if there are none."""
        return min((progress.end_offset for progress in self.observers.values() if progress.end_offset >= 0), default=None)

    def reseat(self, other_voters: tuple[Voter, ...]) -> None:
        """Follow a change of the voters. The progress of each replica is kept."""
        before, self.voters = self.voters, {}
        for voter in other_voters:
            progress = before.get(voter.key.node_id)
            if progress is not None and progress.key.matches(voter.key):
                del before[voter.key.node_id]
            else:
                progress = self.observers.pop(voter.key, None) or ReplicaProgress(voter.key)
            self.voters[voter.key.node_id] = progress
        self.observers.update({progress.key: progress for progress in before.values() if progress.last_fetch_ms})
        self.fetched_voters = {node_id: None for node_id in self.fetched_voters if node_id in self.voters}

    def successors(self, preferred: ReplicaKey | None = None) -> tuple[ReplicaKey, ...]:
        """Return the other voters in the order in which they should lead next: `preferred` first, then by length of their logs.

        A static voter's directory is known only when it has fetched, perhaps not to the node that preferred it, so the node id
        decides.
        """
        preferred_id = preferred.node_id if preferred is not None else -1
        ranked = sorted(
            self.voters.values(),
            key=lambda progress: (progress.key.node_id != preferred_id, -progress.end_offset, progress.key.node_id),
        )
        return tuple(progress.key for progress in ranked)

    def next_deadline_ms(self) -> int:
        deadline_ms, parked_ms = self.check_quorum_deadline_ms, self.purgatory.next_deadline_ms()
        if self.begin_at_ms < deadline_ms:
            deadline_ms = self.begin_at_ms
        if parked_ms < deadline_ms:
            deadline_ms = parked_ms
        return deadline_ms if self.change is None else min(deadline_ms, self.change.next_deadline_ms())

    def __repr__(self) -> str:
        change = f" {self.change.request!r}" if self.change is not None else ""
        return f"{self._who()} start={self.epoch_start_offset} hw={self.high_watermark} {list(self.voters.values())}{change}"


def majority_offset(end_offsets: Sequence[int]) -> int:
    """Return the largest offset that a majority of `end_offsets` has reached. At least one voter."""
    return sorted(end_offsets)[(len(end_offsets) - 1) // 2]


def next_high_watermark(current: int, epoch_start_offset: int, end_offsets: Sequence[int]) -> int:
    """Return the leader's high watermark for the voters' durable end offsets (-1: unknown). Never below `current` (-1: unknown).

    A leader may count replicas only for records of its own epoch (Raft §5.4.2): an older record is committed by being below a
    newer one. The record that opens the epoch is *at* `epoch_start_offset`, so the high watermark must be strictly above: an
    offset equal to the epoch's start proves only that a majority holds everything *before* that record. (`>=` was KAFKA-12619.)
    """
    reached = majority_offset(end_offsets)
    return reached if reached > epoch_start_offset and reached > current else current
