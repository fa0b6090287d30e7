"""The states of a node except Leader (leader.py): one class each, and their common base.

A state object holds only data that is valid in that state and dies with it, so timers and in-flight bookkeeping cannot leak from
one state to the next. Only `QuorumState` makes them (quorum_state.py has the table of transitions).
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from typing import ClassVar

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey

from .effects import ElectionState
from .types import NEVER_MS, NO_LEADER, OffsetAndEpoch
from .vote_tally import VoteTally


class EpochState:
    """One node's role in one epoch. `leader_id` -1: unknown; `voted_key` None: no vote cast in this epoch.

    Abstract for the type checker only: ABCMeta would slow down isinstance, which every step calls.
    """

    __slots__ = ("epoch", "leader_endpoints", "leader_id", "voted_key")
    name: ClassVar[str]

    def __init__(
        self, epoch: int, leader_id: int, voted_key: ReplicaKey | None, leader_endpoints: dict[str, Endpoint] | None = None
    ) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.voted_key = voted_key
        self.leader_endpoints: dict[str, Endpoint] = leader_endpoints or {}

    def election(self) -> ElectionState:
        """Return the durable part."""
        return ElectionState(self.epoch, self.leader_id, self.voted_key)

    def announced_leader_id(self) -> int:
        """Return the leader that this node names to others."""
        return self.leader_id

    @abstractmethod
    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Return True if this state grants `candidate`, whose log is `up_to_date` or not, a vote of its own epoch (KIP-996)."""

    @abstractmethod
    def next_deadline_ms(self) -> int:
        """Return the time at which the state must be polled, at the latest."""

    def _who(self) -> str:
        leader = f" L{self.leader_id}" if self.leader_id >= 0 else ""
        vote = f" V{self.voted_key.node_id}" if self.voted_key else ""
        return f"{self.name} e{self.epoch}{leader}{vote}"

    def __repr__(self) -> str:
        return self._who()


def _grants_without_promise(state: EpochState, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    """Pre-vote: log up to date. Vote: the same candidate again, or no vote, no leader known and log up to date."""
    if pre_vote:
        return up_to_date
    if state.voted_key is not None:
        return state.voted_key == candidate
    return state.leader_id == NO_LEADER and up_to_date


class Unattached(EpochState):
    """Knows an epoch but follows nobody in it.

    A voter waits for its election timer and can grant its one vote meanwhile; an observer waits for nothing. Both look for the
    leader with one fetch at a time to some voter. A leader can be remembered (an observer lost it, or its endpoints are unknown):
    then no vote is granted.

    `election_deadline_ms` never passes on an observer. `fetch_correlation` None: no such fetch is in flight.
    """

    __slots__ = ("election_deadline_ms", "fetch_at_ms", "fetch_correlation")
    name = "unattached"

    def __init__(
        self,
        epoch: int,
        *,
        election_deadline_ms: int,
        fetch_at_ms: int,
        leader_id: int = NO_LEADER,
        voted_key: ReplicaKey | None = None,
        leader_endpoints: dict[str, Endpoint] | None = None,
    ) -> None:
        super().__init__(epoch, leader_id, voted_key, leader_endpoints)
        self.election_deadline_ms = election_deadline_ms
        self.fetch_at_ms = fetch_at_ms
        self.fetch_correlation: int | None = None

    grants = _grants_without_promise

    def next_deadline_ms(self) -> int:
        if self.fetch_correlation is None and self.fetch_at_ms < self.election_deadline_ms:
            return self.fetch_at_ms
        return self.election_deadline_ms


class Prospective(EpochState):
    """Finds out if an election could be won before it disturbs others with a new epoch (KIP-996). `tally` counts pre-votes.

    The epoch does not change, and the leader and the vote of the epoch are remembered: after a refusal the node follows again.
    """

    __slots__ = ("election_deadline_ms", "tally")
    name = "prospective"

    def __init__(
        self,
        epoch: int,
        *,
        tally: VoteTally,
        election_deadline_ms: int,
        leader_id: int,
        voted_key: ReplicaKey | None,
        leader_endpoints: dict[str, Endpoint] | None,
    ) -> None:
        super().__init__(epoch, leader_id, voted_key, leader_endpoints)
        self.tally = tally
        self.election_deadline_ms = election_deadline_ms

    grants = _grants_without_promise

    def next_deadline_ms(self) -> int:
        ask_ms = self.tally.next_ask_ms
        return ask_ms if ask_ms < self.election_deadline_ms else self.election_deadline_ms

    def __repr__(self) -> str:
        return f"{self._who()} {self.tally!r}"


class Candidate(EpochState):
    """Has voted for itself in a new epoch and requests the votes of the others.

    Its own vote counts once the election state that holds it, `election_version`, is durable. Requests wait for the same version,
    so answers never come earlier, but a sole voter waits for no answer. (A voter that was removed by a record that may never be
    committed stands too, and does not count itself: membership.py.) A lost election is waited out until the timer makes the node
    Prospective. The timer starts when the own vote is durable: on a disk slower than the timer, each epoch would end before its
    vote is stored.
    """

    __slots__ = ("election_deadline_ms", "election_version", "tally")
    name = "candidate"

    def __init__(self, epoch: int, *, own_key: ReplicaKey, tally: VoteTally, election_version: int) -> None:
        super().__init__(epoch, NO_LEADER, own_key)
        self.tally = tally
        self.election_deadline_ms = NEVER_MS
        self.election_version = election_version

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Pre-vote: log up to date. Vote: never, this node has voted for itself."""
        return pre_vote and up_to_date

    def next_deadline_ms(self) -> int:
        ask_ms = self.tally.next_ask_ms
        return ask_ms if ask_ms < self.election_deadline_ms else self.election_deadline_ms

    def __repr__(self) -> str:
        return f"{self._who()} {self.tally!r}"


class DownloadStep(enum.Enum):
    """The current step of a download, on the disk or at the leader."""

    WAITING = "waits for the disk to finish with another"
    OPENING = "asks the disk what it holds"
    FETCHING = "fetches"
    STORING = "writes"
    VERIFYING = "verifies"


class Download:
    """A snapshot that is copied from the leader (KIP-630); snapshot_fetching.py drives it.

    `position` bytes of `size_bytes` (-1: not known yet) are on this node's disk.
    """

    __slots__ = ("id", "position", "size_bytes", "step")

    def __init__(self, snapshot: OffsetAndEpoch) -> None:
        self.id = snapshot
        self.position = 0
        self.size_bytes = -1
        self.step = DownloadStep.WAITING

    @property
    def is_fetching(self) -> bool:
        """True if the download waits for the leader; False while the disk is busy with it."""
        return self.step is DownloadStep.FETCHING

    def __repr__(self) -> str:
        return f"download({self.id} {self.position}/{self.size_bytes} {self.step.name.lower()})"


class Follower(EpochState):
    """Pulls the log from the leader of its epoch, one fetch at a time, and checks that fetches succeed.

    Only a successful fetch resets the fetch timer. Its length has a random part, drawn once per leader: the followers of a leader
    that hangs were all answered at the same moment. Without it they would all stand at the same moment and split the votes.

    A follower that *has* fetched from its leader refuses pre-votes. One that never could, or that knows that its leader is gone,
    grants them; otherwise the followers of a dead leader could block each other. Only such a follower, whose leader may have
    moved, sends fetches to other nodes as well (fetching.py).

    `fetch_timeout_ms` is the length of this follower's timer, random part included. `read_round` is the newest round of the
    leader; the next fetch echoes it. `is_caught_up`: the last answer brought this log to the leader's high watermark.
    `is_leader_missed`: the last fetch did not reach the leader, and the next goes to any node.

    `join_correlation` is the voter change request in flight (joining.py). After an answer, the next waits for `join_at_ms`. Each
    new leader gets the request again.
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
        """Restart the fetch timer: the leader has answered a fetch."""
        self.has_fetched = True
        self.fetch_deadline_ms = now_ms + self.fetch_timeout_ms

    def leader_gone(self, fetch_deadline_ms: int) -> None:
        """Stand at `fetch_deadline_ms` at the latest, and grant pre-votes: the leader's epoch or process has ended."""
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


class Resigned(EpochState):
    """Led this epoch and never leads it again. Waits for another leader, or for its timer, which opens the next epoch.

    Also the state of a leader that restarts. Records that it had written but not flushed may be gone, so leading the same epoch
    again could write two records with the same offset and epoch (KAFKA-10527). This state is in memory only: on disk the node is
    still the leader of the epoch.
    """

    __slots__ = ("election_deadline_ms",)
    name = "resigned"

    def __init__(self, epoch: int, *, own_key: ReplicaKey, voted_key: ReplicaKey | None, election_deadline_ms: int) -> None:
        super().__init__(epoch, own_key.node_id, voted_key)
        self.election_deadline_ms = election_deadline_ms

    def announced_leader_id(self) -> int:
        """Return -1: naming itself would draw followers back to a leader that does not lead."""
        return NO_LEADER

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Pre-vote: log up to date. Vote: never, the epoch had its leader."""
        return pre_vote and up_to_date

    def next_deadline_ms(self) -> int:
        return self.election_deadline_ms
