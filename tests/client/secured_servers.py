"""Servers of the three protocols under TLS, on real ports, and one request to each: `Door`."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
from google.protobuf.message import Message

from kraftlab.access.distinguished_name import distinguished_name
from kraftlab.access.logins import CertificateLogin, Login
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.data import PeerConnection
from kraftlab.client.security import ClientSecurity
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.rpc.server import AdminServer, Call, GrpcTls, TlsMaterial
from kraftlab.wire.network import TCP, PeerName
from kraftlab.wire.tls_network import TlsNetwork
from kraftlab.wire.transport import PeerIdentity, PeerRequest, PeerServer

from ..helpers.certificates import Authority
from .scripted_broker import Broker

WHO = 1001
CLUSTER_ID = "k"
TIMEOUT_S = 5.0


class Certificates(NamedTuple):
    """The certificate of a server, and the clients that it lets in."""

    authority: Authority
    server: Path
    requires: bool = False
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3

    def context(self) -> ssl.SSLContext:
        context = self.authority.server_context(self.server, requires=self.requires)
        context.maximum_version = self.newest
        return context

    def grpc(self) -> GrpcTls:
        material = self.material()
        return GrpcTls(lambda: material, self.requires)

    def network(self) -> TlsNetwork:
        context = self.context()
        return TlsNetwork(lambda: context, lambda: context, lambda certificate: PeerName(principal_of(certificate)))

    def material(self) -> TlsMaterial:
        text = self.server.read_bytes()
        return TlsMaterial(text, text[text.index(b"-----BEGIN CERT") :], self.authority.certificate.read_bytes())


@contextmanager
def in_thread(server: Callable[[], Any]) -> Iterator[Endpoint]:
    """Serve in a trio loop of its own. `server()` returns the function to start, with the place for the port."""
    ready, port, stop, tokens = threading.Event(), [0], trio.CancelScope(), list[trio.lowlevel.TrioToken]()

    async def run() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        with stop:
            async with trio.open_nursery() as nursery:
                port[0] = await nursery.start(server())
                ready.set()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    try:
        assert ready.wait(10)
        yield Endpoint("127.0.0.1", port[0])
    finally:
        tokens[0].run_sync_soon(stop.cancel)
        thread.join(10)


def principal_of(certificate: bytes) -> str:
    return f"User:{distinguished_name(certificate)}"


@contextmanager
def grpc_server(tls: Certificates | None, login: Login | None = None) -> Iterator[Endpoint]:
    """A node's gRPC listener, which names the caller as the cluster's id."""

    async def answer(call: Call) -> Message:
        return pb.DescribeClusterResponse(cluster_id=call.principal)

    secured = None if tls is None else tls.grpc()
    login = login or (None if tls is None else CertificateLogin(principal_of))
    with in_thread(lambda: AdminServer(answer, "127.0.0.1", 0, login=login, tls=secured).serve) as endpoint:
        yield endpoint


@contextmanager
def peer_server(tls: Certificates | None) -> Iterator[Endpoint]:
    """A node's listener for peers, which names the caller."""

    async def who(request: PeerRequest) -> bytes:
        return f"{request.principal} {request.sender.node_id}".encode()

    network = TCP if tls is None else tls.network()
    identity = PeerIdentity(CLUSTER_ID, 0, ReplicaKey(1))

    def made() -> Any:
        server = PeerServer(identity, {WHO: who}, network)

        async def serve(*, task_status: Any) -> None:
            await server.serve("127.0.0.1", 0, task_status=task_status)

        return serve

    with in_thread(made) as endpoint:
        yield endpoint


@contextmanager
def kafka_server(tls: Certificates | None) -> Iterator[Endpoint]:
    broker = Broker(None if tls is None else tls.context())
    try:
        yield broker.endpoint
    finally:
        broker.close()


def ask_admin(servers: str, security: ClientSecurity) -> str:
    with AdminClient(servers, security=security, timeout_ms=int(TIMEOUT_S * 1000)) as client:
        return client.describe_cluster().cluster_id


def ask_peer(endpoint: Endpoint, security: ClientSecurity) -> str:
    connection = PeerConnection(endpoint, CLUSTER_ID, security=security)
    try:
        return bytes(connection.request(WHO, b"", TIMEOUT_S)).decode()
    finally:
        connection.close()


class Door(NamedTuple):
    """A protocol: a server of it, and one request, whose answer names the caller if the protocol has one."""

    serve: Any
    ask: Callable[[Endpoint, ClientSecurity], str]


DOORS = {
    "kafka": Door(kafka_server, lambda endpoint, security: ask_admin(f"kafka://{endpoint}", security)),
    "grpc": Door(grpc_server, lambda endpoint, security: ask_admin(str(endpoint), security)),
    "peer": Door(peer_server, ask_peer),
}
