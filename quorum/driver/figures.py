"""Times that a driver observes, for metrics: of commits, elections and flushes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from kraftlab.metrics.histogram import Histogram, doubling
from kraftlab.metrics.recent import RecentValues

from ..core.effects import Move

_CANDIDATES = ("prospective", "candidate")
_LEADER = "leader"


class QuorumFigures:
    """Counts of one driver. Times are the environment's seconds."""

    def __init__(self) -> None:
        self.commits = Histogram(doubling(0.0001, 17))
        self.recent_commits = RecentValues()
        self.elections = Histogram(doubling(0.001, 14))
        self.recent_elections = RecentValues()
        self.flushes = Histogram(doubling(0.0001, 17))
        self.leaders_seen = 0
        self._in_flight: deque[tuple[int, float]] = deque()
        """End offsets of proposals that are not committed, and the times of their appends."""
        self._candidate_since: float | None = None
        self._leader = -1, -1

    def proposed(self, end_offset: int, now_s: float) -> None:
        self._in_flight.append((end_offset, now_s))

    def committed(self, high_watermark: int, now_s: float) -> None:
        while self._in_flight and self._in_flight[0][0] <= high_watermark:
            duration_s = now_s - self._in_flight.popleft()[1]
            self.commits.observe(duration_s)
            self.recent_commits.observe(duration_s, now_s)

    def moved(self, move: Move, now_s: float) -> None:
        """Note a state transition of the core."""
        if move.source == _LEADER:
            self._in_flight.clear()
        if move.target in _CANDIDATES and self._candidate_since is None:
            self._candidate_since = now_s
        if move.leader_id < 0:
            return
        if self._candidate_since is not None:
            duration_s, self._candidate_since = now_s - self._candidate_since, None
            self.elections.observe(duration_s)
            self.recent_elections.observe(duration_s, now_s)
        if self._leader != (move.epoch, move.leader_id):
            self._leader = move.epoch, move.leader_id
            self.leaders_seen += 1

    def timed_flush(self, flush: Callable[[], None]) -> Callable[[], None]:
        """Return `flush` with its time observed. For the log's thread, in which alone it runs."""

        def run() -> None:
            begun_s = time.perf_counter()
            flush()
            self.flushes.observe(time.perf_counter() - begun_s)

        return run
