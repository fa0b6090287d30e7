"""How long one small metadata write takes to commit, and how many commit per second; beside others in the same run.

Each system runs three nodes as processes on loopback with fsync on. Measured: latency of one write at a time, commits per
second at 64 and 512 in flight, and one write of 10,000 records. A door is a way in: a module with `measure(parameters)`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable

import msgspec

from . import commit_quorum
from .measure import CommitParameters, CommitResult, NoResult, table

Door = Callable[[CommitParameters], CommitResult]


def doors() -> list[Door]:
    """Every door that can be measured here, ours first."""
    found: list[Door] = [commit_quorum.measure]
    if importlib.util.find_spec("pysyncobj") is not None:
        from . import commit_pysyncobj

        found.append(commit_pysyncobj.measure)
    return found


def render(results: list[CommitResult], parameters: CommitParameters) -> str:
    """The table; each ratio compares with the first row (above 1: the first row is better)."""
    first = results[0]
    rows = [["system", "door", "serial p50", "p99", "ratio"]]
    for count in parameters.in_flight:
        rows[0] += [f"{count} in flight", "ratio"]
    rows[0] += [f"{parameters.bulk_records:,} records", "ratio"]
    for result in results:
        row = [result.system, result.door, f"{result.serial_p50_ms:.2f} ms", f"{result.serial_p99_ms:.2f} ms"]
        row.append(f"{result.serial_p50_ms / first.serial_p50_ms:.1f}×")
        for count in parameters.in_flight:
            rate = result.commits_per_second[count]
            row += [f"{rate:,.0f}/s", f"{first.commits_per_second[count] / rate:.1f}×" if rate else "–"]
        row += [f"{result.bulk_ms:.1f} ms", f"{result.bulk_ms / first.bulk_ms:.1f}×"]
        rows.append(row)
    return table(rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench commit", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each part takes")
    parser.add_argument("--ours-only", action="store_true", help="do not measure other systems")
    chosen = parser.parse_args(arguments)
    parameters = CommitParameters(seconds=chosen.seconds)
    results: list[CommitResult] = []
    for door in doors()[:1] if chosen.ours_only else doors():
        try:
            results.append(door(parameters))
        except NoResult as error:
            print(f"{door.__module__}: {error}", file=sys.stderr)
            if not results:
                return 1
    if chosen.json:
        print(msgspec.json.encode({"commit": results}).decode())
    else:
        print(render(results, parameters))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
