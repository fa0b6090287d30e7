from __future__ import annotations

import functools
import itertools
import queue
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
import trio
from google.protobuf.message import Message

from kraftlab.access.logins import UserLogin
from kraftlab.access.users import Users
from kraftlab.admin.v1 import admin_pb2, admin_pb2_grpc
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.line_limit import LINES_AT_ONCE
from kraftlab.rpc import server
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.methods import METHODS, SERVICE, STREAM_METHOD
from kraftlab.rpc.server import AdminServer, Call, Later
from kraftlab.wire.transport import ListenError


def describe_cluster(number: int) -> admin_pb2.DescribeClusterRequest:
    return admin_pb2.DescribeClusterRequest(header=admin_pb2.RequestHeader(min_offset=number))


def in_messages(calls: Iterable[admin_pb2.CallRequest], calls_per_message: int = 1) -> Iterator[admin_pb2.CallRequests]:
    iterator = iter(calls)
    while message := list(itertools.islice(iterator, calls_per_message)):
        yield admin_pb2.CallRequests(calls=message)


def answers_of(messages: Iterable[admin_pb2.CallResponses]) -> list[admin_pb2.CallResponse]:
    return [answer for message in messages for answer in message.calls]


def test_the_table_of_methods_is_the_service() -> None:
    assert len(METHODS) == len(admin_pb2.CallRequest.DESCRIPTOR.oneofs_by_name["request"].fields)
    assert METHODS["CreateTopics"].field == "create_topics"
    assert METHODS["CreateTopics"].request is admin_pb2.CreateTopicsRequest


async def test_a_unary_call_is_dispatched_on_the_loop_and_answered(echo, stub: admin_pb2_grpc.AdminStub) -> None:
    response = await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(7))
    assert response.header.metadata_offset == 7
    assert [(call.api, call.principal) for call in echo.calls] == [("DescribeCluster", "User:ANONYMOUS")]


async def test_calls_run_beside_each_other(echo, stub: admin_pb2_grpc.AdminStub) -> None:
    echo.gates[1] = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, stub.DescribeCluster, describe_cluster(1))
        await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(2))
        echo.gates[1].set()


async def test_a_fault_of_the_dispatcher_is_answered_in_the_body(echo, stub: admin_pb2_grpc.AdminStub) -> None:
    response = await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(666))
    assert response.header.error_code == -1
    assert "RuntimeError" in response.header.error_message


async def test_faults_of_the_dispatcher_fill_no_disk(
    echo, stub: admin_pb2_grpc.AdminStub, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(LINES_AT_ONCE + 5):
        await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(666))
    assert LINES_AT_ONCE <= caplog.text.count("Traceback") < LINES_AT_ONCE + 5


async def test_the_stream_answers_as_calls_finish(echo, stub: admin_pb2_grpc.AdminStub) -> None:
    echo.gates[1] = trio.Event()
    requests = [admin_pb2.CallRequest(correlation=n, describe_cluster=describe_cluster(n)) for n in (1, 2, 3)]
    answers = itertools.chain.from_iterable(message.calls for message in stub.Call(in_messages(requests)))
    early = [await trio.to_thread.run_sync(next, answers) for _ in range(2)]
    assert {answer.correlation for answer in early} == {2, 3}
    echo.gates[1].set()
    last = await trio.to_thread.run_sync(next, answers)
    assert (last.correlation, last.describe_cluster.header.metadata_offset) == (1, 1)
    assert await trio.to_thread.run_sync(next, answers, None) is None


async def test_the_stream_carries_every_kind_of_call(echo, stub: admin_pb2_grpc.AdminStub) -> None:
    requests = [admin_pb2.CallRequest(correlation=n, **{m.field: m.request()}) for n, m in enumerate(METHODS.values())]
    answers = await trio.to_thread.run_sync(answers_of, stub.Call(in_messages(requests)))
    assert {(answer.correlation, answer.WhichOneof("response")) for answer in answers} == {
        (n, m.field) for n, m in enumerate(METHODS.values())
    }


async def test_a_stream_call_without_a_request_is_a_fault_of_that_call_alone(echo, stub: admin_pb2_grpc.AdminStub) -> None:
    requests = [admin_pb2.CallRequest(correlation=5), admin_pb2.CallRequest(correlation=6, describe_cluster=describe_cluster(1))]
    answers = {
        answer.correlation: answer for answer in await trio.to_thread.run_sync(answers_of, stub.Call(in_messages(requests)))
    }
    assert answers[5].fault.error_code == 42
    assert answers[6].describe_cluster.header.error_code == 0


@pytest.mark.parametrize("calls_per_message", [1, 7, 2000])
async def test_more_calls_than_fit_in_flight_are_all_answered(
    echo, stub: admin_pb2_grpc.AdminStub, calls_per_message: int
) -> None:
    def requests() -> Iterator[admin_pb2.CallRequest]:
        for n in range(3000):
            yield admin_pb2.CallRequest(correlation=n, describe_cluster=describe_cluster(n + 1000))

    answers = await trio.to_thread.run_sync(answers_of, stub.Call(in_messages(requests(), calls_per_message)))
    assert sorted(answer.correlation for answer in answers) == list(range(3000))


@pytest.fixture
async def guarded(nursery: trio.Nursery, echo) -> AsyncIterator[grpc.Channel]:
    """A channel to a server that knows alice."""
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, login=UserLogin(Users({"alice": "alice-secret"}))).serve)
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    yield channel
    await trio.to_thread.run_sync(channel.close)


ALICE = (("kraftlab-user", "alice"), ("kraftlab-password", "alice-secret"))


async def test_a_call_comes_from_the_user_that_its_metadata_prove_and_from_its_address(echo, guarded: grpc.Channel) -> None:
    stub = admin_pb2_grpc.AdminStub(guarded)
    await trio.to_thread.run_sync(functools.partial(stub.DescribeCluster, describe_cluster(1), metadata=ALICE))
    await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(1))
    assert [call[2:4] for call in echo.calls] == [("User:alice", "127.0.0.1"), ("User:ANONYMOUS", "127.0.0.1")]


async def test_calls_of_a_stream_come_from_the_user_who_opened_it(echo, guarded: grpc.Channel) -> None:
    requests = [admin_pb2.CallRequest(correlation=n, describe_cluster=describe_cluster(n)) for n in (1, 2)]
    answers = admin_pb2_grpc.AdminStub(guarded).Call(in_messages(requests), metadata=ALICE)
    assert len(await trio.to_thread.run_sync(answers_of, answers)) == 2
    assert [call[2:4] for call in echo.calls] == [("User:alice", "127.0.0.1")] * 2


@pytest.mark.parametrize("metadata", [(ALICE[0],), (ALICE[1],), (ALICE[0], ("kraftlab-password", "wrong"))])
async def test_a_caller_with_a_wrong_password_gets_no_answer(echo, guarded: grpc.Channel, metadata) -> None:
    stub = admin_pb2_grpc.AdminStub(guarded)
    with pytest.raises(grpc.RpcError) as unary:
        await trio.to_thread.run_sync(functools.partial(stub.DescribeCluster, describe_cluster(1), metadata=metadata))
    stream = stub.Call(in_messages([admin_pb2.CallRequest(describe_cluster=describe_cluster(1))]), metadata=metadata)
    with pytest.raises(grpc.RpcError) as streamed:
        await trio.to_thread.run_sync(answers_of, stream)
    for refused in (unary.value, streamed.value):
        assert isinstance(refused, grpc.Call)
        assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "kraftlab-" in (refused.details() or "") or "listener.name.grpc.users" in (refused.details() or "")
    assert echo.calls == []


async def test_a_call_that_accept_takes_needs_no_task(echo, nursery: trio.Nursery) -> None:
    def accept(call: Call, answer: Callable[[Message], None]) -> Later | None:
        number = call.request.header.min_offset  # type: ignore[attr-defined]
        if number == 13:
            raise RuntimeError("no such luck")
        if number != 1:
            return functools.partial(echo, call)
        answer(admin_pb2.DescribeClusterResponse(node_id=77))
        return None

    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, accept=accept).serve)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        assert (await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(1))).node_id == 77
        assert (await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(2))).header.metadata_offset == 2
        failed = await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(13))
        assert (failed.header.error_code, "RuntimeError" in failed.header.error_message) == (-1, True)
        assert len(echo.calls) == 1


HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [b"\0" * 100, b"GET / HTTP/1.0\r\n\r\n", bytes(range(256)) * 40, HTTP_2[:10], HTTP_2 + bytes(range(256)) * 40],
    ids=["zeros", "HTTP/1", "many bytes", "half a preface", "HTTP/2 and garbage"],
)
async def test_a_connection_that_does_not_speak_http_2_is_closed(
    echo, served: tuple[str, int], stub: admin_pb2_grpc.AdminStub, data: bytes
) -> None:
    await trio.to_thread.run_sync(throw, served, data)
    assert (await trio.to_thread.run_sync(stub.DescribeCluster, describe_cluster(3))).header.metadata_offset == 3


async def test_a_connection_that_says_nothing_is_closed(nursery: trio.Nursery, echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_TIMEOUT_MS", 50)
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0).serve)
    with trio.fail_after(5):
        await trio.to_thread.run_sync(throw, ("127.0.0.1", port), None)


def throw(address: tuple[str, int], data: bytes | None) -> None:
    """Sends these bytes and half-closes, or does neither; then reads until the server closes the connection."""
    with socket.create_connection(address, timeout=5) as connection:
        if data is not None:
            with suppress(OSError):  # The server may have closed it by now.
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while connection.recv(65536):
                pass


async def test_streams_that_stay_open_leave_room_for_calls(echo, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is refused, and the next one has room once another has ended."""
    monkeypatch.setattr(server, "MAX_STREAMS", 2)
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0).serve)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = admin_pb2_grpc.AdminStub(channel)

        def opened() -> queue.SimpleQueue[admin_pb2.CallRequests | None]:
            requests: queue.SimpleQueue[admin_pb2.CallRequests | None] = queue.SimpleQueue()
            requests.put(admin_pb2.CallRequests(calls=[admin_pb2.CallRequest(describe_cluster=describe_cluster(1))]))
            streams.append(stub.Call(iter(requests.get, None), timeout=5))
            try:
                next(streams[-1])
            except grpc.RpcError:
                requests.put(None)
                raise
            return requests

        streams: list[Iterator[admin_pb2.CallResponses]] = []
        open_ones = [await trio.to_thread.run_sync(opened) for _ in range(2)]
        with pytest.raises(grpc.RpcError) as refused:
            await trio.to_thread.run_sync(opened)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, refused.value
        await trio.to_thread.run_sync(functools.partial(stub.DescribeCluster, describe_cluster(2), timeout=5))
        open_ones.pop().put(None)
        assert await trio.to_thread.run_sync(list, streams[1]) == []
        open_ones.append(await trio.to_thread.run_sync(opened))
        for requests in open_ones:
            requests.put(None)


async def test_large_messages_go_both_ways(nursery: trio.Nursery) -> None:
    async def dispatch(call: Call) -> Message:
        text = call.request.header.cluster_id  # type: ignore[attr-defined]
        return admin_pb2.DescribeClusterResponse(cluster_id=text[::-1])

    text = "abcdefgh" * 500_000
    port = await nursery.start(AdminServer(dispatch, "127.0.0.1", 0).serve)
    sizes = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=sizes) as channel:
        request = admin_pb2.DescribeClusterRequest(header=admin_pb2.RequestHeader(cluster_id=text))
        for _ in range(3):
            answer = await trio.to_thread.run_sync(admin_pb2_grpc.AdminStub(channel).DescribeCluster, request)
            assert answer.cluster_id == text[::-1]


async def test_clients_that_come_and_go_are_all_answered(echo, served: tuple[str, int]) -> None:
    def ask(number: int) -> int:
        options = (("grpc.use_local_subchannel_pool", 1),)
        with grpc.insecure_channel(f"{served[0]}:{served[1]}", options=options) as channel:
            offset: int = admin_pb2_grpc.AdminStub(channel).DescribeCluster(describe_cluster(number)).header.metadata_offset
        return offset

    for number in range(50):
        assert await trio.to_thread.run_sync(ask, number) == number


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback address")


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
async def test_a_port_in_use_is_named_with_the_cause(echo, served: tuple[str, int], host: str) -> None:
    name = re.escape(f"{host or '*'}:{served[1]}")
    with pytest.raises(ListenError, match=rf"^cannot listen on {name} for GRPC: Address already in use; is another process"):
        await AdminServer(echo, host, served[1]).serve()


async def test_a_host_that_cannot_be_resolved_is_named(echo) -> None:
    with pytest.raises(ListenError, match=r"^cannot listen on kraftlab\.invalid:9092 for GRPC: "):
        await AdminServer(echo, "kraftlab.invalid", 9092).serve()


@pytest.mark.parametrize(
    ("host", "callers"),
    [
        ("", ["127.0.0.1"]),
        ("localhost", ["127.0.0.1"]),
        pytest.param("", ["::1"], marks=needs_ipv6),
        pytest.param("::1", ["::1"], marks=needs_ipv6),
    ],
)
async def test_a_host_is_listened_at_with_all_its_addresses_on_one_port(
    echo, nursery: trio.Nursery, host: str, callers: list[str]
) -> None:
    port = await nursery.start(AdminServer(echo, host, 0).serve)
    for address in callers:
        with grpc.insecure_channel(str(Endpoint(address, port))) as channel:
            await trio.to_thread.run_sync(admin_pb2_grpc.AdminStub(channel).DescribeCluster, describe_cluster(1))
    assert [call.host for call in echo.calls] == callers


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3, 1000])
async def test_serving_can_be_cancelled_before_it_has_begun(echo, checkpoints: int) -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(AdminServer(echo, "127.0.0.1", 0).serve)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("accepts", [True, False])
async def test_stopping_ends_calls_that_wait_with_unavailable(echo, accepts: bool) -> None:
    def accept(call: Call, answer: Callable[[Message], None]) -> None:
        echo.calls.append(call)

    echo.gates[1] = trio.Event()
    caught: list[grpc.StatusCode] = []
    async with trio.open_nursery() as clients, trio.open_nursery() as servers:
        port = await servers.start(AdminServer(echo, "127.0.0.1", 0, accept=accept if accepts else None).serve)
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = admin_pb2_grpc.AdminStub(channel)

        def ask(call) -> None:  # type: ignore[no-untyped-def]
            try:
                call()
            except grpc.RpcError as error:
                caught.append(error.code())

        requests = [admin_pb2.CallRequest(correlation=1, describe_cluster=describe_cluster(1))]
        clients.start_soon(trio.to_thread.run_sync, ask, lambda: stub.DescribeCluster(describe_cluster(1)))
        clients.start_soon(trio.to_thread.run_sync, ask, lambda: list(stub.Call(in_messages(requests))))
        with trio.fail_after(5):
            while len(echo.calls) < 2:
                await trio.lowlevel.checkpoint()
        servers.cancel_scope.cancel()
    await trio.to_thread.run_sync(channel.close)
    assert caught == [grpc.StatusCode.UNAVAILABLE] * 2


@pytest.mark.parametrize("round", range(8))
async def test_a_call_just_after_the_last_one_has_ended_is_answered_that_the_node_stops(round: int) -> None:
    """It arrives on the loop after the last task is gone, and perhaps before the server has gone on: the order is by chance."""
    token = trio.lowlevel.current_trio_token()
    begun = trio.Event()
    late: list[Message | None] = []

    async def dispatch(call: Call) -> Message:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            request = (METHODS[call.api], describe_cluster(2), late.append)
            token.run_sync_soon(server.begin, Caller("User:ANONYMOUS", ""), [request])
        raise AssertionError("nobody wakes this call")

    server = AdminServer(dispatch, "127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(server.serve)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            answer = admin_pb2_grpc.AdminStub(channel).DescribeCluster.future(describe_cluster(1))
            await begun.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                assert await trio.to_thread.run_sync(answer.code) is grpc.StatusCode.UNAVAILABLE
    assert late == [None]


async def test_calls_of_vanished_clients_do_not_block_others(
    echo, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a call may wait for days on this node, for an offset that is never reached."""
    monkeypatch.setattr(server, "MAX_CONCURRENT_CALLS", 4)
    echo.gates[1] = trio.Event()
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0).serve)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        gone = [stub.DescribeCluster.future(describe_cluster(1)) for _ in range(4)]
        with trio.fail_after(10):
            while len(echo.calls) < 4:
                await trio.lowlevel.checkpoint()
            with pytest.raises(grpc.RpcError) as refused:
                await trio.to_thread.run_sync(functools.partial(stub.DescribeCluster, describe_cluster(2), timeout=9))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for call in gone:
                call.cancel()
            while not await trio.to_thread.run_sync(answers, stub):
                await trio.lowlevel.checkpoint()
        echo.gates[1].set()


def answers(stub: admin_pb2_grpc.AdminStub) -> bool:
    """Return True if the node takes one more call."""
    try:
        return stub.DescribeCluster(describe_cluster(2), timeout=9).header.metadata_offset == 2
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        return False


async def test_bytes_that_are_no_request_cause_few_log_lines(
    echo, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0).serve)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        unary = channel.unary_unary(f"/{SERVICE}/DescribeCluster")
        stream = channel.stream_stream(f"/{SERVICE}/{STREAM_METHOD}")

        def garbage() -> None:
            for _ in range(100):
                for call in (lambda: unary(b"\xff" * 9, timeout=5), lambda: list(stream(iter([b"\xff" * 9]), timeout=5))):
                    with pytest.raises(grpc.RpcError) as refused:
                        call()
                    assert refused.value.code() is grpc.StatusCode.INTERNAL

        with trio.fail_after(20):
            await trio.to_thread.run_sync(garbage)
    assert 1 <= len(caplog.records) <= 60
    assert {record.name for record in caplog.records} == {"kraftlab.rpc"}
    assert not any(record.exc_info for record in caplog.records)


async def test_silent_connections_are_bounded(nursery: trio.Nursery, echo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a file descriptor, and storage needs some too. Those above the bound end before gRPC's own deadline."""
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0).serve)
    ended = trio.Semaphore(0)

    async def be_silent() -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            with suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
            ended.release()

    with trio.fail_after(0.8 * server.HANDSHAKE_TIMEOUT_MS / 1000):
        async with trio.open_nursery() as clients:
            for _ in range(12):
                clients.start_soon(be_silent)
            for _ in range(12 - server.MAX_CONNECTIONS):
                await ended.acquire()
            clients.cancel_scope.cancel()
