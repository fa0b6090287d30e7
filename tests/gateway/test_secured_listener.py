"""The KAFKA listener with TLS and logins, over real sockets."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import random
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.access.distinguished_name import distinguished_name
from kraftlab.access.entrance import Entrance, SaslSettings
from kraftlab.access.principal_mapping import parse_rules
from kraftlab.access.sasl.plain import Plain
from kraftlab.access.sasl.scram import Scram, keys
from kraftlab.certificates.contexts import server_context
from kraftlab.common.audit import failed_logins
from kraftlab.config.tls_settings import tls_settings
from kraftlab.gateway.codec import Header, KafkaRequest
from kraftlab.gateway.door import OFFERS
from kraftlab.gateway.listener import KafkaListener
from kraftlab.gateway.request_figures import RequestFigures
from kraftlab.metadata.scram import ScramCredential, ScramMechanism
from kraftlab.rpc.caller import Caller
from kraftlab.wire import half_open
from kraftlab.wire.parts import Part
from kraftlab.wire.tls import INTERNAL_ERROR_ALERT

from ..helpers.certificates import CLIENT, DAY, SERVER, Authority
from ..helpers.waiting import eventually
from .conftest import make_frame, read_response

METADATA = make_frame(3, 0, topics=[])
HANDSHAKE = make_frame(17, 1, mechanism="PLAIN")
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
SASL = SaslSettings({"PLAIN": lambda: Plain(PASSWORDS)})
DEFAULTS = {
    "socket.request.max.bytes": "1000000",
    "connections.max.idle.ms": "600000",
    "connection.failed.authentication.delay.ms": "0",
}


def login(name: str, password: str) -> bytes:
    return make_frame(36, 1, auth_bytes=f"\0{name}\0{password}".encode())


def hello() -> bytes:
    """The first bytes of a TLS client."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


class Door:
    """Answers each request with the name of its caller."""

    offers = OFFERS

    def __init__(self) -> None:
        self.figures = RequestFigures()

    async def answer(self, request: KafkaRequest, caller: Caller) -> Sequence[Part] | None:
        name = caller.principal.encode()
        return [struct.pack(">ii", 4 + len(name), request.header.correlation_id), name]

    def unsupported(self, head: Header) -> Sequence[Part]:
        return [b"\0\0\0\1?"]


@asynccontextmanager
async def listening(entrance: Entrance, **settings: str) -> AsyncIterator[tuple[KafkaListener, int]]:
    values = DEFAULTS | {name.replace("_", "."): value for name, value in settings.items()}
    door: Any = Door()
    listener = KafkaListener(door, "127.0.0.1", 0, values.get, entrance)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            yield listener, await nursery.start(listener.serve)
            nursery.cancel_scope.cancel()


def talk(port: int, frames: Sequence[bytes], context: ssl.SSLContext | None = None) -> list[bytes]:
    """Send each frame and read its answer, without length; the list ends where the connection does."""
    answers: list[bytes] = []
    with contextlib.suppress(ConnectionError, ssl.SSLError), contextlib.ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        if context is not None:
            client = stack.enter_context(context.wrap_socket(client, server_hostname="localhost"))
        received = stack.enter_context(client.makefile("rb"))
        for frame in frames:
            client.sendall(frame)
            start = received.read(4)
            if len(start) < 4:
                break
            answers.append(received.read(int.from_bytes(start)))
    return answers


async def talked(port: int, *frames: bytes, context: ssl.SSLContext | None = None) -> list[bytes]:
    return await trio.to_thread.run_sync(talk, port, frames, context)


def code_of(answer: bytes, key: int, version: int) -> int:
    start = struct.pack(">i", len(answer))
    return int(read_response(key, version, [start, answer]).error_code)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.issue("broker-1")


def principal_of(certificate: bytes) -> str:
    return "User:" + parse_rules("RULE:^CN=([a-z]+)$/$1/").name(distinguished_name(certificate))


async def test_a_request_comes_from_the_user_who_logged_in() -> None:
    async with listening(Entrance(sasl=SASL)) as (_, port):
        answers = await talked(port, HANDSHAKE, login("alice", "alice-secret"), METADATA)
    assert [code_of(answers[0], 17, 1), code_of(answers[1], 36, 1)] == [0, 0]
    assert answers[2][4:] == b"User:alice"


async def test_nothing_is_served_before_the_login(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Entrance(sasl=SASL)) as (_, port):
        with caplog.at_level(logging.WARNING, "kraftlab.audit"):
            assert await talked(port, METADATA) == []
    assert "API 3 version 0 before the login" in caplog.text


async def test_a_failed_login_is_answered_after_a_delay() -> None:
    before = failed_logins("KAFKA")
    async with listening(Entrance(sasl=SASL), connection_failed_authentication_delay_ms="300") as (_, port):
        begin = time.monotonic()
        answers = await talked(port, HANDSHAKE, login("alice", "wrong"), METADATA)
        assert time.monotonic() - begin >= 0.3
    assert len(answers) == 2, "the connection is closed after the answer"
    assert code_of(answers[1], 36, 1) == 58
    assert failed_logins("KAFKA") == before + 1


@pytest.mark.nightly
async def test_the_time_of_a_failed_login_does_not_tell_which_users_exist() -> None:
    """By the statistic of Mann and Whitney: the probability that a try as a known user takes longer than one as another user."""
    mechanism, salt, tries = ScramMechanism.SCRAM_SHA_256, b"salt" * 5, 1000
    credential = ScramCredential(salt, *keys("sha256", hashlib.pbkdf2_hmac("sha256", b"secret", salt, 4096)), 4096)
    users = {f"user-{number}" for number in range(100)}
    sasl = SaslSettings({"SCRAM-SHA-256": lambda: Scram(mechanism, lambda name, _: credential if name in users else None, b"x")})

    def try_once(port: int, name: str) -> tuple[float, float]:
        """Return the seconds until the answers to the first and to the last message."""
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client, client.makefile("rb") as received:

            def ask(frame: bytes) -> tuple[bytes, float]:
                begin = time.perf_counter()
                client.sendall(frame)
                return received.read(int.from_bytes(received.read(4))), time.perf_counter() - begin

            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask(make_frame(17, 1, mechanism="SCRAM-SHA-256"))
            first, first_s = ask(make_frame(36, 1, auth_bytes=f"n,,n={name},r=abc".encode()))
            nonce = first.partition(b"r=")[2].partition(b",")[0]
            last, last_s = ask(make_frame(36, 1, auth_bytes=b"c=biws,r=" + nonce + b",p=" + b"A" * 43 + b"="))
            assert b"invalid credentials" in last
            return first_s, last_s

    async with listening(Entrance(sasl=sasl)) as (_, port):
        names = [f"{kind}-{number % 100}" for number in range(tries) for kind in ("user", "none")]
        random.Random(1).shuffle(names)
        results = [(name in users, *await trio.to_thread.run_sync(try_once, port, name)) for name in names]
    for step in (1, 2):
        ranked = sorted(results, key=lambda result: result[step])
        rank_sum = sum(rank for rank, result in enumerate(ranked, 1) if result[0])
        assert 0.44 < (rank_sum - tries * (tries + 1) / 2) / tries**2 < 0.56


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 524_289, 2**31 - 1])
@pytest.mark.parametrize("before", [(), (HANDSHAKE,)])
async def test_an_impossible_frame_before_the_login_ends_its_own_connection(size: int, before: tuple[bytes, ...]) -> None:
    async with listening(Entrance(sasl=SASL)) as (listener, port):
        answers = await talked(port, *before, struct.pack(">i", size) + bytes(1000))
        assert len(answers) == len(before)
        answers = await talked(port, HANDSHAKE, login("alice", "alice-secret"), METADATA)
        assert answers[2][4:] == b"User:alice"
        assert listener.statistics()["frame_bytes"] == 0


async def test_requests_in_one_piece_are_judged_one_by_one() -> None:
    async with listening(Entrance(sasl=SASL)) as (_, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(HANDSHAKE + login("bob", "bob-secret") + METADATA)
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(client.dup()))
            data = b""
            while not data.endswith(b"User:bob"):
                piece = await stream.receive_some()
                assert piece
                data += piece
            await stream.aclose()


async def test_under_tls_the_caller_is_the_name_in_the_certificate(authority: Authority, certificate: Path) -> None:
    server = authority.server_context(certificate, requires=True)
    async with listening(Entrance(lambda: server, principal_of)) as (_, port):
        for name, answer in (("alice", [b"User:alice"]), ("UPPER", [])):
            context = authority.client_context(authority.issue(name, names=()))
            assert [each[4:] for each in await talked(port, METADATA, context=context)] == answer
        assert await talked(port, METADATA, context=authority.client_context()) == []


async def test_without_a_certificate_a_caller_is_anonymous_if_none_is_required(authority: Authority, certificate: Path) -> None:
    server = authority.server_context(certificate)
    async with listening(Entrance(lambda: server, principal_of)) as (_, port):
        assert (await talked(port, METADATA, context=authority.client_context()))[0][4:] == b"User:ANONYMOUS"


async def test_of_certificates_that_are_requested_a_good_one_names_the_caller(
    authority: Authority, certificate: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = authority.server_context(certificate)
    server.verify_mode = ssl.CERT_OPTIONAL
    clients: list[tuple[Path | None, list[bytes]]] = [
        (None, [b"User:ANONYMOUS"]),
        (authority.issue("alice", names=()), [b"User:alice"]),
        (authority.issue("NO-RULE", names=()), []),
        (Authority(tmp_path, "other").issue("alice"), []),
        (authority.issue("old", begins=-3 * DAY, ends=-1 * DAY), []),
    ]
    async with listening(Entrance(lambda: server, principal_of)) as (_, port):
        with caplog.at_level(logging.WARNING, "kraftlab.audit"):
            for shown, answer in clients:
                context = authority.client_context(shown)
                assert [each[4:] for each in await talked(port, METADATA, context=context)] == answer, shown
    for reason in ("its certificate names nobody", "unable to get local issuer certificate", "certificate has expired"):
        assert reason in caplog.text


async def test_with_both_the_login_names_the_caller(authority: Authority, certificate: Path) -> None:
    server = authority.server_context(certificate, requires=True)
    context = authority.client_context(authority.issue("mallory", names=()))
    async with listening(Entrance(lambda: server, principal_of, SASL)) as (_, port):
        answers = await talked(port, HANDSHAKE, login("alice", "alice-secret"), METADATA, context=context)
        assert answers[2][4:] == b"User:alice"
        assert await talked(port, METADATA, context=context) == []


async def test_a_new_certificate_counts_for_the_next_connection(authority: Authority, certificate: Path, tmp_path: Path) -> None:
    """An open connection goes on."""
    other = Authority(tmp_path, "next")
    contexts = [authority.server_context(certificate)]
    async with listening(Entrance(lambda: contexts[-1])) as (_, port):
        plain = await trio.to_thread.run_sync(socket.create_connection, ("127.0.0.1", port))
        wrap = functools.partial(authority.client_context().wrap_socket, plain, server_hostname="localhost")
        with await trio.to_thread.run_sync(wrap) as open_one:
            contexts.append(other.server_context(other.issue("broker-1")))
            assert await talked(port, METADATA, context=other.client_context())
            assert await talked(port, METADATA, context=authority.client_context()) == []
            await trio.to_thread.run_sync(open_one.sendall, METADATA)
            assert await trio.to_thread.run_sync(open_one.recv, 100)


async def test_bytes_that_are_not_tls_get_an_alert_and_a_line(
    authority: Authority, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = authority.server_context(certificate)
    async with listening(Entrance(lambda: server)) as (_, port):
        with caplog.at_level(logging.WARNING, "kraftlab.audit"):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(METADATA)
            assert await stream.receive_some() == INTERNAL_ERROR_ALERT
            assert await stream.receive_some() == b""
            await stream.aclose()
    assert "it does not speak TLS" in caplog.text


async def test_a_connection_that_is_reset_before_it_is_accepted_ends_alone(authority: Authority, certificate: Path) -> None:
    """The event loop has no turn between the begin and the end of these connections."""
    server = authority.server_context(certificate)
    async with listening(Entrance(lambda: server)) as (_, port):
        for first in (b"", b"\x16\x03") * 10:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(first)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert await talked(port, METADATA, context=authority.client_context())


@pytest.mark.parametrize("secured", [False, True])
async def test_who_proves_nothing_in_time_is_closed_and_its_address_is_not_locked_out(
    authority: Authority, certificate: Path, secured: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(half_open, "PROOF_TIMEOUT_S", 3.0)
    server = authority.server_context(certificate)
    entrance = Entrance((lambda: server) if secured else None, sasl=SASL)
    context = authority.client_context() if secured else None
    with caplog.at_level(logging.WARNING, "kraftlab.audit"):
        async with listening(entrance, max_connections="2000") as (listener, port):
            with contextlib.ExitStack() as stack:
                silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(200)]
                answers = await talked(port, HANDSHAKE, login("alice", "alice-secret"), METADATA, context=context)
                assert answers[2][4:] == b"User:alice"
                await eventually(lambda: listener.statistics()["connections"] == 0, "all are closed", within_s=20)
                silent[-1].settimeout(5)
                assert silent[-1].recv(10) == b""
    assert "was not authenticated within" in caplog.text


@pytest.mark.parametrize("secured", [False, True])
async def test_one_byte_a_second_does_not_keep_a_login_open(
    authority: Authority, certificate: Path, secured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_open, "PROOF_TIMEOUT_S", 0.5)
    server = authority.server_context(certificate)
    async with listening(Entrance((lambda: server) if secured else None, sasl=SASL)) as (_, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        begin = trio.current_time()
        with contextlib.suppress(trio.BrokenResourceError):
            for byte in (hello() if secured else HANDSHAKE) * 10:
                await stream.send_all(bytes([byte]))
                await trio.sleep(0.02)
        assert trio.current_time() - begin < 10
        await stream.aclose()


def recorded_handshakes(name: str) -> list[tuple[str, bool]]:
    """The handshakes of a recording of Apache Kafka: what is special, and True if the client was served."""
    steps = json.loads((Path(__file__).with_name("security_recordings") / name).read_text())["steps"]
    failed = {each["connection"] for each in steps if "Error" in each["receive"]}
    return [(each["note"], each["connection"] not in failed) for each in steps if each["send"] == "connect"]


async def served_in_handshake(port: int, context: ssl.SSLContext, server_name: str | None) -> bool:
    """Return True if a client with this name of the server (SNI) gets an answer, over a connection without ALPN."""

    def play() -> bool:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            client = stack.enter_context(context.wrap_socket(client, server_hostname=server_name))
            assert client.selected_alpn_protocol() is None
            client.sendall(METADATA)
            return bool(client.recv(1))
        return False

    return await trio.to_thread.run_sync(play)


def listener_of(authority: Authority, certificate: Path, client_auth: str) -> Entrance:
    """The entrance of a listener with default settings."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": client_auth,
    }
    context = server_context(tls_settings(settings, "listener KAFKA")).context
    return Entrance(lambda: context)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
async def test_versions_and_names_are_taken_as_recorded(authority: Authority, certificate: Path, tmp_path: Path) -> None:
    def context(newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, alpn: Sequence[str] = ()) -> ssl.SSLContext:
        made = authority.client_context()
        made.set_ciphers("ALL:@SECLEVEL=0")
        made.minimum_version, made.maximum_version = ssl.TLSVersion.TLSv1_1, newest
        made.check_hostname = False
        made.set_alpn_protocols(list(alpn))
        return made

    clients: dict[str, tuple[ssl.SSLContext, str | None]] = {
        "TLS 1.3": (context(), "localhost"),
        "TLS 1.2": (context(ssl.TLSVersion.TLSv1_2), "localhost"),
        "TLS 1.1": (context(ssl.TLSVersion.TLSv1_1), "localhost"),
        "SNI nosuch.example": (context(), "nosuch.example"),
        "SNI None": (context(), None),
        "checked against 127.0.0.1 (IP address in the certificate)": (authority.client_context(), "127.0.0.1"),
        "the client does not trust the CA": (Authority(tmp_path, "other").client_context(), "localhost"),
        "ALPN offered: h2, http/1.1": (context(alpn=["h2", "http/1.1"]), "localhost"),
    }
    async with listening(listener_of(authority, certificate, "none")) as (_, port):
        recorded = recorded_handshakes("46-tls-versions.json")
        assert [(note, await served_in_handshake(port, *clients[note])) for note, _ in recorded] == recorded


async def test_certificates_of_clients_are_taken_as_recorded(authority: Authority, certificate: Path, tmp_path: Path) -> None:
    kinds = {
        "None": None,
        "service": authority.issue("service", names=(), usages=[CLIENT]),
        "other": Authority(tmp_path, "other").issue("service"),
        "expired": authority.issue("expired", begins=-3 * DAY, ends=-1 * DAY),
        "future": authority.issue("future", begins=1 * DAY, ends=3 * DAY),
        "serveronly": authority.issue("serveronly", usages=[SERVER]),
        "nousage": authority.issue("nousage", usages=[]),
    }
    ours, recorded = [], recorded_handshakes("47-mtls.json")
    async with listening(listener_of(authority, certificate, "required")) as (_, port):
        for note, _ in recorded:
            version, _, kind = note.partition(", client certificate: ")
            context = authority.client_context(kinds[kind])
            context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
            ours.append((note, await served_in_handshake(port, context, "localhost")))
    assert ours == recorded
