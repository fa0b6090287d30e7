"""Choice of the log directory of a new replica that has no directory yet.

The directory with the most free bytes gets it; of several on one volume, which share the number, the one with the fewest
replicas. Cordoned directories come last: they get a replica only if there are no others (KIP-1066).

Free bytes are asked of the file system once every few seconds for each volume, not for every replica of a burst. Meanwhile each
replica that was placed is charged to its volume with the bytes that it will soon have: those of the copy for a move, one full
segment for a new replica. So a burst of creations is spread over volumes by their free bytes, and over the directories of one
volume by their numbers of replicas. The charges end when the free bytes are asked again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

ASKED_EVERY_S = 5.0


class Candidate(NamedTuple):
    """A working log directory as the choice sees it. `free_bytes` are those of its volume, charges taken off."""

    is_cordoned: bool
    free_bytes: int
    replicas: int


def rank(candidate: Candidate) -> tuple[bool, int, int]:
    """Order of preference, best first; the configured order decides between equals."""
    return candidate.is_cordoned, -candidate.free_bytes, candidate.replicas


class Directory(Protocol):
    """The part of a log directory that matters here."""

    @property
    def volume(self) -> int:
        """Identity of the file system."""

    @property
    def usable_bytes(self) -> int: ...


class FreeBytes:
    """Free bytes of volumes. The owner serialises calls; `of` may block on a disk."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._asked: dict[int, int] = {}
        self._charged: Counter[int] = Counter()
        self._asked_at_s = float("-inf")

    def of(self, directories: Iterable[Directory]) -> list[int]:
        """Free bytes of the volume of each directory, less what was charged; -1 counts as none."""
        now_s = self._now_s()
        if now_s - self._asked_at_s >= ASKED_EVERY_S:
            self._asked.clear()
            self._charged.clear()
            self._asked_at_s = now_s
        found = []
        for directory in directories:
            volume = directory.volume
            if volume not in self._asked:
                self._asked[volume] = directory.usable_bytes
            found.append(self._asked[volume] - self._charged[volume])
        return found

    def charge(self, directory: Directory, size_bytes: int) -> None:
        """Note that a replica of about that size begins to fill the directory."""
        self._charged[directory.volume] += size_bytes
