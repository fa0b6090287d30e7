"""The proxies between nodes, with peers that speak the nodes' own protocol over loopback."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.lab import cluster_plan
from kraftlab.lab.links import proxies
from kraftlab.lab.links.frame_splitter import FrameSplitter, frames_of, sender_of
from kraftlab.lab.links.introduction import CLIENT, ByteSplitter, introduction
from kraftlab.lab.links.link import Link, Pipe
from kraftlab.lab.links.proxies import LinkProxies
from kraftlab.lab.links.proxy import HELD_CONNECTIONS_MAX, NodeProxy
from kraftlab.lab.links.shape import PLAIN, Cut, LinkShape
from kraftlab.wire.frames import Frame, FrameError, encode_frame
from kraftlab.wire.transport import (
    DirectHandler,
    PeerClient,
    PeerIdentity,
    PeerRequest,
    PeerServer,
    PeerTimeout,
    PeerUnreachable,
    Responder,
)

from ...helpers.waiting import eventually

pytestmark = pytest.mark.cluster

HOST = "127.0.0.1"
NODES = (1, 2)
API = 7
PATIENCE_MS = 5000
SOON_MS = 150
"""Time after which a message counts as held or lost."""


def identity(node_id: int) -> PeerIdentity:
    return PeerIdentity("a-cluster", 0, ReplicaKey(node_id))


class Bench:
    """Nodes 1 and 2, each behind a proxy. A node remembers what it was asked, and answers with the same bytes."""

    def __init__(self, nursery: trio.Nursery) -> None:
        ports = cluster_plan.free_ports(2 * len(NODES))
        self.nursery = nursery
        self.ports = {node_id: next(ports) for node_id in NODES}
        self.node_ports = {node_id: next(ports) for node_id in NODES}
        self.links = {(1, 2): Link(1, 2), (2, 1): Link(2, 1)}
        self.asked: dict[int, list[bytes]] = {node_id: [] for node_id in NODES}
        self.answering = trio.Event()
        self.answering.set()
        self.scopes: dict[int, trio.CancelScope] = {}
        self.proxies = {
            node_id: NodeProxy(node_id, HOST, self.ports[node_id], self.node_ports[node_id], self.link, self.has_cuts)
            for node_id in NODES
        }

    def link(self, source: int, target: int) -> Link:
        return self.links.get((source, target)) or Link(source, target)

    def has_cuts(self, node_id: int) -> bool:
        return any(link.cut for pair, link in self.links.items() if node_id in pair)

    def change(self, source: int, target: int, cut: Cut | None = None, shape: LinkShape = PLAIN, *, drop: bool = False) -> None:
        self.links[source, target].change(cut, shape, drop=drop)
        for proxy in self.proxies.values():
            proxy.look()

    async def begin(self, node_id: int) -> None:
        def accept(request: PeerRequest, responder: Responder) -> None:
            self.asked[node_id].append(bytes(request.body))
            self.nursery.start_soon(answer, request, responder)

        async def answer(request: PeerRequest, responder: Responder) -> None:
            await self.answering.wait()
            responder.reply(request.body)

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            async with trio.open_nursery() as nursery:
                self.scopes[node_id] = nursery.cancel_scope
                server = PeerServer(identity(node_id), {API: DirectHandler(accept)})
                await nursery.start(server.serve, HOST, self.node_ports[node_id])
                task_status.started()

        await self.nursery.start(serve)
        await eventually(lambda: accepts(self.ports[node_id]))

    def client(self, source: int, target: int) -> PeerClient:
        return PeerClient(self.nursery, identity(source), Endpoint(HOST, self.ports[target]))

    async def until_asked(self, node_id: int, *bodies: bytes) -> None:
        await eventually(lambda: self.asked[node_id] == list(bodies))


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


async def ask(client: PeerClient, body: bytes, timeout_ms: int = PATIENCE_MS) -> bytes:
    return await client.request(API, body, timeout_ms=timeout_ms)


async def is_lost(client: PeerClient, body: bytes) -> bool:
    """Return True if neither an answer nor the end of the connection comes."""
    try:
        await ask(client, body, SOON_MS)
    except PeerTimeout:
        return True
    return False


@asynccontextmanager
async def two_nodes() -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery)
        for node_id in NODES:
            nursery.start_soon(bench.proxies[node_id].serve)
            await bench.begin(node_id)
        yield bench
        nursery.cancel_scope.cancel()


async def test_a_clear_link_carries_requests_and_answers() -> None:
    async with two_nodes() as bench:
        assert await ask(bench.client(1, 2), b"from 1") == b"from 1"
        assert await ask(bench.client(2, 1), b"from 2") == b"from 2"
        assert bench.asked == {1: [b"from 2"], 2: [b"from 1"]}


async def test_many_frames_and_large_ones_arrive_whole() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        bodies = [bytes([number % 256]) * (1 + 37 * number) for number in range(300)] + [b"x" * 8_000_000]
        answers: dict[int, bytes] = {}

        async def one(number: int) -> None:
            answers[number] = await ask(client, bodies[number])

        async with trio.open_nursery() as nursery:
            for number in range(len(bodies)):
                nursery.start_soon(one, number)
        assert [answers[number] for number in range(len(bodies))] == bodies


async def test_a_one_way_cut_holds_requests_and_answers_of_one_side_only() -> None:
    async with two_nodes() as bench:
        ahead, back = bench.client(1, 2), bench.client(2, 1)
        assert await ask(ahead, b"before") == await ask(back, b"before") == b"before"
        bench.change(1, 2, Cut.HOLD)
        assert await is_lost(ahead, b"request of 1")
        assert await is_lost(back, b"request of 2")
        assert bench.asked == {1: [b"before", b"request of 2"], 2: [b"before"]}


async def test_a_one_way_cut_that_comes_between_holds_the_answer() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        bench.answering = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(is_lost, client, b"asked")
            await bench.until_asked(2, b"asked")
            bench.change(2, 1, Cut.HOLD)
            bench.answering.set()
        bench.change(2, 1)
        assert await ask(client, b"again") == b"again"


async def test_new_connections_over_a_cut_link_are_held_too_and_released_late() -> None:
    async with two_nodes() as bench:
        bench.change(1, 2, Cut.HOLD)
        for number in range(3):
            assert await is_lost(bench.client(1, 2), b"%d" % number)
        assert bench.asked[2] == []
        bench.change(1, 2)
        await eventually(lambda: len(bench.asked[2]) == 3)
        assert sorted(bench.asked[2]) == [b"0", b"1", b"2"]


async def test_held_messages_can_be_dropped() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        assert await ask(client, b"before") == b"before"
        bench.change(1, 2, Cut.HOLD)
        for _ in range(3):
            assert await is_lost(client, b"lost")
        bench.change(1, 2, drop=True)
        assert await ask(client, b"after") == b"after"
        assert bench.asked[2] == [b"before", b"after"]


async def test_a_message_that_has_begun_to_arrive_is_completed_when_the_rest_is_dropped() -> None:
    begun, behind, later = framed(1, b"b" * 6_000_000), framed(1, b"behind"), framed(1, b"later")
    link, source, (target, receiver) = Link(1, 2), socket.socket(), socket.socketpair()
    for end in (source, target, receiver):
        end.setblocking(False)

    async def to_target() -> socket.socket:
        return target

    with source, target, receiver:
        async with trio.open_nursery() as nursery:
            pipe = Pipe(link, source, FrameSplitter(), to_target, source.close, source.close, nursery)

            async def pass_on() -> None:
                await pipe.pass_on(begun + behind)
                await pipe.pass_on(later)

            nursery.start_soon(pass_on)
            await trio.lowlevel.wait_readable(receiver)
            link.change(Cut.HOLD, PLAIN)
            await trio.testing.wait_all_tasks_blocked()
            link.change(None, PLAIN, drop=True)
            arrived = await received(receiver, len(begun + later))
        assert arrived == begun + later


async def test_bytes_without_messages_pass_late_and_dropping_them_breaks_their_connection() -> None:
    link, broken = Link(1, 2), trio.Event()
    (source, opener), (target, receiver) = socket.socketpair(), socket.socketpair()
    for end in (source, opener, target, receiver):
        end.setblocking(False)

    async def to_target() -> socket.socket:
        return target

    with source, opener, target, receiver:
        async with trio.open_nursery() as nursery:
            pipe = Pipe(link, source, ByteSplitter(), to_target, broken.set, source.close, nursery)
            link.change(Cut.HOLD, PLAIN)
            nursery.start_soon(pipe.read)
            opener.send(b"held")
            await eventually(lambda: link.waiting_bytes() == 4)
            link.change(None, PLAIN)
            assert await received(receiver, 4) == b"held"
            assert not broken.is_set()
            link.change(Cut.HOLD, PLAIN)
            opener.send(b"lost")
            await eventually(lambda: link.waiting_bytes() == 4)
            link.change(None, PLAIN, drop=True)
            assert broken.is_set()
            nursery.cancel_scope.cancel()


async def received(source: socket.socket, count: int) -> bytes:
    """The next so many bytes."""
    data = b""
    while len(data) < count:
        await trio.lowlevel.wait_readable(source)
        data += source.recv(count - len(data))
    return data


async def test_a_link_that_resets_breaks_old_and_new_connections() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        bench.answering = trio.Event()
        async with trio.open_nursery() as nursery:

            async def asked() -> None:
                with pytest.raises(PeerUnreachable, match="was lost"):
                    await ask(client, b"asked")

            nursery.start_soon(asked)
            await bench.until_asked(2, b"asked")
            bench.change(1, 2, Cut.RESET)
        with pytest.raises(PeerUnreachable, match="was lost"):
            await ask(client, b"again")
        bench.answering.set()
        bench.change(1, 2)
        assert await ask(client, b"healed") == b"healed"


async def test_a_node_that_is_gone_is_refused_until_it_is_back() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        assert await ask(client, b"before") == b"before"
        bench.scopes[2].cancel()
        refused = False
        with trio.fail_after(PATIENCE_MS / 1000):
            while not refused:
                with pytest.raises(PeerUnreachable) as caught:
                    await ask(client, b"gone")
                refused = caught.value.refused
        await bench.begin(2)
        assert await ask(client, b"back") == b"back"


async def test_a_node_that_is_cut_off_does_not_learn_that_another_is_gone() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        assert await ask(client, b"before") == b"before"
        for pair in ((1, 2), (2, 1)):
            bench.change(*pair, Cut.HOLD)
        bench.scopes[2].cancel()
        assert await is_lost(client, b"held")
        assert await is_lost(bench.client(1, 2), b"held on a connection of its own")


async def test_connections_that_their_opener_gave_up_do_not_pile_up() -> None:
    async with two_nodes() as bench:
        bench.change(1, 2, Cut.HOLD)
        frame = encode_frame(Frame(0, API, 0, 1, "a-cluster", 0, ReplicaKey(1), b"given up"))
        for _ in range(HELD_CONNECTIONS_MAX + 10):
            opened = await trio.open_tcp_stream(HOST, bench.ports[2])
            await opened.send_all(frame)
            await opened.aclose()
        link = bench.links[1, 2]
        await eventually(lambda: len(link.pipes) <= HELD_CONNECTIONS_MAX + 1 and all(pipe.is_ended for pipe in link.pipes))


async def test_a_delayed_message_takes_its_time() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        bench.change(1, 2, shape=LinkShape(delay_ms=40))
        bench.change(2, 1, shape=LinkShape(delay_ms=30))
        begun = trio.current_time()
        assert await ask(client, b"slow") == b"slow"
        assert trio.current_time() - begun >= 0.07
        bench.change(1, 2)
        bench.change(2, 1)
        assert await ask(client, b"fast") == b"fast"


async def test_messages_are_lost_and_doubled() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        bench.change(1, 2, shape=LinkShape(loss=1))
        assert await is_lost(client, b"lost")
        bench.change(1, 2, shape=LinkShape(duplicate=1))
        assert await ask(client, b"twice") == b"twice"
        await bench.until_asked(2, b"twice", b"twice")


async def test_reordered_messages_overtake_each_other_but_none_is_missing() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        bench.change(1, 2, shape=LinkShape(reorder=0.5))
        bodies = [b"%d" % number for number in range(40)]
        for body in bodies:
            client.send(API, body, timeout_ms=PATIENCE_MS, on_answer=lambda answer: None)
        await eventually(lambda: len(bench.asked[2]) == len(bodies))
        assert sorted(bench.asked[2]) == sorted(bodies)
        assert bench.asked[2] != bodies


async def test_a_jitter_keeps_the_order() -> None:
    async with two_nodes() as bench:
        client = bench.client(1, 2)
        bench.change(1, 2, shape=LinkShape(jitter_ms=20))
        bodies = [b"%d" % number for number in range(40)]
        for number, body in enumerate(bodies):
            client.send(API, body, timeout_ms=PATIENCE_MS, on_answer=lambda answer: None)
            if number % 10 == 0:
                await trio.sleep(0.002)
        await bench.until_asked(2, *bodies)


async def test_garbage_is_not_passed_on_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with two_nodes() as bench:
        for _ in range(3):
            stream = await trio.open_tcp_stream(HOST, bench.ports[2])
            await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            with trio.fail_after(PATIENCE_MS / 1000), pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        [told] = [record.getMessage() for record in caplog.records if "reset a connection" in record.getMessage()]
        assert "node 2: it carried HTTP/2: a gRPC client dials this port" in told
        assert await ask(bench.client(1, 2), b"still there") == b"still there"


def framed(sender: int, body: bytes) -> bytes:
    return bytes(encode_frame(Frame(0, API, 0, 1, "a-cluster", 0, ReplicaKey(sender), body)))


@given(st.lists(st.binary(max_size=2000), max_size=20), st.integers(1, 3000))
def test_frames_are_the_same_however_their_bytes_come(bodies: list[bytes], at_once: int) -> None:
    sent = [framed(5, body) for body in bodies]
    stream = b"".join(sent)
    splitter, taken = FrameSplitter(), list[bytes]()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for start in range(0, len(stream), at_once):
            theirs.sendall(stream[start : start + at_once])
            splitter.receive_from(ours)
            taken += frames_of(splitter.take())
    assert taken == sent
    assert all(sender_of(frame) == 5 for frame in taken)


@given(st.sampled_from([introduction(5), b""]), st.binary(min_size=1).map(lambda data: b"\x16" + data), st.integers(1, 30))
def test_an_introduction_is_taken_away_however_its_bytes_come(introduced: bytes, data: bytes, at_once: int) -> None:
    """A client of a secure cluster begins with TLS (0x16)."""
    stream = introduced + data
    splitter, taken, opener = ByteSplitter(), b"", None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for start in range(0, len(stream), at_once):
            theirs.sendall(stream[start : start + at_once])
            splitter.receive_from(ours)
            if opener is not None:
                taken += splitter.take()
            elif (found := splitter.first()) is not None:
                opener, taken = found
    assert (opener, taken) == (5 if introduced else CLIENT, data)


@pytest.mark.parametrize("data", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\1\0"])
def test_invalid_frames_are_refused(data: bytes) -> None:
    splitter = FrameSplitter()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        splitter.receive_from(ours)
        with pytest.raises(FrameError):
            sender_of(splitter.take())


@given(st.integers(0, 2**32), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_fate_of_a_message_follows_from_its_number_alone(seed: int, loss: float, duplicate: float, reorder: float) -> None:
    """The n-th message of a link has the same luck whatever the shapes before it did, and plain links lose nothing."""
    shape = LinkShape(delay_ms=10, jitter_ms=5, loss=loss, duplicate=duplicate, reorder=reorder)
    first, second = random.Random(seed), random.Random(seed)
    for _ in range(5):
        assert LinkShape(loss=1).deliveries(first, 0.0, 0.0)[0] == []
        assert PLAIN.deliveries(second, 0.0, 0.0) == ([0.0], 0.0)
    copies, not_before = shape.deliveries(first, 1.0, 0.5)
    assert (copies, not_before) == shape.deliveries(second, 1.0, 0.5)
    assert len(copies) <= 2
    assert all(due >= 1.01 for due in copies)


@pytest.mark.parametrize("wrong", [{"loss": 1.5}, {"delay_ms": -1}, {"duplicate": float("nan")}, {"jitter_ms": 1e9}])
def test_a_shape_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LinkShape(**wrong)


@pytest.fixture
def turn_s(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """As if nobody else had proxies in this process."""
    monkeypatch.setattr(proxies, "short_turns", proxies.ShortTurns())
    others_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield sys.getswitchinterval()
    sys.setswitchinterval(others_s)


def test_threads_take_short_turns_as_long_as_any_proxies_run_and_no_longer(turn_s: float) -> None:
    first, second = LinkProxies(HOST), LinkProxies(HOST)
    short_s = sys.getswitchinterval()
    first.close()
    assert sys.getswitchinterval() == short_s < turn_s
    second.close()
    assert sys.getswitchinterval() == turn_s
