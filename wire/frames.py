"""Peer frames and the connection that carries them.

Theory of operation. A frame is a u32 length (big-endian, at most 16 MiB) and a MessagePack array `[kind, api, version,
correlation, cluster_id, generation, sender, body]`. There is no handshake: every frame names the sender's cluster and generation,
so a node of another cluster is detected at its first frame. `body` is opaque here.

`FrameConnection` is a wire with one task. Writing is synchronous: a frame goes to the kernel in one `send` from any caller, and
only the part that the kernel does not take at once waits in memory for a temporary drain task. That saves a task switch per
message on the commit path, and keeps the order of writes. Reading is buffered: one `recv` may yield many frames.

Large bodies are not copied in this process. `body` is the last field, and MessagePack puts nothing after its bytes; so a frame
can be sent in parts (`frame_parts`), some of them `FilePart`s, which go from a file to the wire: the receiver sees an ordinary
frame. A frame too large for the buffer is received into memory of its own (`large_frames.py`), and its body is a view of that.

Memory is taken for bytes that arrived, never for bytes that a length field claims. Malformed bytes raise `FrameError`; the caller
closes the connection and logs it once.

Not checked here: the identity of the sender. There is no authentication yet: handlers get the principal "User:ANONYMOUS", and a
sender is a claim (`senders.py`, `transport.py`).
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.replica_key import ReplicaKey

from .large_frames import LargeFrameBuffers
from .network import Wire
from .parts import FilePart, InMemory, Part, PartLost, bin_header, joined, part_bytes

MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_OUTBOUND_BYTES = 64 * 1024 * 1024
"""Bytes that may wait in memory for a peer that does not read."""

GENERATION_MAX = 2**32 - 1
"""Largest generation that fits into a segment's header page."""
REQUEST = 0
RESPONSE = 1
ERROR = 2

_LENGTH = struct.Struct(">I")
_BUFFER_BYTES = 64 * 1024
_SMALL_FRAMES_MAX = 100
"""After so many small frames the memory for large ones is freed."""
AWAITED_BYTES_MAX = 256 * 1024
"""Bytes of a large frame that arrive before its reader is woken."""
IDLE_BUFFERS_S = 5.0
"""And after this time without any bytes."""
_HTTP2_PREFACE = int.from_bytes(b"PRI ")
"""The first bytes of an HTTP/2 connection, read as the length of a frame."""
_HTTP1_REQUESTS = tuple(map(int.from_bytes, (b"GET ", b"POST", b"HEAD")))
_TLS_HANDSHAKE = int.from_bytes(b"\x16\x03")
"""The first bytes of a client of TLS."""
_TLS_ALERT = int.from_bytes(b"\x15\x03")
"""The first bytes of what a server of TLS sends to a client that does not speak TLS."""


class FrameError(ValueError):
    """Malformed bytes from a peer; the message describes them."""


class TlsAlert(FrameError):
    """The peer expects TLS."""


def length_error(size: int) -> FrameError:
    """Return the error for a length field that no frame has."""
    if size == _HTTP2_PREFACE:
        return FrameError("HTTP/2: a gRPC client dials this port, which is for peers; give it the node's admin API (gRPC) port")
    if size in _HTTP1_REQUESTS:
        return FrameError("HTTP: this port is for peers; give the client another one")
    if size >> 16 == _TLS_HANDSHAKE:
        return FrameError("a TLS handshake, and this port has no TLS; set listener.security.protocol.map alike on all nodes")
    if size >> 16 == _TLS_ALERT:
        return TlsAlert("a TLS alert: this port expects TLS; set security.protocol=SSL")
    return FrameError(f"a frame length of {size} bytes (limit {MAX_FRAME_BYTES})")


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One message between nodes. `kind` is REQUEST, RESPONSE or ERROR; the body of an ERROR is `[code, message]`.

    The body of a received frame may be used as long as somebody holds it, and changed.
    """

    kind: int
    api: int
    version: int
    correlation: int
    cluster_id: str
    generation: int
    sender: ReplicaKey
    body: memoryview

    def __repr__(self) -> str:
        kind = ("request", "response", "error")[self.kind] if self.kind in (REQUEST, RESPONSE, ERROR) else f"kind {self.kind}"
        return f"{kind} api={self.api}v{self.version} #{self.correlation} {self.sender!r} {len(self.body)}B"


_encoder = msgspec.msgpack.Encoder()
_decoder = Decoder(Frame)
_EMPTY_BODY = _encoder.encode(b"")


def encode_frame(frame: Frame) -> bytearray:
    """Return the frame's bytes after their length. FrameError if they are over MAX_FRAME_BYTES."""
    data = bytearray(_LENGTH.size)
    _encoder.encode_into(frame, data, _LENGTH.size)
    size = len(data) - _LENGTH.size
    if size > MAX_FRAME_BYTES:
        raise _too_large(size, frame.api)
    _LENGTH.pack_into(data, 0, size)
    return data


def _too_large(size: int, api: int) -> FrameError:
    return FrameError(f"a frame of {size} bytes (api {api}) is over the limit of {MAX_FRAME_BYTES}; send less at once")


def frame_parts(head: Frame, body: Sequence[Part]) -> list[Part]:
    """Return the frame with this `body`; that of `head` is empty. FrameError if it is over MAX_FRAME_BYTES."""
    data = encode_frame(head)
    body_bytes = part_bytes(body)
    data[-len(_EMPTY_BODY) :] = bin_header(body_bytes)
    size = len(data) - _LENGTH.size + body_bytes
    if size > MAX_FRAME_BYTES:
        raise _too_large(size, head.api)
    _LENGTH.pack_into(data, 0, size)
    return joined([data, *body])


class Source(Protocol):
    """A source of bytes: a `Wire`, or a blocking socket."""

    def recv_into(self, room: memoryview, /) -> int: ...


class FrameBuffer:
    """Bytes in, frames out. Holds at most one frame's worth of unread bytes beyond the last `recv`."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self._large_buffers = LargeFrameBuffers()
        self._large: memoryview | None = None
        """The large frame that is arriving, without its length."""
        self._large_end = 0
        self._small_frames = 0

    @property
    def unread_bytes(self) -> int:
        return self._end - self._start + self._large_end

    @property
    def missing_bytes(self) -> int:
        """Bytes without which there is nothing to do: the rest of a large frame, otherwise 1."""
        return 1 if self._large is None else len(self._large) - self._large_end

    @property
    def has_large_buffers(self) -> bool:
        """True if memory for large frames is kept."""
        return bool(self._large_buffers)

    def free_large_buffers(self) -> None:
        """Keep no memory for large frames until the next one."""
        self._large_buffers.clear()

    def receive_from(self, source: Source) -> int:
        """Call `recv` once; return the number of bytes (0: the peer closed). BlockingIOError if there is nothing to read."""
        if self._large is not None:
            with self._large[self._large_end :] as room:
                count = source.recv_into(room)
            self._large_end += count
            return count
        if self._end == len(self._buffer):
            self._make_room()
        with memoryview(self._buffer) as view, view[self._end :] as room:
            count = source.recv_into(room)
        self._end += count
        return count

    def frames(self) -> Iterator[tuple[Frame, int]]:
        """Yield every whole frame that has arrived, with its size in bytes. FrameError at the first malformed one."""
        while True:
            raw = self._next_frame()
            if raw is None:
                break
            frame = _decoded(raw)
            size, raw = len(raw), None
            yield frame, size
            del frame

    def _next_frame(self) -> bytes | memoryview | None:
        """Return the bytes of the next frame if they have all arrived."""
        if self._large is not None:
            if self._large_end < len(self._large):
                return None
            large, self._large, self._large_end = self._large, None, 0
            return large
        arrived = self._end - self._start
        if arrived < _LENGTH.size:
            self._rewind()
            return None
        (size,) = _LENGTH.unpack_from(self._buffer, self._start)
        if not 0 < size <= MAX_FRAME_BYTES:
            raise length_error(size)
        body_at = self._start + _LENGTH.size
        if size > len(self._buffer) - _LENGTH.size:
            self._begin_large(size, body_at)
            return None
        if self._end - body_at < size:
            return None
        self._start = body_at + size
        self._small_frames += 1
        if self._small_frames == _SMALL_FRAMES_MAX:
            self._large_buffers.clear()
        with memoryview(self._buffer) as view:
            return bytes(view[body_at : body_at + size])

    def _begin_large(self, size: int, body_at: int) -> None:
        """Receive the rest of a large frame into memory of its own."""
        self._small_frames = 0
        self._large, self._large_end = self._large_buffers.take(size), self._end - body_at
        self._large[: self._large_end] = self._buffer[body_at : self._end]
        self._start = self._end = 0

    def _rewind(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0

    def _make_room(self) -> None:
        """Move the beginning of an incomplete frame to the buffer's front."""
        unread = self._end - self._start
        self._buffer[:unread] = self._buffer[self._start : self._end]
        self._start, self._end = 0, unread


def _decoded(raw: bytes | memoryview) -> Frame:
    try:
        frame = _decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise FrameError(f"{len(raw)} bytes that are not a frame: {error}") from error
    if not 0 <= frame.generation <= GENERATION_MAX:
        raise FrameError(f"a frame of generation {frame.generation} (limit {GENERATION_MAX})")
    return frame


class FrameConnection:
    """A connection that carries frames. `run` reads until either side closes; `write` may be called at any time.

    `on_frame(frame, size_bytes)` is called for each frame, on the event loop, and must not block. If it returns False, reading
    pauses until `resume()`: that holds a reader back. `on_sent` is called when the peer has taken bytes that waited. `run`
    returns when the peer closed or `close()` was called, and raises FrameError for malformed bytes. The wire belongs to the
    connection and is closed when `run` ends.
    """

    def __init__(
        self, connected: Wire, on_frame: Callable[[Frame, int], bool], on_sent: Callable[[], None] = lambda: None
    ) -> None:
        self._wire = connected
        self._on_frame = on_frame
        self._on_sent = on_sent
        self._buffer = FrameBuffer()
        self._outbound: deque[memoryview | FilePart] = deque()
        self._scope = trio.CancelScope()
        self._awaited_bytes = 1
        self._resumed = trio.Event()
        self._closed = False
        self._nursery: trio.Nursery | None = None
        self.outbound_bytes = 0
        self.opened_at = trio.current_time()
        self.last_received = -math.inf
        self.partial_since: float | None = None
        """Arrival of the first part of an incomplete frame, or None."""

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def round_trip_s(self) -> float | None:
        """The round trip to the peer, None if it is unknown."""
        return None if self._closed else self._wire.round_trip_s

    @property
    def keeps_memory(self) -> bool:
        """True if memory for large frames is kept."""
        return self._buffer.has_large_buffers

    async def run(self) -> None:
        """Read frames until the connection ends. Tasks of this connection run in `nursery()` and end with it."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    if self._outbound:
                        nursery.start_soon(self._drain)
                    try:
                        await self._receive()
                    finally:
                        self._closed = True
                        nursery.cancel_scope.cancel()
        finally:
            self._closed = True
            self._outbound.clear()
            self._wire.close()

    def nursery(self) -> trio.Nursery:
        """Return the nursery of this connection; its tasks are cancelled when the connection ends."""
        assert self._nursery is not None, "the connection is not running"
        return self._nursery

    def write_parts(self, parts: Sequence[Part]) -> None:
        """As `write`, for a frame in parts."""
        for part in parts:
            if isinstance(part, InMemory):
                self.write(part)
            elif not self._closed:
                self._queue(part)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a frame, or queue the part that the kernel does not take now. A closed connection drops it."""
        if self._closed:
            return
        rest = memoryview(data)
        if not self._outbound:
            try:
                sent = self._wire.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            if sent == len(data):
                return
            rest = rest[sent:]
        self.outbound_bytes += len(rest)
        self._queue(rest)
        if self.outbound_bytes > MAX_OUTBOUND_BYTES:
            self.close()

    def _queue(self, part: memoryview | FilePart) -> None:
        if not self._outbound and self._nursery is not None:
            self._nursery.start_soon(self._drain)
        self._outbound.append(part)

    def resume(self) -> None:
        """Continue to read after `on_frame` returned False."""
        self._resumed.set()

    def close(self) -> None:
        self._closed = True
        self._scope.cancel()

    async def _receive(self) -> None:
        while True:
            await self._wait_readable()
            try:
                count = self._buffer.receive_from(self._wire)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not count:
                return
            self.last_received = trio.current_time()
            parsed = await self._deliver()
            if not self._buffer.unread_bytes:
                self.partial_since = None
            elif parsed or self.partial_since is None:
                self.partial_since = trio.current_time()

    async def _wait_readable(self) -> None:
        awaited_bytes = min(self._buffer.missing_bytes, AWAITED_BYTES_MAX)
        if awaited_bytes != self._awaited_bytes:
            self._awaited_bytes = awaited_bytes
            self._wire.await_bytes(awaited_bytes)
        if self._buffer.has_large_buffers:
            with trio.move_on_after(IDLE_BUFFERS_S):
                await self._wire.wait_readable()
                return
            self._buffer.free_large_buffers()
        await self._wire.wait_readable()

    async def _deliver(self) -> bool:
        """Pass on the frames that have arrived, as fast as `on_frame` allows. Return True if there was one."""
        parsed = False
        for frame, size_bytes in self._buffer.frames():
            parsed = True
            if not self._on_frame(frame, size_bytes):
                self._resumed = trio.Event()
                await self._resumed.wait()
        return parsed

    async def _drain(self) -> None:
        while self._outbound:
            part = self._outbound[0]
            if not isinstance(part, memoryview):
                try:
                    await part.send(self._wire)
                except (OSError, PartLost):
                    self.close()
                    return
                self._outbound.popleft()
                continue
            await self._wire.wait_writable()
            try:
                sent = self._wire.send(part)
            except BlockingIOError:
                continue
            except OSError:
                self.close()
                return
            self.outbound_bytes -= sent
            self._on_sent()
            if sent == len(part):
                self._outbound.popleft()
            else:
                self._outbound[0] = part[sent:]
