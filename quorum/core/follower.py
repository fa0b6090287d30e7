"""Follower: pulls the log from the leader of its epoch, one fetch at a time, and watches that fetches succeed.

Only a successful fetch resets the fetch timer. Its length has a random part, drawn once per leader: the followers of a leader
that hangs were all answered at the same moment, and would all stand at the same moment and split the votes.

A follower that *has* fetched from its leader refuses pre-votes; one that never could, or that was told or shown that its leader
is gone, grants them: else a dead leader's followers could block each other. Only such a follower, whose leader may be somewhere
else by now, asks others as well (fetching.py).

What a follower asks of its leader for itself, to become a voter or to have its endpoints brought up to date, is joining.py's
business; it is asked anew of every leader.
"""

from __future__ import annotations

from .download import Download
from .epoch_state import NEVER_MS, EpochState
from .types import Endpoint, ReplicaKey


class Follower(EpochState):
    """`fetch_timeout_ms` is what this follower's timer takes, random part included. `read_round` is the newest the leader named,
    echoed in the next fetch. `is_caught_up`: the last answer brought this log to the leader's high watermark. `is_leader_missed`:
    the last fetch did not find the leader, and anybody is asked in its place.

    `join_correlation` is the request to change the voters that is in flight; after an answer, the next waits for `join_at_ms`.
    """

    __slots__ = (
        "download",
        "fetch_at_ms",
        "fetch_correlation",
        "fetch_deadline_ms",
        "fetch_timeout_ms",
        "has_fetched",
        "is_caught_up",
        "is_leader_missed",
        "join_at_ms",
        "join_correlation",
        "read_round",
    )
    name = "follower"

    def __init__(
        self,
        epoch: int,
        leader_id: int,
        *,
        voted_key: ReplicaKey | None,
        leader_endpoints: dict[str, Endpoint],
        fetch_timeout_ms: int,
        now_ms: int,
    ) -> None:
        super().__init__(epoch, leader_id, voted_key, leader_endpoints)
        self.fetch_timeout_ms = fetch_timeout_ms
        self.fetch_deadline_ms = now_ms + fetch_timeout_ms
        self.fetch_at_ms = now_ms
        self.fetch_correlation: int | None = None
        self.download: Download | None = None
        """The leader's snapshot that is being copied (snapshot_fetching.py)."""
        self.has_fetched = False
        self.read_round = 0
        self.is_caught_up = False
        self.is_leader_missed = False
        self.join_correlation: int | None = None
        self.join_at_ms = NEVER_MS

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Pre-vote: not yet fetched from this leader, and log up to date. Vote: never, the epoch has a leader."""
        return pre_vote and up_to_date and not self.has_fetched

    def fetched(self, now_ms: int) -> None:
        """The leader has answered a fetch: the timer starts anew."""
        self.has_fetched = True
        self.fetch_deadline_ms = now_ms + self.fetch_timeout_ms

    def leader_gone(self, fetch_deadline_ms: int) -> None:
        """The leader has ended its epoch or its process is gone: stand at latest at `fetch_deadline_ms`, let others try too."""
        self.fetch_deadline_ms = min(self.fetch_deadline_ms, fetch_deadline_ms)
        self.has_fetched = False

    def next_deadline_ms(self) -> int:
        deadline_ms = self.fetch_deadline_ms
        if self.join_at_ms < deadline_ms:
            deadline_ms = self.join_at_ms
        if self.fetch_correlation is None and self.fetch_at_ms < deadline_ms:
            return self.fetch_at_ms
        return deadline_ms

    def __repr__(self) -> str:
        return f"{self._who()} {self.download!r}" if self.download else self._who()
