"""Peers under TLS: a certificate says which node speaks, and nothing is taken from anybody else."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from cryptography.x509.oid import NameOID

from kraftlab.access.node_names import NodeNames
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.peer_name import PeerName
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.wire import half_open, transport
from kraftlab.wire.half_open import HalfOpen
from kraftlab.wire.network import TCP, Network
from kraftlab.wire.tls import TlsWire
from kraftlab.wire.tls_network import TlsNetwork
from kraftlab.wire.transport import (
    NewerGeneration,
    PeerError,
    PeerIdentity,
    PeerPool,
    PeerRequest,
    PeerServer,
    PeerUnreachable,
)

from ..helpers.certificates import DAY, SERVER, Authority
from ..helpers.waiting import eventually

WHO = 1001
Networks = Callable[[str], TlsNetwork]


def named(certificate: bytes) -> PeerName:
    """The name by the common name of a certificate."""
    name = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    return NodeNames().name_of(f"User:{name}")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    return Authority(directory)


@pytest.fixture(scope="module")
def networks(authority: Authority) -> Networks:
    """Networks by the common name of their certificate."""
    made = dict[str, TlsNetwork]()

    def network(name: str) -> TlsNetwork:
        if name not in made:
            certificate = authority.issue(name)
            server, client = authority.server_context(certificate, requires=True), authority.client_context(certificate)
            made[name] = TlsNetwork(lambda: server, lambda: client, named)
        return made[name]

    return network


def identity(node_id: int, generation: int = 0, cluster_id: str = "c") -> PeerIdentity:
    return PeerIdentity(cluster_id, generation, ReplicaKey(node_id))


async def who(request: PeerRequest) -> bytes:
    return f"{request.sender.node_id} {request.principal} {request.role}".encode()


@contextlib.asynccontextmanager
async def served(network: Network, mine: PeerIdentity) -> AsyncIterator[tuple[trio.Nursery, Endpoint]]:
    """A node at a port of its own."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            port: int = await nursery.start(PeerServer(mine, {WHO: who}, network).serve, "127.0.0.1", 0)
            yield nursery, Endpoint("127.0.0.1", port)
            nursery.cancel_scope.cancel()


async def asked(
    server: Network, at: PeerIdentity, client: Network, by: PeerIdentity, node_id: int = -1
) -> str | PeerError | PeerUnreachable:
    """Return the answer to one request, or how it failed."""
    async with served(server, at) as (nursery, endpoint):
        try:
            return bytes(
                await PeerPool(nursery, by, client).request(endpoint, WHO, b"", timeout_ms=5000, node_id=node_id)
            ).decode()
        except (PeerError, PeerUnreachable) as error:
            return error
    raise AssertionError("unreachable")


async def test_a_request_has_the_proven_role_and_principal(networks: Networks) -> None:
    server = networks("controller-1")
    assert await asked(server, identity(1), networks("broker-2"), identity(2)) == "2 User:broker-2 broker"
    assert await asked(server, identity(1), networks("controller-3"), identity(3)) == "3 User:controller-3 controller"
    assert await asked(server, identity(1), networks("alice"), identity(-1)) == "-1 User:alice "


@pytest.mark.parametrize(
    ("certificate", "claims"), [("broker-2", 3), ("broker-2", -1), ("alice", 2), ("alice", 1), ("broker-99999999999", 2)]
)
async def test_nobody_speaks_in_the_name_of_another_node(networks: Networks, certificate: str, claims: int) -> None:
    answer = await asked(networks("controller-1"), identity(1), networks(certificate), identity(claims))
    assert isinstance(answer, PeerError)
    assert answer.code == ErrorCode.INVALID_REQUEST
    assert f"and not of node {claims}" in answer.message


async def test_a_stranger_learns_neither_cluster_nor_generation(networks: Networks) -> None:
    """The identity comes first: a wrong one gets the same answer whatever the cluster."""
    for cluster_id, generation in (("c", 5), ("other", 0)):
        answer = await asked(networks("controller-1"), identity(1), networks("alice"), identity(2, generation, cluster_id))
        assert isinstance(answer, PeerError)
        assert answer.code == ErrorCode.INVALID_REQUEST


async def test_a_node_that_answers_in_the_name_of_another_one_counts_as_unreachable(networks: Networks) -> None:
    answer = await asked(networks("broker-7"), identity(1), networks("broker-2"), identity(2))
    assert isinstance(answer, PeerUnreachable)
    assert "broker 7 answers" in str(answer)
    answer = await asked(networks("alice"), identity(1), networks("broker-2"), identity(2))
    assert isinstance(answer, PeerUnreachable)


async def test_a_newer_generation_comes_with_the_role_of_its_sender(networks: Networks) -> None:
    for certificate, role in (("controller-1", "controller"), ("broker-1", "broker")):
        answer = await asked(networks(certificate), identity(1, 3), networks("broker-2"), identity(2))
        assert isinstance(answer, NewerGeneration)
        assert answer.role == role


async def test_a_peer_without_tls_is_refused_and_a_peer_with_tls_does_not_talk_to_one_without(
    networks: Networks, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kraftlab.audit"):
        answer = await asked(networks("controller-1"), identity(1), TCP, identity(2))
    assert isinstance(answer, PeerUnreachable)
    assert "it does not speak TLS" in caplog.text
    answer = await asked(TCP, identity(1), networks("broker-2"), identity(2))
    assert isinstance(answer, PeerUnreachable)
    assert "a TLS handshake, and this port has no TLS; set listener.security.protocol.map" in caplog.text


@pytest.mark.parametrize("kind", ["expired", "early", "server", "other host"])
async def test_nodes_refuse_certificates_that_are_not_good_on_either_side(
    authority: Authority, networks: Networks, kind: str
) -> None:
    certificate = {
        "expired": lambda: authority.issue("broker-2", begins=-3 * DAY, ends=-1 * DAY),
        "early": lambda: authority.issue("broker-2", begins=1 * DAY, ends=3 * DAY),
        "server": lambda: authority.issue("broker-2", usages=[SERVER]),
        "other host": lambda: authority.issue("broker-2", names=["elsewhere.example"]),
    }[kind]()
    server, client = authority.server_context(certificate, requires=True), authority.client_context(certificate)
    bad = TlsNetwork(lambda: server, lambda: client, named)
    if kind != "other host":  # the host of a client is not checked
        assert isinstance(await asked(networks("controller-1"), identity(1), bad, identity(2)), PeerUnreachable)
    if kind != "server":
        assert isinstance(await asked(bad, identity(2), networks("controller-1"), identity(1)), PeerUnreachable)


async def test_a_certificate_of_another_authority_is_refused(networks: Networks, tmp_path: Path) -> None:
    other, server_side = Authority(tmp_path, "other"), Authority(tmp_path, "third")
    certificate = other.issue("broker-2")
    stranger = TlsNetwork(
        lambda: server_side.server_context(server_side.issue("x")),
        lambda: _trusting_all(other.client_context(certificate)),
        named,
    )
    assert isinstance(await asked(networks("controller-1"), identity(1), stranger, identity(2)), PeerUnreachable)
    impostor = TlsNetwork(lambda: other.server_context(certificate, requires=False), other.client_context, named)
    assert isinstance(await asked(impostor, identity(2), networks("controller-1"), identity(1)), PeerUnreachable)


def _trusting_all(context: ssl.SSLContext) -> ssl.SSLContext:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def received(wire: TlsWire) -> int:
    """Return the number of bytes that came, 0 at the end of the connection."""
    while True:
        try:
            return wire.recv_into(memoryview(bytearray(1)))
        except BlockingIOError:
            await wire.wait_readable()


async def test_a_node_that_leaves_the_cluster_loses_its_connection_and_a_new_one_keeps_it(
    networks: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 3 is new: it has to be heard before it is a member."""
    monkeypatch.setattr(transport, "SWEEP_INTERVAL_S", 0.01)
    members = {2}
    asked_about: list[PeerName] = []

    def is_member(peer: PeerName) -> bool:
        asked_about.append(peer)
        return peer.node_id in members

    async with trio.open_nursery() as nursery:
        server = PeerServer(identity(1), {WHO: who}, networks("controller-1"), is_member)
        port: int = await nursery.start(server.serve, "127.0.0.1", 0)
        wires = [await networks(name).connect(Endpoint("127.0.0.1", port)) for name in ("broker-2", "broker-3")]
        await eventually(lambda: {peer.node_id for peer in asked_about} == {2, 3}, "both are looked at")
        members.clear()
        assert await received(wires[0]) == 0
        asked_about.clear()
        await eventually(lambda: len(asked_about) > 2, "the new one is looked at again")
        assert server.statistics()["connections"] == 1
        for wire in wires:
            wire.close()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("first", [b"", b"\x16\x03"])
@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_connection_that_is_reset_before_it_is_accepted_ends_alone(
    networks: Networks, first: bytes, is_secure: bool
) -> None:
    """The event loop has no turn between the begin and the end of these connections."""
    server = networks("controller-1") if is_secure else TCP
    async with served(server, identity(1)) as (nursery, endpoint):
        for _ in range(20):
            with socket.create_connection((endpoint.host, endpoint.port)) as client:
                client.sendall(first)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client_side = networks("broker-2") if is_secure else TCP
        body = await PeerPool(nursery, identity(2), client_side).request(endpoint, WHO, b"", timeout_ms=5000)
        assert bytes(body).startswith(b"2 ")


async def test_silent_connections_neither_fill_the_port_nor_stay(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more than the bound: honest peers come through all the same, and the silent ones are closed."""
    server = networks("controller-1")
    async with served(server, identity(1)) as (nursery, endpoint):
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection((endpoint.host, endpoint.port))) for _ in range(300)]
            body = await PeerPool(nursery, identity(2), networks("broker-2")).request(endpoint, WHO, b"", timeout_ms=5000)
            assert body == b"2 User:broker-2 broker"
            oldest = trio.socket.from_stdlib_socket(silent[0].dup())
            silent[0].setblocking(False)
            with oldest:
                assert await oldest.recv(1) == b""


class Held:
    """A block that stays in `HalfOpen.bounded` until it is cancelled."""

    def __init__(self, bounds: HalfOpen, address: str) -> None:
        self._bounds, self._address = bounds, address
        self.was_cancelled = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self._bounds.bounded(self._address) as scope:
            task_status.started()
            await trio.sleep_forever()
        self.was_cancelled = scope.cancelled_caught


async def test_the_oldest_of_an_address_makes_room_and_then_the_oldest_of_all(autojump_clock: Any) -> None:
    bounds = HalfOpen(per_address_max=2, total_max=3)
    held = [Held(bounds, address) for address in ("a", "b", "b", "b", "c")]
    async with trio.open_nursery() as nursery:
        for each in held:
            await nursery.start(each.run)
            await trio.sleep(0.001)
        assert [each.was_cancelled for each in held] == [True, True, False, False, False]
        assert (len(bounds), bounds.evicted) == (3, 2)
        begin = trio.current_time()
    assert trio.current_time() - begin <= half_open.PROOF_TIMEOUT_S
    assert (len(bounds), all(each.was_cancelled for each in held)) == (0, True)
