"""RaftDriver: the trio runtime of one RaftNode.

Theory of operation. The driver is the only caller of the core. Every occurrence (a peer's request or answer, a timer, a completed
flush, a proposal) becomes an event on the event loop. `_step` feeds it to the core and carries the effects out in order, at once
and without awaiting. Slow work is done elsewhere and comes back as an event: disk writes by `LogFlusher` and `ElectionWriter`,
messages by `PeerDesk`, the state machine by `ApplyTask`, its snapshots by `SnapshotTaker`, snapshots between nodes by
`SnapshotCopies`. An event that arises while effects are being applied waits in a queue until they are done, so the core is
never entered twice.

The driver does not decide when a message may leave: `PeerDesk` holds it until its barrier is reached. Memory is bounded:
proposals are refused beyond the core's limit and the limit here, requests of peers by the transport, fetched data by one fetch in
flight.

A node does not survive its own faults: a failed fsync, damaged data or a broken invariant leaves `run` as an exception, and the
process is expected to end with its message. A full disk is not such a fault: a leader resigns, and writing resumes when space
returns. Damage found at the start is not one either, unless no other node has the data: the node repairs itself. A node that
learns of a newer generation of the cluster ends with GenerationOver: its data is history, and the operator decides about it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping

import msgspec
import trio

from kraftlab.common.causes import only_cause
from kraftlab.common.errors import ErrorCode, InvariantViolation
from kraftlab.common.line_limit import LineLimit
from kraftlab.common.signal import Signal
from kraftlab.wire.transport import DirectHandler, PeerIdentity, PeerPool, PeerRequest, Responder

from ..core.effects import (
    Apply,
    Effect,
    Proposed,
    ReadLog,
    Rejected,
    RepairEnded,
    Trace,
    VotersChanged,
)
from ..core.events import (
    ElectionStateStored,
    Event,
    Propose,
    ReadIndexAsked,
    RecordsRead,
    ResignAsked,
    ShutdownAsked,
    SnapshotTaken,
    StorageCompleted,
    StorageFailed,
    TimerFired,
)
from ..core.messages import (
    REQUEST_OF,
    LeaderView,
    VoterChangeRequest,
    VoterChangeResponse,
)
from ..core.quorum_state import NO_EPOCH_LEFT
from ..core.raft_node import RaftNode
from ..core.shell import Shell
from ..core.snapshots import SnapshotContext
from ..core.types import OffsetAndEpoch, Standing
from ..state_machine import StateMachine
from ..storage.errors import StorageError
from ..storage.file_system import FileSystem, RealFileSystem
from ..storage.metadata_store import MetadataStore
from ..storage.snapshot_store import SnapshotInfo
from ..trace import TraceWriter
from .address_book import AddressBook
from .apply_task import ApplyTask
from .cluster_generation import generation_over, generations_missed
from .driver_config import DriverConfig, DriverStatistics
from .environment import Environment, this_machine
from .errors import NoSnapshot, NotLeader, Overloaded
from .figures import QuorumFigures
from .full_disk import when_there_is_room
from .peer_desk import OwnRequest, PeerDesk, StandingOf, observers_only
from .quorum_description import DESCRIBE_QUORUM, QuorumDescription, describe_quorum
from .read_index import ReadIndexDesk, offset_of
from .snapshot_copies import SnapshotCopies
from .snapshot_taker import SnapshotTaker
from .storage_tasks import ElectionWriter, LogFlusher
from .trace_file import TraceFile

logger = logging.getLogger("kraftlab.quorum")

STAGED_BYTES_MAX = 64 * 1024 * 1024
"""Proposals are refused while more than this waits for the disk."""
REPAIR_PROGRESS_S = 1.0
LINES_AT_ONCE = 20
LINE_INTERVAL_S = 2.0
"""Repeated occurrences give at most LINES_AT_ONCE log lines at once, and one more per interval."""
STOP_TIMEOUT_S = 1.0
"""Time that a graceful stop waits for the answers to EndQuorumEpoch and for the last flush."""

_encode = msgspec.msgpack.Encoder().encode


class RaftDriver:
    """Runs one replica of the metadata log, voter or observer. See the module's docstring.

    `run` is started with `nursery.start` and returns after `stop`. All methods belong to the event loop's thread.
    """

    make_core: type[RaftNode] = RaftNode
    """The consensus core. A subclass of the driver can run another one (docs/research/another-core.md)."""

    def __init__(
        self,
        config: DriverConfig,
        state_machine: StateMachine,
        file_system: FileSystem | None = None,
        environment: Environment | None = None,
        standing: StandingOf = observers_only,
    ) -> None:
        """`standing` judges the senders of requests that this node has not met as controllers (`core/types.py`)."""
        self.config = config
        self._identity: PeerIdentity | None = None
        self._state_machine = state_machine
        self._file_system = file_system or RealFileSystem()
        self._network, self._threads, self._random, self._clock = environment or this_machine()
        self._core: RaftNode | None = None
        self._stepping = False
        self._inbox: deque[Event] = deque()
        self._reads: deque[ReadLog] = deque()
        self._read_index = ReadIndexDesk()
        self._deferred = Signal()
        self._standing = standing
        self.peers = PeerDesk(
            config, self._step, self._inbox.append, self._log_limited, self.met_newer_generation, self._end, standing
        )
        self._timer = trio.CancelScope()
        self._armed_ms = 0
        self._clock_anchor_ms = 0.0
        self._scope = trio.CancelScope()
        self._limit = LineLimit(LINES_AT_ONCE, LINE_INTERVAL_S)
        self.figures = QuorumFigures()
        self._repairs = trio.Event()
        """Set when the repair is over."""
        self._fatal: Exception | None = None
        """The error that broke the core. `run` raises it, even if another caller got it as well."""
        self._trace: TraceWriter | None = None
        self._trace_file = TraceFile(config.trace_file, self._threads) if config.trace_file is not None else None
        self._has_begun = False
        self._ended = trio.Event()

    # --- calls and queries ---------------------------------------------------------------------------------------------------

    def propose(self, epoch: int, body: bytes, record_count: int) -> tuple[int, int]:
        """Append one batch as leader of `epoch`; return its (base offset, end offset). It is not committed yet.

        `body` is one MessagePack array of `record_count` records. Raises NotLeader, Overloaded, or ValueError (too large for a
        batch); then nothing was appended. `StateMachine.apply` gets the batch once it is committed. If leadership is lost first,
        the batch may survive or not.
        """
        core = self._core
        if core is None:
            raise NotLeader(-1, epoch)
        if self._stepping:
            raise InvariantViolation("propose was called while effects are being carried out; call it from a task")
        if self._writer.staged_bytes > STAGED_BYTES_MAX:
            raise Overloaded(f"{self._writer.staged_bytes} bytes wait to be written to {self.config.directory}; try again later")
        effects = self._feed(core, Propose(epoch, body, record_count))
        self._drain_inbox(core)
        self._deferred.set()
        for effect in effects:
            if isinstance(effect, Proposed):
                self.figures.proposed(effect.end_offset, self._clock.now_s())
                return effect.base_offset, effect.end_offset
            if isinstance(effect, Rejected):
                if effect.overloaded:
                    raise Overloaded("too many bytes wait to be committed; try again after some have been")
                raise NotLeader(effect.leader_id, effect.epoch)
        raise InvariantViolation("the core did not answer a proposal")

    async def read_index(self) -> int:
        """Return the offset that a linearizable read must wait for: everything acknowledged so far lies below it.

        Raises NotLeader, also if leadership is lost before a majority has confirmed it, and Overloaded. Takes a round trip to a
        majority of the voters, shared by all simultaneous reads. May be cancelled.
        """
        core = self._core
        if core is None or not core.is_leader:
            await trio.lowlevel.checkpoint()
            raise NotLeader(self.leader.leader_id, self.leader.epoch)
        answer = self._read_index.join()
        self._deferred.set()
        return await offset_of(answer)

    def resign(self, epoch: int, reason: str) -> None:
        """Resign the leadership of `epoch`; do nothing in any other epoch."""
        self._step(ResignAsked(epoch, reason))

    async def ask(self, request: VoterChangeRequest) -> VoterChangeResponse:
        """Add, remove or update a voter, or transfer the leadership (KIP-853); the request goes to this node's own core.

        The answer says NOT_LEADER_OR_FOLLOWER, and names the leader, if this node does not lead. It comes when the change is
        committed or has failed; a change that timed out may still be committed.
        """
        core = self._core
        if core is None:
            await trio.lowlevel.checkpoint()
            return VoterChangeResponse(
                ErrorCode.BROKER_NOT_AVAILABLE, LeaderView(0), "the node is starting or stopping; try again"
            )
        asked = OwnRequest()
        abandon = self.peers.ask_own(request, asked)
        try:
            return await asked.wait()
        finally:
            abandon()

    async def take_snapshot(self) -> OffsetAndEpoch:
        """Take a snapshot of the applied state now; return its id. NoSnapshot says why there is none; StorageFull."""
        if self._core is None:
            await trio.lowlevel.checkpoint()
            raise NoSnapshot("the node is starting or stopping")
        return await self._taker.take()

    def snapshots(self) -> list[SnapshotInfo]:
        """Return the finished snapshots of this node, oldest first."""
        return self._store.snapshots.infos() if self._core is not None else []

    @property
    def identity(self) -> PeerIdentity:
        """This node's identity in frames; known once `run` has started, because the generation is on the disk."""
        assert self._identity is not None, "the driver has not started"
        return self._identity

    @property
    def generation(self) -> int:
        """Number of times that the quorum was forced, as far as this node knows."""
        return self.identity.generation

    @property
    def is_running(self) -> bool:
        """True once the log is recovered, until `stop`."""
        return self._core is not None

    @property
    def leader(self) -> LeaderView:
        """The leader, as far as this node knows. Threads may ask too: their log lines name the epoch."""
        core = self._core
        return core.leader if core is not None else LeaderView(0)

    @property
    def high_watermark(self) -> int:
        """Everything below is committed; -1 if unknown."""
        return self._core.high_watermark if self._core is not None else -1

    @property
    def end_offset(self) -> int:
        """End of this node's log, durable or not."""
        return self._core.log_end_offset if self._core is not None else 0

    @property
    def applied_offset(self) -> int:
        """Everything below has been given to the state machine."""
        return self._applier.applied_offset if self._core is not None else 0

    def committed(self, start_offset: int, max_bytes: int) -> bytes:
        """Return whole batches from `start_offset` on that are known as committed; b"" if there are none (now).

        Batches that are not in memory are read from the disk at once.
        """
        return b"" if self._core is None else self._log.read(start_offset, max_bytes, end_offset=max(0, self.high_watermark))

    def describe(self) -> QuorumDescription:
        """Return the quorum as this node knows it; progress of other replicas only if it leads."""
        core = self._core
        if core is None:
            return QuorumDescription(self.config.raft.node_id, -1, 0, -1, [], [])
        return describe_quorum(core, self._now_ms())

    def statistics(self) -> DriverStatistics:
        """Return a snapshot of the node's numbers. Only while `run` runs (`is_running`)."""
        assert self._core is not None, "the driver does not run"
        return DriverStatistics(
            core=self._core.statistics(),
            flushes=self._writer.flushes,
            staged_bytes=self._writer.staged_bytes,
            held_messages=self.peers.held_messages,
            applied_offset=self._applier.applied_offset,
            disk_busy_s=0.0 if self._writer.busy_since is None else trio.current_time() - self._writer.busy_since,
            log_bytes=self._log.size_bytes,
            segments=self._log.segment_count,
        )

    def handlers(self) -> Mapping[int, DirectHandler]:
        """Return the quorum's RPCs, for the node's PeerServer."""
        quorum = DirectHandler(self._accept)
        return {**dict.fromkeys(REQUEST_OF, quorum), DESCRIBE_QUORUM: DirectHandler(self._accept_describe)}

    # --- life ----------------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the log and take part in the quorum until `stop`. Started once the log is recovered and peers are answered.

        Raises StorageError (LogCorrupt, WrongIdentity at the start or when most voters are of another cluster; FsyncFailed,
        DiskFailed later), LogTruncationRefused (the leader lacks committed records), GenerationOver and InvariantViolation; and
        ValueError if a snapshot or a record is unreadable.
        """
        self._store = store = await self._threads.run(self._open)
        self._identity = PeerIdentity(self.config.cluster_id, store.identity.generation, self.config.raft.key)
        self._log = store.log
        self._writer = LogFlusher(store.log, self._threads, self.figures, self._storage_completed, self._storage_full)
        self._has_begun = True
        for note in store.notes:
            logger.warning("node %d: %s", self.config.raft.node_id, note)
        try:
            await self._run(store, task_status)
            if self._fatal is not None:
                raise self._fatal
        except BaseExceptionGroup as group:
            raise only_cause(group) from None
        finally:
            self._close()

    def _open(self) -> MetadataStore:
        """Open the metadata directory. Worker thread."""
        raft = self.config.raft
        is_sole_voter = raft.voters.ids() == (raft.node_id,)
        return MetadataStore.open(
            self._file_system, self.config.directory, self.config.cluster_id, raft.directory_id, sole_voter=is_sole_voter
        )

    def _close(self) -> None:
        leader, self._core = self.leader, None
        self._read_index.close(leader)
        self._taker.close()
        if self._trace_file is not None:
            self._trace_file.close()
        self.peers.close()
        if self._writer.is_stuck or self._threads.is_stuck:
            logger.error("the disk of %s does not answer; its files are left open", self.config.directory)
        else:
            self._store.close()
        self._ended.set()

    async def _run(self, store: MetadataStore, task_status: trio.TaskStatus[None]) -> None:
        config = self.config
        self._clock_anchor_ms = self._clock.wall_s() * 1000 - self._clock.now_s() * 1000
        self._election_writer = ElectionWriter(store.election_store, self._threads, self._election_state_stored)
        self._taker = SnapshotTaker(
            store.snapshots,
            self._threads,
            self._state_machine,
            config.snapshot_max_new_bytes,
            config.snapshot_max_interval_ms,
            self._snapshot_context,
            lambda snapshot: self._step(SnapshotTaken(snapshot)),
            self._wake_applier,
            self._storage_full,
            self._clock.wall_s,
        )
        core = self.make_core(config.raft, store.log_view(), store.election, self._random, self._now_ms(), store.boot)
        self._applier = ApplyTask(
            store.log,
            store.snapshots,
            self._threads,
            lambda: core.snapshots[-1] if core.snapshots else None,
            self._state_machine,
            self._taker,
        )
        self._copies = SnapshotCopies(store.snapshots, self._threads, self._step, self._snapshot_damaged, self._storage_full)
        self._handlers = Shell(
            log=self._writer,
            applier=self._applier,
            store_election_state=self._election_writer.store,
            send=self.peers.put,
            reply=self.peers.put,
            read_log=self._reads.append,
            answer_read=self._read_index.answer,
            read_snapshot=lambda effect: self._nursery.start_soon(self._copies.read, effect),
            rewrite_snapshot=self._taker.rewrite,
            copy_snapshot=self._copies.put,
            repair_ended=self._on_repair_ended,
            voters_changed=self._on_voters_changed,
            trace=self._on_trace,
        ).handlers() | {Apply: self._on_apply}
        own = config.raft.endpoints.get(config.peer_listener)
        addresses = AddressBook(
            config.peer_listener, own, config.bootstrap_endpoints, core.endpoints_of, lambda: core.voters, self._random
        )
        with self._scope, self._writer:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self._trace_file is not None:
                    await self._trace_file.open()
                self.peers.connect(PeerPool(nursery, self.identity, self._network), addresses)
                self._core = core
                tasks = (self._writer.run, self._election_writer.run, self._applier.run, self._taker.run, self._copies.run)
                for task in (*tasks, self._run_deferred, self._run_timer, self._watch_disk):
                    nursery.start_soon(task)
                if self._trace_file is not None:
                    self._trace = TraceWriter(self._trace_file.write, core, self._now_us())
                    nursery.start_soon(self._trace_file.run)
                if core.is_repairing:
                    nursery.start_soon(self._watch_repair, core, store.boot.repair_until, store.damage)
                task_status.started()

    async def stop(self) -> None:
        """Stop gracefully: resign, flush, end `run` and wait for it. Can be called more than once."""
        if self._core is not None:
            self._step(ShutdownAsked())
            with trio.move_on_after(STOP_TIMEOUT_S):
                await self.peers.goodbyes_answered()
                await self._writer.wait_idle()
                await self._note_committed()
        self._scope.cancel()
        if self._has_begun:
            await self._ended.wait()

    async def _note_committed(self) -> None:
        """Store the committed offset if it is above every stamp in the log."""
        offset = self.high_watermark
        if offset > self._log.high_watermark_stamp:
            try:
                await self._threads.run(self._store.note_committed, offset)
            except StorageError as error:
                logger.warning("node %d: cannot store the committed offset: %s", self.config.raft.node_id, error)

    def _now_ms(self) -> int:
        return int(self._clock.now_s() * 1000 + self._clock_anchor_ms)

    def _now_us(self) -> int:
        return int((self._clock.now_s() * 1000 + self._clock_anchor_ms) * 1000)

    # --- the core: events in, effects out ------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        """Feed the core an event and apply the effects, including the flush and the messages that follow."""
        self._inbox.append(event)
        if self._stepping or self._core is None:
            return
        self._drain_inbox(self._core)
        self._writer.kick()
        if self._reads:
            self._deferred.set()

    def _drain_inbox(self, core: RaftNode) -> None:
        while self._inbox:
            self._feed(core, self._inbox.popleft())
        deadline_ms = core.next_deadline_ms()
        if deadline_ms < self._armed_ms:
            self._arm(deadline_ms)

    def _feed(self, core: RaftNode, event: Event) -> list[Effect]:
        """Feed the core one event, carry its effects out, and return them."""
        self._stepping = True
        try:
            effects = core.step(event, self._now_ms())
            if self._trace is not None:
                self._trace.step(self._now_us(), event, effects)
            for effect in effects:
                self._handlers[type(effect)](effect)
        except Exception as error:
            if not (isinstance(error, ValueError) and isinstance(event, Propose)):
                self._end(error)
            raise
        finally:
            self._stepping = False
        return effects

    async def _run_deferred(self) -> None:
        """Apply flushes, reads and read index requests at the end of their scheduling pass.

        All proposals of a pass share one flush and one answer to each follower. The messages leave before the disk begins: a
        follower's disk starts later, and the disk's thread would hold the interpreter between two messages. Reads that follow a
        commit are sent after the state machine has got the batch, because a caller waits there.
        """
        while True:
            await self._deferred.wait()
            token = self._read_index.take_token()
            if token is not None:
                self._step(ReadIndexAsked(token))
            while self._reads and self._core is not None:
                if self._applier.busy:
                    self._writer.kick()
                    await trio.lowlevel.checkpoint()
                for _ in range(len(self._reads)):
                    self._read_log(self._reads.popleft())
                self._drain_inbox(self._core)
            self._writer.kick()

    def _arm(self, deadline_ms: int) -> None:
        self._armed_ms = deadline_ms
        self._timer.deadline = self._clock.at((deadline_ms - self._clock_anchor_ms) / 1000)

    async def _run_timer(self) -> None:
        """Fire the core's timer when its next deadline has passed.

        `_step` only moves the alarm forward; an early one is set again.
        """
        core = self._core
        assert core is not None
        self._clock.follow(lambda: self._arm(self._armed_ms))
        while True:
            self._timer = trio.CancelScope()
            self._arm(core.next_deadline_ms())
            with self._timer:
                await trio.sleep_forever()
            if core.next_deadline_ms() <= self._now_ms():
                self._step(TimerFired())

    async def _watch_disk(self) -> None:
        """Resign if this node leads and its disk does not answer: it could acknowledge nothing, and others can."""
        limit_s = self.config.raft.fetch_timeout_ms / 1000
        while True:
            await trio.sleep(limit_s / 2)
            busy_since = self._writer.busy_since
            leader = self.leader
            if (
                busy_since is not None
                and trio.current_time() - busy_since > limit_s
                and leader.leader_id == self.config.raft.node_id
                and self._core is not None
                and len(self._core.voters.voters) > 1
            ):
                self._step(ResignAsked(leader.epoch, f"a write to {self.config.directory} takes longer than {limit_s:.1f} s"))

    async def _watch_repair(self, core: RaftNode, until: int, damage: str | None) -> None:
        """Log the progress of the repair until it is over."""
        node_id, logged = self.config.raft.node_id, -1
        logger.warning(
            "node %d repairs its metadata log up to offset %d, and does not vote until then: %s", node_id, until, damage
        )
        while core.is_repairing:
            with trio.move_on_after(REPAIR_PROGRESS_S):
                await self._repairs.wait()
            if core.durable_end_offset != logged:
                logged = core.durable_end_offset
                logger.warning("node %d repairs its metadata log: offset %d of %d", node_id, min(logged, until), until)

    # --- storage -------------------------------------------------------------------------------------------------------------

    def _on_repair_ended(self, effect: RepairEnded) -> None:
        self._repairs.set()
        self._nursery.start_soon(self._end_repair)

    async def _end_repair(self) -> None:
        complaint = "files that were set aside for the repair cannot be removed, trying again"
        await when_there_is_room(self._threads, complaint, self._store.end_repair)
        logger.warning("node %d has repaired its metadata log; it votes again", self.config.raft.node_id)

    def _snapshot_context(self, applied_offset: int, append_time_ms: int) -> SnapshotContext | str:
        """Return the beginning of a snapshot of the applied state, or the reason why there can be none."""
        core = self._core
        if core is None:
            return "the node is starting or stopping"
        context = core.snapshot_context(
            applied_offset, cluster_id=self.config.cluster_id, generation=self.generation, append_time_ms=append_time_ms
        )
        if context is not None:
            return context
        if core.is_repairing:
            return "the metadata log is being repaired; try again when it is whole"
        return "nothing new was committed since the newest snapshot"

    def _snapshot_damaged(self, snapshot: OffsetAndEpoch, reason: str) -> None:
        logger.error(
            "node %d: snapshot %s is damaged on its disk and is no longer served (%s); another is written in its place. "
            "Nothing is lost while this node runs or another voter has the data: check the disk of %s",
            self.config.raft.node_id,
            snapshot,
            reason,
            self.config.directory,
        )

    def _wake_applier(self) -> None:
        self._applier.wake()

    def _storage_completed(self, append_id: int) -> None:
        self._applier.storage_completed()
        self.peers.storage_completed(append_id)
        self._step(StorageCompleted(append_id))

    def _election_state_stored(self, version: int) -> None:
        self.peers.election_state_stored(version)
        self._step(ElectionStateStored(version))

    def _storage_full(self, reason: str) -> None:
        if self._core is not None and self._core.is_leader:
            self._step(StorageFailed(reason))

    def _read_log(self, effect: ReadLog) -> None:
        if self._log.cached(effect.start_offset):
            self._inbox.append(RecordsRead(effect.read_id, self._log.read(effect.start_offset, effect.max_bytes)))
        else:
            self._nursery.start_soon(self._read_from_disk, effect)

    async def _read_from_disk(self, effect: ReadLog) -> None:
        data = await self._threads.run(self._log.read, effect.start_offset, effect.max_bytes)
        self._step(RecordsRead(effect.read_id, data))

    # --- the state machine ---------------------------------------------------------------------------------------------------

    def _on_apply(self, effect: Apply) -> None:
        self.figures.committed(effect.high_watermark, self._clock.now_s())
        self._applier.advance(effect)

    def _on_voters_changed(self, effect: VotersChanged) -> None:
        logger.info("node %d: the voters are %r", self.config.raft.node_id, effect.voters)
        self.peers.voters_changed(self.leader.endpoints)

    def _on_trace(self, effect: Trace) -> None:
        if effect.kind == NO_EPOCH_LEFT:
            logger.error("node %d: %s", self.config.raft.node_id, effect.text)
        elif effect.move is not None:
            self.figures.moved(effect.move, self._clock.now_s())
            logger.info("node %d: %s %s", self.config.raft.node_id, effect.kind, effect.text)
        else:
            self._log_limited(logging.INFO, "%s %s", effect.kind, effect.text)

    def _log_limited(self, level: int, message: str, *values: object) -> None:
        """Log a line that could repeat many times per second."""
        suppressed = self._limit.admit(trio.current_time())
        if suppressed is not None:
            more = f" ({suppressed} such lines before this one were left out)" if suppressed else ""
            logger.log(level, f"node %d: {message}%s", self.config.raft.node_id, *values, more)

    # --- peers ---------------------------------------------------------------------------------------------------------------

    def met_newer_generation(self, generation: int, who: str) -> None:
        """End `run` with GenerationOver: a controller that was asked says that the quorum was forced, and this node's metadata is
        history. A node that has missed more than one generation is not ended, unless its log is empty and it has nothing to lose.
        """
        core = self._core
        if core is None or generation <= self.generation:
            return
        config = self.config
        if generation > self.generation + 1 and core.log_end_offset > 0:
            missed = generations_missed(config.directory, self.generation, generation, who)
            self._log_limited(logging.ERROR, "%s", missed)
            return
        # A log without a voter set belongs to static voters, and this node may have been one before its configuration changed.
        # A node whose removal may not be committed may still vote.
        is_voter_perhaps = core.quorum.membership.is_eligible
        is_expendable = not is_voter_perhaps and (bool(core.voters.voters) or core.log_end_offset == 0)
        self._end(
            generation_over(config.directory, config.cluster_id, self.generation, generation, who, is_expendable=is_expendable)
        )

    def _end(self, error: Exception) -> None:
        if self._fatal is None:
            self._fatal = error
            self._scope.cancel()

    def _accept(self, request: PeerRequest, responder: Responder) -> None:
        if self._core is None:
            responder.refuse(ErrorCode.BROKER_NOT_AVAILABLE, "the node is starting or stopping; try again")
            return
        self.peers.accept(request, responder)

    def _accept_describe(self, request: PeerRequest, responder: Responder) -> None:
        if self._standing(request) is Standing.STRANGER:
            text = "the quorum is described only to nodes, and to callers with CLUSTER_ACTION: use the admin API"
            responder.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
            return
        responder.reply(_encode(self.describe()))
