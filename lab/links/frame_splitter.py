"""Boundaries of frames, without a look at their content.

A frame is a u32 length and that many bytes (`wire/frames.py`). A proxy passes on whole frames only, so it holds, drops or doubles
whole messages. The bytes of many frames stay one piece until they are needed apart.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Protocol

import msgspec

from kraftlab.common.decoding import Decoder
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.wire.frames import MAX_FRAME_BYTES, FrameError, length_error

_LENGTH = struct.Struct(">I")
_BUFFER_BYTES = 256 * 1024


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """A frame up to its sender; the body after it is not decoded."""

    kind: int
    api: int
    version: int
    correlation: int
    cluster_id: str
    generation: int
    sender: ReplicaKey


_decode = Decoder(_Header).decode


class Splitter(Protocol):
    """Bytes of a connection in, what a proxy passes on out. FrameError for invalid bytes."""

    @property
    def has_messages(self) -> bool:
        """True if single messages can be lost without breaking the connection."""
        ...

    def receive_from(self, source: socket.socket) -> int:
        """Make one `recv`; return the number of bytes (0: closed). BlockingIOError if there is nothing to read."""
        ...

    def first(self) -> tuple[int, bytes] | None:
        """Return the opener's node id (negative for other openers) and the first bytes, None until they have arrived."""
        ...

    def take(self) -> bytes:
        """Return all that can be passed on, in one piece; empty if there is nothing."""
        ...

    def messages(self, whole: bytes, /) -> Iterator[bytes]:
        """Yield the messages of a piece."""
        ...


class FrameSplitter:
    """Bytes in, whole frames out."""

    has_messages = True

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._end = 0
        """Number of bytes in the buffer."""
        self._whole = 0
        """Number of those bytes that are whole frames."""

    def receive_from(self, source: socket.socket) -> int:
        """Make one `recv`; return the number of bytes (0: closed). BlockingIOError if there is nothing to read."""
        if self._end == len(self._buffer):
            self._buffer.extend(bytes(len(self._buffer)))
        with memoryview(self._buffer) as view, view[self._end :] as room:
            count = source.recv_into(room)
        self._end += count
        return count

    def first(self) -> tuple[int, bytes] | None:
        """Return the sender of the first frame, and all whole frames; None until there is one."""
        whole = self.take()
        return (sender_of(whole), whole) if whole else None

    def messages(self, whole: bytes) -> Iterator[bytes]:
        """Yield the frames of a piece."""
        return frames_of(whole)

    def take(self) -> bytes:
        """Return all whole frames that have arrived, in one piece; empty if there is none. FrameError for invalid bytes."""
        while self._end - self._whole >= _LENGTH.size:
            after = self._whole + _frame_bytes(self._buffer, self._whole)
            if after > self._end:
                break
            self._whole = after
        if not self._whole:
            return b""
        with memoryview(self._buffer) as view:
            taken = bytes(view[: self._whole])
            rest = bytes(view[self._whole : self._end])
        if not rest and len(self._buffer) > _BUFFER_BYTES:
            self._buffer = bytearray(_BUFFER_BYTES)
        self._buffer[: len(rest)] = rest
        self._end, self._whole = len(rest), 0
        return taken


def frames_of(whole: bytes) -> Iterator[bytes]:
    """Yield the frames of a piece from `take`."""
    start = 0
    while start < len(whole):
        end = start + _frame_bytes(whole, start)
        yield whole[start:end]
        start = end


def sender_of(whole: bytes) -> int:
    """The sender of the first frame of a piece; negative for senders other than nodes. FrameError."""
    size = _frame_bytes(whole, 0)
    try:
        return _decode(memoryview(whole)[_LENGTH.size : size]).sender.node_id
    except msgspec.MsgspecError as error:
        raise FrameError(f"{size - _LENGTH.size} bytes that are not a frame: {error}") from error


def _frame_bytes(data: bytes | bytearray, at: int) -> int:
    """The size of the frame that begins there, with its length field."""
    size: int = _LENGTH.unpack_from(data, at)[0]
    if not 0 < size <= MAX_FRAME_BYTES:
        raise length_error(size)
    return _LENGTH.size + size
