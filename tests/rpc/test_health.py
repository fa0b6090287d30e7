"""Health and reflection of the gRPC listener, by the clients of grpcio-health-checking and grpcio-reflection."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import grpc
import pytest
import trio
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from kraftlab.access.logins import SaslLogin
from kraftlab.access.users import PASSWORD_HEADER, USER_HEADER
from kraftlab.rpc import health, server
from kraftlab.rpc.health import Health
from kraftlab.rpc.methods import METHODS, SERVICE
from kraftlab.rpc.server import AdminServer, GrpcTls, TlsMaterial

from ..helpers.certificates import Authority

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN
V1, V1_ALPHA = "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"
ALICE = ((USER_HEADER, "alice"), (PASSWORD_HEADER, "secret"))


class Node:
    """A node whose health the test sets; counts the questions."""

    def __init__(self) -> None:
        self.health = Health(is_serving=True, is_ready=False)
        self.asked = 0

    def present(self) -> Health:
        self.asked += 1
        return self.health


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def channel(nursery: trio.Nursery, echo: Any, node: Node) -> AsyncIterator[grpc.Channel]:
    """A channel to a listener with logins."""
    login = SaslLogin({"alice": "secret"})
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, login=login, health=node.present).serve)
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    try:
        yield channel
    finally:
        await trio.to_thread.run_sync(channel.close)


def check(channel: grpc.Channel, name: str = SERVICE, timeout_s: float = 10) -> int:
    """Ask without a login."""
    return int(HealthStub(channel).Check(HealthCheckRequest(service=name), timeout=timeout_s).status)


async def checked(channel: grpc.Channel, name: str = SERVICE) -> int:
    return await trio.to_thread.run_sync(check, channel, name)


def watch(channel: grpc.Channel, name: str = SERVICE) -> Any:
    return HealthStub(channel).Watch(HealthCheckRequest(service=name), metadata=ALICE, timeout=30)


def status_of(call: Callable[[], object]) -> grpc.StatusCode | None:
    try:
        call()
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        return error.code()
    return None


async def test_the_empty_name_is_the_node_and_the_service_is_its_readiness(channel: grpc.Channel, node: Node) -> None:
    assert await checked(channel, "") == SERVING
    assert await checked(channel) == NOT_SERVING
    node.health = Health(is_serving=True, is_ready=True)
    with trio.fail_after(10):
        while await checked(channel) != SERVING:
            pass
    assert await trio.to_thread.run_sync(status_of, lambda: check(channel, "nobody")) is grpc.StatusCode.NOT_FOUND


async def test_check_alone_is_answered_before_login(
    echo: Any, nursery: trio.Nursery, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every method of every service that the listener has, without a user."""
    made: dict[str, Mapping[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    generic_handler = grpc.method_handlers_generic_handler

    def noted(service: str, handlers: Any) -> Any:
        made[service] = handlers
        return generic_handler(service, handlers)

    monkeypatch.setattr(grpc, "method_handlers_generic_handler", noted)
    login = SaslLogin({"alice": "secret"})
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, login=login, health=node.present).serve)

    def call(channel: grpc.Channel, path: str, handler: Any) -> None:
        if handler.request_streaming:
            list(channel.stream_stream(path)(iter((b"",)), timeout=10))
        elif handler.response_streaming:
            list(channel.unary_stream(path)(b"", timeout=10))
        else:
            channel.unary_unary(path)(b"", timeout=10)

    def statuses() -> dict[str, grpc.StatusCode | None]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            return {
                path: status_of(partial(call, channel, path, handler))
                for service, handlers in made.items()
                for path, handler in ((f"/{service}/{name}", handler) for name, handler in handlers.items())
            }

    found = await trio.to_thread.run_sync(statuses)
    assert {*made} == {SERVICE, health.SERVICE, V1, V1_ALPHA}
    assert len(made[SERVICE]) == len(METHODS) + 1
    assert found.pop(f"/{health.SERVICE}/Check") is None
    assert {*found.values()} == {grpc.StatusCode.UNAUTHENTICATED}
    assert echo.calls == []


async def test_a_watcher_sees_each_change(channel: grpc.Channel, node: Node) -> None:
    watched = watch(channel)
    assert (await trio.to_thread.run_sync(next, watched)).status == NOT_SERVING
    for is_ready, status in ((True, SERVING), (False, NOT_SERVING)):
        node.health = Health(is_serving=True, is_ready=is_ready)
        assert (await trio.to_thread.run_sync(next, watched)).status == status
    assert (await trio.to_thread.run_sync(next, watch(channel, "nobody"))).status == UNKNOWN
    watched.cancel()


async def test_a_node_that_stops_says_so_before_its_streams_end(echo: Any, node: Node) -> None:
    node.health = Health(is_serving=True, is_ready=True)
    async with trio.open_nursery() as servers:
        login = SaslLogin({"alice": "secret"})
        port = await servers.start(AdminServer(echo, "127.0.0.1", 0, login=login, health=node.present).serve)
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        watched = [watch(channel, name) for name in ("", SERVICE)]
        assert [(await trio.to_thread.run_sync(next, each)).status for each in watched] == [SERVING] * 2
        node.health = Health(is_serving=False, is_ready=False)
        assert [(await trio.to_thread.run_sync(next, each)).status for each in watched] == [NOT_SERVING] * 2
        assert [await checked(channel, name) for name in ("", SERVICE)] == [NOT_SERVING] * 2
        node.health = Health(is_serving=True, is_ready=True)
        assert [(await trio.to_thread.run_sync(next, each)).status for each in watched] == [SERVING] * 2
        servers.cancel_scope.cancel()
    for each in watched:
        assert [answer.status for answer in await trio.to_thread.run_sync(list, each)] == [NOT_SERVING]
    await trio.to_thread.run_sync(channel.close)


def test_a_node_whose_event_loop_is_blocked_is_neither_ready_nor_serving(echo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question waits for the loop, and later ones know that it does not answer."""
    monkeypatch.setattr(health, "ANSWER_S", 0.3)
    ports: list[int] = []
    is_up, goes_on, ends = threading.Event(), threading.Event(), threading.Event()

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            ports.append(await nursery.start(AdminServer(echo, "127.0.0.1", 0).serve))
            is_up.set()
            goes_on.wait()
            await trio.to_thread.run_sync(ends.wait)
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    try:
        assert is_up.wait(20)
        with grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
            assert [check(channel), check(channel, "")] == [NOT_SERVING] * 2
            begun_s = time.monotonic()
            assert [check(channel) for _ in range(20)] == [NOT_SERVING] * 20
            assert time.monotonic() - begun_s < 20 * 0.3
            goes_on.set()
            deadline = time.monotonic() + 10
            while check(channel) != SERVING:
                assert time.monotonic() < deadline
            assert check(channel, "") == SERVING
    finally:
        goes_on.set()
        ends.set()
        thread.join()


async def test_health_that_cannot_be_told_is_none(channel: grpc.Channel, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    del node.health
    assert [await checked(channel, name) for name in ("", SERVICE)] == [NOT_SERVING] * 2


async def test_many_strangers_ask_the_event_loop_few_questions(channel: grpc.Channel, node: Node) -> None:
    def ask() -> float:
        begun_s = time.monotonic()
        stub = HealthStub(channel)
        asked = [stub.Check.future(HealthCheckRequest(), timeout=20) for _ in range(1000)]
        assert {each.result().status for each in asked} == {SERVING}
        return time.monotonic() - begun_s

    took_s = await trio.to_thread.run_sync(ask)
    assert node.asked <= took_s / health.FRESH_S + 2


async def test_a_thousand_watchers_do_no_harm(channel: grpc.Channel, node: Node) -> None:
    """They are streams, of which a node has so many. Those that do not read keep no change from the others, and no call waits."""
    readers = [watch(channel) for _ in range(2)]
    for reader in readers:
        await trio.to_thread.run_sync(next, reader)
    many = [watch(channel) for _ in range(1000)]

    def refusals() -> Iterator[grpc.StatusCode]:
        for each in many[server.MAX_STREAMS :]:
            code = status_of(partial(next, each))
            if code is not None:
                yield code

    refused = await trio.to_thread.run_sync(lambda: [*refusals()])
    assert {*refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert len(refused) >= 1000 - 2 * server.MAX_STREAMS
    node.health = Health(is_serving=True, is_ready=True)
    for reader in readers:
        assert (await trio.to_thread.run_sync(next, reader)).status == SERVING
    assert await checked(channel) == SERVING
    for each in many + readers:
        each.cancel()
    with trio.fail_after(20):
        while await trio.to_thread.run_sync(status_of, lambda: next(watch(channel))) is not None:
            pass


async def test_bytes_that_are_no_question_are_refused(channel: grpc.Channel) -> None:
    def ask(kind: Any, path: str, request: Any) -> grpc.StatusCode | None:
        def call() -> None:
            answer = kind(path)(request, timeout=10, metadata=ALICE)
            if not isinstance(answer, bytes):
                list(answer)

        return status_of(call)

    for kind, path, request in (
        (channel.unary_unary, f"/{health.SERVICE}/Check", b"\xff"),
        (channel.unary_stream, f"/{health.SERVICE}/Watch", b"\xff"),
        (channel.stream_stream, f"/{V1}/ServerReflectionInfo", iter([b"\xff"])),
    ):
        assert await trio.to_thread.run_sync(ask, kind, path, request) is grpc.StatusCode.INTERNAL


def reflected(channel: grpc.Channel, service: str, request: ServerReflectionRequest) -> ServerReflectionResponse:
    call = channel.stream_stream(
        f"/{service}/ServerReflectionInfo", ServerReflectionRequest.SerializeToString, ServerReflectionResponse.FromString
    )
    (answer,) = call(iter([request]), metadata=ALICE, timeout=10)
    assert isinstance(answer, ServerReflectionResponse)
    return answer


@pytest.mark.parametrize("service", [V1, V1_ALPHA])
async def test_reflection_lists_the_services_and_describes_them(channel: grpc.Channel, service: str) -> None:
    ask = partial(trio.to_thread.run_sync, reflected, channel, service)
    listed = await ask(ServerReflectionRequest(list_services=""))
    assert [each.name for each in listed.list_services_response.service] == [health.SERVICE, V1_ALPHA, SERVICE]
    for name in (SERVICE, health.SERVICE, V1_ALPHA):
        described = await ask(ServerReflectionRequest(file_containing_symbol=name))
        assert described.file_descriptor_response.file_descriptor_proto, name
    unknown = await ask(ServerReflectionRequest(file_containing_symbol="no.such.Service"))
    assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_a_client_without_our_messages_makes_a_call(served: tuple[str, int], echo: Any) -> None:
    """As grpcurl: it learns the messages by reflection."""

    def call() -> Any:
        with grpc.insecure_channel(f"{served[0]}:{served[1]}") as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            method = DescriptorPool(database).FindServiceByName(SERVICE).FindMethodByName("DescribeCluster")
            answer = channel.unary_unary(f"/{SERVICE}/{method.name}")(b"", timeout=10)
            return [field.name for field in method.output_type.fields], answer

    names, answer = await trio.to_thread.run_sync(call)
    assert "header" in names and answer
    assert [each.api for each in echo.calls] == ["DescribeCluster"]


async def test_health_is_told_over_tls(
    echo: Any, nursery: trio.Nursery, tmp_path_factory: pytest.TempPathFactory, node: Node
) -> None:
    """A probe needs the authority, and a certificate where the listener wants one of every client."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    text = authority.issue("node").read_bytes()
    chain = text[text.index(b"-----BEGIN CERTIFICATE") :]
    roots = authority.certificate.read_bytes()
    held = TlsMaterial(text, chain, roots)

    def ask(port: int, key: bytes | None, chain: bytes | None) -> int:
        with grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(roots, key, chain)) as channel:
            return check(channel, "", 5)

    for requires, key in ((False, None), (True, text), (True, None)):
        tls = GrpcTls(lambda: held, requires)
        port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, tls=tls, health=node.present).serve)
        asked = partial(ask, port, key, None if key is None else chain)
        if requires and key is None:
            assert await trio.to_thread.run_sync(status_of, asked) is grpc.StatusCode.UNAVAILABLE
        else:
            assert await trio.to_thread.run_sync(asked) == SERVING
