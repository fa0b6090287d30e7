"""The leader's half of replication: appends, serves fetches, moves the high watermark, and gives up (KIP-595).

A fetch takes these steps: (1) refuse nonsense; (2) fence by epoch: an older epoch is told so, a higher one deposes this
leader; (3) where the log no longer reaches back to, only a snapshot helps: below the log's start, at the start but with another
epoch, or with a last epoch older than the start's; an empty log is sent one as well, since that is shorter than the records it
replaces (KIP-630, KAFKA-15078); (4) compare the follower's last epoch with the epoch index, and
answer with the point where the logs may still agree if they differ; (5) otherwise the offset asked for *is* an
acknowledgement: the follower holds everything below it durably. Note it, perhaps raise the high watermark; (6) answer at once
if there is anything to tell, else park. Acknowledgement happens in step 5 only, never on the way out of 3 or 4.

What is news depends on who asks. A voter is told of every append at once; a new high watermark alone waits a few milliseconds
for records to travel with, since under load each would cost a round trip of its own. An observer has no use for records before
they are committed: it is answered when the high watermark rises, with records and high watermark together.

The voters may change while this node leads (reconfiguration.py), with the append of a record that says so. From that append on
the new set alone counts: for the high watermark, for check-quorum, for reads; what is known of each replica is kept.

A linearizable read (read_index.py) is a round that the voters echo in their fetches: a voter that has not heard of it is answered
at once, and only an echo counts, in this epoch, whatever the sender's log looks like.

The leader's own log counts only through its durable end. Records leave before they are durable here, so that the disks of leader
and followers work at the same time; the barrier they wait for is the stored leadership alone.
"""

from __future__ import annotations

from .batch import CONTROL, ControlRecord, KRaftVersion, KRaftVoters, LeaderChange, encode, encode_control, read_header
from .effects import BecameLeader, Proposed, ReadIndexReady, ReadIndexRefused, ReadLog, Rejected, Reply
from .errors import ErrorCode
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
from .types import EPOCH_MAX, NEVER_MS, NODE_ID_MAX, UUID_BYTES, ReplicaKey


class Leadership:
    """What a node does while it leads."""

    __slots__ = ("_fetch_max_wait_ms", "_last_read_id", "_log", "_quorum", "_requests", "_snapshots")

    def __init__(self, quorum: QuorumState, log: LocalLog, requests: RequestManager, snapshots: Snapshots) -> None:
        self._quorum = quorum
        self._log = log
        self._requests = requests
        self._snapshots = snapshots
        self._last_read_id = 0
        self._fetch_max_wait_ms = quorum.config.fetch_max_wait_ms

    def begin(self, granting_voters: tuple[int, ...], now_ms: int) -> None:
        """Candidate → Leader; the epoch opens with one control batch.

        Voters that stand in the bootstrap checkpoint alone are written into the log by the first leader: from there, everybody
        who joins later learns of them.
        """
        membership = self._quorum.membership
        leader = self._quorum.lead(self._log.view.end_offset, now_ms)
        opening: list[ControlRecord] = [LeaderChange(0, leader.leader_id, membership.voters.ids(), granting_voters)]
        if membership.history.is_bootstrap:
            opening += [KRaftVersion(0, membership.kraft_version), KRaftVoters(0, membership.voters)]
        self.append_control(leader, opening, now_ms)

    # Appends

    def on_propose(self, event: Propose, now_ms: int) -> None:
        """Appends one data batch or rejects it; ValueError, with nothing done, if it is too large for a batch."""
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

        A log without anything uncommitted takes any size: a proposal above the limit would otherwise wait for ever.
        """
        if leader.change is not None and leader.change.stops_proposals(now_ms):
            return True
        uncommitted_bytes = leader.uncommitted_bytes
        return uncommitted_bytes > 0 and uncommitted_bytes + size_bytes > self._quorum.config.uncommitted_bytes_max

    def append_control(self, leader: Leader, records: list[ControlRecord], now_ms: int) -> None:
        """One control batch; voters among the records are in force when this returns."""
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
        """The voters are others now; that may complete what fewer of them are needed for."""
        membership = self._quorum.membership
        leader.reseat(membership.others)
        leader.purgatory.reseat(membership.has)
        if membership.is_sole_voter:
            leader.check_quorum_deadline_ms = NEVER_MS
        elif leader.check_quorum_deadline_ms == NEVER_MS:
            leader.check_quorum_deadline_ms = now_ms + self._quorum.config.check_quorum_timeout_ms
        self._check_quorum(leader, now_ms)
        self._confirm_reads(leader)
        self.advance_high_watermark(leader, now_ms)

    # Fetches

    def on_fetch(self, correlation: int, request: FetchRequest, now_ms: int) -> None:
        """Answers now, after a read, or later."""
        quorum, log, fetch_offset = self._quorum, self._log, request.fetch_offset
        error = self.error_of(request, fetch_offset >= 0 and 0 <= request.last_fetched_epoch <= request.epoch, now_ms)
        leader = quorum.state
        if error is not ErrorCode.NONE or not isinstance(leader, Leader):
            quorum.out.append(Reply(correlation, quorum.refusal_of(request, error), quorum.barrier))
            return
        lacks_round = bool(leader.read_index.waiting) and self._hear_echo(leader, request)
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

    def error_of(self, request: FetchRequest | FetchSnapshotRequest, is_sane: bool, now_ms: int) -> ErrorCode:
        """Why nothing can be fetched with this request; NONE only if this node leads its epoch. A higher epoch deposes it."""
        quorum, replica, epoch = self._quorum, request.replica, request.epoch
        is_somebody = -1 <= replica.node_id <= NODE_ID_MAX and replica.node_id != quorum.config.node_id
        is_somebody = is_somebody and len(replica.directory_id) == UUID_BYTES
        if not is_sane or not is_somebody or not 0 <= epoch <= EPOCH_MAX:
            return ErrorCode.INVALID_REQUEST
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            quorum.adopt_epoch(epoch, now_ms, f"{replica!r} fetches in a higher epoch")
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(quorum.state, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _mismatch(self, request: FetchRequest) -> FetchOutcome | None:
        """Why the follower's log is no prefix of this one; None if it is."""
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
        """True if the sender votes."""
        progress = self.heard_from(leader, request, now_ms)
        if progress is None:
            return False
        before = progress.end_offset
        progress.fetched(request.fetch_offset, self._log.view.end_offset, now_ms)
        is_voter = leader.voters.get(progress.key.node_id) is progress
        if is_voter and request.fetch_offset > before:
            self.advance_high_watermark(leader, now_ms)
        return is_voter

    def heard_from(self, leader: Leader, request: FetchRequest | FetchSnapshotRequest, now_ms: int) -> ReplicaProgress | None:
        """The replica follows this leader in this epoch, which counts for check-quorum if it votes. None: it is anonymous."""
        key = request.replica
        if key.node_id < 0:
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
        """A majority has fetched since this was last so: another period begins. A sole voter has none."""
        membership = self._quorum.membership
        if leader.fetched_voters and len(leader.fetched_voters) + membership.is_voter >= membership.majority:
            leader.fetched_voters.clear()
            leader.check_quorum_deadline_ms = now_ms + self._quorum.config.check_quorum_timeout_ms

    def _read(self, leader: Leader, correlation: int, request: FetchRequest) -> None:
        max_bytes = max(1, min(request.max_bytes, self._quorum.config.fetch_max_bytes))
        self._quorum.out.append(ReadLog(self.begin_read(leader, correlation, request), request.fetch_offset, max_bytes))

    def begin_read(self, leader: Leader, correlation: int, request: FetchRequest | FetchSnapshotRequest) -> int:
        """The id of a read that this request waits for, and that is owed an answer until then."""
        self._last_read_id += 1
        leader.reads[self._last_read_id] = PendingRead(correlation, request)
        return self._last_read_id

    def on_records_read(self, event: RecordsRead, now_ms: int) -> None:
        """A read that is no longer known was answered when its leadership ended."""
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
        """Called whenever a voter's acknowledged end or this node's durable end has risen."""
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
        """Answers at once if this node votes alone or does not lead, else when a majority has echoed the read's round."""
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

    def _hear_echo(self, leader: Leader, request: FetchRequest) -> bool:
        """True if the sender is a voter that has not heard of the newest round, and somebody waits for it."""
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
        """BeginQuorumEpoch to the voters that have not fetched lately; observers gone for long are forgotten."""
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
        """Leader → Resigned, and EndQuorumEpoch to the other voters, of whom `preferred` stands first. Nothing to do for who does
        not lead.
        """
        leader = self._quorum.state
        if not isinstance(leader, Leader):
            return
        successors = leader.successors(preferred)
        self._quorum.resign(now_ms, reason)
        for key in successors:
            request = EndQuorumEpochRequest(leader.epoch, leader.leader_id, successors)
            self._requests.send(key.node_id, request, self._quorum.barrier, self._quorum.config.election_timeout_ms)
