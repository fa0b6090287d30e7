"""Leader: what this node knows of those who fetch from it, and what it owes them.

Everything here is lost with the leadership, on purpose: a new leader knows no high watermark and no follower's position. The gate
answers what is still owed (`owed_replies`) when the state ends.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .epoch_state import EpochState
from .messages import FetchRequest
from .purgatory import Purgatory
from .read_index import ReadIndex
from .types import Endpoint, ReplicaKey, Voter


class ReplicaProgress:
    """What the leader knows of one replica. `end_offset` -1: not fetched in this epoch. Times are milliseconds, 0 = never.

    `echoed_round` is the newest round of linearizable reads that it has echoed while any waited.
    """

    __slots__ = ("_end_offset_at_last_fetch", "echoed_round", "end_offset", "key", "last_caught_up_ms", "last_fetch_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        self.echoed_round = 0
        self.last_fetch_ms = 0
        self.last_caught_up_ms = 0
        self._end_offset_at_last_fetch = -1

    def fetched(self, offset: int, log_end_offset: int, now_ms: int) -> None:
        """It holds everything below `offset` durably; the leader's log ends at `log_end_offset`."""
        if offset >= log_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms and offset >= self._end_offset_at_last_fetch:
            self.last_caught_up_ms = self.last_fetch_ms
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self._end_offset_at_last_fetch = log_end_offset

    def __repr__(self) -> str:
        return f"{self.key!r}:{self.end_offset}"


class PendingRead(NamedTuple):
    """A fetch whose records are being read."""

    correlation: int
    request: FetchRequest


class Leader(EpochState):
    """`high_watermark` -1: unknown until a majority holds a record of this epoch."""

    __slots__ = (
        "begin_at_ms",
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
        self.purgatory = Purgatory()
        self.reads: dict[int, PendingRead] = {}
        self.read_index = ReadIndex()
        self.uncommitted: deque[tuple[int, int]] = deque()
        """(end offset, size in bytes) of the batches of this epoch above the high watermark."""
        self.uncommitted_bytes = 0

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Never, to nobody."""
        return False

    def owed_replies(self) -> list[int]:
        """Correlations of the fetches not answered yet; afterwards nothing is owed."""
        owed = [fetch.correlation for fetch in self.purgatory.take_all()]
        owed += [read.correlation for read in self.reads.values()]
        self.reads.clear()
        return owed

    def abandon(self, correlation: int) -> None:
        """The sender of that fetch has hung up."""
        self.purgatory.discard(correlation)
        for read_id, read in self.reads.items():
            if read.correlation == correlation:
                del self.reads[read_id]
                return

    def committed(self, high_watermark: int) -> None:
        """The high watermark has risen: what lies below is no longer uncommitted."""
        self.high_watermark = high_watermark
        while self.uncommitted and self.uncommitted[0][0] <= high_watermark:
            self.uncommitted_bytes -= self.uncommitted.popleft()[1]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the one with the most log first: who should lead next."""
        ranked = sorted(self.voters.values(), key=lambda progress: (-progress.end_offset, progress.key.node_id))
        return tuple(progress.key for progress in ranked)

    def next_deadline_ms(self) -> int:
        return min(self.check_quorum_deadline_ms, self.begin_at_ms, self.purgatory.next_deadline_ms())

    def __repr__(self) -> str:
        return f"{self._who()} start={self.epoch_start_offset} hw={self.high_watermark} {list(self.voters.values())}"
