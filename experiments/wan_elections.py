"""The thesis' simulated elections over a wide-area network: the time to a leader after one or two of five servers have failed.

Parameters. A message takes 30 to 40 ms one way, timers run for 300 to 600 ms, disks cost nothing. The leader crashes just after a
heartbeat, in two lines with a second server. Small: 200 trials per line. Full: 10,000, as in the thesis.
"""

from __future__ import annotations

from .experiment import Estimate, Experiment, Figure, Published, Row, Rows, Size, Trial, Value, column, trial
from .plots import Axis, Mark, cdf
from .statistics import mean_of, quantile_of
from .trial_world import elect

ONE, TWO, DIFFERENT = "one failed", "two failed", "one failed, different logs"
PRE_VOTES = ", pre-votes"
LINES: dict[str, dict[str, Value]] = {ONE: {}, TWO: {"failed": 1}, DIFFERENT: {"laggards": 2}}
TRIALS = {"small": 200, "full": 10_000}
WAN: dict[str, Value] = {
    "timeout_ms": 300,
    "spread_ms": 300,
    "delay_least_us": 30_000,
    "delay_most_us": 40_000,
    "disk_mean_us": 0,
}


def trials(size: Size, seed: int) -> list[Trial]:
    """Return the trials of each line, without and with pre-votes."""
    return [
        trial(line + suffix, number, seed, **WAN, **parameters, pre_vote=bool(suffix))
        for suffix in ("", PRE_VOTES)
        for line, parameters in LINES.items()
        for number in range(TRIALS[size])
    ]


def run_trial(of: Trial) -> list[Row]:
    """Play the trial in virtual time."""
    return elect(of)


def figures(rows: Rows) -> list[Figure]:
    """Return the distributions."""
    marks = [
        Mark(475, 0.6, "mean 475", ONE),
        Mark(650, 0.7, "mean 650", TWO),
        Mark(1_500, 0.999, "99.9 %", ONE),
        Mark(3_000, 0.999, "99.9 %", TWO),
    ]
    names = [name + suffix for suffix in ("", PRE_VOTES) for name in LINES]
    plot = cdf(
        Axis("time to a leader (ms)", 300, 6_000, is_log=True), [(name, column(rows, "ms", name)) for name in names], marks
    )
    text = "Marks: means and 99.9th percentiles of the thesis. Only their times are published; the heights are ours."
    return [Figure("Elections over a wide-area network", plot, text)]


def measured(rows: Rows) -> dict[str, Estimate]:
    """Return means and percentiles in ms."""
    found: dict[str, Estimate] = {}
    for name in (name + suffix for suffix in ("", PRE_VOTES) for name in LINES):
        numbers = column(rows, "ms", name)
        found |= {f"{name}: mean": mean_of(numbers), f"{name}: 99.9 %": quantile_of(numbers, 0.999)}
    return found


def remarks(rows: Rows) -> list[str]:
    """Return the reasons for the differences."""
    ours = {name: f"{estimate.value:,.0f} ms" for name, estimate in measured(rows).items()}
    far = {name: measured(rows)[f"{name}: mean"].value / value - 1 for name, value in ((ONE, 475), (TWO, 650))}
    return [
        f"Without pre-votes our means are {ours[ONE + ': mean']} and {ours[TWO + ': mean']}: {far[ONE]:+.0%} and "
        f"{far[TWO]:+.0%} beside the thesis. Our time begins when the last heartbeat is sent, 30 to 40 ms before a timer starts. "
        "It is not known when the time of the thesis begins.",
        f"With pre-votes the means are {ours[ONE + PRE_VOTES + ': mean']} and {ours[TWO + PRE_VOTES + ': mean']}: followers that "
        "have fetched from the leader refuse pre-votes until their own timers run out (KIP-996). So an election waits for the "
        "third timer instead of the first, and then for one more round trip of 70 ms.",
        f"Different logs change the mean to {ours[DIFFERENT + ': mean']} without pre-votes, and the thesis saw no change: with "
        "pulled logs a follower with a shorter log has an older timer, stands first, and cannot win.",
    ]


THESIS = "D. Ongaro, Consensus: Bridging Theory and Practice (2014), simulated elections (AvailSim)"
EXPERIMENT = Experiment(
    name="wan-elections",
    question="How long do elections take when servers are 30 to 40 ms apart?",
    method="Five RaftNodes in virtual time. The leader crashes, alone or with a second server, at the moment of a heartbeat, so "
    "that all timers start together, as in the simulator of the thesis. Time counts until a node leads a later epoch.",
    source=THESIS,
    published=(
        Published(f"{ONE}: mean", 475, "ms", "thesis"),
        Published(f"{ONE}: 99.9 %", 1_500, "ms", "thesis: within 1.5 s"),
        Published(f"{TWO}: mean", 650, "ms", "thesis"),
        Published(f"{TWO}: 99.9 %", 3_000, "ms", "thesis: within 3 s"),
        Published(f"{DIFFERENT}: mean", 475, "ms", "thesis: no change"),
    ),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
)
