"""The newest bytes of the log in memory: followers at the tail and the apply task need no disk.

A run of chunks, contiguous in the log's byte stream and ending at its end. Chunks that are not on disk yet are never evicted, so
`read` sees an append at once, and a truncation while it is on its way to the disk.
"""

from __future__ import annotations

from collections import deque


class TailCache:
    """Not thread-safe: its owner locks."""

    def __init__(self, max_bytes: int, position: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: deque[tuple[int, bytes]] = deque()
        self.start_position = position
        self.end_position = position

    def append(self, data: bytes) -> None:
        self._chunks.append((self.end_position, data))
        self.end_position += len(data)

    def truncate(self, position: int) -> None:
        """Forget everything at or after `position`."""
        while self._chunks and self._chunks[-1][0] >= position:
            self._chunks.pop()
        if self._chunks:
            start, data = self._chunks[-1]
            self._chunks[-1] = (start, data[: position - start])
        self.end_position = position
        self.start_position = min(self.start_position, position)

    def reset(self, position: int) -> None:
        """Forget everything; the stream continues at `position`."""
        self._chunks.clear()
        self.start_position = self.end_position = position

    def evict(self, clean_position: int) -> None:
        """Shrink to the limit by dropping whole chunks below `clean_position` (the part on disk)."""
        while self.end_position - self.start_position > self._max_bytes and self._chunks:
            start, data = self._chunks[0]
            if start + len(data) > clean_position:
                return
            self._chunks.popleft()
            self.start_position = start + len(data)

    def read(self, start: int, end: int) -> bytes:
        """Return bytes `[start, end)`, all of which must be cached."""
        if self._chunks and self._chunks[-1][0] == start and self.end_position == end:
            return self._chunks[-1][1]
        return b"".join(self.parts(start, end))

    def parts(self, start: int, end: int) -> list[bytes]:
        """Return bytes `[start, end)` as the chunks that hold them."""
        parts: list[bytes] = []
        for position, data in reversed(self._chunks):
            if position >= end:
                continue
            if position + len(data) <= start:
                break
            whole = position >= start and position + len(data) <= end
            parts.append(data if whole else data[max(0, start - position) : end - position])
        parts.reverse()
        return parts
