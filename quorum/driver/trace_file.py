"""The file of a node's trace: lines gather on the event loop, and a worker thread appends them a few times a second.

A trace is for people who look into a running node. It must not change what it shows. A file that cannot be written ends the
tracing with one log line. Lines beyond a bound are dropped if the disk is too slow, which a log line reports as well.
"""

from __future__ import annotations

import logging

import trio

from ..storage.file_system import without_waiting
from .environment import Threads

logger = logging.getLogger("kraftlab.quorum")

FLUSH_INTERVAL_S = 0.2
PENDING_BYTES_MAX = 32 * 1024 * 1024


class TraceFile:
    """`write` takes lines, `run` appends them to the file at `path`, `close` appends the rest."""

    def __init__(self, path: str, threads: Threads) -> None:
        self._path = path
        self._threads = threads
        self._lines: list[str] = []
        self._pending_bytes = 0
        self._dropped = 0
        self._is_broken = False

    def write(self, line: str) -> None:
        if self._is_broken:
            return
        if self._pending_bytes > PENDING_BYTES_MAX:
            self._dropped += 1
            return
        self._lines.append(line)
        self._pending_bytes += len(line)

    async def run(self) -> None:
        while not self._is_broken:
            await trio.sleep(FLUSH_INTERVAL_S)
            lines = self._take()
            if lines:
                await self._threads.run(self._append, lines)

    def close(self) -> None:
        self._append(self._take())

    def _take(self) -> str:
        lines, self._lines = "".join(self._lines), []
        self._pending_bytes = 0
        if self._dropped:
            logger.warning("%d lines of the trace in %s are lost: the disk is too slow", self._dropped, self._path)
            self._dropped = 0
        return lines

    def _append(self, lines: str) -> None:
        try:
            with open(self._path, "a", encoding="utf-8", opener=without_waiting) as file:
                file.write(lines)
        except OSError as error:
            self._is_broken = True
            logger.error("the trace ends: cannot write %s: %s", self._path, error.strerror or error)
