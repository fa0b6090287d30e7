"""A node's clock that can run wrong: one process writes it to a file, another reads it.

Theory of operation. The file holds a moment of this machine's monotonic clock, which both sides read, the time that the node's
clock showed then, and the rate at which it has run since. A counter before and after them lets a reader notice a concurrent
write. The node's event loop uses the clock in the file, so that every wait in the node follows the wrong clock; it reads the file
at least every `NOTICED_WITHIN_S`, since it gets no notice of a change. The clock never goes back, like a machine's monotonic one.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import time
from pathlib import Path

import trio

from kraftlab.config.private_files import PRIVATE_DIRECTORY, PRIVATE_FILE

from .cluster_plan import ClusterError

NOTICED_WITHIN_S = 0.05
_LAYOUT = struct.Struct("<QdddQ")


class ClockFile:
    """The writer's side; one thread at a time. It begins as the machine's clock; a reader of a former file keeps that one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        now_s = time.monotonic()
        new = path.with_suffix(".new")
        new.touch(mode=PRIVATE_FILE)
        new.write_bytes(_LAYOUT.pack(0, now_s, now_s, 1.0, 0))
        with open(new, "r+b") as file:
            self.mapped = mmap.mmap(file.fileno(), _LAYOUT.size)
        new.replace(path)
        self._writes = 0
        self._since_s = self._shown_s = now_s
        self.rate = 1.0

    def run_at(self, rate: float) -> None:
        """Change the rate. ClusterError unless it is from 0.001 to 1000."""
        if not 0.001 <= rate <= 1000:
            raise ClusterError(f"invalid rate {rate:g}: expected 0.001 to 1000 times that of other clocks")
        self._anchor(0.0)
        self.rate = rate
        self._write()

    def jump(self, seconds: float) -> None:
        """Step the clock forward, like that of a machine that was suspended. ClusterError for a step back."""
        if not 0 < seconds <= 1e6:
            raise ClusterError(
                f"invalid jump of {seconds:g} s: expected more than 0 and at most 1000000, since a clock never goes back"
            )
        self._anchor(seconds)
        self._write()

    def close(self) -> None:
        self.mapped.close()

    def _anchor(self, ahead_s: float) -> None:
        now_s = time.monotonic()
        self._shown_s += (now_s - self._since_s) * self.rate + ahead_s
        self._since_s = now_s

    def _write(self) -> None:
        """Write from the end. A reader begins at the start: equal counts at both ends show fields of one write."""
        self._writes += 1
        count = self._writes.to_bytes(8, "little")
        self.mapped[32:] = count
        self.mapped[8:32] = struct.pack("<ddd", self._since_s, self._shown_s, self.rate)
        self.mapped[:8] = count


class SteeredClock(trio.abc.Clock):
    """The reader's side: trio's clock in a node's process. OSError if there is no such file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with open(path, "rb") as file:
            self.mapped = mmap.mmap(file.fileno(), _LAYOUT.size, access=mmap.ACCESS_READ)
        self._latest_s = -math.inf

    def start_clock(self) -> None:
        """The clock runs already."""

    def current_time(self) -> float:
        shown_s, _ = self._look()
        return shown_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        shown_s, rate = self._look()
        return min(max(0.0, (deadline - shown_s) / rate), NOTICED_WITHIN_S)

    def _look(self) -> tuple[float, float]:
        """Return the time and the rate."""
        while True:
            after, since_s, shown_s, rate, before = _LAYOUT.unpack_from(self.mapped)
            if after == before:
                break
        self._latest_s = max(self._latest_s, shown_s + (time.monotonic() - since_s) * rate)
        return self._latest_s, rate
