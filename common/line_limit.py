"""A limit on log lines that peers can cause: a port scanner must not fill a disk."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

LINES_AT_ONCE = 30
LINE_INTERVAL_S = 5.0
"""Clients and peers can cause at most LINES_AT_ONCE log lines at once, and one more per interval."""


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


class LimitedLog:
    """Writes the lines that clients or peers can cause to a logger. Each level has a limit of its own, so that warnings hide no
    errors. `now` returns seconds on one monotonic clock.
    """

    def __init__(self, logger: logging.Logger, now: Callable[[], float]) -> None:
        self._logger = logger
        self._now = now
        self._limits = {level: LineLimit(LINES_AT_ONCE, LINE_INTERVAL_S) for level in (logging.WARNING, logging.ERROR)}

    def warning(self, message: str, *values: object, fields: Mapping[str, object] | None = None) -> None:
        """Log a warning. `fields` are values that a line of JSON has by name."""
        self._log(logging.WARNING, message, values, fields=fields)

    def error(self, message: str, *values: object) -> None:
        self._log(logging.ERROR, message, values)

    def exception(self, message: str, *values: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, message, values, with_traceback=True)

    def summarize(self, lines: str) -> None:
        """Log the numbers of lines left out if no later line has told them. `lines`: their description."""
        now = self._now()
        for level, limit in self._limits.items():
            if limit.summary_due_at <= now:
                self._logger.log(level, "%d more %s were left out", limit.admit(now), lines)

    def _log(
        self,
        level: int,
        message: str,
        values: tuple[object, ...],
        *,
        with_traceback: bool = False,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        suppressed = self._limits[level].admit(self._now())
        if suppressed is not None:
            more = f"; {suppressed} such lines before this one were left out" if suppressed else ""
            self._logger.log(level, f"{message}%s", *values, more, exc_info=with_traceback, extra={"fields": fields or {}})
