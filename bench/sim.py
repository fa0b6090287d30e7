"""Rate of the simulator on one core: real core and storage, faults on, every invariant checked.

Two numbers. *Core steps per second* over the seeds as they are drawn, many of them busy. *Simulated seconds per second* of an
ordinary cluster: three nodes, ten proposals per simulated second, half a minute under all kinds of faults, about one fault per
second, then convergence; most of that time is idle, and idle time should cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import click
import msgspec

from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.options import NetworkOptions, SimulationOptions, draw_options
from kraftlab.simulation.consensus.runner import SeedResult, Tally, play, run_seed

from .measure import Report, measurement, table

PROPOSE_INTERVAL_US = 144_000
"""The workload proposes in bursts, and skips some: this makes ten batches a second."""
FAULT_PHASE_MS = 30_000
FAULT_PACE = 1_000
"""Percent: every kind of fault ten times as rare as usual, together about one fault per second. Most proposals are committed."""


def three_nodes(seed: int) -> SimulationOptions:
    """Return options with all faults, on an otherwise ordinary network and ordinary disks."""
    drawn = draw_options(f"three nodes/{seed}", FAULTS, fault_phase_ms=FAULT_PHASE_MS)
    ordinary: dict[str, object] = {
        "voters": 3,
        "observers": 0,
        "network": NetworkOptions(delay_us=500, loss=5, response_loss=5, duplicates=20, reordering=True),
        "disk_latency_us": 1_000,
        "propose_interval_us": PROPOSE_INTERVAL_US,
        "read_interval_us": 0,
        "clients": 0,
        "fault_pace": FAULT_PACE,
        "faults": tuple(FAULTS),
    }
    return msgspec.structs.replace(drawn, **ordinary)


def swarm() -> Iterator[SeedResult]:
    """Yield the results of seeds 0, 1, 2, … as they are drawn."""
    return map(run_seed, count())


def steady() -> Iterator[SeedResult]:
    """Yield the results of clusters of three nodes."""
    return (play(three_nodes(seed)) for seed in count())


FIELDS = ("seeds", "failed_seeds", "steps", "simulated_s", "real_s", "steps_per_s", "simulated_s_per_s", "core_steps_per_s")
FIELDS += ("acknowledged", "calls", "excused", "coverage")
"""Fields of a tally in the JSON."""
WORKLOADS = {"seeds as drawn": swarm, "3 nodes, 10 proposals/s": steady}


def measure(results: Iterator[SeedResult], seconds: float) -> Tally:
    """Play in this process until `seconds` have passed. Rates are per second of its processor time, so that other load on the
    machine does not count.
    """
    started, started_processor = time.perf_counter(), time.process_time()
    tally = Tally()
    for result in results:
        tally.add(result)
        if time.perf_counter() - started >= seconds:
            break
    tally.real_s = time.process_time() - started_processor
    return tally


def render(tallies: dict[str, Tally]) -> str:
    rows = [["workload", "runs", "failed", "steps", "steps/s on one core", "simulated s per s"]]
    for name, tally in tallies.items():
        failed = ", ".join(map(str, tally.failed_seeds)) or "none"
        rates = [f"{tally.steps_per_s:,.0f}", f"{tally.simulated_s_per_s:,.0f}"]
        rows.append([name, str(tally.seeds), failed, f"{tally.steps:,}", *rates])
    return table(rows)


@measurement("sim", __doc__, quick="2 seconds for each workload.")
@click.option("--seconds", type=float, help="Duration of each workload (default 10).")
def main(quick: bool, seconds: float | None) -> Report:
    seconds = seconds or (2.0 if quick else 10.0)
    tallies = {name: measure(play_all(), seconds) for name, play_all in WORKLOADS.items()}
    plain = {name: {field: getattr(tally, field) for field in FIELDS} for name, tally in tallies.items()}
    return Report([{"sim": plain}], render(tallies), 1 if any(tally.failures for tally in tallies.values()) else 0)
