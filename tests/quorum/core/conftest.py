"""Two ways to drive the core: `Driven`, one RaftNode by hand, and `Quorum`, a scripted cluster that runs by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import BootState, ElectionState, LogView, OffsetAndEpoch, RaftConfig, RaftNode, Voter, VoterSet
from kraftlab.quorum.core.batch import KRaftVersion, KRaftVoters, encode, read_header
from kraftlab.quorum.core.effects import Effect, Effects, Reply, Send
from kraftlab.quorum.core.events import (
    ElectionStateStored,
    Event,
    Propose,
    RequestReceived,
    ResponseReceived,
    StorageCompleted,
    TimerFired,
)
from kraftlab.quorum.core.messages import LeaderView, Request, Response, VoteRequest, VoteResponse
from kraftlab.simulation.transcripts.cluster import Host, ScriptedCluster, key_of


class Quorum(ScriptedCluster):
    """A cluster of nodes that are up. Messages arrive at once and disks keep at once, unless a test says otherwise."""

    def __init__(self, voters: int, observers: int = 0, *, dynamic: bool = False, start: bool = True, **settings: object) -> None:
        super().__init__()
        self.add_nodes(voters, observers, dynamic=dynamic, **settings)
        if start:
            self.start_all()

    def start_all(self) -> None:
        for node_id, host in self.hosts.items():
            if not host.is_up:
                self.start(node_id)

    def up(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.is_up]

    def do(self, node_id: int, event: Event) -> None:
        self.step(node_id, event, repr(event))

    def propose(self, node_id: int, count: int = 1) -> None:
        for _ in range(count):
            self.do(node_id, Propose(self.host(node_id).node.epoch, b"\x91\x01", 1))

    def change(self, request: Request) -> Response:
        """Ask the current leader for a change of voters and return its answer."""
        token = self.ask(self.leader().config.node_id, request, repr(request))
        self.run_until(lambda: token in self.answers)
        return self.answers[token]

    def seen(self, node_id: int, kind: type[Effect]) -> list[Any]:
        return [effect for effect in self.host(node_id).history if isinstance(effect, kind)]

    def isolate(self, *node_ids: int) -> None:
        """Separate these nodes from all others, both ways."""
        outside = self.hosts.keys() - set(node_ids)
        self.cut(link for a in node_ids for b in outside for link in ((a, b), (b, a)))

    def run(self, duration_ms: int) -> None:
        self.pass_time(duration_ms, deliver=True)

    def run_until(self, condition: Callable[[], object], limit_ms: int = 30_000) -> None:
        end_ms = self.now_ms + limit_ms
        while not condition():
            if self.in_flight:
                self.deliver(self.in_flight[0])
            else:
                assert self.now_ms < end_ms, f"did not happen within {limit_ms} ms: {self.hosts}"
                self.fire(self.next_instant_ms(end_ms))

    def run_deliveries(self, count: int) -> None:
        for _ in range(count):
            self.run_until(lambda: self.in_flight)
            self.deliver(self.in_flight[0])

    def leader(self) -> Host:
        """Wait for a leader that has committed in its epoch, and return the one of the newest epoch."""

        def found() -> Iterator[Host]:
            return (host for host in self.up() if host.node.is_leader and host.node.leader_high_watermark >= 0)

        self.run_until(lambda: any(found()))
        return max(found(), key=lambda host: host.node.epoch)

    def settle(self) -> int:
        """Wait until all nodes that are up have the leader's whole log and high watermark. Return the leader's id."""
        leader = self.leader()
        self.run_until(
            lambda: all(h.node.log_end_offset == leader.node.log_end_offset == h.node.high_watermark for h in self.up())
        )
        return leader.config.node_id


START_CRC = 77
"""The crc of the chain at the snapshot where a driven node's log starts."""


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
        """`log`: (epoch, record count) of each batch on the disk, after the snapshot `start`. `dynamic`: the voters are in a
        bootstrap checkpoint.
        """
        self.now_ms = 1_000_000
        voter_set = VoterSet(tuple(Voter(key_of(voter_id) if dynamic else ReplicaKey(voter_id), {}) for voter_id in voters))
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
        """Return the reply, if there was one at once."""
        self.token += 1
        effects = self.step(RequestReceived(self.token, key_of(sender_id), request), after_ms)
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
        """Make all operations so far durable."""
        first = self.step(ElectionStateStored(self.node.quorum.election_version))
        self.effects = first + self.step(StorageCompleted(self.node.local_log.flushes.last_id))
        return self.effects

    def win(self) -> Effects:
        """Become leader by the vote of node 2, with everything durable. Return the effects of the winning step."""
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


def build_batches(log: tuple[tuple[int, int], ...], offset: int = 0, crc: int = 0) -> list[bytes]:
    """Return chained batches of (epoch, record count)."""
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
def quorum() -> type[Quorum]:
    """The class: `quorum(3)`."""
    return Quorum


@pytest.fixture
def batches_of() -> Callable[..., list[bytes]]:
    return build_batches


@pytest.fixture(name="key_of")
def key_of_a_node() -> Callable[[int], ReplicaKey]:
    """A node's key in these tests."""
    return key_of
