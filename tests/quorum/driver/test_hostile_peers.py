"""Malformed messages of a peer, by a bug, by damage or on purpose: a node answers or drops them, and continues."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.causes import first_cause
from kraftlab.common.decoding import Decoder
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.messages import (
    API_OF,
    REQUEST_OF,
    RESPONSE_OF,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    RaftApi,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from kraftlab.quorum.core.types import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.driver.address_book import AddressBook
from kraftlab.quorum.driver.errors import GenerationOver
from kraftlab.wire import transport
from kraftlab.wire.frames import REQUEST, Frame, encode_frame
from kraftlab.wire.transport import NewerGeneration, PeerError, PeerIdentity, PeerPool, PeerRequest, PeerServer, PeerUnreachable

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]
Identity = Callable[..., PeerIdentity]

CLUSTER_ID = "driver-test-cluster"
ON_DEMAND = {"snapshot_max_new_bytes": 1 << 40, "snapshot_max_interval_ms": 0}


@contextlib.asynccontextmanager
async def stranger(sender: int = -1, generation: int = 0) -> AsyncIterator[PeerPool]:
    """A pool of a client that knows the cluster id, and perhaps claims to be a node."""
    async with trio.open_nursery() as nursery:
        yield PeerPool(nursery, PeerIdentity(CLUSTER_ID, generation, ReplicaKey(sender, bytes([sender % 200 + 1]) * 16)))
        nursery.cancel_scope.cancel()


async def ask(pool: PeerPool, node: Any, api: int, request: msgspec.Struct) -> bytes:
    return await pool.request(Endpoint("127.0.0.1", node.port), api, msgspec.msgpack.encode(request), timeout_ms=20_000)


async def test_a_snapshot_is_asked_for_beyond_any_file(cluster: Clusters) -> None:
    async with cluster(**ON_DEMAND) as c, stranger() as pool:
        leader = await c.leader()
        await c.committed(c.propose(leader, "one"))
        taken = await leader.driver.take_snapshot()
        for position in (2**62, 2**63, 2**64 - 1):
            request = FetchSnapshotRequest(leader.driver.leader.epoch, ReplicaKey(-1), taken, position, 1000)
            body = await ask(pool, leader, RaftApi.FETCH_SNAPSHOT, request)
            assert msgspec.msgpack.decode(body, type=FetchSnapshotResponse).error is ErrorCode.POSITION_OUT_OF_RANGE
        await c.committed(c.propose(leader, "two"))


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint("127.0.0.1", 70_000),
        Endpoint("127.0.0.1", 2**40),
        Endpoint("127.0.0.1", -1),
        Endpoint("a..b", 9093),
        Endpoint("x" * 70 + ".example", 9093),
        Endpoint("nul\0byte", 9093),
        Endpoint("\udcff", 9093),
    ],
    ids=repr,
)
async def test_an_endpoint_that_can_not_be_one_is_unreachable(identity: Identity, endpoint: Endpoint) -> None:
    async with stranger() as pool:
        with pytest.raises(PeerUnreachable, match="cannot connect"):
            await pool.request(endpoint, 1, b"", timeout_ms=2000)


IMPOSSIBLE_ENDPOINTS: dict[str, dict[str, Endpoint]] = {
    "none": {},
    "port": {"CONTROLLER": Endpoint("127.0.0.1", 70_000)},
    "no host": {"CONTROLLER": Endpoint("", 9093)},
    "host of 5 MB": {"CONTROLLER": Endpoint("h" * 5_000_000, 9093)},
    "100,000": {f"L{number}": Endpoint("127.0.0.1", 9093) for number in range(100_000)},
}


async def test_endpoints_that_no_voter_can_have_never_get_into_the_log(cluster: Clusters) -> None:
    async with cluster(dynamic=True) as c, stranger(1) as pool:
        for name, endpoints in IMPOSSIBLE_ENDPOINTS.items():
            # All nodes share this thread and hear nothing while much is decoded: another may lead each time.
            leader = await c.leader()
            await c.committed(c.propose(leader, name))
            body = await ask(pool, leader, RaftApi.UPDATE_VOTER, UpdateVoterRequest(-1, Voter(c.nodes[1].voter.key, endpoints)))
            assert msgspec.msgpack.decode(body, type=VoterChangeResponse).error is ErrorCode.INVALID_REQUEST, name
        await c.committed(c.propose(await c.leader(), "the last"))


NOBODY = 2**31
TOO_FAR = {"GRPC": Endpoint("127.0.0.1", 2**40)}


async def test_a_node_id_or_port_beyond_int32_is_refused(cluster: Clusters) -> None:
    """Answers of the admin API hold ids and ports as int32: every one of them would fail from then on."""
    async with cluster() as c, stranger(NOBODY) as nobody, stranger(0) as zero, stranger(1) as one:
        leader = await c.leader()
        await c.committed(c.propose(leader, "one"))
        before, me = leader.driver.leader, leader.voter.key
        epoch, other = before.epoch, int(leader.node_id == 0)
        for request, pool in (
            (VoteRequest(epoch, ReplicaKey(NOBODY), me, epoch, 99, True), nobody),
            (BeginQuorumEpochRequest(epoch + 1, NOBODY, me, {}), nobody),
            (BeginQuorumEpochRequest(epoch + 1, other, me, TOO_FAR), (zero, one)[other]),
            (EndQuorumEpochRequest(epoch + 1, NOBODY, ()), nobody),
            (FetchRequest(epoch, ReplicaKey(NOBODY), 0, 0, -1, 0, 1000), nobody),
        ):
            api = API_OF[type(request)]
            answer = msgspec.msgpack.decode(await ask(pool, leader, api, request), type=RESPONSE_OF[api])
            assert answer.error is ErrorCode.INVALID_REQUEST, request
            assert leader.driver.leader == before, request
        assert leader.driver.describe().observers == []


async def test_a_leader_with_an_id_or_port_beyond_int32_is_not_followed(
    identity: Identity, cluster: Clusters, eventually: Eventually
) -> None:
    """Two of three voters name such leaders in every answer."""
    views = (LeaderView(5, NOBODY), LeaderView(5, 7, TOO_FAR))
    asked: list[int] = []

    async def answer(request: PeerRequest) -> bytes:
        asked.append(request.api)
        view = views[len(asked) % 2]
        return msgspec.msgpack.encode(VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, view, False, True))

    async with cluster(raft={"fetch_timeout_ms": 200, "election_timeout_ms": 60}) as c, trio.open_nursery() as nursery:
        for node in c.nodes[1:]:
            await node.crash()
            await nursery.start(PeerServer(identity(node.node_id), {RaftApi.VOTE: answer}).serve, "127.0.0.1", node.port)
        await eventually(lambda: len(asked) >= 10, "ten votes are requested")
        assert c.nodes[0].driver.leader.leader_id not in {view.leader_id for view in views}
        nursery.cancel_scope.cancel()


async def test_a_generation_that_no_disk_could_hold_closes_the_connection(identity: Identity) -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(PeerServer(identity(1), {}).serve, "127.0.0.1", 0)
        pool = PeerPool(nursery, identity(2)._replace(generation=2**32))
        with pytest.raises(PeerUnreachable):
            await pool.request(Endpoint("127.0.0.1", port), 1, b"", timeout_ms=2000)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("sender", [-1, 1, 77])
@pytest.mark.parametrize("generation", [1, 2, 2**32 - 1])
async def test_a_generation_in_a_request_ends_no_node(cluster: Clusters, sender: int, generation: int) -> None:
    async with cluster() as c, stranger(sender, generation) as pool:
        leader = await c.leader()
        for node in c.nodes:
            with pytest.raises(PeerError, match=f"behind the sender's {generation}"):
                await ask(pool, node, RaftApi.FETCH, FetchRequest(0, ReplicaKey(-1), 0, 0, -1, 0, 1000))
        await c.committed(c.propose(leader, "one"))
        assert [node.failure for node in c.nodes] == [None] * 3
        assert leader.driver.generation == 0


async def test_a_generation_in_an_answer_counts_only_if_it_is_the_next_and_from_the_node_that_was_asked(
    cluster: Clusters, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "one"))
        desk, destination = leader.driver.peers, c.nodes[leader.node_id - 1]
        at = Endpoint("127.0.0.1", destination.port)
        desk.answered(RaftApi.FETCH, 10**6, destination.node_id, at, NewerGeneration(1, leader.node_id, "by another node"))
        desk.answered(RaftApi.FETCH, 10**6, destination.node_id, at, NewerGeneration(2, destination.node_id, "two steps"))
        await c.committed(c.propose(leader, "two"))
        assert leader.failure is None
        assert "is at generation 2 of the cluster" in caplog.text
        assert "Nothing is discarded" in caplog.text
        desk.answered(RaftApi.FETCH, 10**6, destination.node_id, at, NewerGeneration(1, destination.node_id, "the next"))
        with trio.fail_after(5):
            await leader.down.wait()
        assert isinstance(first_cause(leader.failure), GenerationOver)


STEPS = (1, 999, 1_000_000, 1_000_001, 2**31 - 3, 2**31 - 2)
"""Steps from the current epoch to others."""


@pytest.mark.parametrize("sender", [-1, 77])
async def test_strangers_change_no_epoch_and_no_vote(cluster: Clusters, sender: int) -> None:
    async with cluster(raft={"fetch_timeout_ms": 20_000}) as c, stranger(sender) as pool:
        leader = await c.leader()
        await c.committed(c.propose(leader, "one"))
        before = [node.driver.leader for node in c.nodes]
        for node, step in itertools.product(c.nodes, STEPS):
            me, them, epoch = node.voter.key, ReplicaKey(sender, bytes(16)), before[0].epoch + step
            for request in (
                FetchRequest(epoch, them, 0, 0, -1, 0, 1000),
                FetchRequest(epoch, ReplicaKey(-1), 0, 0, -1, 0, 1000),
                FetchSnapshotRequest(epoch, them, OffsetAndEpoch(1, 1), 0, 1000),
                VoteRequest(epoch, them, me, epoch - 1, 10**9, False),
                VoteRequest(epoch, them, me, epoch - 1, 10**9, True),
                BeginQuorumEpochRequest(epoch, 77, me, {}),
                BeginQuorumEpochRequest(epoch, leader.node_id, me, {}),
                EndQuorumEpochRequest(epoch, 77, ()),
                EndQuorumEpochRequest(before[0].epoch, leader.node_id, (me,)),
            ):
                with contextlib.suppress(PeerError):
                    body = await ask(pool, node, API_OF[type(request)], request)
                    answer: Any = msgspec.msgpack.decode(body, type=RESPONSE_OF[API_OF[type(request)]])
                    assert answer.error is not ErrorCode.NONE, request
        assert [node.driver.leader for node in c.nodes] == before
        await c.committed(c.propose(leader, "two"))


async def test_a_fetch_in_a_voters_name_on_another_connection_acknowledges_nothing(cluster: Clusters) -> None:
    async with cluster() as c, stranger(77) as pool:
        leader = await c.leader()
        voter = c.nodes[leader.node_id - 1].voter.key
        fetch = FetchRequest(leader.driver.leader.epoch, voter, 10**6, 1, -1, 0, 1000)
        with pytest.raises(PeerError, match=f"names node {voter.node_id}, but node 77 sends it"):
            await ask(pool, leader, RaftApi.FETCH, fetch)


async def test_a_connection_has_one_sender(identity: Identity) -> None:
    async def answer(request: PeerRequest) -> bytes:
        return b"answer"

    async with trio.open_nursery() as nursery:
        port = await nursery.start(PeerServer(identity(1), {1: answer}).serve, "127.0.0.1", 0)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            for sender in (7, 7, 8):
                frame = Frame(REQUEST, 1, 0, sender, CLUSTER_ID, 0, ReplicaKey(sender), memoryview(b""))
                await stream.send_all(bytes(encode_frame(frame)))
            received = b""
            with trio.fail_after(5), contextlib.suppress(trio.BrokenResourceError):
                while more := await stream.receive_some():
                    received += more
        nursery.cancel_scope.cancel()
    assert b"this connection is node 7's, and not node 8's" in received


async def test_a_sender_of_another_cluster_is_told_nothing_about_this_one(identity: Identity) -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(PeerServer(identity(1, generation=3), {}).serve, "127.0.0.1", 0)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            frame = Frame(REQUEST, 1, 0, 1, "some other cluster", 9, ReplicaKey(7), memoryview(b""))
            await stream.send_all(bytes(encode_frame(frame)))
            with trio.fail_after(5):
                answer = await stream.receive_some()
        nursery.cancel_scope.cancel()
    head = msgspec.msgpack.decode(answer[4:], type=Frame)
    assert (head.cluster_id, head.generation, head.sender.node_id) == ("", 0, -1)
    assert CLUSTER_ID.encode() not in answer


async def test_a_long_cluster_id_of_a_stranger_does_not_fill_the_log(
    identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(PeerServer(identity(1), {}).serve, "127.0.0.1", 0)
        pool = PeerPool(nursery, identity(2, cluster_id="x\n" * 1_000_000))
        with caplog.at_level(logging.INFO, logger="kraftlab.peer"), pytest.raises(PeerError) as refused:
            await pool.request(Endpoint("127.0.0.1", port), 1, b"", timeout_ms=2000)
        nursery.cancel_scope.cancel()
    assert len(str(refused.value)) < 1_000
    assert [record for record in caplog.records if "refused request" in record.getMessage()]
    assert all(len(record.getMessage()) < 1_000 and "\n" not in record.getMessage() for record in caplog.records)


async def test_a_port_scan_causes_few_log_lines(identity: Identity, caplog: pytest.LogCaptureFixture) -> None:
    foreign = bytes(encode_frame(Frame(REQUEST, 1, 0, 1, "another cluster", 0, ReplicaKey(7), b"")))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(PeerServer(identity(1), {}).serve, "127.0.0.1", 0)
        with caplog.at_level(logging.INFO, logger="kraftlab.peer"):
            for _ in range(150):
                for garbage in (b"GET / HTTP/1.1\r\n\r\n", foreign):
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                    await stream.send_all(garbage)
                    with contextlib.suppress(trio.BrokenResourceError):
                        await stream.receive_some()
                    await stream.aclose()
        nursery.cancel_scope.cancel()
    assert 1 <= len(caplog.records) <= 40


async def test_an_observer_without_endpoints_logs_a_limited_number_of_lines(
    cluster: Clusters, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(observers=1, dynamic=True, raft={"retry_backoff_ms": 2}) as c:
        c.voters = VoterSet(())
        caplog.clear()
        observer = c.nodes[3]
        await observer.start()
        await eventually(lambda: observer.driver.statistics().core.steps > 150, "it has looked for somebody many times")
    lines = [
        record.getMessage() for record in caplog.records if "node 3" in record.getMessage() or "node -1" in record.getMessage()
    ]
    assert 1 <= len(lines) <= 30


def test_a_place_that_once_belonged_to_another_cluster_is_forgiven_when_it_does_not_any_more() -> None:
    places = [Endpoint("host", port) for port in (1, 2, 3)]
    voters = VoterSet(tuple(Voter(ReplicaKey(node_id), {"CONTROLLER": place}) for node_id, place in enumerate(places)))
    book = AddressBook("CONTROLLER", places[0], (), lambda node_id: {}, lambda: voters, random.Random(0))
    assert book.note_stranger(places[1])
    assert not book.note_stranger(places[1])
    book.note_member(places[1], 1)
    assert book.note_stranger(places[2])
    assert not book.strangers_in_majority()
    assert book.note_stranger(places[1])
    assert book.strangers_in_majority() == places[1:]


async def test_somebody_else_at_a_peers_endpoint_causes_few_log_lines(
    identity: Identity, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RECONNECT_BACKOFF_S", 0.001)

    async def web_server(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery, stranger() as pool:
        [listener] = await nursery.start(partial(trio.serve_tcp, web_server, 0, host="127.0.0.1"))
        endpoint = Endpoint("127.0.0.1", listener.socket.getsockname()[1])
        for _ in range(100):
            with pytest.raises(PeerUnreachable):
                await pool.request(endpoint, 1, b"", timeout_ms=2000)
        nursery.cancel_scope.cancel()
    assert 1 <= len(caplog.records) <= 40


DEEP = b"\x91" * 5_000 + b"\xc0"


def frame_with(
    cluster_id: bytes = msgspec.msgpack.encode(CLUSTER_ID), more: bytes = b"", api: int = 1, body: bytes = b""
) -> bytes:
    """Return a frame as `encode_frame` makes it, but of these pieces of MessagePack; `more` is an additional field."""
    fields = [msgspec.msgpack.encode(value) for value in (REQUEST, api, 0, 1)]
    fields += [cluster_id, b"\x00", msgspec.msgpack.encode(ReplicaKey(7)), msgspec.msgpack.encode(body)]
    fields += [more] if more else []
    frame = bytes([0x90 + len(fields)]) + b"".join(fields)
    return len(frame).to_bytes(4, "big") + frame


async def test_malformed_bytes_that_raise_other_errors_in_msgspec_end_no_node(cluster: Clusters) -> None:
    async with cluster() as c:
        for data in (
            frame_with(more=DEEP),
            frame_with(cluster_id=b"\xa2\xff\xff"),
            frame_with(body=msgspec.msgpack.encode([1] * 14)[:-1] + DEEP),
            frame_with(api=RaftApi.VOTE, body=b"\x9f\xa2\xff\xff"),
            (len(DEEP)).to_bytes(4, "big") + DEEP,
        ):
            leader = await c.leader()
            async with await trio.open_tcp_stream("127.0.0.1", leader.port) as stream:
                await stream.send_all(data)
                with trio.fail_after(5):
                    await stream.receive_some(100)  # an answer, or the end of the connection
            await c.committed(c.propose(await c.leader(), "one"))


@given(st.binary(max_size=60), st.sampled_from(sorted(REQUEST_OF)))
def test_any_bytes_raise_at_most_a_decoding_error(data: bytes, api: RaftApi) -> None:
    for kind in (Frame, REQUEST_OF[api], tuple[int, str]):
        for opened in (data, bytes([0x90 + len(data) % 16]) + data):
            with contextlib.suppress(msgspec.MsgspecError):
                Decoder(kind).decode(opened)
