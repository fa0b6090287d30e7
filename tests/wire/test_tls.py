"""TLS as a wire: bytes arrive whole and in order, and the traps of OpenSSL's non-blocking sockets."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.wire.frames import REQUEST, Frame, FrameConnection, encode_frame
from kraftlab.wire.tls import INTERNAL_ERROR_ALERT, RECORD_BYTES_MAX, HandshakeFailed, SilentEnd, TlsWire

from ..helpers.certificates import CLIENT, DAY, SERVER, Authority

LARGE = bytes(range(256)) * 20_000
TLS_VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.issue("node")


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


@contextlib.asynccontextmanager
async def connected(client: ssl.SSLContext, server: ssl.SSLContext) -> AsyncIterator[tuple[TlsWire, TlsWire]]:
    """Two wires after their handshake: the client's, the server's."""
    left, right = socket_pair()
    wires = TlsWire(left, client, "127.0.0.1"), TlsWire(right, server)
    try:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for wire in wires:
                    nursery.start_soon(wire.shake_hands)
            yield wires
    finally:
        for wire in wires:
            wire.close()


async def send_all(wire: TlsWire, data: bytes) -> int:
    """Send everything; return how often the wire was full."""
    rest, blocked = memoryview(data), 0
    while rest:
        try:
            rest = rest[wire.send(rest) :]
        except BlockingIOError:
            blocked += 1
            await wire.wait_writable()
    return blocked


async def receive(wire: TlsWire, size: int, room_bytes: int = 65536) -> bytes:
    """Receive so many bytes, or what comes before the end."""
    data = bytearray()
    while len(data) < size:
        room = bytearray(min(room_bytes, size - len(data)))
        try:
            count = wire.recv_into(memoryview(room))
        except BlockingIOError:
            await wire.wait_readable()
            continue
        if not count:
            break
        data += room[:count]
    return bytes(data)


@pytest.mark.parametrize("version", TLS_VERSIONS)
async def test_large_sends_that_block_arrive_as_they_were(
    authority: Authority, certificate: Path, version: ssl.TLSVersion
) -> None:
    server = authority.server_context(certificate)
    server.maximum_version = version
    blocked: list[int] = []

    async def send(wire: TlsWire) -> None:
        blocked.append(await send_all(wire, LARGE))

    async with connected(authority.client_context(), server) as (client, other), trio.open_nursery() as nursery:
        nursery.start_soon(send, client)
        nursery.start_soon(send, other)
        assert await receive(other, len(LARGE)) == LARGE
        assert await receive(client, len(LARGE), room_bytes=999) == LARGE
    assert sum(blocked) > 0


async def test_bytes_that_are_decrypted_already_make_the_wire_readable(authority: Authority, certificate: Path) -> None:
    """The descriptor is not readable any more: one record is read, and given in two parts."""
    async with connected(authority.client_context(), authority.server_context(certificate)) as (client, server):
        await send_all(client, b"0123456789")
        await server.wait_readable()
        assert await receive(server, 4) == b"0123"
        await server.wait_readable()
        assert await receive(server, 6) == b"456789"


async def test_one_call_receives_all_records_that_are_there(authority: Authority, certificate: Path) -> None:
    """A large frame would otherwise take a turn of the event loop for every 16 KiB."""
    async with connected(authority.client_context(), authority.server_context(certificate)) as (client, server):
        data = LARGE[: 4 * RECORD_BYTES_MAX + 5]
        await send_all(client, data)
        await server.wait_readable()
        await trio.testing.wait_all_tasks_blocked()
        assert server.recv_into(memoryview(bytearray(len(data)))) == len(data)


async def test_one_step_of_a_handshake_happens_within_a_turn(authority: Authority, certificate: Path) -> None:
    """Nobody gets further while another task has the turn."""
    left, right = socket_pair()
    client, server = TlsWire(left, authority.client_context(), "127.0.0.1"), TlsWire(right, authority.server_context(certificate))
    turn = trio.Lock()
    try:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery, turn:
                nursery.start_soon(client.shake_hands)
                nursery.start_soon(server.shake_hands, turn)
                while not turn.statistics().tasks_waiting:  # noqa: ASYNC110 - there is no event to wait on
                    await trio.sleep(0.001)
                assert client.certificate is None, "the server has not answered"
            assert client.certificate is not None
    finally:
        client.close()
        server.close()


async def test_frames_go_over_tls_as_over_tcp(authority: Authority, certificate: Path) -> None:
    """Large ones wait in the sender's queue, with small ones before and behind."""
    got: list[Frame] = []
    sizes = [10, 5_000_000, 1, 70_000, 16_384, 16_385, 3]

    def on_frame(frame: Frame, size_bytes: int) -> bool:
        got.append(frame)
        if len(got) == len(sizes):
            receiver.close()
            sender.close()
        return True

    async with connected(authority.client_context(), authority.server_context(certificate)) as (client, server):
        sender, receiver = FrameConnection(client, on_frame), FrameConnection(server, on_frame)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run)
            nursery.start_soon(receiver.run)
            for number, size in enumerate(sizes):
                sender.write(
                    encode_frame(Frame(REQUEST, 1, 0, number, "c", 0, ReplicaKey(1), memoryview(bytes([number]) * size)))
                )
    assert [(frame.correlation, bytes(frame.body)) for frame in got] == [(n, bytes([n]) * size) for n, size in enumerate(sizes)]


async def test_the_bytes_of_a_file_do_not_go_out_as_they_are(authority: Authority, certificate: Path, tmp_path: Path) -> None:
    async with connected(authority.client_context(), authority.server_context(certificate)) as (client, _):
        assert not client.takes_files
        with (tmp_path / "file").open("wb+") as file, pytest.raises(NotImplementedError):
            client.send_from(file.fileno(), 0, 1)


async def test_the_peers_certificate_is_known_after_the_handshake(authority: Authority, certificate: Path) -> None:
    user = authority.issue("alice", names=())
    asks = authority.server_context(certificate, requires=True)
    async with connected(authority.client_context(user), asks) as (client, server):
        assert server.certificate == ssl.PEM_cert_to_DER_cert(user.read_text()[user.read_text().index("-----BEGIN CERT") :])
        assert client.certificate is not None
    async with connected(authority.client_context(), authority.server_context(certificate)) as (_, server):
        assert server.certificate is None


async def test_the_end_is_announced(authority: Authority, certificate: Path) -> None:
    async with connected(authority.client_context(), authority.server_context(certificate)) as (client, server):
        await send_all(client, b"last")
        client.close()
        assert await receive(server, 100) == b"last"


@contextlib.contextmanager
def played_by(client: Callable[[socket.socket], None], end: socket.socket) -> Iterator[None]:
    """A blocking client in a thread of its own; its errors are those of the handshake, which the test looks at here."""

    def play() -> None:
        with end, contextlib.suppress(OSError):
            client(end)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)
    assert not thread.is_alive()


async def refused(server: ssl.SSLContext, client: Callable[[socket.socket], None]) -> str:
    """Return why a handshake with this client fails."""
    left, right = socket_pair()
    left.settimeout(10)
    wire = TlsWire(right, server)
    with played_by(client, left), trio.fail_after(10):
        try:
            with pytest.raises(HandshakeFailed) as caught:
                await wire.shake_hands()
        finally:
            wire.close()
    return str(caught.value)


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("first", [b"", b"\x16"])
async def test_a_client_that_leaves_before_its_first_byte_is_told_from_one_that_fails(
    authority: Authority, certificate: Path, first: bytes, resets: bool
) -> None:
    """Health checks connect and close, and port scans connect and reset."""
    left, right = socket_pair()
    wire = TlsWire(right, authority.server_context(certificate))
    left.sendall(first)
    if resets:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    left.close()
    with trio.fail_after(10), pytest.raises(HandshakeFailed) as caught:
        await wire.shake_hands()
    wire.close()
    assert isinstance(caught.value, SilentEnd) == (not first)


@pytest.mark.parametrize("version", TLS_VERSIONS)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("none", "it showed no certificate, and this listener requires one"),
        ("other authority", "its certificate is refused: unable to get local issuer certificate"),
        ("expired", "its certificate is refused: certificate has expired"),
        ("not yet valid", "its certificate is refused: certificate is not yet valid"),
        ("of a server", "its certificate is refused: unsuitable certificate purpose"),
    ],
)
async def test_a_client_without_a_good_certificate_is_refused(
    authority: Authority, certificate: Path, tmp_path: Path, kind: str, reason: str, version: ssl.TLSVersion
) -> None:
    kinds: dict[str, Callable[[], Path | None]] = {
        "none": lambda: None,
        "other authority": lambda: Authority(tmp_path, "other").issue("alice"),
        "expired": lambda: authority.issue("expired", begins=-3 * DAY, ends=-1 * DAY),
        "not yet valid": lambda: authority.issue("early", begins=1 * DAY, ends=3 * DAY),
        "of a server": lambda: authority.issue("server", usages=[SERVER]),
    }
    context = authority.client_context(kinds[kind]())
    context.maximum_version = version

    def client(end: socket.socket) -> None:
        with context.wrap_socket(end, server_hostname="localhost") as secured:
            secured.recv(1)

    assert await refused(authority.server_context(certificate, requires=True), client) == reason


@pytest.mark.parametrize("usages", [[CLIENT], [CLIENT, SERVER], []])
async def test_a_certificate_for_clients_or_for_anything_is_taken(
    authority: Authority, certificate: Path, usages: list[object]
) -> None:
    user = authority.issue("bob", usages=usages)  # type: ignore[arg-type]
    async with connected(authority.client_context(user), authority.server_context(certificate, requires=True)) as (_, server):
        assert server.certificate


@pytest.mark.parametrize(
    ("bytes_of_client", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "it speaks HTTP without TLS"),
        (bytes.fromhex("0000001a0012000400000001000463616e65") + bytes(40), "it does not speak TLS, or only versions before 1.2"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "it does not speak TLS, or only versions before 1.2"),
        (bytes(100), "it does not speak TLS, or only versions before 1.2"),
        (b"\xff" * 100, "it does not speak TLS, or only versions before 1.2"),
    ],
)
async def test_a_client_of_another_protocol_gets_an_alert_and_no_reset(
    authority: Authority, certificate: Path, bytes_of_client: bytes, reason: str
) -> None:
    answer = bytearray()

    def client(end: socket.socket) -> None:
        end.sendall(bytes_of_client)
        while piece := end.recv(1000):
            answer.extend(piece)
        answer.extend(b" end")

    assert await refused(authority.server_context(certificate), client) == reason
    assert answer == INTERNAL_ERROR_ALERT + b" end"


def hello(context: ssl.SSLContext) -> bytes:
    """The first flight of a client."""
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


async def ends_cleanly(server: ssl.SSLContext, data: bytes, finish: Callable[[TlsWire], Awaitable[None]]) -> None:
    left, right = socket_pair()
    wire = TlsWire(right, server)
    try:
        left.sendall(data)
        left.shutdown(socket.SHUT_WR)
        await finish(wire)
    finally:
        wire.close()
        left.close()


async def test_a_hello_that_is_cut_or_flipped_at_any_byte_ends_its_own_connection(
    authority: Authority, certificate: Path
) -> None:
    server, whole = authority.server_context(certificate), hello(authority.client_context())

    async def fails(wire: TlsWire) -> None:
        with trio.fail_after(10), pytest.raises(HandshakeFailed):
            await wire.shake_hands()

    for place in range(len(whole)):
        await ends_cleanly(server, whole[:place], fails)
        await ends_cleanly(server, whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :], fails)
    async with connected(authority.client_context(), server) as (client, other):
        await send_all(client, b"still served")
        assert await receive(other, 12) == b"still served"


async def test_a_handshake_can_be_given_up(authority: Authority, certificate: Path) -> None:
    left, right = socket_pair()
    wire = TlsWire(right, authority.server_context(certificate))
    with left, trio.move_on_after(0.05) as scope:
        await wire.shake_hands()
    wire.close()
    assert scope.cancelled_caught


async def test_a_client_refuses_a_server_with_another_name(authority: Authority) -> None:
    elsewhere = authority.server_context(authority.issue("elsewhere", names=["other.example"]))
    with pytest.raises(ExceptionGroup) as caught:
        async with connected(authority.client_context(), elsewhere):
            raise AssertionError("no connection comes about")
    assert "IP address mismatch" in str(caught.value.exceptions[0])
