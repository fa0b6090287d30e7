"""The leader's half of replication: appends, fetches, the high watermark, and resignation (KIP-595).

A fetch takes these steps:

1. Refuse malformed requests.
2. Fence by epoch: refuse an older one. A higher one deposes this leader if it comes from a voter, or from a controller that may
   become one; otherwise it changes nothing. A broker of a higher epoch knows the leader of that epoch, elected by a majority
   (raft_node.py), so this leader is deposed without the broker's help.
3. Send a snapshot where the log no longer reaches back to: below the log's start, at the start but with another epoch, or with a
   last epoch older than the start's. An empty log gets one as well, because a snapshot is shorter than the records that it
   replaces (KIP-630, KAFKA-15078).
4. Compare the follower's last epoch with the epoch index. If they differ, answer with the point where the logs may still agree.
5. Otherwise the requested offset *is* an acknowledgement: the follower holds everything below it durably. Note it, and perhaps
   raise the high watermark. Steps 3 and 4 never acknowledge anything.
6. Answer at once if there is news, otherwise park the fetch.

News depends on the sender. A voter gets every append at once. A new high watermark alone waits a few milliseconds for records to
travel with, because under load each would cost a round trip of its own. An observer has no use for uncommitted records: it is
answered when the high watermark rises, with records and high watermark together.

The voters can change while this node leads (reconfiguration.py), by the append of a record. From that append on only the new set
counts: for the high watermark, for check-quorum, for reads. The progress of each replica is kept.

A linearizable read (read_index.py) is a round that the voters echo in their fetches. A voter that does not know the round is
answered at once. Only an echo in this epoch counts, whatever the sender's log looks like.

The leader's own log counts only through its durable end. Records leave before they are durable here, so that the disks of leader
and followers work at the same time. Their barrier is the stored leadership alone.
"""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import NODE_ID_MAX, ReplicaKey
from kraftlab.common.uuids import UUID_BYTES, ZERO

from .batch import CONTROL, ControlRecord, KRaftVersion, KRaftVoters, LeaderChange, encode, encode_control, read_header
from .effects import BecameLeader, Proposed, ReadIndexReady, ReadIndexRefused, ReadLog, Rejected, Reply
from .events import Propose, ReadIndexAsked, RecordsRead
from .leader import Leader, PendingRead, ReplicaProgress, majority_offset, next_high_watermark
from .local_log import LocalLog
from .messages import (
    BeginQuorumEpochRequest,
    Diverging,
    EndQuorumEpochRequest,
    FetchOutcome,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Records,
    SnapshotRequired,
)
from .purgatory import ParkedFetch
from .quorum_state import NO_RECORDS, QuorumState
from .requests import RequestManager
from .snapshots import Snapshots
from .types import NEVER_MS, Standing


class Leadership:
    """The leader's part of a node."""

    __slots__ = ("_fetch_max_wait_ms", "_last_read_id", "_log", "_quorum", "_requests", "_snapshots")

    def __init__(self, quorum: QuorumState, log: LocalLog, requests: RequestManager, snapshots: Snapshots) -> None:
        self._quorum = quorum
        self._log = log
        self._requests = requests
        self._snapshots = snapshots
        self._last_read_id = 0
        self._fetch_max_wait_ms = quorum.config.fetch_max_wait_ms

    def begin(self, granting_voters: tuple[int, ...], now_ms: int) -> None:
        """Candidate → Leader. One control batch opens the epoch.

        The first leader copies voters that are only in the bootstrap checkpoint into the log, so that nodes that join later learn
        them.
        """
        membership = self._quorum.membership
        leader = self._quorum.lead(self._log.view.end_offset, now_ms)
        opening: list[ControlRecord] = [LeaderChange(0, leader.leader_id, membership.voters.ids(), granting_voters)]
        if membership.history.is_bootstrap:
            opening += [KRaftVersion(0, membership.kraft_version), KRaftVoters(0, membership.voters)]
        self.append_control(leader, opening, now_ms)

    # Appends

    def on_propose(self, event: Propose, now_ms: int) -> None:
        """Append one data batch or reject it. ValueError, and nothing has changed, if it is too large for a batch."""
        leader = self._quorum.state
        if not isinstance(leader, Leader) or leader.epoch != event.epoch:
            self._quorum.out.append(Rejected(self._quorum.leader_id, self._quorum.epoch))
        elif self._is_overloaded(leader, len(event.body), now_ms):
            self._quorum.out.append(Rejected(leader.leader_id, leader.epoch, overloaded=True))
        else:
            base_offset = self._log.view.end_offset
            self._append(leader, event.body, event.record_count, 0, now_ms)
            self._quorum.out.append(Proposed(event.epoch, base_offset, self._log.view.end_offset))

    def _is_overloaded(self, leader: Leader, size_bytes: int, now_ms: int) -> bool:
        """Return True if a proposal of this size must wait.

        A log without anything uncommitted takes any size: a proposal above the limit would otherwise wait forever.
        """
        if leader.change is not None and leader.change.stops_proposals(now_ms):
            return True
        uncommitted_bytes = leader.uncommitted_bytes
        return uncommitted_bytes > 0 and uncommitted_bytes + size_bytes > self._quorum.config.uncommitted_bytes_max

    def append_control(self, leader: Leader, records: list[ControlRecord], now_ms: int) -> None:
        """Append one control batch. Voters among the records are in force when this returns."""
        self._append(leader, encode_control(records), len(records), CONTROL, now_ms)

    def _append(self, leader: Leader, body: bytes, record_count: int, attributes: int, now_ms: int) -> None:
        view = self._log.view
        data, _ = encode(
            body,
            base_offset=view.end_offset,
            epoch=leader.epoch,
            record_count=record_count,
            append_time_ms=now_ms,
            high_watermark=self._log.commit_stamp,
            previous_crc=view.last_crc,
            attributes=attributes,
        )
        has_new_voters = self._log.append([read_header(data)], data)
        leader.uncommitted.append((view.end_offset, len(data)))
        leader.uncommitted_bytes += len(data)
        if has_new_voters:
            self._reseat(leader, now_ms)
        for fetch in leader.purgatory.take_awaiting_records():
            self._read(leader, fetch.correlation, fetch.request)

    def _reseat(self, leader: Leader, now_ms: int) -> None:
        """Follow a change of the voters, which can complete what now needs fewer of them."""
        membership = self._quorum.membership
        leader.reseat(membership.others)
        leader.purgatory.reseat(membership.has)
        if membership.is_sole_voter:
            leader.check_quorum_deadline_ms = NEVER_MS
        elif leader.check_quorum_deadline_ms == NEVER_MS:
            leader.check_quorum_deadline_ms = self._quorum.config.check_quorum_deadline_ms(now_ms)
        self._check_quorum(leader, now_ms)
        self._confirm_reads(leader)
        self.advance_high_watermark(leader, now_ms)

    # Fetches

    def on_fetch(self, correlation: int, request: FetchRequest, standing: Standing, now_ms: int) -> None:
        """Answer now, after a read, or later."""
        quorum, log, fetch_offset = self._quorum, self._log, request.fetch_offset
        is_sane = fetch_offset >= 0 and 0 <= request.last_fetched_epoch <= request.epoch
        error = self.error_of(request, standing, is_sane, now_ms)
        leader = quorum.state
        if error is not ErrorCode.NONE or not isinstance(leader, Leader):
            quorum.out.append(Reply(correlation, quorum.refusal_of(request, error), quorum.barrier))
            return
        lacks_round = bool(leader.read_index.waiting) and self._note_echo(leader, request)
        refusal = self._mismatch(request)
        if refusal is not None:
            self._reply(leader, correlation, refusal)
            return
        if not log.view.is_boundary(fetch_offset):
            quorum.out.append(Reply(correlation, quorum.refusal_of(request, ErrorCode.OFFSET_OUT_OF_RANGE), quorum.barrier))
            return
        is_voter = self._acknowledge(leader, request, now_ms)
        useful_end_offset = log.view.end_offset if is_voter else log.high_watermark
        wait_ms = 0 if lacks_round else min(request.max_wait_ms, self._fetch_max_wait_ms)
        if leader.high_watermark > request.high_watermark:
            wait_ms = min(wait_ms, quorum.config.high_watermark_linger_ms if is_voter else 0)
        if fetch_offset < useful_end_offset:
            self._read(leader, correlation, request)
        elif wait_ms <= 0 or len(leader.purgatory) >= quorum.config.parked_fetches_max:
            self._reply(leader, correlation, NO_RECORDS)
        else:
            leader.purgatory.park(ParkedFetch(correlation, request, committed_only=not is_voter), now_ms + wait_ms)

    def error_of(self, request: FetchRequest | FetchSnapshotRequest, standing: Standing, is_sane: bool, now_ms: int) -> ErrorCode:
        """Return the error that refuses a request to fetch; NONE only if this node leads its epoch. A controller's higher epoch
        deposes it.
        """
        quorum, replica, epoch = self._quorum, request.replica, request.epoch
        is_somebody = -1 <= replica.node_id <= NODE_ID_MAX and replica.node_id != quorum.config.node_id
        is_somebody = is_somebody and len(replica.directory_id) == UUID_BYTES
        if not is_sane or not is_somebody or epoch < 0:
            return ErrorCode.INVALID_REQUEST
        is_voter = quorum.membership.has(replica)
        if standing is Standing.STRANGER and not is_voter:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            if not quorum.believes(epoch):
                return ErrorCode.INVALID_REQUEST
            if is_voter or standing is Standing.CONTROLLER:
                quorum.adopt_epoch(epoch, now_ms, f"{replica!r} fetches in a higher epoch")
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(quorum.state, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _mismatch(self, request: FetchRequest) -> FetchOutcome | None:
        """Return the answer to a follower whose log is not a prefix of this one; None if it is."""
        view, ids = self._log.view, self._snapshots.ids
        if ids and (
            request.fetch_offset == 0
            or request.fetch_offset < view.start_offset
            or request.last_fetched_epoch < view.start.epoch
            or (request.fetch_offset == view.start_offset and request.last_fetched_epoch != view.start.epoch)
        ):
            return SnapshotRequired(*ids[-1])
        if request.last_fetched_epoch == view.last_epoch and request.fetch_offset <= view.end_offset:
            return None
        end_offset, epoch = view.end_offset_for_epoch(request.last_fetched_epoch)
        if epoch != request.last_fetched_epoch or end_offset < request.fetch_offset:
            return Diverging(epoch, end_offset)
        return None

    def _acknowledge(self, leader: Leader, request: FetchRequest, now_ms: int) -> bool:
        """Note the acknowledgement of a fetch. Return True if the sender votes."""
        progress = self.note_fetcher(leader, request, now_ms)
        if progress is None:
            return False
        before = progress.end_offset
        progress.fetched(request.fetch_offset, self._log.view.end_offset, now_ms)
        is_voter = leader.voters.get(progress.key.node_id) is progress
        if is_voter and request.fetch_offset > before:
            self.advance_high_watermark(leader, now_ms)
        return is_voter

    def note_fetcher(self, leader: Leader, request: FetchRequest | FetchSnapshotRequest, now_ms: int) -> ReplicaProgress | None:
        """Note that the replica follows this leader, which counts for check-quorum if it votes.

        Return None if it is anonymous. A reader may have the node id -1 and a directory id of its own.
        """
        key = request.replica
        if key.node_id < 0 and key.directory_id == ZERO:
            return None
        voter = leader.voters.get(key.node_id)
        if voter is None or not self._quorum.membership.has(key):
            observer = leader.observers.get(key)
            if observer is None:
                observer = leader.observers[key] = ReplicaProgress(key)
            observer.is_repairing = request.is_repairing
            return observer
        voter.key, voter.is_repairing = key, request.is_repairing
        leader.fetched_voters[key.node_id] = None
        self._check_quorum(leader, now_ms)
        return voter

    def _check_quorum(self, leader: Leader, now_ms: int) -> None:
        """Begin another period if a majority has fetched in this one. A sole voter has none."""
        membership = self._quorum.membership
        if leader.fetched_voters and len(leader.fetched_voters) + membership.is_voter >= membership.majority:
            leader.fetched_voters.clear()
            leader.check_quorum_deadline_ms = self._quorum.config.check_quorum_deadline_ms(now_ms)

    def _read(self, leader: Leader, correlation: int, request: FetchRequest) -> None:
        max_bytes = max(1, min(request.max_bytes, self._quorum.config.fetch_max_bytes))
        self._quorum.out.append(ReadLog(self.begin_read(leader, correlation, request), request.fetch_offset, max_bytes))

    def begin_read(self, leader: Leader, correlation: int, request: FetchRequest | FetchSnapshotRequest) -> int:
        """Register a read that this request waits for; return its id."""
        self._last_read_id += 1
        leader.reads[self._last_read_id] = PendingRead(correlation, request)
        return self._last_read_id

    def on_records_read(self, event: RecordsRead, now_ms: int) -> None:
        """Answer the fetch that waits for the read. An unknown read was answered when its leadership ended."""
        leader = self._quorum.state
        read = leader.reads.pop(event.read_id, None) if isinstance(leader, Leader) else None
        if read is None or not isinstance(leader, Leader):
            return
        if event.data:
            self._reply(leader, read.correlation, Records(event.data))
        else:
            refusal = self._quorum.refusal_of(read.request, ErrorCode.OFFSET_OUT_OF_RANGE)
            self._quorum.out.append(Reply(read.correlation, refusal, self._quorum.barrier))

    def _reply(self, leader: Leader, correlation: int, outcome: FetchOutcome) -> None:
        leader.read_index.is_named = True
        quorum = self._quorum
        response = FetchResponse(
            ErrorCode.NONE,
            quorum.view,
            leader.high_watermark,
            self._log.view.start.offset,
            leader.read_index.round,
            outcome,
        )
        quorum.out.append(Reply(correlation, response, quorum.barrier))

    # The high watermark

    def advance_high_watermark(self, leader: Leader, now_ms: int) -> None:
        """Raise the high watermark if a voter's acknowledged end or this node's durable end allows it."""
        end_offsets = [progress.end_offset for progress in leader.voters.values()]
        if self._quorum.membership.is_voter:
            end_offsets.append(self._log.flushes.durable_end_offset)
        high_watermark = next_high_watermark(leader.high_watermark, leader.epoch_start_offset, end_offsets)
        if high_watermark == leader.high_watermark:
            return
        is_first = leader.high_watermark < 0
        leader.committed(high_watermark)
        self._log.commit(high_watermark)
        if is_first:
            self._quorum.out.append(BecameLeader(leader.epoch, leader.epoch_start_offset))
            self._confirm_reads(leader)
        linger_ms = self._quorum.config.high_watermark_linger_ms
        for fetch in leader.purgatory.take_behind(high_watermark, committed_only=linger_ms > 0):
            if fetch.request.fetch_offset < self._log.view.end_offset:
                self._read(leader, fetch.correlation, fetch.request)
            else:
                self._reply(leader, fetch.correlation, NO_RECORDS)
        leader.purgatory.hasten_behind(high_watermark, now_ms + linger_ms)

    # Linearizable reads

    def on_read_index_asked(self, event: ReadIndexAsked, now_ms: int) -> None:
        """Answer at once if this node votes alone or does not lead, otherwise when a majority has echoed the read's round."""
        quorum = self._quorum
        leader = quorum.state
        if not isinstance(leader, Leader):
            quorum.out.append(ReadIndexRefused(event.token, quorum.leader_id, quorum.epoch))
            return
        reads = leader.read_index
        if len(reads.waiting) >= quorum.config.waiting_reads_max:
            quorum.out.append(ReadIndexRefused(event.token, leader.leader_id, leader.epoch, overloaded=True))
            return
        reads.ask(event.token, leader.high_watermark)
        self._confirm_reads(leader)
        if reads.waiting:
            for fetch in leader.purgatory.take_awaiting_records():
                self._reply(leader, fetch.correlation, NO_RECORDS)

    def _note_echo(self, leader: Leader, request: FetchRequest) -> bool:
        """Note the echo of a fetch.

        Return True if the sender is a voter that does not know the newest round, and reads wait for it.
        """
        voter, reads = leader.voters.get(request.replica.node_id), leader.read_index
        if voter is None or not self._quorum.membership.has(request.replica):
            return False
        if voter.echoed_round < request.read_round <= reads.round:
            voter.echoed_round = request.read_round
            self._confirm_reads(leader)
        return bool(reads.waiting) and request.read_round < reads.round

    def _confirm_reads(self, leader: Leader) -> None:
        reads = leader.read_index
        if not reads.waiting:
            return
        rounds = [progress.echoed_round for progress in leader.voters.values()]
        if self._quorum.membership.is_voter:
            rounds.append(reads.round)
        for token, offset in reads.take_confirmed(majority_offset(rounds), leader.high_watermark):
            self._quorum.out.append(ReadIndexReady(token, offset))

    # Time and the end

    def poll_leader(self, leader: Leader, now_ms: int) -> None:
        config = self._quorum.config
        if now_ms >= leader.check_quorum_deadline_ms:
            self.resign(f"no majority has fetched for {config.check_quorum_timeout_ms} ms", now_ms)
            return
        if now_ms >= leader.begin_at_ms:
            self._announce(leader, now_ms)
        for fetch in leader.purgatory.take_expired(now_ms):
            self._reply(leader, fetch.correlation, NO_RECORDS)

    def _announce(self, leader: Leader, now_ms: int) -> None:
        """Send BeginQuorumEpoch to the voters that have not fetched lately; forget observers that have not fetched for long."""
        config = self._quorum.config
        period_ms = config.begin_quorum_epoch_period_ms
        leader.begin_at_ms = now_ms + period_ms
        for node_id, progress in leader.voters.items():
            if not progress.last_fetch_ms or progress.last_fetch_ms <= now_ms - period_ms:
                request = BeginQuorumEpochRequest(
                    leader.epoch, leader.leader_id, self._quorum.membership.key_of(node_id), leader.leader_endpoints
                )
                self._requests.send(node_id, request, self._quorum.barrier, period_ms)
        expiry_ms = now_ms - config.observer_session_ms
        for key in [key for key, progress in leader.observers.items() if progress.last_fetch_ms <= expiry_ms]:
            del leader.observers[key]

    def resign(self, reason: str, now_ms: int, preferred: ReplicaKey | None = None) -> None:
        """Leader → Resigned; send EndQuorumEpoch to the other voters, of which `preferred` stands first.

        Do nothing if this node does not lead.
        """
        leader = self._quorum.state
        if not isinstance(leader, Leader):
            return
        successors = leader.successors(preferred)
        self._quorum.resign(now_ms, reason)
        for key in successors:
            request = EndQuorumEpochRequest(leader.epoch, leader.leader_id, successors)
            self._requests.send(key.node_id, request, self._quorum.barrier, self._quorum.config.election_timeout_ms)
