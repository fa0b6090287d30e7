"""The rate of split votes by the latency of the network, and the curve that the protocol predicts.

The curve. Timers of the n servers that are up end at independent random points of a range, and a vote request takes the share
l of that range. A server with a timer that ends before the request arrives votes for itself. The first candidate needs m votes,
its own among them, so it fails if k = n - m + 1 others are within l of it. The gap between the first of n random points of [0, 1]
and the k-th after it has the distribution Beta(k, n - k + 1), as the k-th smallest of n points has. The rate is the probability
that at least k of n points fall into [0, l].

Parameters. The range is 1,000 ms, since timers are whole milliseconds; the x axis is relative to it. Disks cost nothing. All
timers start at the same moment. Small: 100 trials per point. Full: 1,000, and 10,000 at 1 % of the range.
"""

from __future__ import annotations

from math import comb

from .experiment import Estimate, Experiment, Figure, Published, Row, Rows, Size, Trial, Value, trial
from .plots import Axis, Curve, Mark, Point, curves
from .statistics import share_of
from .trial_world import elect

RANGE_MS = 1_000
LATENCIES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
FIVE, FIVE_TWO, NINE = "5 servers, 1 failed", "5 servers, 2 failed", "9 servers, 4 failed"
PRE_VOTES = f"{FIVE}, pre-votes"
QUORUMS = {FIVE: (5, 1), FIVE_TWO: (5, 2), NINE: (9, 4), PRE_VOTES: (5, 1)}
"""Line → servers, and how many of them failed, the leader among them."""
TRIALS = {"small": 100, "full": 1_000}
AT_LEAST = 10_000
"""Trials at the least latency in full: the rate there is 0.06 %."""


def split_rate(servers: int, failed: int, latency: float) -> float:
    """Return the probability that the first candidate does not win; `latency` is a share of the range of timers."""
    up, majority = servers - failed, servers // 2 + 1
    needed = up - majority + 1
    return sum(comb(up, hit) * latency**hit * (1 - latency) ** (up - hit) for hit in range(needed, up + 1))


def trials(size: Size, seed: int) -> list[Trial]:
    """Return the trials of each point of each line."""
    found = []
    for line, (servers, failed) in QUORUMS.items():
        number = 0
        for latency in LATENCIES:
            delay_us = int(latency * RANGE_MS * 1000)
            parameters: dict[str, Value] = {"servers": servers, "failed": failed - 1, "pre_vote": line == PRE_VOTES}
            parameters |= {"timeout_ms": 2 * RANGE_MS, "spread_ms": RANGE_MS, "disk_mean_us": 0}
            parameters |= {"delay_least_us": delay_us, "delay_most_us": delay_us}
            count = AT_LEAST if size == "full" and latency == LATENCIES[0] and line == FIVE else TRIALS[size]
            found += [trial(line, number + place, seed, **parameters) for place in range(count)]
            number += count
    return found


def run_trial(of: Trial) -> list[Row]:
    """Play the trial in virtual time. The vote was split if the first new epoch has no leader."""
    latency = float(of.parameters["delay_least_us"]) / 1000 / RANGE_MS
    return [{**row, "latency": latency, "split": int(row["epochs"]) != 1} for row in elect(of)]


def rates(rows: Rows, line: str) -> dict[float, Estimate]:
    """Return the rate of split votes by latency."""
    found = {}
    for latency in LATENCIES:
        split = [bool(row["split"]) for row in rows if row["line"] == line and row["latency"] == latency]
        if split:
            found[latency] = share_of(sum(split), len(split))
    return found


def figures(rows: Rows) -> list[Figure]:
    """Return the rates with their curves, and the epochs that an election needs."""
    x, places = Axis("latency / range of timers", 0, 0.3), [place / 200 for place in range(61)]
    lines = [
        Curve(line, [Point(at, *(100 * value for value in rate)) for at, rate in rates(rows, line).items()]) for line in QUORUMS
    ]
    theory = [
        Curve(f"{line}: derived", [Point(at, 100 * split_rate(*QUORUMS[line], at)) for at in places], is_thin=True, of=line)
        for line in (FIVE, FIVE_TWO, NINE)
    ]
    marks = [Mark(latency, value, f"{value:g} %", line) for (line, latency), value in PUBLISHED.items()]
    text = "The share of elections without a leader in their first epoch, with 95 % intervals, and the derived curves, dashed."
    plot = curves(x, Axis("split votes (%)", 0, 100), lines + theory, marks)
    needed = [
        Curve(line, [Point(at, 1 / (1 - rate.value)) for at, rate in rates(rows, line).items() if rate.value < 1])
        for line in QUORUMS
    ]
    more = "1 / (1 - rate): the mean number of epochs until a vote is not split, if each is a new draw (thesis)."
    return [
        Figure("Split votes", plot, text),
        Figure("Epochs per election", curves(x, Axis("epochs per election", 1, 8), needed), more),
    ]


def measured(rows: Rows) -> dict[str, Estimate]:
    """Return rates in %."""
    return {
        f"{line}, latency {latency:.0%} of the range": Estimate(*(100 * value for value in rate))
        for line in QUORUMS
        for latency, rate in rates(rows, line).items()
        if latency in (0.01, 0.1, 0.2)
    }


def remarks(rows: Rows) -> list[str]:
    """Return if the curve is inside of the intervals, and the effect of pre-votes."""
    points = [(split_rate(*QUORUMS[line], at), rate) for line in (FIVE, FIVE_TWO, NINE) for at, rate in rates(rows, line).items()]
    inside = sum(rate.low <= curve <= rate.high for curve, rate in points)
    plain, pre = rates(rows, FIVE)[0.1].value, rates(rows, PRE_VOTES)[0.1].value
    more = "more" if pre > plain else "no more"
    return [
        f"{inside} of {len(points)} rates without pre-votes have the curve inside of their 95 % interval; about "
        f"{0.95 * len(points):.0f} are expected.",
        f"At a tenth of the range pre-votes split {pre:.1%} of first votes, {more} than {plain:.1%} without: voters grant them "
        "only when their own timers have run out, so the first candidates wait for each other, and then stand close together.",
    ]


THESIS = "D. Ongaro, Consensus: Bridging Theory and Practice (2014), split votes"
PUBLISHED = {(FIVE, 0.01): 0.06, (FIVE, 0.1): 5.2, (FIVE, 0.2): 18.1, (FIVE_TWO, 0.2): 50, (NINE, 0.1): 40, (NINE, 0.2): 70}
EXPERIMENT = Experiment(
    name="split-votes",
    question="How often does nobody win an election, by the latency of the network?",
    method="RaftNodes in virtual time. All timers start at the same moment and end at random points of a range. Every message "
    "takes the same time. A vote is split if no server leads the first epoch after the crash.",
    source=THESIS,
    published=tuple(
        Published(f"{line}, latency {latency:.0%} of the range", value, "%", "thesis" if value % 10 else "thesis: about")
        for (line, latency), value in PUBLISHED.items()
    ),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
)
