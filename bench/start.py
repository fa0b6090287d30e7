"""Time of 3 controllers and 4 brokers from no process to a leader and every broker unfenced; then once more on the same data.

Each node is a process of its own with two log directories per broker, as `kraftlab up` starts them; the directories are formatted
before the clock starts. The second start follows a clean stop.
"""

from __future__ import annotations

import tempfile

import click
import msgspec

from kraftlab.lab import LocalCluster

from .measure import Report, measurement, percentile, table

CONTROLLERS, BROKERS, LOG_DIRS = 3, 4, 2
ELSEWHERE = {"Kafka": "11.6 s"}
"""Measured on a similar machine."""


class StartResult(msgspec.Struct, frozen=True):
    """Seconds of each run, in order: the first start of a new cluster, and the second start on its data."""

    first_seconds: list[float]
    second_seconds: list[float]


def measure(runs: int) -> StartResult:
    first, second = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
            first.append(_start(directory))
            second.append(_start(directory))
    return StartResult(first, second)


def _start(directory: str) -> float:
    cluster = LocalCluster(directory, CONTROLLERS, BROKERS, LOG_DIRS)
    try:
        cluster.start()
        return cluster.wait_ready()
    finally:
        cluster.close()


def render(result: StartResult) -> str:
    rows = [["3 controllers, 4 brokers", "runs", "min", "median", "max", *(f"elsewhere: {name}" for name in ELSEWHERE)]]
    for name, seconds in (("first start", result.first_seconds), ("second start", result.second_seconds)):
        values = [f"{percentile(seconds, percent):.2f} s" for percent in (0, 50, 100)]
        rows.append(
            [name, str(len(seconds)), *values, *(ELSEWHERE.values() if name == "first start" else ["–"] * len(ELSEWHERE))]
        )
    return table(rows)


@measurement("start", __doc__, quick="2 runs only.")
@click.option("--runs", type=int, help="Number of new clusters (default 7).")
def main(quick: bool, runs: int | None) -> Report:
    result = measure(runs or (2 if quick else 7))
    return Report([{"start": result}], render(result))
