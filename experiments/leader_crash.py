"""The time from a leader's crash to the next leader, by the range of the election timeout."""

from __future__ import annotations

from .experiment import Estimate, Experiment, Figure, Published, Row, Rows, Size, Trial, column, lines_of, trial
from .plots import Axis, Mark, cdf
from .statistics import median_of, worst_of
from .trial_world import elect

RANGES = {"150-150": (150, 0), "150-155": (150, 5), "150-200": (150, 50), "150-300": (150, 150), "12-24": (12, 12)}
TRIALS = {"small": 20, "full": 1_000}


def trials(size: Size, seed: int) -> list[Trial]:
    """Return the trials of each line."""
    return [
        trial(line, number, seed, timeout_ms=timeout_ms, spread_ms=spread_ms, heartbeat_ms=timeout_ms / 3, laggards=2)
        for line, (timeout_ms, spread_ms) in RANGES.items()
        for number in range(TRIALS[size])
    ]


def run_trial(of: Trial) -> list[Row]:
    """Play the trial in virtual time."""
    return elect(of)


def figures(rows: Rows) -> list[Figure]:
    """Return the distribution of each line."""
    lines = [(line, column(rows, "ms", line)) for line in lines_of(rows)]
    plot = cdf(Axis("ms without a leader", 10, 10_000, is_log=True), lines, [Mark(287, 0.5, "287 ms")])
    return [Figure("Time without a leader", plot, "Each line is a range of the election timeout.")]


def measured(rows: Rows) -> dict[str, Estimate]:
    """Return our numbers."""
    return {
        "median, 150-155 ms": median_of(column(rows, "ms", "150-155")),
        "worst, 150-200 ms": worst_of(column(rows, "ms", "150-200")),
    }


def remarks(rows: Rows) -> list[str]:
    """Return the differences."""
    return []


THESIS = "Ongaro's thesis, chapter 9"
EXPERIMENT = Experiment(
    name="leader-crash",
    question="How long is a quorum without a leader after a crash, by the range of the election timeout?",
    method="",
    source=THESIS,
    published=(
        Published("median, 150-155 ms", 287, "ms", THESIS),
        Published("worst, 150-200 ms", 513, "ms", THESIS),
    ),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
)
