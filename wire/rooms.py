"""Memory for large frames, used again and again.

Theory of operation. A large frame is received straight into a room, and its decoder returns views of the room instead of
copies. Fresh memory costs more than the copy that it saves, since the kernel has to provide and clear each page; so a connection
keeps a few rooms. A room is free once nothing refers to it: Python counts the references, and each view holds one, so a room is
never used again under a view that somebody still has, in whichever thread.

A room's size is that of the frame, which is only a peer's claim. Its pages are provided as bytes arrive (anonymous memory), so a
claim by itself takes no memory.
"""

from __future__ import annotations

import mmap
import sys

ROOMS_MAX = 4
ROOM_UNIT_BYTES = 1024 * 1024

_probe = [object()]
_UNUSED = sys.getrefcount(_probe[0])
"""Reference count of an object that only a list holds."""


class Rooms:
    """The rooms of one connection."""

    def __init__(self) -> None:
        self._rooms: list[mmap.mmap] = []

    def take(self, size_bytes: int) -> memoryview:
        """Return writable memory of that size; its content is arbitrary."""
        for index in range(len(self._rooms)):
            if len(self._rooms[index]) >= size_bytes and self._is_free(index):
                return memoryview(self._rooms[index])[:size_bytes]
        units = -(-size_bytes // ROOM_UNIT_BYTES)
        room = mmap.mmap(-1, units * ROOM_UNIT_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._keep(room)
        return memoryview(room)[:size_bytes]

    def __len__(self) -> int:
        return len(self._rooms)

    def clear(self) -> None:
        """Keep no room any more. Rooms in use go with their last view."""
        self._rooms.clear()

    def _keep(self, room: mmap.mmap) -> None:
        """Keep the room, in the place of a free one (they are all too small) if there are enough."""
        if len(self._rooms) < ROOMS_MAX:
            self._rooms.append(room)
            return
        for index in range(len(self._rooms)):
            if self._is_free(index):
                self._rooms[index] = room
                return

    def _is_free(self, index: int) -> bool:
        return sys.getrefcount(self._rooms[index]) == _UNUSED
