"""Rate of `kraftlab chaos test --world simulated --seeds N` on one core: whole runs, from drawing a world to the last verdict.

A run is 30 simulated seconds of three controllers and three brokers under all kinds of faults, then the heal and the final phase.
*Runs/s* and *simulated s per s* are per second of this process's processor time, so that other load on the machine does not
count; both cores together play twice as much. The cost of a run depends on the rate of operations: at most 200 per second, fewer
under faults, or at most 10.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import click

from jepsen_lite.runs import Trial
from jepsen_lite.seeds import Seed, Sum, play_seed, sum_of
from jepsen_lite.verdicts import VALID
from jepsen_lite.workload import Options
from jepsen_lite.workloads import WORKLOADS, workload_named

from .measure import Report, measurement, table

RUN_S = 30.0
NEMESES = ("all",)


def runs(names: tuple[str, ...], rate: float) -> Iterator[Trial]:
    """Yield runs of seeds 0, 1, 2, …, with the workloads in turn."""
    for seed in count():
        name = names[seed % len(names)]
        controllers = workload_named(name).controllers
        options = Options(seed=str(seed), time_s=RUN_S, rate=rate, concurrency=2 * (controllers + 3), controllers=controllers)
        yield Trial(name, "simulated", NEMESES, options)


def cases() -> dict[str, Iterator[Trial]]:
    """Return name → runs of each measured case."""
    all_names = tuple(name for name in WORKLOADS if "simulated" not in workload_named(name).not_in)
    return {
        "all workloads, 200 operations/s": runs(all_names, 200.0),
        "registers, 200 operations/s": runs(("registers",), 200.0),
        "registers, 10 operations/s": runs(("registers",), 10.0),
    }


def measure(trials: Iterator[Trial], seconds: float) -> list[Seed]:
    """Play runs in this process until `seconds` have passed."""
    started, played = time.perf_counter(), list[Seed]()
    while time.perf_counter() - started < seconds:
        played.append(play_seed(next(trials)))
    return played


def render(measured: dict[str, list[Seed]]) -> str:
    rows = [["runs", "not valid", "number", "operations", "runs/s", "simulated s per s"]]
    for name, seeds in measured.items():
        total = sum_of(seeds)
        bad = (
            ", ".join(f"{seed.trial.workload} {seed.trial.options.seed}" for seed in seeds if seed.ending is not VALID) or "none"
        )
        operations = f"{sum(total.counts.values()):,}"
        rows.append([name, bad, str(total.seeds), operations, f"{total.seeds_per_s:.2f}", f"{total.simulated_s_per_s:,.0f}"])
    return table(rows)


def plain(total: Sum) -> dict[str, object]:
    return {
        **total._asdict(),
        "ending": total.ending.name,
        "seeds_per_s": total.seeds_per_s,
        "simulated_s_per_s": total.simulated_s_per_s,
    }


@measurement("chaos", __doc__, quick="2 seconds for each case.")
@click.option("--seconds", type=float, help="Duration of each case (default 20).")
def main(quick: bool, seconds: float | None) -> Report:
    seconds = seconds or (2.0 if quick else 20.0)
    measured = {name: measure(trials, seconds) for name, trials in cases().items()}
    return Report([{"chaos": {name: plain(sum_of(seeds)) for name, seeds in measured.items()}}], render(measured))
