"""Messages in parts, so that large byte strings inside are never copied into the message.

Theory of operation. MessagePack puts a byte string's length before it and nothing after it. So a message with a byte string that
is somewhere else (in a file, or in a buffer of the caller) can be encoded around that string: what comes before, the header of
the string, the string itself, what comes after. The receiver of the parts, one after another, sees an ordinary message.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:  # commands decode messages too, and should not wait for trio
    from .network import Wire

NOTHING = memoryview(b"")
_encode = msgspec.msgpack.Encoder().encode
_BIN_32 = struct.Struct(">BI")
_ARRAY_32 = struct.Struct(">BI")
_JOINED_BYTES_MAX = 64 * 1024


class FilePart(Protocol):
    """Bytes of a message that go from a file to the wire without being read into this process."""

    size_bytes: int

    async def send(self, wire: Wire, /) -> None:
        """Send all bytes. OSError or PartLost if that is not possible: then the connection is closed, within the frame."""


class PartLost(Exception):
    """The bytes of a FilePart are no longer there."""


InMemory = bytes | bytearray | memoryview
Part = InMemory | FilePart


def part_bytes(parts: Sequence[Part]) -> int:
    """Return the number of bytes of the parts."""
    return sum(len(part) if isinstance(part, InMemory) else part.size_bytes for part in parts)


def bin_header(size_bytes: int) -> bytes:
    """Return the header of a byte string."""
    return _BIN_32.pack(0xC6, size_bytes)


def array_header(length: int) -> bytes:
    """Return the header of an array."""
    return _ARRAY_32.pack(0xDD, length)


def around(message: msgspec.Struct, field: str) -> tuple[bytes, bytes]:
    """Encode a message that is an array: return the bytes before and after that field, an empty byte string or tuple."""
    fields = message.__struct_fields__
    place = fields.index(field)
    after = b"".join(_encode(getattr(message, name)) for name in fields[place + 1 :])
    before = _encode(message)[: -len(_encode(getattr(message, field)) + after)]
    return before, after


class _Collector:
    """A wire that takes everything."""

    takes_files = True
    round_trip_s = None
    peer = None

    def __init__(self) -> None:
        self.data = bytearray()

    def send(self, data: InMemory, /) -> int:
        self.data += data
        return len(data)

    def send_from(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        return self.send(os.pread(descriptor, size_bytes, position))

    def recv_into(self, room: memoryview, /) -> int:
        raise NotImplementedError

    def await_bytes(self, size_bytes: int, /) -> None:
        raise NotImplementedError

    async def wait_readable(self) -> None:
        raise NotImplementedError

    async def wait_writable(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


async def in_memory(body: InMemory | Sequence[Part]) -> InMemory:
    """Return the bytes of a message, for networks within one process."""
    if isinstance(body, InMemory):
        return body
    wire = _Collector()
    for part in body:
        if isinstance(part, InMemory):
            wire.send(part)
        else:
            await part.send(wire)
    return wire.data


def joined(parts: Sequence[Part]) -> list[Part]:
    """Return the parts, with small ones in memory that follow each other in one: one `send` for all of them. The parts themselves
    stay as they are, for the sender may send them again.
    """
    found: list[Part] = []
    small: bytearray | None = None
    for part in parts:
        if not isinstance(part, InMemory) or len(part) > _JOINED_BYTES_MAX:
            found.append(part)
            small = None
        elif small is None:
            small = bytearray(part)
            found.append(small)
        else:
            small += part
    return found
