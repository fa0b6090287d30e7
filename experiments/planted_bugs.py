"""Compare methods of checking by the bugs of consensus that they find, and how soon.

Question. A bug is in the core. Does a method of checking find it, after how many steps, and in how much time?

Method. The planted bugs of `kraftlab mutants consensus`, one at a time, and four methods, each alone:
  rules       the simulator's rules, after every step (docs/simulator-reference.md), with the core's own assertions
  history     linearizability of what clients saw, and nothing that a client cannot see
  traces      traces of the same seeds, held against the TLA+ specification by TLC
  exhaustive  TLC on the specification with the bug written into it (quorum/spec/mutations.py); no code runs
The first three play the same seeds 0, 1, 2, … in the weather that the bug needs. If an assertion of the core ends a
run, only `rules` has found the bug. Bugs of storage are below the grain of the specification: they are there to show that.

Parameters. Small: a dozen bugs, 8 seeds, 20 s for each bug and method. Full: all bugs, 40 seeds, 60 s. Traces of 8,000 lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.simulation.consensus.mutants import MUTANTS

from . import detection
from .experiment import Estimate, Experiment, Figure, Row, Rows, Size, Trial, trial
from .matrix import table
from .plots import Axis, Bar, bars, cdf
from .statistics import share_of

METHODS = ("rules", "history", "traces", "exhaustive")
QUICK = (
    "vote-forgotten", "any-log-is-good-enough", "second-vote", "half-is-a-majority", "older-votes-count", "higher-epoch-ignored",
    "fetch-before-flush", "minority-commits", "unsynced-counts", "no-divergence", "arrival-is-an-echo", "no-settled-gate",
)  # fmt: skip
LIMITS = {"small": (8, 20.0), "full": (40, 60.0)}
"""Seeds, and seconds, for each bug and method."""


def trials(size: Size, seed: int) -> list[Trial]:
    """Return a trial for each method and bug."""
    seeds, seconds = LIMITS[size]
    bugs = QUICK if size == "small" else tuple(MUTANTS)
    return [trial(method, at, seed, bug=bug, seeds=seeds, seconds=seconds) for method in METHODS for at, bug in enumerate(bugs)]


def run_trial(of: Trial) -> list[Row]:
    """Hunt one bug with one method."""
    bug = str(of.parameters["bug"])
    hunted = detection.hunt(of.line, bug, int(of.parameters["seeds"]), float(of.parameters["seconds"]))
    return [{"bug": bug, **hunted._asdict()}]


def figures(rows: Rows) -> list[Figure]:
    """Return the table of bugs and methods, the shares that were found, and the times until then."""
    bugs = list(dict.fromkeys(str(row["bug"]) for row in rows))
    of = {(str(row["bug"]), str(row["line"])): row for row in rows}
    cells = [(bug, [_cell(of.get((bug, method))) for method in METHODS]) for bug in bugs]
    found = [
        (method, [max(0.1, float(row["seconds"])) for row in rows if row["line"] == method and row["found"]])
        for method in METHODS
    ]
    return [
        Figure("Found by", table(METHODS, cells), "Runs and seconds until found. –: not found. Empty: not played."),
        Figure("Shares", bars(Axis("share of bugs found", 0, 1), [Bar(method, _share(rows, method)) for method in METHODS]),
               "Of the bugs that a method can be tried on."),
        Figure("Time to detection", cdf(Axis("seconds until found", 0.1, 200, is_log=True), found),
               "Of the bugs that the method found."),
    ]  # fmt: skip


def _cell(row: Row | None) -> str:
    if row is None or not row["applies"]:
        return ""
    return f"{row['runs']} in {float(row['seconds']):.1f} s" if row["found"] else "–"


def _share(rows: Rows, method: str) -> Estimate:
    tried = [row for row in rows if row["line"] == method and row["applies"]]
    return share_of(sum(bool(row["found"]) for row in tried), max(1, len(tried)))


def measured(rows: Rows) -> Mapping[str, Estimate]:
    """Return nothing: nobody has published such numbers."""
    return {}


def remarks(rows: Rows) -> list[str]:
    """Return how the methods differ."""
    found = {method: {row["bug"] for row in rows if row["line"] == method and row["found"]} for method in METHODS}
    only = {
        method: sorted(map(str, found[method] - set().union(*(found[m] for m in METHODS if m != method)))) for method in METHODS
    }
    return [f"Found by {method} alone: {', '.join(only[method]) or 'none'}." for method in METHODS]


EXPERIMENT = Experiment(
    name="planted-bugs",
    question="Which method finds a bug of consensus, and how soon?",
    method="Planted bugs of consensus and storage, one at a time. Four methods, each alone; three play the same seeds.",
    source="no paper for KRaft; CCF (NSDI 2025) found six bugs by trace validation, MongoDB (2025) none",
    published=(),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
)
