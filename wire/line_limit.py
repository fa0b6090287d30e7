"""A limit on log lines that peers can cause: a port scanner must not fill a disk."""

from __future__ import annotations

import math


class LineLimit:
    """A bucket of `burst` lines that gets another one every `interval_s`. Times are seconds on one monotonic clock."""

    def __init__(self, burst: int, interval_s: float) -> None:
        self._interval_s = interval_s
        self._slack_s = (burst - 1) * interval_s
        self._full_at = -math.inf
        """Time at which the bucket is full again if no more lines are written."""
        self._suppressed = 0

    def admit(self, now: float) -> int | None:
        """Return None if this line must not be written; otherwise the number of lines suppressed since the last written one."""
        if self._full_at - now > self._slack_s:
            self._suppressed += 1
            return None
        self._full_at = max(self._full_at, now) + self._interval_s
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed

    @property
    def summary_due_at(self) -> float:
        """Time at which a line with only the number of suppressed lines may be written; infinite if there are none."""
        return self._full_at - self._slack_s if self._suppressed else math.inf
