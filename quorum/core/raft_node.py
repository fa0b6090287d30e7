"""RaftNode: consensus as a function of events, without a socket, a disk or a clock (KIP-595, KIP-630, KIP-853, KIP-996).

Theory of operation. A shell (the trio driver, or the simulator) owns one RaftNode and calls `step(event, now_ms)`, one event at a
time. The node answers with a list of effects that the shell carries out in that order. The node never waits, never reads a clock,
and draws randomness only from the given generator, so the same events always give the same effects.

*Responsibilities.* `QuorumState` is the only way between the six states. `Elections` handles votes and announcements,
`Leadership` the leader's half of replication and `Fetching` the follower's. `Reconfiguration` and `Joining` are the two halves of
membership. `LocalLog` is the one writer of the log, `Membership` knows the voters, `RequestManager` the requests in flight.
RaftNode itself only dispatches, learns the leader from every response, and polls the current state.

*A step.* (1) The event goes to its handler. (2) The state is polled until it no longer changes: timers that have passed
fire, requests that are due leave. So a TimerFired event needs no handler, a timer can be late, and an event that arrives just
after a deadline is handled before the deadline acts.

*Durability is data.* The node acts at once on everything that it requested to be stored; every message carries the barrier that
it must wait for. A vote, an epoch or a leadership is durable before another node can learn of it. Fetch(o) leaves only when the
log through o is durable. The leader counts its own log only through its durable end. The shell must report completions, in order,
and nothing else.

*A commit.* The leader appends the record (`Propose`). Followers pull it, flush it and fetch from the offset after it, which is
their acknowledgement. When a majority's ends are above the record and above the epoch's first record, the high watermark rises,
`Apply` announces it, and the parked fetches of the others are answered with it.

*A linearizable read.* `ReadIndexAsked` is answered with the offset that the read must reflect, once a majority of the voters has
confirmed that this node still led when the read began (read_index.py).

*Voter changes.* The voters are in the log (kraft.version 1; otherwise the configuration names them for good). A control record
holds the whole set. A node that appends it uses it from then on, committed or not; a node that truncates it uses the previous one
again. So every node derives the voters from its own log, at boot from `BootState` (voter_set_history.py, membership.py). Two sets
in force at the same time differ by one voter, because a leader appends a new one only after it has committed in its epoch and the
last set is committed; so any two majorities meet. The first leader writes the bootstrap checkpoint's set into its epoch's opening
batch. A shell, or a peer, sends the leader AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest or TransferLeadershipRequest,
delivered as RequestReceived and answered by one Reply when the outcome is known (reconfiguration.py); an observer can send them
itself (joining.py). A replica is its node id *and* the id of its directory: a wiped disk under an old id neither acknowledges nor
votes in its predecessor's name. A leader that has removed itself counts only the others, and resigns when they have committed the
removal. `VotersChanged` announces every change to the shell; `endpoints_of` gives the address of a node.

*Snapshots* keep the log short. The shell takes a snapshot of the state machine between two applies (`snapshot_context` is its
beginning) and reports SnapshotTaken. Then the log starts at the end of the oldest snapshot kept, and everything below may be
removed (snapshots.py). A follower whose log ends before the leader's begins, an empty one above all, copies the leader's newest
snapshot piece by piece, checks it and replaces its own log by it, in order with its other writes (snapshot_fetching.py,
snapshot_serving.py). A snapshot is committed data: installed or found at boot, it raises the high watermark to its end.

*Repair.* A log that storage found damaged below a committed offset ends before the damage. Until the node durably holds
everything again it follows and fetches, but neither votes nor stands for election (repair.py).

*Errors.* Everything that a peer sends is answered or dropped with a Trace, and nothing that a peer sends raises, with one
exception: LogTruncationRefused, when the leader of the epoch lacks records that this node knows as committed. That takes a
majority that has lost its disks; this node ends with its log untouched and tells the operator. InvariantViolation means that this
node was about to break a rule of consensus, by a bug of its own. Neither is caught, and the node is unusable afterwards.

Ids (correlations of sends, append ids, read ids, versions) start over in each process: the shell must not deliver to a restarted
node what was meant for its predecessor.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from kraftlab.common.endpoint import Endpoint, are_sane_endpoints
from kraftlab.common.errors import ErrorCode, InvariantViolation
from kraftlab.common.replica_key import NODE_ID_MAX, ReplicaKey

from .effects import ANYBODY, Effects, ElectionState, RepairEnded, Reply
from .elections import Elections
from .events import (
    ElectionStateStored,
    Event,
    Propose,
    ReadIndexAsked,
    RecordsRead,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    ResignAsked,
    ResponseReceived,
    ShutdownAsked,
    SnapshotChunkStored,
    SnapshotRead,
    SnapshotRefused,
    SnapshotTaken,
    SnapshotVerified,
    StorageCompleted,
    StorageFailed,
    TimerFired,
)
from .fetching import Fetching
from .joining import Joining
from .leader import Leader, ReplicaProgress
from .leadership import Leadership
from .local_log import LocalLog
from .log_view import LogView
from .messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    ProbeVoterRequest,
    ProbeVoterResponse,
    Request,
    Response,
    VoterChangeRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from .quorum_state import QuorumState, State
from .raft_config import BootState, RaftConfig
from .reconfiguration import Reconfiguration
from .requests import InFlight, RequestManager
from .snapshot_fetching import SnapshotFetching
from .snapshot_serving import SnapshotServing
from .snapshots import SnapshotContext, Snapshots, found_at_boot
from .states import Candidate, Follower, Prospective, Resigned, Unattached
from .types import NEVER_MS, NO_LEADER, OffsetAndEpoch, VoterSet
from .voter_set_history import KRAFT_VERSION_MAX


class ReplicaStatus(NamedTuple):
    """One replica in DescribeQuorum. `end_offset` -1: unknown. Times are the leader's milliseconds, -1: never."""

    key: ReplicaKey
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class RaftStatistics(NamedTuple):
    """A snapshot of the node's numbers."""

    state: str
    epoch: int
    leader_id: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    durable_end_offset: int
    last_epoch: int
    batches: int
    requests_in_flight: int
    parked_fetches: int
    waiting_reads: int
    uncommitted_bytes: int
    observers: int
    snapshots: int
    """Number of finished snapshots that this node would serve."""
    download: OffsetAndEpoch | None
    """The leader's snapshot that this follower copies."""
    download_position: int
    download_size_bytes: int
    """-1: not known yet."""
    is_repairing: bool
    elections_started: int
    steps: int
    voted_id: int
    """Candidate that this node voted for in this epoch, -1: none."""
    is_voter: bool
    is_changing_voters: bool
    """A change of the voters is not known as committed."""


class RaftNode:
    """One replica's consensus. Single caller; `step` is not re-entrant.

    `log` is the view of the recovered log and belongs to the node from now on. `election` is the stored election state, None on a
    new disk. `boot` is the rest of the disk's contents. The effects of the boot itself come with the first step, which is due at
    once (`next_deadline_ms`).
    """

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        election: ElectionState | None,
        random: random.Random,
        now_ms: int,
        boot: BootState = BootState(),
    ) -> None:
        self.config = config
        self._out: Effects = []
        snapshots = found_at_boot(log, boot.snapshots)
        self._quorum = QuorumState(config, log, election, random, now_ms, self._out, boot)
        self._log = LocalLog(log, self._out, self._quorum.membership)
        self._requests = RequestManager(self._out)
        self._snapshots = Snapshots(
            self._log, self._quorum.membership, snapshots, config.snapshots_kept, config.snapshots_kept_for_observers
        )
        self._leadership = Leadership(self._quorum, self._log, self._requests, self._snapshots)
        self._serving = SnapshotServing(self._quorum, self._log, self._leadership, self._snapshots)
        self._elections = Elections(self._quorum, self._log, self._requests, self._leadership)
        self._reconfiguration = Reconfiguration(self._quorum, self._log, self._requests, self._leadership)
        self._copying = SnapshotFetching(self._quorum, self._log, self._requests, self._snapshots)
        self._fetching = Fetching(self._quorum, self._log, self._requests, self._copying)
        self._joining = Joining(self._quorum, self._requests)
        self.quorum = self._quorum
        """The transitions, with the current state; read-only, for shells and checkers that look at every step."""
        self.local_log = self._log
        """The log, its high watermark and its durable part; read-only."""
        self._boot_ms = now_ms
        self._end_repair(now_ms)
        self._steps = 0
        self._is_shutting_down = False
        self._handlers: dict[type[Event], Callable[[Any, int], None]] = {
            RequestReceived: self._on_request,
            ResponseReceived: self._on_response,
            RequestFailed: self._on_request_failed,
            RequestAbandoned: self._on_request_abandoned,
            TimerFired: self._on_timer,
            Propose: self._leadership.on_propose,
            StorageCompleted: self._on_storage_completed,
            ElectionStateStored: self._on_election_state_stored,
            RecordsRead: self._leadership.on_records_read,
            StorageFailed: self._on_storage_failed,
            ResignAsked: self._on_resign_asked,
            ReadIndexAsked: self._leadership.on_read_index_asked,
            ShutdownAsked: self._on_shutdown_asked,
            SnapshotTaken: self._on_snapshot_taken,
            SnapshotRead: self._serving.on_snapshot_read,
            SnapshotChunkStored: self._copying.on_chunk_stored,
            SnapshotVerified: self._copying.on_verified,
            SnapshotRefused: self._copying.on_refused,
        }
        self._polls: dict[type[State], tuple[Callable[[Any, int], None], ...]] = {
            Unattached: (self._elections.poll_unattached, self._fetching.poll_unattached),
            Prospective: (self._elections.poll_prospective,),
            Candidate: (self._elections.poll_candidate,),
            Leader: (self._reconfiguration.poll, self._leadership.poll_leader),
            Follower: (self._fetching.poll_follower, self._joining.poll),
            Resigned: (self._elections.poll_resigned,),
        }
        """The polls of each state, in order, until one ends the state. None during shutdown."""

    # The calls of a shell

    def step(self, event: Event, now_ms: int) -> Effects:
        """Return the effects of `event` at `now_ms`. Time must not run backwards.

        InvariantViolation: a bug of ours. LogTruncationRefused: the leader lacks committed records. ValueError: a Propose that no
        batch can hold; nothing has changed.
        """
        self._steps += 1
        self._handlers[type(event)](event, now_ms)
        quorum, polls, out = self._quorum, self._polls, self._out
        polled = None
        while polled is not quorum.state:
            polled = quorum.state
            for poll in polls[type(polled)]:
                poll(polled, now_ms)
                if quorum.state is not polled:
                    break
        if not out:
            return []
        effects = out.copy()
        out.clear()
        return effects

    def next_deadline_ms(self) -> int:
        """Return the time at which a TimerFired is due, at the latest. Changes with every step."""
        if self._is_shutting_down:
            return NEVER_MS
        return self._quorum.state.next_deadline_ms() if self._steps else self._boot_ms

    # Queries of a shell

    @property
    def state_name(self) -> str:
        """unattached, prospective, candidate, leader, follower or resigned."""
        return self._quorum.state.name

    @property
    def state(self) -> State:
        """The state object itself, for checkers; read-only."""
        return self._quorum.state

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch that this node names to others; -1: unknown."""
        return self._quorum.leader_id

    @property
    def leader(self) -> LeaderView:
        return self._quorum.view

    @property
    def is_leader(self) -> bool:
        return type(self._quorum.state) is Leader

    @property
    def voters(self) -> VoterSet:
        """The voters by this node's log, committed or not."""
        return self._quorum.membership.voters

    @property
    def voters_offset(self) -> int:
        """Offset of the record that names the voters; -1: not in the log (static, bootstrap checkpoint or snapshot)."""
        return self._quorum.membership.voters_offset

    @property
    def kraft_version(self) -> int:
        """0: the configuration names the voters; 1: the log does (KIP-853)."""
        return self._quorum.membership.kraft_version

    def endpoints_of(self, node_id: int) -> dict[str, Endpoint]:
        """Return the endpoints for a Send to `node_id`, by listener name; empty if this node knows none."""
        state = self._quorum.state
        if node_id == state.leader_id and state.leader_endpoints:
            return state.leader_endpoints
        return self._reconfiguration.pending_endpoints_of(node_id) or self._quorum.membership.address_of(node_id)

    def voters_at(self, offset: int) -> VoterSet:
        """Return the voter set at the end of the log below `offset`."""
        return self._quorum.membership.history.at(offset)

    def kraft_version_at(self, offset: int) -> int:
        """Return the kraft.version at the end of the log below `offset`."""
        return self._quorum.membership.history.kraft_version_at(offset)

    @property
    def is_voter(self) -> bool:
        """True if the voter set names this node, with its own directory."""
        return self._quorum.membership.is_voter

    @property
    def may_stand(self) -> bool:
        """True if this node may stand for election."""
        return self._quorum.may_stand

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, as far as this node knows; -1: unknown. Never falls."""
        return self._log.high_watermark

    @property
    def leader_high_watermark(self) -> int:
        """The high watermark that this leader knows from its own epoch; -1: unknown so far, or not leading."""
        state = self._quorum.state
        return state.high_watermark if isinstance(state, Leader) else -1

    @property
    def epoch_start_offset(self) -> int:
        """Start of the epoch that this node leads; -1 if it does not lead."""
        state = self._quorum.state
        return state.epoch_start_offset if isinstance(state, Leader) else -1

    @property
    def log(self) -> LogView:
        """The view of the log; read-only."""
        return self._log.view

    @property
    def log_end_offset(self) -> int:
        return self._log.view.end_offset

    @property
    def durable_end_offset(self) -> int:
        """Everything below is on this node's own disk, as far as storage has reported."""
        return self._log.flushes.durable_end_offset

    @property
    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """Ids of the finished snapshots in use, oldest first. The log starts at the end of the first, or before it."""
        return self._snapshots.ids

    @property
    def is_repairing(self) -> bool:
        """True while this node fetches records that its disk has lost: it neither votes nor stands for election (repair.py)."""
        return self._quorum.repair.is_on

    def snapshot_context(self, offset: int, *, cluster_id: str, generation: int, append_time_ms: int) -> SnapshotContext | None:
        """Return the beginning of a snapshot of the state with everything below `offset` applied; None: not there, or not now.

        `append_time_ms` is that of the batch which ends at `offset`. There can be no snapshot where no batch ends, above the high
        watermark, before the end of the newest snapshot, at its end unless it is to be written again, and during a repair.
        """
        return None if self.is_repairing else self._snapshots.context(offset, cluster_id, generation, append_time_ms)

    @property
    def election(self) -> ElectionState:
        """The election state this node acts on; perhaps not durable yet."""
        return self._quorum.election

    def voter_progress(self, now_ms: int) -> list[ReplicaStatus]:
        """Return the voters as this leader knows them, itself included; empty if it does not lead.

        Each row has the known end of the replica's own disk: the high watermark is the offset that a majority of them has
        reached.
        """
        state = self._quorum.state
        if not isinstance(state, Leader):
            return []
        rows = [_status(progress) for progress in state.voters.values()]
        if self.is_voter:
            rows.append(ReplicaStatus(self.config.key, self.durable_end_offset, now_ms, now_ms))
        return sorted(rows, key=lambda row: row.key.node_id)

    def observer_progress(self) -> list[ReplicaStatus]:
        """Return the observers that have fetched from this leader lately; empty if it does not lead."""
        state = self._quorum.state
        rows = [_status(progress) for progress in state.observers.values()] if isinstance(state, Leader) else []
        return sorted(rows, key=lambda row: (row.key.node_id, row.key.directory_id))

    def statistics(self) -> RaftStatistics:
        state, view = self._quorum.state, self._log.view
        leader = state if isinstance(state, Leader) else None
        download = state.download if isinstance(state, Follower) else None
        return RaftStatistics(
            state=state.name,
            epoch=state.epoch,
            leader_id=self.leader_id,
            high_watermark=self._log.high_watermark,
            log_start_offset=view.start_offset,
            log_end_offset=view.end_offset,
            durable_end_offset=self.durable_end_offset,
            last_epoch=view.last_epoch,
            batches=len(view),
            requests_in_flight=len(self._requests),
            parked_fetches=len(leader.purgatory) if leader else 0,
            waiting_reads=len(leader.read_index.waiting) if leader else 0,
            uncommitted_bytes=leader.uncommitted_bytes if leader else 0,
            observers=len(leader.observers) if leader else 0,
            snapshots=len(self._snapshots.ids),
            download=download.id if download else None,
            download_position=download.position if download else 0,
            download_size_bytes=download.size_bytes if download else -1,
            is_repairing=self.is_repairing,
            elections_started=self._quorum.elections_started,
            steps=self._steps,
            voted_id=state.voted_key.node_id if state.voted_key else -1,
            is_voter=self._quorum.membership.is_voter,
            is_changing_voters=self.voters_offset >= self._log.high_watermark >= 0,
        )

    def __repr__(self) -> str:
        repair = f" {self._quorum.repair!r}" if self.is_repairing else ""
        return f"n{self.config.node_id} {self._quorum.state!r} {self._log!r}{repair}"

    # Requests are dispatched by their exact type: a failing isinstance of a Struct is slow.

    def _on_request(self, event: RequestReceived, now_ms: int) -> None:
        request = event.request
        if self._is_shutting_down:
            self._reply(event.correlation, self._refusal(request, ErrorCode.BROKER_NOT_AVAILABLE))
        elif type(request) is FetchRequest:
            self._leadership.on_fetch(event.correlation, request, event.standing, now_ms)
        elif type(request) is FetchSnapshotRequest:
            self._serving.on_fetch_snapshot(event.correlation, request, event.standing, now_ms)
        elif type(request) is VoteRequest:
            self._reply(event.correlation, self._elections.on_vote(request, event.standing, now_ms))
        elif isinstance(request, BeginQuorumEpochRequest):
            self._reply(event.correlation, self._elections.on_begin(request, event.standing, now_ms))
        elif isinstance(request, EndQuorumEpochRequest):
            self._reply(event.correlation, self._elections.on_end(request, event.standing, now_ms))
        elif isinstance(request, ProbeVoterRequest):
            self._reply(event.correlation, self._reconfiguration.on_probe(request))
        elif isinstance(request, VoterChangeRequest):
            self._reconfiguration.on_request(event.correlation, request, now_ms)

    def _reply(self, correlation: int, response: Response) -> None:
        self._out.append(Reply(correlation, response, self._quorum.barrier))

    def _refusal(self, request: Request, error: ErrorCode) -> Response:
        view = self._quorum.view
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            return self._quorum.refusal_of(request, error)
        if isinstance(request, VoteRequest):
            return VoteResponse(error, view, False, request.pre_vote)
        if isinstance(request, EndQuorumEpochRequest):
            return EndQuorumEpochResponse(error, view)
        if isinstance(request, ProbeVoterRequest):
            return ProbeVoterResponse(error, view, self.config.key, KRAFT_VERSION_MAX)
        if isinstance(request, VoterChangeRequest):
            return VoterChangeResponse(error, view, f"node {self.config.node_id} is shutting down: ask another one")
        return BeginQuorumEpochResponse(error, view)

    def _on_request_abandoned(self, event: RequestAbandoned, now_ms: int) -> None:
        state = self._quorum.state
        if isinstance(state, Leader):
            state.abandon(event.correlation)

    # Responses

    def _on_response(self, event: ResponseReceived, now_ms: int) -> None:
        response, correlation = event.response, event.correlation
        asked = self._requests.answered(correlation, response)
        if asked is None or self._is_shutting_down:
            return
        if asked.destination not in (ANYBODY, event.source):
            self._on_response_of_another(asked, event, now_ms)
            return
        is_awaited = self._fetching.is_awaited(correlation)
        self._learn(response, event.source, now_ms)
        if type(response) is FetchResponse or type(response) is FetchSnapshotResponse:
            if is_awaited:
                self._fetching.on_response(asked, event.source, response, now_ms)
        elif type(response) is VoteResponse:
            self._elections.on_vote_response(asked, response, now_ms)
        elif isinstance(response, ProbeVoterResponse):
            self._reconfiguration.on_probe_response(asked, response, now_ms)
        elif isinstance(response, VoterChangeResponse):
            self._joining.on_response(asked, response, now_ms)

    def _on_response_of_another(self, asked: InFlight, event: ResponseReceived, now_ms: int) -> None:
        """Drop the answer of another node than the one that was asked. Only a probe asks for the identity of a node."""
        self._quorum.trace("peer", f"node {event.source} answers {asked.request!r} in place of node {asked.destination}")
        if isinstance(event.response, ProbeVoterResponse):
            self._reconfiguration.on_probe_response(asked, event.response, now_ms)
        else:
            self._give_up(asked, refused=False, now_ms=now_ms)

    def _learn(self, response: Response, source: int, now_ms: int) -> None:
        """Learn the leader from a response. Older epochs are ignored, contradictions traced."""
        quorum, own_id = self._quorum, self.config.node_id
        view, state = response.leader, quorum.state
        leader_id = view.leader_id
        if view.epoch == state.epoch and leader_id == state.leader_id and isinstance(state, Follower) and state.has_fetched:
            return  # the usual answer of a leader to its follower
        if view.epoch < quorum.epoch or leader_id > NODE_ID_MAX or not are_sane_endpoints(view.endpoints):
            return
        if not quorum.believes(view.epoch, is_answer=True):
            quorum.trace("peer", f"node {source} claims epoch {view.epoch}, which does not follow epoch {quorum.epoch}")
            return
        if not quorum.consistent(view.epoch, leader_id):
            quorum.trace("peer", f"node {source} says {view!r}, but node {quorum.state.leader_id} leads epoch {quorum.epoch}")
        elif view.epoch > quorum.epoch and leader_id < 0 and not quorum.membership.is_eligible:
            self._note_vacancy(source, now_ms)
        elif view.epoch > quorum.epoch and (leader_id < 0 or leader_id == own_id):
            quorum.adopt_epoch(view.epoch, now_ms, f"node {source} knows a higher epoch")
        elif leader_id >= 0 and leader_id != own_id:
            if self._should_follow(response, source):
                quorum.follow(view.epoch, leader_id, view.endpoints, now_ms, f"node {source} names the leader")
            else:
                quorum.relocate_leader(leader_id, view.endpoints, source)

    def _note_vacancy(self, source: int, now_ms: int) -> None:
        """Note that a node is in a later epoch without a leader. An observer does not enter such an epoch: if its election
        failed and nobody else heard of it, the observer could not come back to the leader, and its fetch deposes nobody.
        """
        state = self._quorum.state
        if isinstance(state, Follower) and state.leader_id == source:
            self._quorum.note_resigned(state.epoch)
            self._quorum.lose_leader(now_ms, "the leader is in a later epoch")

    def _should_follow(self, response: Response, source: int) -> bool:
        """Return True if the named leader is new, or was known, lost and found again.

        While pre-voting only the leader's own response counts as found again: a node that grants a pre-vote does not hear from
        the leader that it remembers. A leader that has resigned does not count either: the response may come from a node that has
        not heard of the resignation, or was sent before it.
        """
        state, view = self._quorum.state, response.leader
        if view.epoch > state.epoch:
            return True
        if view.epoch == self._quorum.resigned_epoch:
            return False
        if type(response) is VoteResponse and response.pre_vote and response.granted:
            return False
        if state.leader_id == NO_LEADER or isinstance(state, Unattached):
            return True
        return isinstance(state, Prospective) and source == view.leader_id

    def _on_request_failed(self, event: RequestFailed, now_ms: int) -> None:
        asked: InFlight | None = self._requests.failed(event.correlation)
        if asked is not None:
            self._give_up(asked, refused=event.refused, now_ms=now_ms)

    def _give_up(self, asked: InFlight, *, refused: bool, now_ms: int) -> None:
        """Handle a request that its destination did not answer."""
        if self._fetching.is_awaited(asked.correlation):
            self._fetching.on_failed(asked, refused, now_ms)
        elif type(asked.request) is VoteRequest:
            self._elections.on_vote_failed(asked, now_ms)
        elif isinstance(asked.request, ProbeVoterRequest):
            self._reconfiguration.on_probe_failed(asked, now_ms)
        elif isinstance(asked.request, VoterChangeRequest):
            self._joining.on_failed(asked, now_ms)

    # Time, storage, and requests of the shell

    def _on_timer(self, event: TimerFired, now_ms: int) -> None:
        """Do nothing: every step ends by polling."""

    def _on_storage_completed(self, event: StorageCompleted, now_ms: int) -> None:
        if not self._log.flushes.completed(event.append_id):
            return
        self._end_repair(now_ms)
        state = self._quorum.state
        if isinstance(state, Leader):
            self._leadership.advance_high_watermark(state, now_ms)

    def _end_repair(self, now_ms: int) -> None:
        """End the repair if the durable end has reached the end of the damage."""
        if self._quorum.repair.ends_at(self.durable_end_offset):
            self._quorum.trace("repair", f"the log is whole again up to {self.durable_end_offset}")
            self._out.append(RepairEnded())
            self._quorum.repaired(now_ms)

    def _on_election_state_stored(self, event: ElectionStateStored, now_ms: int) -> None:
        quorum = self._quorum
        if event.version > quorum.election_version:
            raise InvariantViolation(f"election state {event.version} was stored, but the newest is {quorum.election_version}")
        quorum.durable_election_version = max(quorum.durable_election_version, event.version)

    def _on_snapshot_taken(self, event: SnapshotTaken, now_ms: int) -> None:
        state = self._quorum.state
        self._snapshots.taken(event.id, state.furthest_observer() if isinstance(state, Leader) else None)

    def _on_storage_failed(self, event: StorageFailed, now_ms: int) -> None:
        self._quorum.trace("storage", event.reason)
        self._leadership.resign(f"storage failed: {event.reason}", now_ms)

    def _on_resign_asked(self, event: ResignAsked, now_ms: int) -> None:
        if event.epoch == self.epoch:
            self._leadership.resign(event.reason, now_ms)

    def _on_shutdown_asked(self, event: ShutdownAsked, now_ms: int) -> None:
        self._leadership.resign("shutting down", now_ms)
        self._is_shutting_down = True
        self._polls = dict.fromkeys(self._polls, ())


def _status(progress: ReplicaProgress) -> ReplicaStatus:
    return ReplicaStatus(progress.key, progress.end_offset, progress.last_fetch_ms or -1, progress.last_caught_up_ms or -1)
