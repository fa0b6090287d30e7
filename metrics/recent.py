"""Values of the last minute, as Kafka's gauges show them: rates of totals, means, maxima and quantiles."""

from __future__ import annotations

import math
from collections import deque

WINDOW_S = 60.0
READINGS_MAX = 600
"""Readings kept; a reader that comes more often than ten times a second sees a shorter window."""
VALUES_MAX = 1000
QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
"""Kafka's, by their label."""


class RecentRate:
    """The rate of one total that grows, since the oldest reading of the last WINDOW_S. The first reading gives 0."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque(maxlen=READINGS_MAX)

    def read(self, total: float, now_s: float) -> float:
        """Return the increase per second. A total that has fallen counts from there on."""
        readings = self._readings
        if readings and total < readings[-1][1]:
            readings.clear()
        while len(readings) > 1 and readings[1][0] <= now_s - WINDOW_S:
            readings.popleft()
        readings.append((now_s, total))
        begun_s, before = readings[0]
        return (total - before) / (now_s - begun_s) if now_s > begun_s else 0.0


class RecentValues:
    """The last VALUES_MAX observed values, with the number of all. One thread observes; others may read."""

    __slots__ = ("_values", "count")

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque(maxlen=VALUES_MAX)
        self.count = 0

    def observe(self, value: float, now_s: float) -> None:
        self._values.append((now_s, value))
        self.count += 1

    def since(self, begun_s: float) -> list[float]:
        """Return the values from a time on, in order of their size."""
        return sorted(value for at_s, value in self._values.copy() if at_s >= begun_s)

    def mean_and_max(self, now_s: float) -> tuple[float, float]:
        """Return mean and maximum of the last WINDOW_S; NaN twice without a value."""
        values = self.since(now_s - WINDOW_S)
        return (sum(values) / len(values), values[-1]) if values else (math.nan, math.nan)

    def quantiles(self) -> dict[str, float]:
        """Return Kafka's quantiles by their label; empty without a value."""
        values = self.since(-math.inf)
        return {label: values[math.ceil(part * len(values)) - 1] for label, part in QUANTILES.items()} if values else {}
