"""Memory for large frames, used again and again.

Theory of operation. A large frame is received straight into a buffer, and its decoder returns views of the buffer instead of
copies. Fresh memory costs more than the copy that it saves, since the kernel has to provide and clear each page; so a connection
keeps a few buffers. A buffer is free once nothing refers to it: Python counts the references, and each view holds one. So a
buffer is never used again while a view of it is in use, in any thread.

A buffer is as large as the frame claims to be, and only the peer says so. Its pages are provided as bytes arrive (anonymous
memory), so a claim by itself takes no memory.
"""

from __future__ import annotations

import mmap
import sys

BUFFERS_MAX = 4
BUFFER_UNIT_BYTES = 1024 * 1024

_probe = [object()]
_UNUSED = sys.getrefcount(_probe[0])
"""Reference count of an object that only a list holds."""


class LargeFrameBuffers:
    """The buffers of one connection."""

    def __init__(self) -> None:
        self._buffers: list[mmap.mmap] = []

    def take(self, size_bytes: int) -> memoryview:
        """Return writable memory of that size; its content is arbitrary."""
        for index in range(len(self._buffers)):
            if len(self._buffers[index]) >= size_bytes and self._is_free(index):
                return memoryview(self._buffers[index])[:size_bytes]
        units = -(-size_bytes // BUFFER_UNIT_BYTES)
        buffer = mmap.mmap(-1, units * BUFFER_UNIT_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._keep(buffer)
        return memoryview(buffer)[:size_bytes]

    def __len__(self) -> int:
        return len(self._buffers)

    def clear(self) -> None:
        """Free the idle buffers. A buffer in use is freed with its last view."""
        self._buffers.clear()

    def _keep(self, buffer: mmap.mmap) -> None:
        """Keep the buffer, in the place of a free one (they are all too small) if there are enough."""
        if len(self._buffers) < BUFFERS_MAX:
            self._buffers.append(buffer)
            return
        for index in range(len(self._buffers)):
            if self._is_free(index):
                self._buffers[index] = buffer
                return

    def _is_free(self, index: int) -> bool:
        return sys.getrefcount(self._buffers[index]) == _UNUSED
