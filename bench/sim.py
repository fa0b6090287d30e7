"""How many core steps per second the simulator makes on one core: real core and storage, faults on, every invariant checked."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from kraftlab.quorum.simulation.runner import Summary, run_many, summarize

from .measure import table


def measure(seconds: float) -> Summary:
    """Plays seeds 0, 1, 2, … in this process until `seconds` have passed. Rates are per second of its processor time, so that
    a busy machine does not count."""
    started, started_cpu = time.perf_counter(), time.process_time()
    results = []
    for result in run_many(range(1_000_000)):
        results.append(result)
        if time.perf_counter() - started >= seconds:
            break
    return summarize(results, time.process_time() - started_cpu)


def render(summary: Summary) -> str:
    return table(
        [
            ["seeds", "failed", "steps", "steps/s on one core", "simulated s per s"],
            [
                str(summary.seeds),
                ", ".join(map(str, summary.failed_seeds)) or "none",
                f"{summary.steps:,}",
                f"{summary.steps_per_s:,.0f}",
                f"{summary.simulated_s_per_s:,.0f}",
            ],
        ]
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench sim", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument("--quick", action="store_true", help="2 seconds only")
    parser.add_argument("--seconds", type=float, help="how long to measure (default 10)")
    chosen = parser.parse_args(arguments)
    summary = measure(chosen.seconds or (2.0 if chosen.quick else 10.0))
    if chosen.json:
        print(msgspec.json.encode({"sim": summary._asdict()}).decode())
    else:
        print(render(summary))
    return 1 if summary.failed_seeds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
