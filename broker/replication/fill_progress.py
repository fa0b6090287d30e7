"""Progress of a replica that is being filled, for people and tools: bytes left, rate, start time."""

from __future__ import annotations

import trio

from kraftlab.common.clock import wall_clock_ms

from .throttle import RateMeter


class Filling:
    """`bytes_left` -1: unknown. `started_ms` is wall clock; `error` is the last error, "" if there is none."""

    def __init__(self) -> None:
        self.started_ms = wall_clock_ms()
        self.bytes_left = -1
        self.error = ""
        self._meter = RateMeter(trio.current_time())

    def record(self, size_bytes: int, bytes_left: int) -> None:
        self._meter.record(size_bytes, trio.current_time())
        self.bytes_left = bytes_left
        self.error = ""

    @property
    def bytes_per_second(self) -> float:
        return self.rate_at(trio.current_time())

    def rate_at(self, now_s: float) -> float:
        """Return the bytes per second. For any thread."""
        return self._meter.bytes_per_second(now_s)
