"""Time until one small metadata write commits, and commits per second.

Three nodes run as processes on loopback with fsync on. Measured: latency of one write at a time, commits per second at 64 and 512
in flight, and one write of 10,000 records. A door is a way in: a function `measure(parameters)`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from kraftlab.common.exit_codes import DONE, FAILED

from . import commit_admin, commit_quorum, floor
from .measure import CommitParameters, CommitResult, NoResult, Report, measurement, table

Door = Callable[[CommitParameters], CommitResult]

OURS: dict[str, Door] = {
    "propose": commit_quorum.measure,
    "unary": commit_admin.measure_unary,
    "stream": commit_admin.measure_stream,
    "slow-disk": commit_quorum.measure_slow_disk,
}

ELSEWHERE = (
    ("etcd", "0.9 ms", "5,700/s"),
    ("ZooKeeper", "1.0 ms", "2,700/s"),
    ("Kafka", "35 ms", "–"),
)
"""System, serial p50, 64 in flight: measured on a similar machine, three nodes on loopback, fsync on. Kafka lingers
25 ms by design.
"""


def measure(doors: dict[str, Door], parameters: CommitParameters) -> list[CommitResult]:
    """Return the doors' results, in order. A door that fails is named on stderr and left out."""
    results = []
    for name, door in doors.items():
        try:
            results.append(door(parameters))
        except NoResult as error:
            print(f"{name}: {error}", file=sys.stderr)
    return results


def render(results: Sequence[CommitResult], parameters: CommitParameters) -> str:
    """Return the table; each ratio compares with the first row (above 1: the first row is better)."""
    first = results[0]
    heading = ["system", "door", "serial p50", "p99", "ratio"]
    for count in parameters.in_flight:
        heading += [f"{count} in flight", "ratio"]
    rows = [[*heading, f"{parameters.bulk_records:,} records", "ratio"]]
    for result in results:
        row = [result.system, result.door, f"{result.serial_p50_ms:.2f} ms", f"{result.serial_p99_ms:.2f} ms"]
        row.append(f"{result.serial_p50_ms / first.serial_p50_ms:.1f}×")
        for count in parameters.in_flight:
            rate = result.commits_per_second[count]
            row += [f"{rate:,.0f}/s", f"{first.commits_per_second[count] / rate:.1f}×" if rate else "–"]
        row += [f"{result.bulk_ms:.1f} ms", f"{result.bulk_ms / first.bulk_ms:.1f}×"]
        rows.append(row)
    for system, serial, at_64 in ELSEWHERE:
        known = {"serial p50": serial, "64 in flight": at_64}
        rows.append([system, "elsewhere", *(known.get(column, "–") for column in rows[0][2:])])
    return table(rows)


@measurement("commit", __doc__, quick="Half a second per part.")
@click.option("--seconds", type=float, help="Duration of each part (default 2).")
@click.option("--doors", default=",".join(OURS), show_default=True, help="Doors to measure.")
def main(quick: bool, seconds: float | None, doors: str) -> Report:
    names = doors.split(",")
    if unknown := set(names) - OURS.keys():
        raise click.UsageError(f"unknown doors {', '.join(sorted(unknown))}; known are {', '.join(OURS)}")
    parameters = CommitParameters(seconds=seconds or (0.5 if quick else 2.0))
    measured = {name: OURS[name] for name in names}
    results = measure(measured, parameters)
    least = floor.measure(parameters.seconds)
    text = f"{render(results, parameters)}\n{least}" if results else str(least)
    return Report([{"commit": results, "floor": least}], text, DONE if len(results) == len(measured) else FAILED)
