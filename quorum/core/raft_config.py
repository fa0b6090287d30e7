"""Configuration and boot state of a RaftNode.

The settings are Kafka's `controller.quorum.*`. The defaults are ours: a killed leader costs less than a second.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import ZERO

from .batch import ControlRecord
from .types import NEVER_MS, OffsetAndEpoch, VoterSet


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Times are milliseconds. A node whose key is not in the voter set is an observer.

    `voters` are the static ones (kraft.version 0); empty if the voters are in the log (version 1, KIP-853).
    """

    node_id: int
    voters: VoterSet
    directory_id: bytes = ZERO
    endpoints: dict[str, Endpoint] = {}
    """This node's own, by listener name. BeginQuorumEpoch sends them to voters."""
    voter_endpoints: dict[str, Endpoint] = {}
    """Endpoints of this node's entry in a voter set in the log (KIP-853). Empty: all of `endpoints`."""
    election_timeout_ms: int = 300
    """Each election timer is this plus a random part of the same size."""
    election_backoff_max_ms: int = 300
    """Range over which EndQuorumEpoch spreads the voters that may stand next."""
    fetch_timeout_ms: int = 600
    """A follower that has not fetched for this long, plus a random part of up to a quarter, requests pre-votes.

    A leader without a majority for 1.5 × as long resigns.
    """
    timer_spread_ms: int | None = None
    """The random part of election and fetch timers, in experiments only. No key of a configuration sets it.

    None: as much as the election timeout, and a quarter of the fetch timeout.
    """
    retry_backoff_ms: int = 20
    refused_backoff_max_ms: int = 50
    """A refused connection to the leader ends the fetch timer after a random part of this."""
    high_watermark_linger_ms: int = 5
    """Delay of an answer to a voter that brings only a new high watermark; 0: none. Observers are answered at once."""
    fetch_max_bytes: int = 1024 * 1024
    """Bytes of one answer, or one batch if that is larger.

    Batches can be so small that ten thousand fit: a node that appends them is busy for that long and must not be taken for dead.
    """
    uncommitted_bytes_max: int = 32 * 1024 * 1024
    """Proposals beyond this much uncommitted data are rejected as overload, unless there is none."""
    observer_session_ms: int = 300_000
    """The leader forgets an observer that has not fetched for this long."""
    parked_fetches_max: int = 10_000
    waiting_reads_max: int = 10_000
    """Linearizable reads beyond this number that wait for a majority's echo are refused as overload."""
    snapshots_kept: int = 2
    """Number of newest snapshots that are kept. The log starts at the end of the oldest of them."""
    snapshots_kept_for_observers: int = 6
    """A leader keeps older ones too, up to this number in all, while an observer that fetches has not passed them.

    The beginning of the log counts as one.
    """
    snapshot_chunk_bytes: int = 1024 * 1024
    """Bytes of a snapshot in one FetchSnapshot."""
    auto_join: bool = False
    """True: an observer makes itself a voter (KIP-853, controller.quorum.auto.join.enable)."""
    pre_vote: bool = True
    """False, in experiments only: a voter campaigns at once and does not request pre-votes. No key of a configuration sets it."""
    check_quorum: bool = True
    """False, in experiments only: a leader never resigns for lack of fetches. No key of a configuration sets it."""

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise ValueError(f"node_id must not be negative, but is {self.node_id}")
        for name in (
            "election_timeout_ms",
            "fetch_timeout_ms",
            "retry_backoff_ms",
            "refused_backoff_max_ms",
            "fetch_max_bytes",
            "snapshots_kept",
            "snapshots_kept_for_observers",
            "snapshot_chunk_bytes",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, but is {getattr(self, name)}")

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def fetch_timeout_spread_ms(self) -> int:
        """The random part of a fetch timer is at most this. Even the longest timer ends before check-quorum does."""
        return self.fetch_timeout_ms // 4 if self.timer_spread_ms is None else self.timer_spread_ms

    @property
    def election_timeout_spread_ms(self) -> int:
        """The random part of an election timer is at most this."""
        return self.election_timeout_ms - 1 if self.timer_spread_ms is None else self.timer_spread_ms

    @property
    def check_quorum_timeout_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    def check_quorum_deadline_ms(self, now_ms: int) -> int:
        """Return the time by which a majority must have fetched from a leader; never if experiments have turned that off."""
        return now_ms + self.check_quorum_timeout_ms if self.check_quorum else NEVER_MS

    @property
    def begin_quorum_epoch_period_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    @property
    def fetch_max_wait_ms(self) -> int:
        return self.fetch_timeout_ms // 3

    @property
    def fetch_answer_ms(self) -> int:
        """Time for the answer to a Fetch beyond the wait that it allows. Together they leave time for one more request."""
        return self.fetch_timeout_ms // 3


class BootState(NamedTuple):
    """The disk's contents besides the log, from storage's recovery; empty on a fresh disk with static voters.

    `control` holds (offset, record) of every control record in the log, in order, after those of the snapshot that the log starts
    at (offset -1). `bootstrap` are the control records of the 0-0 checkpoint that formatting wrote: the voter set until the log
    has one (KIP-853). `snapshots` are the finished snapshots, oldest first. `repair_until` > 0: the log is damaged below that
    offset. The node neither votes nor stands for election until it holds everything below it again.
    """

    control: tuple[tuple[int, ControlRecord], ...] = ()
    bootstrap: tuple[ControlRecord, ...] = ()
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    repair_until: int = 0
