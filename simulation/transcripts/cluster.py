"""A cluster in which nothing happens by itself, for the golden transcripts and the tests of whole quorums.

Theory of operation. Nodes are real RaftNodes with real Outboxes. The user of the cluster controls everything between two steps.
Messages wait in one queue until they are delivered, dropped, doubled or set aside. Time stands still until it is moved. A disk
completes its operations at once; a held disk completes them on command. A crash loses incomplete operations. Snapshots that a
node takes are durable at once. The copy of a leader's snapshot is written and verified like other data, at once or, on a held
disk, on command. A request ends as on a real connection: with its answer, with its time-out, or because the connection is refused
or lost.

Nothing is random: a node's timers draw a fixed number (`ScriptedRandom`), and requests to any node go to the other nodes in turn,
so a script always has the same output. A request to any node reaches a node wherever it is. A request to a certain node that has
moved arrives only if the sender knows the new address.

`lines` is the output: a title for each event and, indented below it, the effects of the node. Left out are reads of the log and
of snapshots and, unless the disk is held, completions without effects.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import InvariantViolation
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import (
    BootState,
    ElectionState,
    LogTruncationRefused,
    LogView,
    OffsetAndEpoch,
    Outbox,
    RaftConfig,
    RaftNode,
    Voter,
    VoterSet,
)
from kraftlab.quorum.core.batch import (
    NO_PREVIOUS_CRC,
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    decode,
    encode,
    read_header,
)
from kraftlab.quorum.core.effects import (
    ANYBODY,
    Append,
    CleanLog,
    Effect,
    InstallSnapshot,
    ReadLog,
    ReadSnapshot,
    RepairEnded,
    Reply,
    Send,
    StoreElectionState,
    Trace,
    Truncate,
)
from kraftlab.quorum.core.events import (
    ElectionStateStored,
    Event,
    RecordsRead,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotTaken,
    StorageCompleted,
    TimerFired,
)
from kraftlab.quorum.core.local_log import control_of
from kraftlab.quorum.core.messages import Request, Response

from .snapshots import SnapshotFiles, Work

START_MS = 1_000_000
"""Time zero of scripts, so that no node ever sees time 0."""
LOG_START = OffsetAndEpoch(0, 0)
LISTENER = "CONTROLLER"
JITTER_STEP_MS = 10
"""By default, the timers of node n draw n times this."""
FIRINGS_MAX = 1_000
DELIVERIES_MAX = 10_000
StorageOperation = Append | Truncate | InstallSnapshot | StoreElectionState


class ScriptedRandom(random.Random):
    """A generator without chance: timers draw `jitter_ms` (within bounds), and choices among a few take turns."""

    def __init__(self, jitter_ms: int) -> None:
        super().__init__(0)
        self.jitter_ms = jitter_ms
        self._turn = -1

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        bound = start if stop is None else stop - start
        first = 0 if stop is None else start
        if bound > 16:
            return first + min(self.jitter_ms, bound - 1)
        self._turn += 1
        return first + self._turn % bound


@dataclass(slots=True, eq=False)
class Call:
    """A request, from the time it leaves until it has ended. `token` is its token at the target (0: it has not arrived).

    `is_astray`: it goes to the address that its target had before a move.
    """

    source: int
    incarnation: int
    send: Send
    deadline_ms: int
    token: int = 0
    is_finished: bool = False
    is_astray: bool = False


class Failure(msgspec.Struct, frozen=True):
    """An event of a connection in place of a message, such as a refusal."""

    kind: str
    call: str

    def __repr__(self) -> str:
        return f"{self.kind}({self.call})"


@dataclass(slots=True, eq=False)
class Envelope:
    """A message or failure under way."""

    source: int
    target: int
    call: Call
    payload: Request | Response | Failure

    @property
    def kind(self) -> str:
        """Fetch, FetchReply, PreVote, …, Refused, Lost or HungUp."""
        return kind_of(self.payload)

    def __repr__(self) -> str:
        return f"n{self.source} -> n{self.target} {self.payload!r}"


def kind_of(message: object) -> str:
    return repr(message).partition("(")[0]


@dataclass(slots=True, eq=False)
class Host:
    """One machine: its disk and, while it is up, a process. `batches` is the log that the process reads, `disk` the log that
    survives a crash, and `start` the snapshot at which the log on the disk begins. `history` has every effect of all its
    processes. `snapshot_work` are the incomplete operations of a copied snapshot.
    """

    config: RaftConfig
    jitter_ms: int
    disk: list[bytes] = field(default_factory=list)
    start: OffsetAndEpoch = LOG_START
    snapshots: SnapshotFiles = field(default_factory=SnapshotFiles)
    repair_until: int = 0
    stored: ElectionState | None = None
    bootstrap: tuple[ControlRecord, ...] = ()
    is_held: bool = False
    is_up: bool = False
    incarnation: int = 0
    wipes: int = 0
    moves: int = 0
    asked_anybody: int = 0
    batches: list[bytes] = field(default_factory=list)
    staged: list[StorageOperation] = field(default_factory=list)
    snapshot_work: list[Work] = field(default_factory=list)
    held: list[Send | Reply] = field(default_factory=list)
    calls: dict[int, Call] = field(default_factory=dict)
    clients: dict[int, str] = field(default_factory=dict)
    history: list[Effect] = field(default_factory=list)
    outbox: Outbox = field(default_factory=Outbox)
    random: ScriptedRandom = field(default_factory=lambda: ScriptedRandom(0))
    _node: RaftNode | None = None

    @property
    def node(self) -> RaftNode:
        if self._node is None or not self.is_up:
            raise ValueError(f"node {self.config.node_id} is down; restart it first")
        return self._node

    def boot(self, now_ms: int) -> None:
        """Start a process on the disk."""
        self.incarnation += 1
        self.is_up = True
        self.batches = list(self.disk)
        self.staged, self.snapshot_work, self.held, self.calls, self.clients = [], [], [], {}, {}
        self.outbox = Outbox()
        self.random = ScriptedRandom(self.jitter_ms)
        headers = [read_header(data) for data in self.batches]
        control, start_crc = control_of(headers, b"".join(self.batches)), NO_PREVIOUS_CRC
        if self.start.offset:
            header, others = self.snapshots.control(self.start)
            start_crc = header.last_crc
            control = [(-1, record) for record in others] + control
        boot = BootState(tuple(control), self.bootstrap, tuple(sorted(self.snapshots.finished)), self.repair_until)
        view = LogView.from_headers(headers, self.start, start_crc)
        self._node = RaftNode(self.config, view, self.stored, self.random, now_ms, boot)

    def wipe(self) -> None:
        """Replace the disk by an empty one, formatted without voters. The new directory id makes it another replica."""
        self.wipes += 1
        self.disk, self.stored, self.bootstrap, self.repair_until = [], None, (), 0
        self.start, self.snapshots = LOG_START, SnapshotFiles()
        directory_id = bytes([self.config.node_id, 0x80 + self.wipes]) * 8
        self.config = msgspec.structs.replace(self.config, directory_id=directory_id)

    def rot(self, offset: int) -> None:
        """Lose the log from `offset` on, so that recovery knows its former end."""
        self.repair_until = read_header(self.disk[-1]).end_offset
        self.disk = below(self.disk, offset)

    def move(self) -> None:
        """Move to another address, which no node knows."""
        self.moves += 1
        endpoints = {LISTENER: Endpoint(f"n{self.config.node_id}", self.moves)}
        self.config = msgspec.structs.replace(self.config, endpoints=endpoints)

    def read(self, start_offset: int, max_bytes: int) -> bytes:
        """Return whole batches from there on, up to `max_bytes` but at least one."""
        taken = bytearray()
        for data in self.batches:
            if read_header(data).base_offset >= start_offset:
                if taken and len(taken) + len(data) > max_bytes:
                    break
                taken += data
        return bytes(taken)

    def keep(self, operation: StorageOperation) -> None:
        """Complete the operation on the disk."""
        if isinstance(operation, StoreElectionState):
            self.stored = operation.state
        elif isinstance(operation, Append):
            self.disk.extend(split(operation.data))
        elif isinstance(operation, InstallSnapshot):
            self.disk, self.start = [], operation.id
            self.snapshots.install(operation.id)
        else:
            self.disk = below(self.disk, operation.to_offset)

    def clean(self, start: OffsetAndEpoch) -> None:
        """Remove the log below `start`. A disk whose log does not reach `start` keeps everything."""
        self.batches = above(self.batches, start.offset)
        durable_end_offset = read_header(self.disk[-1]).end_offset if self.disk else self.start.offset
        if durable_end_offset >= start.offset:
            self.disk, self.start = above(self.disk, start.offset), start
            self.snapshots.remove_below(start)


class ScriptedCluster:
    """The machines, the messages between them, and the time. Every method adds its effects to `lines`."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.hosts: dict[int, Host] = {}
        self.in_flight: list[Envelope] = []
        self.delayed: list[Envelope] = []
        self.cuts: set[tuple[int, int]] = set()
        self.lines: list[str] = []
        self.answers: dict[int, Response] = {}
        """Answers to clients, by the token that `ask` returned."""
        self._calls: list[Call] = []
        self._last_token = 0

    def host(self, node_id: int) -> Host:
        if node_id not in self.hosts:
            raise ValueError(f"there is no node {node_id}, only {sorted(self.hosts)}")
        return self.hosts[node_id]

    def add_nodes(self, voters: int, observers: int = 0, *, dynamic: bool = False, **settings: object) -> None:
        """Add nodes from 1 on, voters first, all down. `dynamic`: a bootstrap checkpoint names the voters (KIP-853)."""
        ids = range(1, voters + observers + 1)
        first = VoterSet.of(Voter(key_of(node_id) if dynamic else ReplicaKey(node_id), {}) for node_id in ids[:voters])
        for node_id in ids:
            given = {"node_id": node_id, "directory_id": key_of(node_id).directory_id, **settings}
            config = msgspec.convert(given | {"voters": VoterSet(()) if dynamic else first}, RaftConfig, strict=False)
            host = self.hosts[node_id] = Host(config, JITTER_STEP_MS * node_id)
            if dynamic and node_id in first.ids():
                host.bootstrap = (KRaftVersion(0, 1), KRaftVoters(0, first))

    # Processes

    def start(self, node_id: int) -> None:
        host = self.host(node_id)
        if host.is_up:
            raise ValueError(f"node {node_id} is up already")
        host.boot(self.now_ms)
        self.step(node_id, TimerFired(), f"n{node_id} starts")

    def crash(self, node_id: int) -> None:
        """End the process at once. Staged operations are lost, and callers of the process see a broken connection."""
        host = self.host(node_id)
        self.lines.append(f"n{node_id} crashes" + (f", losing {', '.join(map(repr, host.staged))}" if host.staged else ""))
        for message in host.held:
            self.lines.append(f"  never sent: {self._addressed(host, message)}")
        for call in host.calls.values():
            if not call.is_finished:
                self._put(node_id, call.source, call, Failure("Lost", kind_of(call.send.request)))
        for call in self._calls:
            if call.source == node_id and not call.is_finished:
                call.is_finished = True
                if call.token in self.hosts[call.send.destination].calls:
                    self._put(node_id, call.send.destination, call, Failure("HungUp", kind_of(call.send.request)))
        host.is_up = False
        host.staged, host.snapshot_work, host.held, host.calls, host.clients = [], [], [], {}, {}

    # Steps

    def ask(self, node_id: int, request: Request, title: str) -> int:
        """Hand over a client's request, not a peer's: it arrives at once, and so does its answer. Return the request's token."""
        host = self.host(node_id)
        self._last_token += 1
        token = self._last_token
        host.clients[token] = kind_of(request)
        self.step(node_id, RequestReceived(token, ReplicaKey(-1), request), title)
        return token

    def take_snapshot(self, node_id: int, offset: int | None = None, size_bytes: int = 0) -> OffsetAndEpoch:
        """Take a snapshot of everything below `offset`, by default of everything committed."""
        host = self.host(node_id)
        offset = host.node.high_watermark if offset is None else offset
        context = host.node.snapshot_context(offset, cluster_id="transcript", generation=0, append_time_ms=0)
        if context is None:
            raise ValueError(f"node {node_id} can take no snapshot at {offset}")
        host.snapshots.make(context, size_bytes)
        self.step(node_id, SnapshotTaken(context.id), f"n{node_id} has taken snapshot {context.id}")
        return context.id

    def step(self, node_id: int, event: Event, title: str, *, even_if_nothing: bool = True) -> None:
        """Hand the node one event. Adds `title` and, indented, everything that follows without time or messages."""
        host, before = self.host(node_id), len(self.lines)
        self._step(host, event)
        if not host.is_held:
            self.complete_everything(node_id)
        if even_if_nothing or len(self.lines) > before:
            self.lines.insert(before, title)

    def _step(self, host: Host, event: Event) -> None:
        try:
            effects = host.node.step(event, self.now_ms)
        except (InvariantViolation, LogTruncationRefused) as error:
            self.lines.append(f"  {type(error).__name__}: {error}")
            self.crash(host.config.node_id)
            return
        host.history += effects
        for effect in effects:
            self._carry_out(host, effect)
        for effect in effects:
            if isinstance(effect, ReadLog):
                self._step(host, RecordsRead(effect.read_id, host.read(effect.start_offset, effect.max_bytes)))
            elif isinstance(effect, ReadSnapshot):
                self._step(host, host.snapshots.read(effect))

    def _carry_out(self, host: Host, effect: Effect) -> None:
        if isinstance(effect, Send | Reply):
            if host.outbox.put(effect):
                self._transmit(host, effect)
                return
            host.held.append(effect)
            if host.is_held:
                self.lines.append(f"  hold {self._addressed(host, effect)} {effect.after!r}")
        elif isinstance(effect, StorageOperation):
            host.staged.append(effect)
            if isinstance(effect, Append):
                host.batches.extend(split(effect.data))
            elif isinstance(effect, Truncate):
                host.batches = below(host.batches, effect.to_offset)
            elif isinstance(effect, InstallSnapshot):
                host.batches = []
            self.lines.append(f"  {effect!r}")
        elif isinstance(effect, Trace):
            self.lines.append(f"  {effect.text if effect.kind == 'state' else repr(effect)}")
        elif not isinstance(effect, ReadLog | ReadSnapshot):
            if isinstance(effect, Work):
                host.snapshot_work.append(effect)
            elif isinstance(effect, CleanLog):
                host.clean(effect.start)
            elif isinstance(effect, RepairEnded):
                host.repair_until = 0
            self.lines.append(f"  {effect!r}")

    # Disks

    def complete(self, node_id: int, which: Callable[[StorageOperation], bool]) -> None:
        """Complete the staged operations that `which` selects, one after the other, and notify the node."""
        host = self.host(node_id)
        for operation in [operation for operation in host.staged if which(operation)]:
            if not host.is_up or not any(staged is operation for staged in host.staged):
                continue
            host.staged = [staged for staged in host.staged if staged is not operation]
            host.keep(operation)
            if isinstance(operation, StoreElectionState):
                event: Event = ElectionStateStored(operation.version)
                released = host.outbox.election_state_stored(operation.version)
            else:
                event = StorageCompleted(operation.append_id)
                released = host.outbox.storage_completed(operation.append_id)
            if host.is_held:
                self.lines.append(f"n{node_id} {event!r}")
            for message in released:
                host.held = [held for held in host.held if held is not message]
                self._transmit(host, message)
            before = len(self.lines)
            self._step(host, event)
            if len(self.lines) > before and not host.is_held:
                self.lines.insert(before, f"  {event!r}")

    def complete_everything(self, node_id: int) -> None:
        """Complete operations of the disk until there are no more."""
        host = self.host(node_id)
        while host.staged or host.snapshot_work:
            self.complete(node_id, lambda operation: True)
            self.complete_snapshot_work(node_id)

    def release(self, node_id: int) -> None:
        """Stop holding the disk of the node, and complete its operations."""
        self.complete_everything(node_id)
        self.host(node_id).is_held = False

    def complete_snapshot_work(self, node_id: int) -> None:
        """Complete the operations of a copied snapshot, and notify the node."""
        host = self.host(node_id)
        work, host.snapshot_work = host.snapshot_work, []
        for effect in work:
            event, before = host.snapshots.work(effect), len(self.lines)
            self._step(host, event)
            if host.is_held or len(self.lines) > before:
                self.lines.insert(before, f"n{node_id} {event!r}" if host.is_held else f"  {event!r}")

    # Messages

    def _addressed(self, host: Host, message: Send | Reply) -> str:
        if isinstance(message, Send):
            return f"n{message.destination} {message.request!r}"
        if message.correlation in host.clients:
            return f"the client {message.response!r}"
        call = host.calls.get(message.correlation)
        return f"n{call.source if call else '?'} {message.response!r}"

    def _transmit(self, host: Host, message: Send | Reply) -> None:
        node_id = host.config.node_id
        if isinstance(message, Send):
            destination, is_anybody = message.destination, message.destination == ANYBODY
            if is_anybody:
                others = sorted(self.hosts.keys() - {node_id})
                destination = others[host.asked_anybody % len(others)]
                host.asked_anybody += 1
            actual = self.hosts[destination].config.endpoints
            call = Call(
                node_id,
                host.incarnation,
                msgspec.structs.replace(message, destination=destination),
                self.now_ms + message.timeout_ms,
                is_astray=not is_anybody and bool(actual) and host.node.endpoints_of(destination) != actual,
            )
            self._calls.append(call)
            self._put(node_id, destination, call, message.request)
        elif message.correlation in host.clients:
            del host.clients[message.correlation]
            self.answers[message.correlation] = message.response
            self.lines.append(f"  tells the client {message.response!r}")
        else:
            answered = host.calls.pop(message.correlation, None)
            if answered is not None:
                self._put(node_id, answered.source, answered, message.response)

    def _put(self, source: int, target: int, call: Call, payload: Request | Response | Failure) -> None:
        is_cut = (source, target) in self.cuts
        verb = "reply" if isinstance(payload, Response) else "see" if isinstance(payload, Failure) else "send"
        who = f"n{target} sees" if verb == "see" else f"{verb} n{target}"
        self.lines.append(f"  {who} {payload!r}{' (lost: cut)' if is_cut else ''}")
        if not is_cut:
            self.in_flight.append(Envelope(source, target, call, payload))

    def deliver(self, envelope: Envelope) -> None:
        """Take the message off the queue and hand it to its target."""
        self.in_flight = [other for other in self.in_flight if other is not envelope]
        call, payload, host = envelope.call, envelope.payload, self.hosts[envelope.target]
        if isinstance(payload, Request):
            self._deliver_request(envelope, host, payload)
        elif not host.is_up or (host.incarnation != call.incarnation and envelope.target == call.source):
            self.lines.append(f"{envelope!r} (the process that asked is gone)")
        elif isinstance(payload, Failure):
            if payload.kind == "HungUp":
                host.calls.pop(call.token, None)
                self.step(envelope.target, RequestAbandoned(call.token), repr(envelope))
            elif not call.is_finished:
                self._fail(call, payload.kind == "Refused", repr(envelope))
        else:
            call.is_finished = True
            self.step(envelope.target, ResponseReceived(call.send.correlation, envelope.source, payload), repr(envelope))

    def _deliver_request(self, envelope: Envelope, host: Host, request: Request) -> None:
        if not host.is_up or envelope.call.is_astray:
            self.lines.append(f"{envelope!r} ({'moved' if host.is_up else 'down'})")
            self.refuse(envelope)
            return
        self._last_token += 1
        envelope.call.token = self._last_token
        host.calls[self._last_token] = envelope.call
        sender = self.hosts[envelope.source].config.key
        self.step(envelope.target, RequestReceived(self._last_token, sender, request), repr(envelope))

    def refuse(self, envelope: Envelope) -> None:
        """Refuse the connection of this request, which the sender notices."""
        self.in_flight = [other for other in self.in_flight if other is not envelope]
        if not envelope.call.is_finished:
            self._put(envelope.target, envelope.source, envelope.call, Failure("Refused", envelope.kind))

    def _fail(self, call: Call, refused: bool, title: str) -> None:
        call.is_finished = True
        self.step(call.source, RequestFailed(call.send.correlation, call.send.destination, refused), title)

    def deliver_all(self, only: Callable[[Envelope], bool]) -> None:
        """Deliver messages that `only` admits until there are no more."""
        for _ in range(DELIVERIES_MAX):
            envelope = next(filter(only, self.in_flight), None)
            if envelope is None:
                return
            self.deliver(envelope)
        raise ValueError(f"messages go round and round: still {len(self.in_flight)} after {DELIVERIES_MAX} deliveries")

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        """Cut these links. Messages on them are lost."""
        self.cuts |= set(links)
        self.in_flight = [envelope for envelope in self.in_flight if (envelope.source, envelope.target) not in self.cuts]

    # Time

    def next_instant_ms(self, end_ms: int) -> int:
        """Return the time of the next timer or time-out of a request, at latest `end_ms`."""
        timers = [host.node.next_deadline_ms() for host in self.hosts.values() if host.is_up]
        timeouts = [call.deadline_ms for call in self._open_calls()]
        return min([end_ms, *(max(self.now_ms, instant_ms) for instant_ms in timers + timeouts)])

    def fire(self, at_ms: int) -> None:
        """Move the time to `at_ms`, and fire all timers and time-outs that are due."""
        self.now_ms = at_ms
        for _ in range(FIRINGS_MAX):
            late = next((call for call in self._open_calls() if call.deadline_ms <= at_ms), None)
            due = next((h for h in self.hosts.values() if h.is_up and h.node.next_deadline_ms() <= at_ms), None)
            if late is not None:
                waited_for = f"n{late.send.destination} to {late.send.request!r}"
                self._fail(late, False, f"{self.clock()} n{late.source} no answer from {waited_for}")
            elif due is not None:
                node_id = due.config.node_id
                self.step(node_id, TimerFired(), f"{self.clock()} n{node_id} timer", even_if_nothing=False)
            else:
                return
        raise ValueError(f"timers fire without end at {at_ms - START_MS} ms")

    def pass_time(self, duration_ms: int, *, deliver: bool) -> None:
        """Let timers and time-outs fire for `duration_ms`. With `deliver`, messages arrive at once."""
        end_ms = self.now_ms + duration_ms
        while True:
            if deliver:
                self.deliver_all(lambda envelope: True)
            instant_ms = self.next_instant_ms(end_ms)
            self.fire(instant_ms)
            if instant_ms == end_ms and not (deliver and self.in_flight):
                return

    def _open_calls(self) -> list[Call]:
        hosts = self.hosts
        self._calls = [
            c for c in self._calls if not c.is_finished and hosts[c.source].is_up and hosts[c.source].incarnation == c.incarnation
        ]
        return self._calls

    def clock(self) -> str:
        return f"[{self.now_ms - START_MS} ms]"


def split(data: bytes) -> list[bytes]:
    """Return the batches in `data`, each by itself."""
    batches, position = [], 0
    while position < len(data):
        batches.append(decode(data, position).data)
        position += len(batches[-1])
    return batches


def below(batches: list[bytes], offset: int) -> list[bytes]:
    return [data for data in batches if read_header(data).end_offset <= offset]


def above(batches: list[bytes], offset: int) -> list[bytes]:
    return [data for data in batches if read_header(data).base_offset >= offset]


def batches_of_epochs(epochs: Iterable[int]) -> list[bytes]:
    """Return a log of these epochs, one record per batch. Equal epochs up to an offset give equal bytes."""
    batches: list[bytes] = []
    crc = 0
    for offset, epoch in enumerate(epochs):
        data, crc = encode(
            msgspec.msgpack.encode(["old"]),
            base_offset=offset,
            epoch=epoch,
            record_count=1,
            append_time_ms=0,
            high_watermark=0,
            previous_crc=crc,
        )
        batches.append(data)
    return batches


def key_of(node_id: int) -> ReplicaKey:
    """Return a scripted node's key, whose directory id follows from its node id."""
    return ReplicaKey(node_id, bytes([node_id]) * 16)
