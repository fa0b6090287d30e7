"""KIP-500's claim: the next controller takes over in a time that does not depend on the number of partitions.

Parameters. Three controllers as processes with the defaults, and ten brokers that exist in the metadata only (large_quorum.py).
Partitions have three replicas, in topics of 100. Each trial is a cluster of its own: the active controller is killed three times,
then all controllers are killed and two of them start again, then one broker shuts down and another one dies. Small: 100, 1,000
and 10,000 partitions, 3 trials each. Full: up to 1,000,000 as well.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING

from .experiment import Estimate, Experiment, Figure, Row, Rows, Size, Trial, trial
from .plots import Axis, Curve, Point, curves
from .statistics import log_slope, median_of

if TYPE_CHECKING:
    from .large_quorum import LargeQuorum

BROKERS, KILLS, TRIALS = 10, 3, 3
SIZES: dict[Size, tuple[int, ...]] = {"small": (100, 1_000, 10_000), "full": (100, 1_000, 10_000, 100_000, 1_000_000)}
HOT, RELOAD, LOAD = "hot standby", "reload of the snapshot and the log", "start of one controller"
CONTROLLED, KILLED = "controlled shutdown", "death of a broker"
MEMORY = "memory"
CONTROLLER_LINES, BROKER_LINES = (HOT, RELOAD, LOAD), (CONTROLLED, KILLED)


def trials(size: Size, seed: int) -> list[Trial]:
    """Return the trials, small clusters first."""
    return [trial(f"{count:,} partitions", number, seed, partitions=count) for count in SIZES[size] for number in range(TRIALS)]


def run_trial(of: Trial) -> list[Row]:
    """Start a cluster and measure it. `value` is in seconds, of memory in MiB."""
    from .large_quorum import large_quorum

    partitions = int(of.parameters["partitions"])
    with tempfile.TemporaryDirectory() as directory, large_quorum(directory, partitions, BROKERS) as quorum:
        found = [*_controllers(quorum), *_brokers(quorum)]
    return [{"partitions": partitions, "what": what, "value": value, "records": count} for what, value, count in found]


def _controllers(quorum: LargeQuorum) -> list[tuple[str, float, int]]:
    cluster, found = quorum.cluster, []
    for _ in range(KILLS):
        active = quorum.active()
        began_s = time.perf_counter()
        cluster.kill_node(active)
        quorum.write()
        found.append((HOT, time.perf_counter() - began_s, 0))
        began_s = time.perf_counter()
        cluster.start_node(active)
        quorum.wait_loaded(active)
        found.append((LOAD, time.perf_counter() - began_s, 0))
    found += [(MEMORY, quorum.resident_mib(node_id), 0) for node_id in cluster.controller_ids]
    last, *others = cluster.controller_ids
    for node_id in cluster.controller_ids:
        cluster.kill_node(node_id)
    began_s = time.perf_counter()
    for node_id in others:
        cluster.start_node(node_id)
    quorum.write()
    found.append((RELOAD, time.perf_counter() - began_s, 0))
    cluster.start_node(last)
    quorum.wait_loaded(*cluster.controller_ids)
    return found


def _brokers(quorum: LargeQuorum) -> list[tuple[str, float, int]]:
    found = []
    for what, end, broker_id in ((CONTROLLED, quorum.shut_down, 1), (KILLED, quorum.kill, 2)):
        before = quorum.end_offset()
        found.append((what, end(broker_id), quorum.end_offset() - before))
    return found


def points(rows: Rows, what: str) -> dict[int, Estimate]:
    """Return the median at each number of partitions."""
    numbers: dict[int, list[float]] = {}
    for row in rows:
        if row["what"] == what:
            numbers.setdefault(int(row["partitions"]), []).append(float(row["value"]))
    return {partitions: median_of(found) for partitions, found in sorted(numbers.items())}


def figures(rows: Rows) -> list[Figure]:
    """Return seconds of controllers, seconds of brokers, and memory over partitions."""
    partitions = Axis("partitions", 100, max(10_000, *(float(row["partitions"]) for row in rows)), is_log=True)

    def figure(title: str, names: tuple[str, ...], axis: Axis, caption: str) -> Figure:
        lines = [Curve(name, [Point(x, *each) for x, each in points(rows, name).items()]) for name in names]
        return Figure(title, curves(partitions, axis, lines), f"Medians with 95 % intervals. {caption}")

    seconds, mebibytes = Axis("seconds", 0.01, 100, is_log=True), Axis("MiB", 10, 2_000, is_log=True)
    return [
        figure("From kill -9 of the active controller to the next write", CONTROLLER_LINES, seconds, _slopes(rows)),
        figure("A broker that leads a tenth of the partitions", BROKER_LINES, seconds, "The work of controllers alone."),
        figure("Memory of a controller", (MEMORY,), mebibytes, "Resident."),
    ]


def _slopes(rows: Rows) -> str:
    found = {name: {x: each.value for x, each in points(rows, name).items()} for name in CONTROLLER_LINES + BROKER_LINES}
    return "Slopes: " + ", ".join(f"{name} {log_slope(medians):.2f}" for name, medians in found.items()) + "."


def measured(rows: Rows) -> dict[str, Estimate]:
    """Return the medians at each size."""
    lines = (*CONTROLLER_LINES, *BROKER_LINES, MEMORY)
    return {f"{what}, {size:,} partitions": each for what in lines for size, each in points(rows, what).items()}


def remarks(rows: Rows) -> list[str]:
    """Return the slopes, and the limits of the comparison."""
    memory = points(rows, MEMORY)
    small, large = min(memory), max(memory)
    each = (memory[large].value - memory[small].value) * 2**20 / max(large - small, 1)
    moved = max(int(row["records"]) for row in rows if row["what"] == CONTROLLED)
    return [
        f"{_slopes(rows)} A hot standby has applied all committed records: it wins an election and serves.",
        f"A broker has a replica of three tenths of the partitions: its shutdown writes up to {moved:,} records.",
        f"A partition takes {each:,.0f} bytes of a controller's memory.",
        "The reload kills all controllers and starts two: its time has the start of processes, and no detection of a death.",
        "These brokers have no logs: a whole broker adds the time of its own work.",
    ]


EXPERIMENT = Experiment(
    name="failover-by-partitions",
    question="Does the time to take over from a dead controller or broker depend on the number of partitions?",
    method="Three controllers on loopback start from a snapshot with that many partitions. A client that does not know of the "
    "kill makes the next write. Brokers exist in the metadata only and send heartbeats. A broker may stop, or is fenced, once "
    "its partitions have other leaders.",
    source="KIP-500; own measurement",
    published=(),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
    serial=True,
)
