"""The file of a node's trace. Lines go into a mapped part of the file, so that kill -9 loses none of them.

A trace is for people who look into a running node, and for checks that need every line. It must not change what it shows: a line
costs a copy in memory, and no call of the operating system. A worker thread reserves the next part of the file before the current
one is full. A file that cannot be written ends the tracing with one log line. Lines are dropped if the disk reserves too slowly,
which a log line reports as well. A killed process leaves zeros at the end of its file; the next one continues before them.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
from collections.abc import Callable
from contextlib import suppress

import trio

from ..storage.file_system import without_waiting
from .environment import Threads

logger = logging.getLogger("kraftlab.quorum")

PART_BYTES = 4 * 1024 * 1024
LOOK_INTERVAL_S = 0.1


class _Part:
    """A part of the file: its first offset, and its bytes in memory."""

    def __init__(self, descriptor: int, start: int) -> None:
        # A page of a file without space behind it would end the process when it is written.
        os.posix_fallocate(descriptor, start, PART_BYTES)
        self.start = start
        self.end = start + PART_BYTES
        self.bytes = mmap.mmap(descriptor, PART_BYTES, offset=start)


class TraceFile:
    """`open` comes first and `close` last, `write` takes lines, and `run` reserves parts of the file."""

    def __init__(self, path: str, threads: Threads) -> None:
        self._path = path
        self._threads = threads
        self._descriptor = -1
        self._end = 0
        """Offset behind the newest line."""
        self._parts: list[_Part] = []
        """The part that is written, and the next."""
        self._dropped = 0

    async def open(self) -> None:
        """Open the file, and reserve its first parts."""
        await self._reserving(self._open)

    def write(self, line: str) -> None:
        data = line.encode()
        if self._parts and self._end + len(data) > self._parts[-1].end:
            self._dropped += 1
            return
        while data and self._parts:
            part = self._parts[0]
            at = self._end - part.start
            size = min(len(data), PART_BYTES - at)
            part.bytes[at : at + size] = data[:size]
            data, self._end = data[size:], self._end + size
            if self._end == part.end:
                del self._parts[0]

    async def run(self) -> None:
        """Reserve the next part when the last one is begun."""
        while self._descriptor >= 0:
            await trio.sleep(LOOK_INTERVAL_S)
            if len(self._parts) < 2:
                await self._reserving(self._reserve)
            if self._dropped:
                logger.warning("%d lines of the trace in %s are lost: the disk is too slow", self._dropped, self._path)
                self._dropped = 0

    def close(self) -> None:
        """Cut the file behind the last line."""
        if self._descriptor >= 0:
            self._parts.clear()
            with suppress(OSError):  # a place that cannot hold a trace cannot be cut either
                os.truncate(self._descriptor, self._end)
            os.close(self._descriptor)
            self._descriptor = -1

    async def _reserving(self, work: Callable[[], None]) -> None:
        try:
            await self._threads.run(work)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            logger.error("the trace ends: cannot write %s: %s", self._path, reason or error)
            self.close()

    def _open(self) -> None:
        descriptor = without_waiting(self._path, os.O_RDWR | os.O_CREAT)
        try:
            _claim(descriptor)
            self._end = _end_of_lines(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        start = self._end - self._end % mmap.ALLOCATIONGRANULARITY
        self._parts = [_Part(self._descriptor, start), _Part(self._descriptor, start + PART_BYTES)]
        if self._end and os.pread(descriptor, 1, self._end - 1) != b"\n":
            self.write("\n")  # behind a line that was cut off by a power cut

    def _reserve(self) -> None:
        start = self._parts[-1].end if self._parts else self._end
        self._parts.append(_Part(self._descriptor, start))


def _claim(descriptor: int) -> None:
    """Check that the file is a trace, and that no other process writes it. OSError, ValueError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError("another node writes it; put {node} into kraftlab.trace.file") from error
    if os.fstat(descriptor).st_size and os.pread(descriptor, 1, 0) not in (b"{", b"\0"):
        raise ValueError("the file holds something else than a trace")


def _end_of_lines(descriptor: int) -> int:
    """Return the offset behind the last byte that is not zero."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - PART_BYTES)
        found = os.pread(descriptor, end - start, start).rstrip(b"\0")
        if found:
            return start + len(found)
        end = start
    return 0
