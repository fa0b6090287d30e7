"""Connections under TLS through a proxy: bytes without messages, after an introduction.

Theory of operation. A proxy cannot look into TLS, so a node of a secure cluster with proxies begins each connection to another
node with an introduction: which node it is. The proxy takes the introduction away; what follows is TLS between the two nodes. A
connection that begins otherwise is that of a client. The introduction proves nothing, and has not to: it only chooses the link,
with its faults.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from kraftlab.wire.frames import FrameError

CLIENT = -1
_MAGIC = b"kraftlab"
_INTRODUCTION = struct.Struct(f">{len(_MAGIC)}si")
_PIECE_BYTES = 256 * 1024


def introduction(node_id: int) -> bytes:
    """Return the first bytes of a connection of that node."""
    return _INTRODUCTION.pack(_MAGIC, node_id)


class ByteSplitter:
    """Bytes in, the same bytes out: without knowledge of messages, a piece counts as whole as it arrives."""

    has_messages = False

    def __init__(self) -> None:
        self._received = b""

    def receive_from(self, source: socket.socket) -> int:
        """Make one `recv`; return the number of bytes (0: closed). BlockingIOError if there is nothing to read."""
        data = source.recv(_PIECE_BYTES)
        self._received += data
        return len(data)

    def first(self) -> tuple[int, bytes] | None:
        """Return the opener's id and the bytes after its introduction, None until the introduction has arrived."""
        head = self._received[: len(_MAGIC)]
        if head != _MAGIC[: len(head)]:
            return CLIENT, self.take()
        if len(self._received) < _INTRODUCTION.size:
            return None
        data = self.take()
        node_id: int = _INTRODUCTION.unpack_from(data)[1]
        if node_id < 0:
            raise FrameError(f"an introduction of node {node_id}")
        return node_id, data[_INTRODUCTION.size :]

    def take(self) -> bytes:
        """Return all that has arrived."""
        taken, self._received = self._received, b""
        return taken

    def messages(self, whole: bytes) -> Iterator[bytes]:
        """Yield the piece as it is."""
        if whole:
            yield whole
