"""A tiny world for RaftNodes: virtual milliseconds, fixed latency, disks that flush by themselves or not, cuts and crashes.

Deliberately not the simulator: every delay is fixed, so that a scenario reads like a story and does the same thing every time.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec
import pytest

from kraftlab.quorum.core import (
    ElectionState,
    Endpoint,
    ErrorCode,
    LogView,
    OffsetAndEpoch,
    Outbox,
    RaftConfig,
    RaftNode,
    ReplicaKey,
    Voter,
    VoterSet,
)
from kraftlab.quorum.core.batch import (
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    SnapshotHeader,
    decode,
    decode_control,
    encode,
    encode_control,
    read_header,
)
from kraftlab.quorum.core.effects import (
    Append,
    CleanLog,
    Effect,
    Effects,
    InstallSnapshot,
    OpenSnapshot,
    Proposed,
    ReadLog,
    ReadSnapshot,
    Rejected,
    RepairEnded,
    Reply,
    RewriteSnapshot,
    Send,
    StoreElectionState,
    StoreSnapshotChunk,
    Truncate,
    VerifySnapshot,
)
from kraftlab.quorum.core.events import (
    ElectionStateStored,
    Event,
    Propose,
    RecordsRead,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotChunkStored,
    SnapshotRead,
    SnapshotRefused,
    SnapshotTaken,
    SnapshotVerified,
    StorageCompleted,
    TimerFired,
)
from kraftlab.quorum.core.local_log import control_of
from kraftlab.quorum.core.messages import LeaderView, Request, Response, VoteRequest, VoteResponse
from kraftlab.quorum.core.raft_config import BootState

LATENCY_MS = 1
Staged = Append | Truncate | InstallSnapshot | CleanLog | StoreElectionState


def make_snapshot(control: tuple[ControlRecord, ...], padding: int = 100) -> bytes:
    """A snapshot file of this world: a checksum, and the control records among something that stands for the state."""
    body = msgspec.msgpack.encode((encode_control(list(control)), bytes(padding)))
    return zlib.crc32(body).to_bytes(4, "big") + body


def read_snapshot(data: bytes) -> tuple[ControlRecord, ...] | None:
    """None: damaged."""
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
        return None
    return tuple(decode_control(msgspec.msgpack.decode(data[4:], type=tuple[bytes, bytes])[0]))


class Host:
    """One process: a node, its outbox, its memory and its disk. `batches` is what readers see, `disk` what survives a crash.

    Snapshots are durable as soon as they are taken or verified. `part` is the unfinished copy of a leader's.
    """

    def __init__(self, world: World, config: RaftConfig) -> None:
        self.world = world
        self.config = config
        self.disk: list[bytes] = []
        self.stored: ElectionState | None = None
        self.bootstrap: tuple[ControlRecord, ...] = ()
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self.log_start = OffsetAndEpoch(0, 0)
        self.part: tuple[OffsetAndEpoch, bytes] = (OffsetAndEpoch(0, 0), b"")
        self.repair_until = 0
        self.disk_stalled = False
        self.snapshot_disk_stalled = False
        self.snapshot_work: list[Callable[[], object]] = []
        self.incarnation = 0
        self.wipes = 0
        self.is_up = False
        self.history: list[Effect] = []

    def start(self) -> None:
        self.incarnation += 1
        self.is_up = True
        self.batches = list(self.disk)
        self.staged: list[Staged] = []
        self.snapshot_work.clear()
        self.outbox = Outbox()
        seed = f"{self.world.seed}/{self.config.node_id}/{self.incarnation}"
        headers = [read_header(data) for data in self.batches]
        control, start_crc = control_of(headers, b"".join(self.batches)), 0
        if self.log_start.offset:
            first, *voters = read_snapshot(self.snapshots[self.log_start]) or ()
            assert isinstance(first, SnapshotHeader)
            start_crc = first.last_crc
            control = [(-1, record) for record in voters] + control
        boot = BootState(tuple(control), self.bootstrap, tuple(sorted(self.snapshots)), self.repair_until)
        view = LogView.from_headers(headers, self.log_start, start_crc)
        self.node = RaftNode(self.config, view, self.stored, random.Random(seed), self.world.now_ms, boot)
        self.step(TimerFired())

    def wipe(self) -> None:
        """The disk of a process that is down is replaced by an empty one, formatted without any voters."""
        self.disk, self.stored, self.bootstrap = [], None, ()
        self.snapshots, self.log_start = {}, OffsetAndEpoch(0, 0)
        self.wipes += 1
        directory_id = bytes([self.config.node_id, 0x80 + self.wipes]) * 8
        self.config = msgspec.structs.replace(self.config, directory_id=directory_id)

    def rot(self, offset: int) -> None:
        """The disk of a process that is down has lost the batch at `offset`: recovery keeps what lies before."""
        self.repair_until = read_header(self.disk[-1]).end_offset
        self.disk = [data for data in self.disk if read_header(data).end_offset <= offset]

    def take_snapshot(self, offset: int = -1, padding: int = 100) -> OffsetAndEpoch | None:
        """Of everything below `offset`, by default everything committed; None: the node does not want it."""
        offset = self.node.high_watermark if offset < 0 else offset
        context = self.node.snapshot_context(offset, cluster_id="test", generation=0, append_time_ms=0)
        if context is not None:
            self.snapshots[context.id] = make_snapshot(context.control, padding)
            self.step(SnapshotTaken(context.id))
        return context.id if context else None

    def snapshot_control(self, snapshot: OffsetAndEpoch) -> tuple[ControlRecord, ...]:
        """The control records of a snapshot that is finished, or verified and about to be."""
        data = self.part[1] if self.part[0] == snapshot and snapshot not in self.snapshots else self.snapshots[snapshot]
        return read_snapshot(data) or ()

    def as_voter(self) -> Voter:
        return Voter(self.config.key, self.config.endpoints)

    def crash(self) -> None:
        """Everything not on disk is gone; who waits for an answer sees the connection break."""
        self.incarnation += 1
        self.is_up = False
        self.staged.clear()
        self.world.break_connections(self.config.node_id)

    def step(self, event: Event) -> Effects:
        effects = self.node.step(event, self.world.now_ms)
        self.history.extend(effects)
        for effect in effects:
            self.carry_out(effect)
        self.world.wake(self, self.node.next_deadline_ms())
        return effects

    def carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send | Reply):
            if self.outbox.put(effect):
                self.world.transmit(self, effect)
        elif isinstance(effect, Append):
            self.batches.extend(split(effect.data))
            self.stage(effect)
        elif isinstance(effect, Truncate):
            self.batches = [data for data in self.batches if read_header(data).end_offset <= effect.to_offset]
            self.stage(effect)
        elif isinstance(effect, StoreElectionState):
            self.stage(effect)
        elif isinstance(effect, ReadLog):
            data = b"".join(data for data in self.batches if read_header(data).base_offset >= effect.start_offset)
            self.world.later(self, lambda read_id=effect.read_id, data=data: self.step(RecordsRead(read_id, data)), 0)
        elif isinstance(effect, RepairEnded):
            self.repair_until = 0
        else:
            self.carry_out_for_snapshots(effect)

    def carry_out_for_snapshots(self, effect: Effect) -> None:
        if isinstance(effect, ReadSnapshot):
            data = self.snapshots.get(effect.id)
            size, data = (-1, b"") if data is None else (len(data), data[effect.position : effect.position + effect.max_bytes])
            self.world.later(self, lambda read_id=effect.read_id: self.step(SnapshotRead(read_id, size, data)), 0)
        elif isinstance(effect, RewriteSnapshot):
            self.world.later(self, self.take_snapshot)
        elif isinstance(effect, OpenSnapshot):
            self.work_on_snapshot(lambda: self.open_part(effect.id))
        elif isinstance(effect, StoreSnapshotChunk):
            self.work_on_snapshot(lambda: self.store_part(effect))
        elif isinstance(effect, VerifySnapshot):
            self.work_on_snapshot(lambda: self.verify_part(effect.id))
        elif isinstance(effect, InstallSnapshot):
            self.batches = []
            self.stage(effect)
        elif isinstance(effect, CleanLog):
            self.batches = [data for data in self.batches if read_header(data).end_offset > effect.start.offset]
            self.stage(effect)

    def work_on_snapshot(self, work: Callable[[], object]) -> None:
        if self.snapshot_disk_stalled:
            self.snapshot_work.append(work)
        else:
            self.world.later(self, work)

    def unstall_snapshot_disk(self) -> None:
        self.snapshot_disk_stalled = False
        for work in self.snapshot_work if self.is_up else []:
            self.world.later(self, work)
        self.snapshot_work.clear()

    def open_part(self, snapshot: OffsetAndEpoch) -> None:
        if self.part[0] != snapshot:
            self.part = (snapshot, b"")
        self.step(SnapshotChunkStored(snapshot, len(self.part[1])))

    def store_part(self, effect: StoreSnapshotChunk) -> None:
        self.part = (effect.id, self.part[1][: effect.position] + effect.data)
        self.step(SnapshotChunkStored(effect.id, len(self.part[1])))

    def verify_part(self, snapshot: OffsetAndEpoch) -> None:
        control = read_snapshot(self.part[1])
        if control is None or not isinstance(control[0], SnapshotHeader):
            self.part = (snapshot, b"")
            self.step(SnapshotRefused(snapshot, "checksum does not hold"))
        else:
            self.step(SnapshotVerified(snapshot, control[0].last_crc, control[1:]))

    def clean_disk(self, start: OffsetAndEpoch) -> None:
        self.disk = [data for data in self.disk if read_header(data).end_offset > start.offset]
        self.snapshots = {snapshot: data for snapshot, data in self.snapshots.items() if snapshot.offset >= start.offset}
        self.log_start = start

    def stage(self, effect: Staged) -> None:
        self.staged.append(effect)
        if not self.disk_stalled:
            self.world.later(self, lambda effect=effect: self.flush_one(effect))

    def flush_one(self, effect: Staged) -> None:
        if not any(staged is effect for staged in self.staged):
            return
        self.staged = [staged for staged in self.staged if staged is not effect]
        if isinstance(effect, CleanLog):
            self.clean_disk(effect.start)
            return
        if isinstance(effect, StoreElectionState):
            self.stored = effect.state
            released = self.outbox.election_state_stored(effect.version)
            done: Event = ElectionStateStored(effect.version)
        else:
            if isinstance(effect, Append):
                self.disk.extend(split(effect.data))
            elif isinstance(effect, InstallSnapshot):
                self.disk, self.log_start, self.snapshots = [], effect.id, {effect.id: self.part[1]}
            else:
                self.disk = [data for data in self.disk if read_header(data).end_offset <= effect.to_offset]
            released = self.outbox.storage_completed(effect.append_id)
            done = StorageCompleted(effect.append_id)
        for message in released:
            self.world.transmit(self, message)
        self.step(done)

    def stall_disk(self) -> None:
        self.disk_stalled = True

    def unstall_disk(self) -> None:
        self.disk_stalled = False
        for effect in list(self.staged) if self.is_up else []:
            self.world.later(self, lambda effect=effect: self.flush_one(effect))

    def propose(self, body: bytes = b"\x91\x01") -> Proposed | Rejected:
        for effect in self.step(Propose(self.node.epoch, body, 1)):
            if isinstance(effect, Proposed | Rejected):
                return effect
        raise AssertionError("a Propose was not answered")

    def seen(self, kind: type[Effect]) -> list[Effect]:
        return [effect for effect in self.history if isinstance(effect, kind)]


def split(data: bytes) -> list[bytes]:
    batches, position = [], 0
    while position < len(data):
        batch = decode(data, position)
        batches.append(batch.data)
        position += len(batch.data)
    return batches


class Call:
    """A request under way: finished once, by an answer or a failure."""

    def __init__(self, host: Host, correlation: int, target_id: int) -> None:
        self.host = host
        self.correlation = correlation
        self.target_id = target_id
        self.incarnation = host.incarnation
        self.is_finished = False

    def finish(self, event: ResponseReceived | RequestFailed) -> None:
        if not self.is_finished and self.host.incarnation == self.incarnation:
            self.is_finished = True
            self.host.step(event)


class World:
    """Hosts, time and links."""

    def __init__(
        self, voter_ids: tuple[int, ...], observer_ids: tuple[int, ...] = (), seed: int = 0, dynamic: bool = False, **options: int
    ) -> None:
        """`dynamic`: the voters stand in a bootstrap checkpoint on the voters' disks, and live in the log (KIP-853)."""
        self.seed = seed
        self.now_ms = 1_000_000
        self.cuts: set[tuple[int, int]] = set()
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = 0
        self._calls: dict[tuple[int, int], Call] = {}
        self._tokens = 0
        self._random = random.Random(seed)
        self.answers: dict[int, Response] = {}
        voters = VoterSet(tuple(Voter(ReplicaKey(node_id), {}) for node_id in voter_ids))
        self.hosts = {
            node_id: Host(self, RaftConfig(node_id=node_id, directory_id=bytes([node_id]) * 16, voters=voters, **options))
            for node_id in voter_ids + observer_ids
        }
        if dynamic:
            self._make_dynamic(voter_ids)

    def _make_dynamic(self, voter_ids: tuple[int, ...]) -> None:
        for node_id, host in self.hosts.items():
            endpoints = {"CONTROLLER": Endpoint(f"host{node_id}", 9093)}
            host.config = msgspec.structs.replace(host.config, voters=VoterSet(()), endpoints=endpoints)
        voters = VoterSet.of(self.hosts[node_id].as_voter() for node_id in voter_ids)
        for node_id in voter_ids:
            self.hosts[node_id].bootstrap = (KRaftVersion(0, 1), KRaftVoters(0, voters))

    def ask(self, node_id: int, request: Request) -> int:
        """A client's request to a node: the token under which `answers` will have the response."""
        self._tokens += 1
        self.hosts[node_id].step(RequestReceived(self._tokens, ReplicaKey(-1), request))
        return self._tokens

    def change(self, request: Request, limit_ms: int = 10_000) -> Response:
        """The answer of whoever leads now."""
        token = self.ask(self.leader().config.node_id, request)
        self.run_until(lambda: token in self.answers, limit_ms)
        return self.answers[token]

    def __getitem__(self, node_id: int) -> Host:
        return self.hosts[node_id]

    def start(self, *node_ids: int) -> World:
        for node_id in node_ids or self.hosts:
            self.hosts[node_id].start()
        return self

    def at(self, time_ms: int, call: Callable[[], object]) -> None:
        self._sequence += 1
        heappush(self._events, (time_ms, self._sequence, call))

    def later(self, host: Host, call: Callable[[], object], delay_ms: int = LATENCY_MS) -> None:
        """Unless the process ends first."""
        incarnation = host.incarnation
        self.at(self.now_ms + delay_ms, lambda: call() if host.incarnation == incarnation else None)

    def wake(self, host: Host, deadline_ms: int) -> None:
        incarnation = host.incarnation

        def fire() -> None:
            if host.incarnation == incarnation and host.node.next_deadline_ms() <= self.now_ms:
                host.step(TimerFired())

        if deadline_ms < 1 << 60:
            self.at(max(deadline_ms, self.now_ms), fire)

    def cut(self, *node_ids: int) -> None:
        """Separate these from all others, both ways."""
        for inside in node_ids:
            for outside in self.hosts:
                if outside not in node_ids:
                    self.cuts |= {(inside, outside), (outside, inside)}

    def heal(self) -> None:
        self.cuts.clear()

    def transmit(self, host: Host, message: Send | Reply) -> None:
        if isinstance(message, Reply):
            call = self._calls.pop((host.config.node_id, message.correlation), None)
            if call is None:
                self.answers[message.correlation] = message.response
            if call is not None and (host.config.node_id, call.host.config.node_id) not in self.cuts:
                self.later(call.host, lambda: call.finish(ResponseReceived(call.correlation, call.target_id, message.response)))
            return
        bootstrap = [node_id for node_id in self.hosts if node_id != host.config.node_id]
        target_id = message.destination if message.destination >= 0 else self._random.choice(bootstrap)
        call = Call(host, message.correlation, target_id)
        self.later(host, lambda: call.finish(RequestFailed(call.correlation, call.target_id)), message.timeout_ms)
        self.at(self.now_ms + LATENCY_MS, lambda: self._deliver(call, message))

    def _deliver(self, call: Call, message: Send) -> None:
        source_key, target = call.host.config.key, self.hosts[call.target_id]
        if (source_key.node_id, call.target_id) in self.cuts:
            return
        if not target.is_up:
            self.later(call.host, lambda: call.finish(RequestFailed(call.correlation, call.target_id, refused=True)))
            return
        self._tokens += 1
        self._calls[(call.target_id, self._tokens)] = call
        target.step(RequestReceived(self._tokens, source_key, message.request))

    def break_connections(self, node_id: int) -> None:
        for target_id, token in [key for key in self._calls if key[0] == node_id]:
            call = self._calls.pop((target_id, token))
            if (node_id, call.host.config.node_id) not in self.cuts:
                self.later(call.host, lambda call=call: call.finish(RequestFailed(call.correlation, call.target_id)))

    def run(self, duration_ms: int) -> World:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, call = heappop(self._events)
            call()
        self.now_ms = end_ms
        return self

    def run_until(self, condition: Callable[[], object], limit_ms: int = 10_000) -> World:
        end_ms = self.now_ms + limit_ms
        while not condition():
            assert self._events, "nothing will happen any more"
            assert self._events[0][0] <= end_ms, f"did not happen within {limit_ms} ms: {[h.node for h in self.hosts.values()]}"
            self.now_ms, _, call = heappop(self._events)
            call()
        return self

    def up(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.is_up]

    def leader(self) -> Host:
        """Wait until the leader of the newest epoch has committed in it."""

        def find() -> Host | None:
            leaders = [host for host in self.up() if host.node.is_leader and host.node.leader_high_watermark >= 0]
            return max(leaders, key=lambda host: host.node.epoch, default=None)

        self.run_until(lambda: find() is not None)
        host = find()
        assert host is not None
        return host

    def settle(self) -> World:
        """Wait until everybody that is up has the leader's whole log and high watermark."""
        leader = self.leader()

        def settled() -> bool:
            end = leader.node.log_end_offset
            return all(host.node.log_end_offset == end == host.node.high_watermark for host in self.up())

        return self.run_until(settled)


START_CRC = 77
"""What the chain of crcs had come to where a driven node's log starts behind a snapshot."""


class Driven:
    """One RaftNode driven by hand. Nothing is durable until `flush`, and no message leaves."""

    def __init__(
        self,
        node_id: int = 1,
        voters: tuple[int, ...] = (1, 2, 3),
        log: tuple[tuple[int, int], ...] = (),
        election: ElectionState | None = None,
        dynamic: bool = False,
        boot: BootState | None = None,
        start: OffsetAndEpoch = OffsetAndEpoch(0, 0),
        **options: Any,
    ) -> None:
        """`log`: (epoch, record count) of each batch found on disk, behind the snapshot `start`. `dynamic`: the voters stand in a
        bootstrap checkpoint."""
        self.now_ms = 1_000_000
        voter_set = VoterSet(tuple(Voter(key(voter_id) if dynamic else ReplicaKey(voter_id), {}) for voter_id in voters))
        static = VoterSet(()) if dynamic else voter_set
        self.config = RaftConfig(node_id=node_id, directory_id=bytes([node_id]) * 16, voters=static, **options)
        boot = boot or BootState(bootstrap=(KRaftVersion(0, 1), KRaftVoters(0, voter_set)) if dynamic else ())
        self.batches = build_batches(log, start.offset, START_CRC if start.offset else 0)
        view = LogView.from_headers([read_header(data) for data in self.batches], start, START_CRC if start.offset else 0)
        if start.offset and not boot.snapshots:
            boot = boot._replace(snapshots=(start,))
        self.node = RaftNode(self.config, view, election, random.Random(node_id), self.now_ms, boot)
        self.effects: Effects = []
        self.token = 0

    def step(self, event: Event, after_ms: int = 0) -> Effects:
        self.now_ms += after_ms
        self.effects = self.node.step(event, self.now_ms)
        return self.effects

    def tick(self, after_ms: int = 0) -> Effects:
        return self.step(TimerFired(), after_ms)

    def tick_until(self, state_name: str) -> Effects:
        for _ in range(10):
            if self.node.state_name == state_name:
                return self.effects
            self.now_ms = max(self.now_ms, self.node.next_deadline_ms())
            self.tick()
        raise AssertionError(f"never became {state_name}: {self.node!r}")

    def request(self, sender_id: int, request: Request, after_ms: int = 0) -> Response | None:
        """The reply, if there was one at once."""
        self.token += 1
        effects = self.step(RequestReceived(self.token, key(sender_id), request), after_ms)
        replies = [effect for effect in effects if isinstance(effect, Reply) and effect.correlation == self.token]
        return replies[0].response if replies else None

    def sent(self, kind: type[Request]) -> list[Send]:
        return [effect for effect in self.effects if isinstance(effect, Send) and isinstance(effect.request, kind)]

    def answer(self, send: Send, response: Response) -> Effects:
        return self.step(ResponseReceived(send.correlation, send.destination, response))

    def only(self, kind: type[Effect]) -> Effect:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        assert len(found) == 1, f"{len(found)} of {kind.__name__} in {self.effects}"
        return found[0]

    def all(self, kind: type[Effect]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def flush(self) -> Effects:
        """Everything asked for so far is durable."""
        first = self.step(ElectionStateStored(self.node._quorum.election_version))
        self.effects = first + self.step(StorageCompleted(self.node._log.flushes.last_id))
        return self.effects

    def win(self) -> Effects:
        """Become leader by the votes of node 2; everything durable. Returns the step's effects in which it happened."""
        self.tick_until("prospective")
        for pre_vote in (True, False):
            self.flush_keeping(lambda: self.sent(VoteRequest))
            ask = next(send for send in self.vote_requests if send.destination == 2)
            view = LeaderView(self.node.epoch)
            won = self.answer(ask, VoteResponse(ErrorCode.NONE, view, True, pre_vote))
            if pre_vote:
                self.vote_requests = self.sent(VoteRequest)
        assert self.node.is_leader, repr(self.node)
        self.effects = won
        return won

    def flush_keeping(self, read: Callable[[], list[Send]]) -> None:
        """Flush, remembering the vote requests of the step before."""
        self.vote_requests = read() or self.vote_requests
        self.flush()

    vote_requests: list[Send] = []


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


def build_batches(log: tuple[tuple[int, int], ...], offset: int = 0, crc: int = 0) -> list[bytes]:
    """Chained batches of (epoch, record count)."""
    batches = []
    for epoch, count in log:
        body = msgspec.msgpack.encode([[0]] * count)
        data, crc = encode(
            body, base_offset=offset, epoch=epoch, record_count=count, append_time_ms=0, high_watermark=0, previous_crc=crc
        )
        batches.append(data)
        offset += count
    return batches


@pytest.fixture
def driven() -> type[Driven]:
    """The class: `driven(log=((1, 3),))`."""
    return Driven


@pytest.fixture
def batches_of() -> Callable[..., list[bytes]]:
    return build_batches


@pytest.fixture
def key_of() -> Callable[[int], ReplicaKey]:
    """A node's key in these tests."""
    return key


@pytest.fixture
def world() -> type[World]:
    """The class: `world((1, 2, 3)).start()`."""
    return World
