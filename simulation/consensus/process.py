"""One incarnation of a node: a RaftNode with the real outbox and the real storage code, driven as the real driver drives them.

`step` hands the node one event and applies its effects in order. Faults can end the process between two effects
(`crash_in_effects`), during a flush (`crash_in_flush_of_bytes`) or during the store of an election state (`crash_in_store`).
Appends reach memory at once and the disk later: one flush at a time takes everything that is staged when it begins, and the data
is durable when it ends. Election states are stored the same way; the newest one replaces earlier ones that still wait. The state
machine is fed in applying.py, and snapshots are in snapshot_work.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kraftlab.quorum.core.effects import (
    Append,
    CleanLog,
    Effect,
    Effects,
    InstallSnapshot,
    Proposed,
    ReadIndexReady,
    ReadIndexRefused,
    ReadLog,
    Reply,
    Send,
    StoreElectionState,
    Trace,
    Truncate,
)
from kraftlab.quorum.core.events import (
    ElectionStateStored,
    Event,
    Propose,
    ReadIndexAsked,
    RecordsRead,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ShutdownAsked,
    StorageCompleted,
    StorageFailed,
    TimerFired,
)
from kraftlab.quorum.core.messages import Response, VoterChangeRequest, VoterChangeResponse
from kraftlab.quorum.core.outbox import Outbox
from kraftlab.quorum.core.shell import Shell, ignore
from kraftlab.quorum.storage import DiskFailed, FsyncFailed, LogCorrupt, MetadataStore, StorageFull
from kraftlab.quorum.storage.metadata_log import FlushWork
from kraftlab.quorum.trace import TraceWriter

from .applying import ApplyLoop, ReadDone
from .snapshot_work import SnapshotWork
from .stage import Host, Inbound
from .transcript import pack_step
from .voter_trail import VoterTrail

Answered = Callable[[VoterChangeResponse], None]

NEVER_MS = 1 << 60
RETRY_US = 30_000
TIMER_FIRED = TimerFired()
EVENT_KINDS: dict[type, int] = {kind: number for number, kind in enumerate(Event.__args__)}


class SimulatedProcess:
    """A process that Machine.boot has started. A process that has crashed or stopped is `dead` forever."""

    def __init__(self, machine: Host, store: MetadataStore) -> None:
        world = machine.world
        self.machine = machine
        self.world = world
        self.node_id = machine.node_id
        self.dead = False
        self.is_stopping = False
        self.log = store.log
        self.outbox = Outbox()
        self.inbound: dict[int, Inbound] = {}
        self.voter_changes: dict[int, Answered] = {}
        """By token, the callbacks for changes of voters that this process was asked for."""
        self.state_machine = world.make_state_machine(self.node_id)
        self.applying = ApplyLoop(self)
        self.crash_in_effects: int | None = None
        self.crash_in_flush_of_bytes: int | None = None
        """Power goes during the next flush that writes at least so many bytes or installs a snapshot; None: it does not."""
        self.crash_in_store = False
        self.flush: tuple[FlushWork, int] | None = None
        self.storing: StoreElectionState | None = None
        self.election_store = store.election_store
        self.is_leading = False
        """True if the process led before the current step, or after the newest step."""
        self.key = machine.key
        self.voter_trail: VoterTrail = world.voters.trail_of(machine.durable)
        """The voter sets of this node's log, as the simulation has read them from batches."""
        self.repair_until = store.boot.repair_until
        """Offset up to which the log must be fetched again, since storage has found rot; 0: nowhere."""
        self._latency = machine.disk_random
        self._short_reads = world.options.short_reads
        self._next_token = 1
        self._outstanding: dict[int, int] = {}
        self._timeouts: dict[int, deque[tuple[int, int]]] = {}
        self._staged_id = 0
        self._flushed_id = 0
        self._to_store: StoreElectionState | None = None
        self._has_rubbish = False
        self.reads: dict[int, tuple[int, ReadDone | None]] = {}
        """Linearizable reads without an answer so far: token → (committed offset when it was asked, callback)."""
        self._timer_ms = NEVER_MS
        """The deadline of the armed timer; NEVER_MS: no timer is armed."""
        self._timer_us = 0
        self._seen: object = None
        self._local: deque[Event] = deque()
        self.raft = world.make_core(
            world.config_of(machine.node_id),
            store.log_view(),
            store.election,
            world.options.random(f"raft/{self.node_id}/{machine.boots}"),
            machine.now_ms(),
            store.boot,
        )
        self.snapshots = SnapshotWork(self, self.applying, store)
        self.snapshots.load_newest()
        self.quorum, self.local_log = self.raft.quorum, self.raft.local_log
        """Two parts of the node that every step looks at."""
        self._record = world.transcript.gathered.append
        self._checkers = world.checkers
        self._network = world.network
        self._execute = self._handlers()
        self._trace = TraceWriter(world.trace, self.raft, world.now_us) if world.trace is not None else None
        self._is_watched = world.transcript.is_read or self._trace is not None
        self._deadline_ms = self.raft.next_deadline_ms()
        """The core's next deadline after the newest step."""
        self._arm_timer(self._deadline_ms)

    def _handlers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the handler of each type of effect."""
        return Shell(
            log=self,
            applier=self.applying,
            store_election_state=self._on_store_election_state,
            send=self._on_send,
            reply=self._on_reply,
            read_log=self._on_read_log,
            answer_read=self._on_read_answered,
            read_snapshot=self.snapshots.read,
            rewrite_snapshot=self.snapshots.rewrite,
            copy_snapshot=self.snapshots.copy,
            repair_ended=self.snapshots.end_repair,
            voters_changed=ignore,
            trace=self._on_trace,
        ).handlers()

    # Steps

    def step(self, event: Event) -> Effects:
        """Hand the node one event, and everything that follows without delay. Return the effects of the event itself."""
        if self.dead:
            return []
        effects = self._step(event)
        while self._local and not self.dead:
            self._step(self._local.popleft())
        if not self.dead:
            deadline_ms = self._deadline_ms = self.raft.next_deadline_ms()
            if deadline_ms < self._timer_ms:
                self._arm_timer(deadline_ms)
        return effects

    def _step(self, event: Event) -> Effects:
        now_us = self.world.now_us
        effects = self.raft.step(event, self.machine.now_ms())
        state, log = self.quorum.state, self.local_log
        view, kind = log.view, EVENT_KINDS[type(event)]
        self._record(
            pack_step(
                now_us, self.node_id, kind, state.epoch, state.leader_id, view.end_offset, log.high_watermark, view.last_crc
            )
        )
        if self._is_watched:
            self._show(event, effects)
        if effects:
            execute, may_crash = self._execute, self.crash_in_effects is not None
            try:
                for effect in effects:
                    if may_crash and self._crashes_here():
                        return effects
                    execute[type(effect)](effect)
            except (DiskFailed, LogCorrupt) as error:
                self.end_of(error)
                return effects
        if state is not self._seen:
            self._seen = state
            is_leader = self.raft.is_leader
            if self.is_leading is not is_leader:
                self.is_leading = is_leader
                self.world.leaders_changed()
            self._checkers.on_state(self)
        return effects

    def _show(self, event: Event, effects: Effects) -> None:
        """Show the step to the transcript and the trace."""
        world = self.world
        if world.transcript.is_read:
            world.transcript.show(world.now_us, self.node_id, event, self.quorum.state, self.local_log, effects)
        if self._trace is not None:
            self._trace.step(world.now_us, event, effects)

    def _crashes_here(self) -> bool:
        """Count down to the effect at which power goes. Return True if the process is dead."""
        assert self.crash_in_effects is not None
        self.crash_in_effects -= 1
        if self.crash_in_effects < 0:
            self.machine.crash(power_cut=True, reason="between two effects")
        return self.dead

    def end_of(self, error: DiskFailed | LogCorrupt) -> None:
        """End the process because its disk fails. After a failed fsync, unsynced data can be lost as well."""
        if isinstance(error, LogCorrupt) and not self.machine.has_rotten_log:
            raise error
        self.machine.crash(power_cut=isinstance(error, FsyncFailed), reason=str(error))

    def _on_trace(self, trace: Trace) -> None:
        if trace.move is not None and trace.move.source:
            self.world.moved(trace.move.source, trace.move.target)

    def postponed(self, action: Callable[..., object], *arguments: object) -> bool:
        """Return True if the process is dead, or paused: then the action runs when the pause ends.

        Callers on hot paths check first if the machine was ever paused.
        """
        if self.dead:
            return True
        wait_us = self.machine.paused_until_us - self.world.now_us
        if wait_us <= 0:
            return False
        self.world.after(wait_us, action, *arguments)
        return True

    # Time

    def _arm_timer(self, deadline_ms: int) -> None:
        """Arm the timer, unless it is armed for an earlier time. NEVER_MS needs no timer."""
        if deadline_ms >= NEVER_MS:
            return
        world = self.world
        due_us = self.machine.time_us_at(deadline_ms)
        delay_us = due_us - world.now_us
        if delay_us < 0:
            due_us, delay_us = world.now_us, 0
        if self._timer_ms == NEVER_MS or due_us < self._timer_us:
            self._timer_ms, self._timer_us = deadline_ms, due_us
            world.after(delay_us, self._timer, due_us)

    def _timer(self, due_us: int) -> None:
        if self._timer_us != due_us or self._timer_ms == NEVER_MS or self.dead:
            return
        if self.machine.paused_until_us and self.postponed(self._timer, due_us):
            return
        self._timer_ms = NEVER_MS
        now_ms = self.machine.now_ms()
        if self._deadline_ms > now_ms:
            self._arm_timer(self._deadline_ms)
            return
        self.step(TIMER_FIRED)
        if not self.dead and self._deadline_ms <= now_ms:
            raise AssertionError(f"{self.raft!r} still wants a timer at {self._deadline_ms} after it fired at {now_ms}")

    def clock_changed(self) -> None:
        """Arm the timer again, since the machine's clock has jumped or changed its rate."""
        self._timer_ms = NEVER_MS
        self._arm_timer(self._deadline_ms)

    # Messages

    def receive(self, inbound: Inbound) -> None:
        if self.dead or (self.machine.paused_until_us and self.postponed(self.receive, inbound)):
            return
        token = self._next_token
        self._next_token += 1
        self.inbound[token] = inbound
        self.step(RequestReceived(token, inbound.caller.key, inbound.request))

    def answered(self, correlation: int, source: int, response: Response, again: bool = False) -> None:
        """Receive an answer. A repeated answer (`again`) reaches the core as well, which must ignore it."""
        if self.dead or (self.machine.paused_until_us and self.postponed(self.answered, correlation, source, response, again)):
            return
        if self._outstanding.pop(correlation, None) is not None or again:
            self.step(ResponseReceived(correlation, source, response))

    def fail(self, event: RequestFailed) -> None:
        if self.dead or (self.machine.paused_until_us and self.postponed(self.fail, event)):
            return
        if self._outstanding.pop(event.correlation, None) is not None:
            self.step(event)

    def abandoned(self, event: RequestAbandoned) -> None:
        if self.postponed(self.abandoned, event):
            return
        if self.inbound.pop(event.correlation, None) is not None:
            self.step(event)

    def _on_send(self, send: Send) -> None:
        correlation, timeout_ms = send.correlation, send.timeout_ms
        self._outstanding[correlation] = send.destination
        waiting = self._timeouts.get(timeout_ms)
        if waiting is None:
            waiting = self._timeouts[timeout_ms] = deque()
        timeout_us = timeout_ms * 1000
        if not waiting:
            self.world.after(timeout_us, self._time_out, timeout_ms)
        waiting.append((self.world.now_us + timeout_us, correlation))
        if self.outbox.put(send):
            self._release_send(send)

    def _time_out(self, timeout_ms: int) -> None:
        """Fail the oldest request with this timeout if it is overdue. Answered requests are dropped here."""
        if self.dead or (self.machine.paused_until_us and self.postponed(self._time_out, timeout_ms)):
            return
        waiting = self._timeouts[timeout_ms]
        while waiting and not self.dead:
            due_us, correlation = waiting[0]
            if correlation not in self._outstanding:
                waiting.popleft()
            elif due_us > self.world.now_us:
                self.world.after(due_us - self.world.now_us, self._time_out, timeout_ms)
                return
            else:
                destination = self._outstanding.pop(correlation)
                self.step(RequestFailed(correlation, destination))
                if waiting and waiting[0][1] == correlation:
                    waiting.popleft()
                if waiting:
                    self.world.after(max(0, waiting[0][0] - self.world.now_us), self._time_out, timeout_ms)
                return

    def _on_reply(self, reply: Reply) -> None:
        if self.outbox.put(reply):
            self._release_reply(reply)

    def newest_request(self) -> int | None:
        """Return the correlation of the newest request to a certain node that waits for its answer; None if there is none."""
        return next((number for number in reversed(self._outstanding) if self._outstanding[number] >= 0), None)

    # Messages leave here: everything that they claim must be on the disk by now.

    def _release_send(self, send: Send) -> None:
        self._checkers.sent(self, send)
        if send.correlation in self._outstanding:
            self._network.send(self, send)

    def _release_reply(self, reply: Reply) -> None:
        inbound = self.inbound.pop(reply.correlation, None)
        if inbound is not None:
            self._checkers.replied(self, inbound, reply)
            self._network.reply(self, inbound, reply.response)
        elif reply.correlation in self.voter_changes and isinstance(reply.response, VoterChangeResponse):
            self.voter_changes.pop(reply.correlation)(reply.response)

    # Storage

    def latency_us(self) -> int:
        return 20 + int(self._latency.random() * 2 * self.world.disk_latency_us(self.node_id))

    def append(self, effect: Append) -> None:
        self._checkers.append(self, effect)
        self.log.append(effect.base_offset, effect.end_offset, effect.data)
        self._staged_id = effect.append_id
        self._begin_flush()

    def truncate(self, effect: Truncate) -> None:
        self.world.checkers.truncate(self, effect)
        self.log.truncate(effect.to_offset)
        self._staged_id = effect.append_id
        self._begin_flush()

    def install(self, effect: InstallSnapshot) -> None:
        self.world.checkers.install(self, effect)
        self.log.install(effect.id, effect.last_crc)
        self._staged_id = effect.append_id
        self._begin_flush()

    def clean(self, effect: CleanLog) -> None:
        self.log.clean(effect.start)
        self._has_rubbish = True
        self._begin_flush()

    def _begin_flush(self) -> None:
        if not self.dead and self.flush is None and (self._staged_id > self._flushed_id or self._has_rubbish):
            self._has_rubbish = False
            taken = self.log.begin_flush()
            self.flush = (taken, self._staged_id)
            self.world.after(self.latency_us(), self._end_flush)
            least_bytes = self.crash_in_flush_of_bytes
            if least_bytes is not None and (len(taken.data) >= least_bytes or taken.install is not None):
                self.world.after(1, self.machine.crash_process, self, "while it flushes")

    def _end_flush(self) -> None:
        if self.flush is None or self.dead or (self.machine.paused_until_us and self.postponed(self._end_flush)):
            return
        taken, append_id = self.flush
        self.flush = None
        try:
            self.log.finish_flush(taken)
        except StorageFull as error:
            self.machine.flush_was_cut_short(taken)
            self._has_rubbish = True
            self.world.after(RETRY_US, self._begin_flush)
            self.step(StorageFailed(str(error)))
            return
        except DiskFailed as error:
            self.machine.flush_was_cut_short(taken)
            self.end_of(error)
            return
        is_news = append_id > self._flushed_id
        self._flushed_id = append_id
        self.machine.flush_ended(taken)
        if is_news:
            self._release_all(self.outbox.storage_completed(append_id))
            self.step(StorageCompleted(append_id))
        if not self.dead:
            self._checkers.on_flushed(self)
            if self.log.start_offset > self.applying.applied_offset:
                self.applying.go_on()
        self._begin_flush()

    def _on_store_election_state(self, effect: StoreElectionState) -> None:
        self._to_store = effect
        self._begin_store()

    def _begin_store(self) -> None:
        if not self.dead and self.storing is None and self._to_store is not None:
            self.storing, self._to_store = self._to_store, None
            self.world.after(self.latency_us(), self._end_store)
            if self.crash_in_store:
                self.world.after(1, self.machine.crash_process, self, "while it stores an election state")

    def _end_store(self) -> None:
        if self.postponed(self._end_store) or self.storing is None:
            return
        storing = self.storing
        try:
            self.election_store.store(storing.state)
        except StorageFull as error:
            self.storing = None
            self._to_store = self._to_store or storing
            self.world.after(RETRY_US, self._begin_store)
            self.step(StorageFailed(str(error)))
            return
        except DiskFailed as error:
            self.machine.possibly_stored = storing.state
            self.end_of(error)
            return
        self.storing = None
        self.world.checkers.on_stored(self.machine, storing.state)
        self.machine.stored = storing.state
        self._release_all(self.outbox.election_state_stored(storing.version))
        self.step(ElectionStateStored(storing.version))
        self._begin_store()

    def _release_all(self, messages: list[Send | Reply]) -> None:
        for message in messages:
            if type(message) is Send:
                self._release_send(message)
            elif type(message) is Reply:
                self._release_reply(message)

    def _on_read_log(self, effect: ReadLog) -> None:
        cached = self.log.cached(effect.start_offset)
        is_short = self._short_reads > 0 and self._latency.random() * 1000 < self._short_reads
        data = self.log.read(effect.start_offset, 1 if is_short else effect.max_bytes)
        if cached:
            self._local.append(RecordsRead(effect.read_id, data))
        else:
            self.world.after(self.latency_us(), self._read_done, RecordsRead(effect.read_id, data))

    def _read_done(self, event: RecordsRead) -> None:
        if not self.postponed(self._read_done, event):
            self.step(event)

    # Requests

    def ask(self, request: VoterChangeRequest, then: Answered) -> None:
        """Ask this process for a change of the voters, like the driver's `ask`. `then` gets the answer if there is one."""
        token = self._next_token
        self._next_token += 1
        self.voter_changes[token] = then
        self.step(RequestReceived(token, self.key, request))

    def propose(self, body: bytes, record_count: int) -> bool:
        """Append a batch as leader. It is acknowledged when this process applies it while it still leads."""
        if self.dead or self.machine.paused_until_us > self.world.now_us:
            return False
        for effect in self.step(Propose(self.quorum.epoch, body, record_count)):
            if type(effect) is Proposed and not self.dead and self.raft.is_leader and self.quorum.epoch == effect.epoch:
                crc = self.local_log.view.crc_at(effect.end_offset)
                self.applying.acknowledge(effect.base_offset, effect.end_offset, crc)
                return True
        return False

    def read(self, then: ReadDone | None = None) -> None:
        """Ask for a linearizable read. The process can be wrong about its leadership, or paused. `then` is called with True when
        the state machine has applied enough, with False if the read is refused, and never if the process ends.
        """
        if self.postponed(self.read, then):
            return
        token = self._next_token
        self._next_token += 1
        self.reads[token] = (self.world.history.end_offset, then)
        self.step(ReadIndexAsked(token))

    def _on_read_answered(self, effect: ReadIndexReady | ReadIndexRefused) -> None:
        asked_at_offset, then = self.reads.pop(effect.token)
        if isinstance(effect, ReadIndexRefused):
            if then is not None:
                then(False)
            return
        self.world.reads += 1
        self.world.checkers.on_read(self, asked_at_offset, effect.offset)
        if then is not None:
            self.applying.show(effect.offset, then)

    def shut_down(self, linger_us: int, down_us: int) -> None:
        """Stop gracefully: notify the other nodes, wait for `linger_us`, end, and start again after `down_us`."""
        self.is_stopping = True
        if not self.postponed(self.shut_down, linger_us, down_us):
            self.step(ShutdownAsked())
            self.world.after(linger_us, self._stop, down_us)

    def _stop(self, down_us: int) -> None:
        if not self.dead:
            self.machine.stop(down_us)
