"""Certificates of a running node: new files count without a restart, and bad ones change nothing."""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import os
import ssl
from pathlib import Path

import pytest
import trio

from kraftlab.certificates import folder
from kraftlab.common.endpoint import Endpoint
from kraftlab.config.errors import ConfigError
from kraftlab.config.listener_security import node_security
from kraftlab.node.listener_tls import NodeTls, covers_host
from kraftlab.wire.network import Wire

from ..helpers.certificates import DAY, Authority
from ..helpers.waiting import eventually

AT = {"PEER": Endpoint("127.0.0.1", 1), "GRPC": Endpoint("127.0.0.1", 2), "KAFKA": Endpoint("127.0.0.1", 3)}


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    folder.throw_away(tmp_path / "pki", ["broker-1"], ["alice"], ["localhost", "127.0.0.1"])
    return tmp_path / "pki"


def opened(pki: Path, at: dict[str, Endpoint] = AT) -> NodeTls:
    return node_tls(pki / "broker-1.pem", pki / "ca.pem", at)


def node_tls(keystore: Path, truststore: Path, at: dict[str, Endpoint] = AT) -> NodeTls:
    values = {
        "listener.security.protocol.map": "PEER:SSL,GRPC:SSL,KAFKA:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(truststore),
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    }
    return NodeTls(node_security(values, "server.properties", at), at)


def contexts(tls: NodeTls) -> dict[str, ssl.SSLContext]:
    return {name: listener.server() for name in AT if (listener := tls.of(name)) is not None}


async def test_a_renewed_certificate_counts_at_every_listener(pki: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls = opened(pki)
    before, grpc = contexts(tls), tls.grpc()
    assert grpc is not None
    material = grpc.material()
    await tls.look()
    assert contexts(tls) == before, "nothing has changed"
    assert grpc.material() is material
    folder.renew(pki / "broker-1.pem", days=90)
    with caplog.at_level(logging.INFO, "kraftlab.tls"):
        await tls.look()
    assert all(context is not before[name] for name, context in contexts(tls).items())
    assert grpc.material() is not material
    assert caplog.text.count("has a new certificate") == 3


@pytest.mark.parametrize("what", ["garbage", "another node", "another key", "missing", "expired"])
async def test_files_that_cannot_be_used_change_nothing_and_are_named_once(
    pki: Path, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    tls, path = opened(pki), pki / "broker-1.pem"
    before, good = contexts(tls), path.read_bytes()
    other = Authority(tmp_path, "other")
    match what:
        case "garbage":
            path.write_text("no certificate")
        case "another node":
            folder.issue(pki, "broker-2", ["localhost", "127.0.0.1"])
            os.replace(pki / "broker-2.pem", path)
        case "another key":
            text = other.issue("broker-1").read_text()
            path.write_text(text[: text.index("-----BEGIN CERT")] + good.decode()[good.index(b"-----BEGIN CERT") :])
        case "missing":
            path.unlink()
        case "expired":
            other.issue("broker-1", begins=-3 * DAY, ends=-1 * DAY).rename(path)
    for _ in range(3):
        await tls.look()
    assert contexts(tls) == before
    assert caplog.text.count("the certificate of listener PEER stays as it is") == 1
    assert str(path) in caplog.text
    path.write_bytes(good)
    folder.renew(path)
    await tls.look()
    assert contexts(tls) != before, "a good file is loaded later"


@pytest.mark.parametrize("reloads", [10, pytest.param(100, marks=pytest.mark.nightly)])
async def test_no_connection_fails_while_certificates_change(pki: Path, reloads: int) -> None:
    """Each second change is one that cannot be used."""
    at = {"PEER": AT["PEER"]}
    tls, path, answered = opened(pki, at), pki / "broker-1.pem", 0

    async def echo(wire: Wire, source: str) -> None:
        with contextlib.closing(wire):
            while count := await received(wire):
                wire.send(bytes(count))

    async def ask(port: int) -> None:
        nonlocal answered
        while True:
            with contextlib.closing(await tls.network("PEER").connect(Endpoint("127.0.0.1", port))) as wire:
                for _ in range(3):
                    wire.send(b"x")
                    assert await received(wire) == 1
                    answered += 1

    def has_come_to(goal: int) -> bool:
        return answered >= goal

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            port = await tls.network("PEER").listen("127.0.0.1", 0)
            nursery.start_soon(port.serve, echo, nursery)
            for _ in range(4):
                nursery.start_soon(ask, port.number)
            for number in range(reloads):
                before = contexts(tls)
                if number % 2:
                    path.write_text("no certificate")
                else:
                    folder.issue(pki, "broker-1", ["localhost", "127.0.0.1"], replace=True)
                await tls.look()
                assert (contexts(tls) == before) == bool(number % 2)
                goal = answered + 10
                await eventually(functools.partial(has_come_to, goal), "requests go on")
            nursery.cancel_scope.cancel()


async def test_a_connection_ends_when_its_authority_is_no_longer_trusted(pki: Path, tmp_path: Path) -> None:
    """And one whose authority still is goes on."""
    other = tmp_path / "other"
    folder.throw_away(other, ["broker-2"], [], ["localhost", "127.0.0.1"])
    authorities = {where: (where / "ca.pem").read_text() for where in (pki, other)}
    for where in authorities:
        (where / "ca.pem").write_text("".join(authorities.values()))
    folder.issue(pki, "broker-3", ["127.0.0.1"])
    mine = opened(pki)
    theirs = [node_tls(other / "broker-2.pem", other / "ca.pem"), node_tls(pki / "broker-3.pem", pki / "ca.pem")]
    names: list[str] = []
    ended = trio.Event()

    async def serve(wire: Wire, source: str) -> None:
        names.append(str(wire.peer))
        with contextlib.suppress(OSError):
            while await received(wire):
                pass
        names.remove(str(wire.peer))
        ended.set()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            port = await mine.network("PEER").listen("127.0.0.1", 0)
            nursery.start_soon(port.serve, serve, nursery)
            wires = [await tls.network("PEER").connect(Endpoint("127.0.0.1", port.number)) for tls in theirs]
            await eventually(lambda: len(names) == 2, "both are connected")
            (pki / "ca.pem").write_text(authorities[pki])
            await mine.look()
            await ended.wait()
            assert names == ["broker 3"]
            for wire in wires:
                wire.close()
            nursery.cancel_scope.cancel()


async def received(wire: Wire) -> int:
    """Return the number of bytes that came, 0 at the end."""
    while True:
        try:
            return wire.recv_into(memoryview(bytearray(10)))
        except BlockingIOError:
            await wire.wait_readable()


def test_a_node_does_not_start_with_files_that_cannot_be_used(pki: Path) -> None:
    (pki / "ca.pem").write_text("")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        opened(pki)


def test_an_advertised_host_that_the_certificate_does_not_name_is_told_at_the_start(
    pki: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(pki, AT | {"KAFKA": Endpoint("kafka.example", 3)})
    assert "listener KAFKA is advertised as kafka.example:3" in caplog.text
    assert "listener PEER" not in caplog.text


def test_an_end_that_comes_near_is_told_once_for_each_threshold(pki: Path) -> None:
    kafka = opened(pki).of("KAFKA")
    assert kafka is not None
    assert kafka.expires_at is not None
    days = (31, 29, 28, 8, 6.5, 5, 0.9, 0.5, -1, -2)
    told = [bool(kafka.expiry_warning(kafka.expires_at - datetime.timedelta(days=days_left))) for days_left in days]
    assert told == [False, True, False, False, True, False, True, False, False, False]
    assert "has expired" in opened(pki).of("KAFKA").expiry_warning(kafka.expires_at + DAY)  # type: ignore[union-attr]


def test_peers_are_named_by_their_certificates(pki: Path) -> None:
    kafka = opened(pki).of("KAFKA")
    assert kafka is not None
    text = (pki / "alice.pem").read_text()
    assert kafka.principal_of(ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :])) == "User:alice"


@pytest.mark.parametrize(
    ("host", "is_covered"),
    [
        ("a.example.org", True),
        ("A.Example.org.", True),
        ("b.example.org", False),
        ("x.wild.org", True),
        ("x.y.wild.org", False),
        ("wild.org", False),
        ("10.0.0.1", True),
        ("10.0.0.2", False),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("10.0.0.3", False),
        ("", False),
    ],
)
def test_clients_accept_the_hosts_that_a_certificate_names(host: str, is_covered: bool) -> None:
    """An address that stands as a DNS name does not count."""
    sans = ("DNS:a.example.org", "DNS:*.wild.org", "IP:10.0.0.1", "IP:::1", "DNS:10.0.0.3", "other:x")
    assert covers_host(sans, host) is is_covered
