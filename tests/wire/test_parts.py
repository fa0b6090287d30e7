"""Messages in parts, and the memory that large frames are received into."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.wire.frames import (
    IDLE_BUFFERS_S,
    MAX_FRAME_BYTES,
    REQUEST,
    Frame,
    FrameBuffer,
    FrameConnection,
    FrameError,
    encode_frame,
    frame_parts,
    length_error,
)
from kraftlab.wire.large_frames import BUFFERS_MAX, LargeFrameBuffers
from kraftlab.wire.network import Wire
from kraftlab.wire.parts import NOTHING, PartLost, around, bin_header, in_memory, joined
from kraftlab.wire.transport import PeerIdentity, PeerPool, PeerRequest, PeerServer, PeerUnreachable

FILE, LOST, SMALL = 1, 2, 3


class Message(msgspec.Struct, array_like=True):
    number: int
    records: memoryview = NOTHING
    names: tuple[str, ...] = ()
    left: int = -1


class FromFile:
    """Bytes of a file, a piece at a time."""

    def __init__(self, path: Path, piece_bytes: int, lost_at: int | None = None) -> None:
        self.size_bytes = path.stat().st_size
        self._path, self._piece_bytes, self._lost_at = path, piece_bytes, lost_at

    async def send(self, wire: Wire) -> None:
        position = 0
        with self._path.open("rb") as file:
            while position < self.size_bytes:
                if self._lost_at is not None and position >= self._lost_at:
                    raise PartLost("the file was truncated")
                with contextlib.suppress(BlockingIOError):
                    position += wire.send_from(file.fileno(), position, min(self._piece_bytes, self.size_bytes - position))
                await wire.wait_writable()


def head(correlation: int = 1, body: bytes = b"") -> Frame:
    return Frame(REQUEST, 7, 0, correlation, "cluster", 0, ReplicaKey(2), memoryview(body))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 70_000])
@pytest.mark.parametrize("after", [(), ("a", "bc")])
async def test_a_message_around_bytes_decodes_as_the_message_with_them(size: int, after: tuple[str, ...]) -> None:
    records = os.urandom(size)
    before, rest = around(Message(5, NOTHING, after, 300), "records")
    frame = await in_memory(frame_parts(head(), [before, bin_header(size), records, rest]))
    [(received, _)] = frames_of(bytes(frame), 1 << 20)
    assert msgspec.msgpack.decode(received.body, type=Message) == Message(5, memoryview(records), after, 300)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_frame_leaves_the_bytes_of_its_caller_as_they_are(size: int) -> None:
    before, records, after = bytearray(b"before"), bytearray(size), bytearray(b"after")
    frame_parts(head(), [before, records, after])
    assert (before, len(records), after) == (b"before", size, b"after")


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"\x16\x03\x01\x02", "a TLS handshake"),
        (b"\x15\x03\x03\x00", "a TLS alert"),
        (b"GET ", "HTTP:"),
        (b"PRI ", "HTTP/2:"),
        (b"\xff\xff\xff\xff", "a frame length of 4294967295 bytes"),
    ],
)
def test_bytes_of_another_protocol_are_named(start: bytes, named: str) -> None:
    assert str(length_error(int.from_bytes(start))).startswith(named)


def test_a_frame_in_parts_has_the_limit_of_every_frame() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        frame_parts(head(), [bytes(MAX_FRAME_BYTES)])


def frames_of(stream: bytes, step: int) -> Iterator[tuple[Frame, int]]:
    buffer, left = FrameBuffer(), memoryview(stream)

    class Source:
        def recv_into(self, room: memoryview, /) -> int:
            nonlocal left
            size = min(len(room), len(left), step)
            room[:size], left = left[:size], left[size:]
            return size

    while buffer.receive_from(Source()):
        yield from buffer.frames()
    assert buffer.unread_bytes == 0


@pytest.mark.parametrize("step", [999, 65_536, 1 << 20])
def test_large_frames_between_small_ones_survive_any_cut_of_the_stream(step: int) -> None:
    frames = [head(number, os.urandom(size)) for number, size in enumerate((10, 70_000, 0, 65_535, 200_000, 65_400, 300_000, 5))]
    assert [frame for frame, _ in frames_of(b"".join(encode_frame(frame) for frame in frames), step)] == frames


def test_a_buffer_is_used_again_only_when_nobody_has_a_view_of_it() -> None:
    buffers = LargeFrameBuffers()
    first = buffers.take(100_000)
    first[:3] = b"abc"
    kept, second = first[10:20], buffers.take(100_000)
    second[:3] = b"xyz"
    assert (bytes(first[:3]), first.obj is second.obj) == (b"abc", False)
    place = id(first.obj)
    del first
    assert id(buffers.take(50_000).obj) != place, "a slice is a view too"
    kept.release()
    assert id(buffers.take(50_000).obj) == place


def test_there_may_be_more_views_than_buffers() -> None:
    buffers = LargeFrameBuffers()
    views = [buffers.take(70_000) for _ in range(3 * BUFFERS_MAX)]
    assert len({id(view.obj) for view in views}) == 3 * BUFFERS_MAX


async def test_an_idle_connection_frees_the_memory_of_large_frames(autojump_clock: Any) -> None:
    frame, seen = bytes(encode_frame(head(1, bytes(200_000)))), list[int]()

    class Readable:
        """The end of a connection on which one frame arrives."""

        left = memoryview(frame)

        def recv_into(self, room: memoryview, /) -> int:
            size = min(len(room), len(self.left))
            room[:size], self.left = self.left[:size], self.left[size:]
            return size

        def await_bytes(self, size_bytes: int, /) -> None:
            pass

        async def wait_readable(self) -> None:
            await trio.lowlevel.checkpoint()
            while not self.left:
                await trio.sleep_forever()

        def close(self) -> None:
            pass

    connection = FrameConnection(Readable(), lambda received, size: seen.append(len(received.body)) is None)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await trio.sleep(1)
        assert (seen, connection.keeps_memory) == ([200_000], True)
        await trio.sleep(IDLE_BUFFERS_S)
        assert not connection.keeps_memory
        nursery.cancel_scope.cancel()


@pytest.fixture
async def peers(tmp_path: Path) -> Any:
    """Returns the answers to requests that are sent at once, in their order; PeerUnreachable for those that failed."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 << 20))

    async def from_file(request: PeerRequest) -> Any:
        return [b"before", FromFile(path, 100_000), b"after"]

    async def lost(request: PeerRequest) -> Any:
        return [b"before", FromFile(path, 100_000, lost_at=1_000_000), b"after"]

    async def small(request: PeerRequest) -> Any:
        return bytes(request.body)

    async def ask(*apis: int) -> list[Any]:
        answers: list[Any] = [None] * len(apis)
        with trio.fail_after(15):
            async with trio.open_nursery() as nursery:
                server = PeerServer(PeerIdentity("c", 0, ReplicaKey(1)), {FILE: from_file, LOST: lost, SMALL: small})
                port: int = await nursery.start(server.serve, "127.0.0.1", 0)
                pool = PeerPool(nursery, PeerIdentity("c", 0, ReplicaKey(2)))

                async def one(index: int, api: int) -> None:
                    try:
                        answers[index] = bytes(
                            await pool.request(Endpoint("127.0.0.1", port), api, bytes([index]), timeout_ms=10_000)
                        )
                    except PeerUnreachable as error:
                        answers[index] = error

                async with trio.open_nursery() as asking:
                    for index, api in enumerate(apis):
                        asking.start_soon(one, index, api)
                nursery.cancel_scope.cancel()
        return answers

    ask.content = b"before" + path.read_bytes() + b"after"  # type: ignore[attr-defined]
    return ask


async def test_bytes_of_a_file_arrive_within_their_frame_and_others_in_theirs(peers: Callable[..., Any]) -> None:
    answers = await peers(FILE, SMALL, FILE, SMALL)
    assert answers == [peers.content, b"\1", peers.content, b"\3"]  # type: ignore[attr-defined]


async def test_a_frame_whose_bytes_are_gone_ends_the_connection(peers: Callable[..., Any]) -> None:
    [answer] = await peers(LOST)
    assert isinstance(answer, PeerUnreachable)
    assert "lost" in str(answer)


def test_parts_are_joined_and_stay_as_they_are() -> None:
    """The sender may send them again: large batches of a producer are."""
    large = bytearray(b"L" * 1_000_000)
    found = joined([b"a", b"b", large, b"c", b"d"])
    assert [bytes(part) for part in found] == [b"ab", bytes(large), b"cd"]
    assert len(large) == 1_000_000
