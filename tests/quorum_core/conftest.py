"""A tiny world for RaftNodes: virtual milliseconds, fixed latency, disks that flush by themselves or not, cuts and crashes.

Deliberately not the simulator: every delay is fixed, so that a scenario reads like a story and does the same thing every time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush

import pytest

from kraftlab.quorum.core import ElectionState, LogView, Outbox, RaftConfig, RaftNode, ReplicaKey, Voter, VoterSet
from kraftlab.quorum.core.batch import decode, read_header
from kraftlab.quorum.core.effects import (
    Append,
    Effect,
    Effects,
    Proposed,
    ReadLog,
    Rejected,
    Reply,
    Send,
    StoreElectionState,
    Truncate,
)
from kraftlab.quorum.core.events import (
    ElectionStateStored,
    Event,
    Propose,
    RecordsRead,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    StorageCompleted,
    TimerFired,
)

LATENCY_MS = 1


class Host:
    """One process: a node, its outbox, its memory and its disk. `batches` is what readers see, `disk` what survives a crash."""

    def __init__(self, world: World, config: RaftConfig) -> None:
        self.world = world
        self.config = config
        self.disk: list[bytes] = []
        self.stored: ElectionState | None = None
        self.disk_stalled = False
        self.incarnation = 0
        self.is_up = False
        self.history: list[Effect] = []

    def start(self) -> None:
        self.incarnation += 1
        self.is_up = True
        self.batches = list(self.disk)
        self.staged: list[Append | Truncate | StoreElectionState] = []
        self.outbox = Outbox()
        seed = f"{self.world.seed}/{self.config.node_id}/{self.incarnation}"
        view = LogView.from_headers([read_header(data) for data in self.batches])
        self.node = RaftNode(self.config, view, self.stored, random.Random(seed), self.world.now_ms)
        self.step(TimerFired())

    def crash(self) -> None:
        """Everything not on disk is gone; who waits for an answer sees the connection break."""
        self.incarnation += 1
        self.is_up = False
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

    def stage(self, effect: Append | Truncate | StoreElectionState) -> None:
        self.staged.append(effect)
        if not self.disk_stalled:
            self.world.later(self, lambda effect=effect: self.flush_one(effect))

    def flush_one(self, effect: Append | Truncate | StoreElectionState) -> None:
        if not any(staged is effect for staged in self.staged):
            return
        self.staged = [staged for staged in self.staged if staged is not effect]
        if isinstance(effect, StoreElectionState):
            self.stored = effect.state
            released = self.outbox.election_state_stored(effect.version)
            done: Event = ElectionStateStored(effect.version)
        else:
            if isinstance(effect, Append):
                self.disk.extend(split(effect.data))
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
        for effect in list(self.staged):
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
        self.is_finished = False

    def finish(self, event: ResponseReceived | RequestFailed) -> None:
        if not self.is_finished:
            self.is_finished = True
            self.host.step(event)


class World:
    """Hosts, time and links."""

    def __init__(self, voter_ids: tuple[int, ...], observer_ids: tuple[int, ...] = (), seed: int = 0, **options: int) -> None:
        self.seed = seed
        self.now_ms = 1_000_000
        self.cuts: set[tuple[int, int]] = set()
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._sequence = 0
        self._calls: dict[tuple[int, int], Call] = {}
        self._tokens = 0
        voters = VoterSet(tuple(Voter(ReplicaKey(node_id), {}) for node_id in voter_ids))
        self.hosts = {
            node_id: Host(self, RaftConfig(node_id=node_id, directory_id=bytes([node_id]) * 16, voters=voters, **options))
            for node_id in voter_ids + observer_ids
        }

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
            if call is not None and (host.config.node_id, call.host.config.node_id) not in self.cuts:
                self.later(call.host, lambda: call.finish(ResponseReceived(call.correlation, call.target_id, message.response)))
            return
        call = Call(host, message.correlation, message.destination)
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


@pytest.fixture
def world() -> type[World]:
    """The class: `world((1, 2, 3)).start()`."""
    return World
