"""The experiments on elections: tiny runs of each, and the promises of their world."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.experiments import leader_crash, leader_kill, runner, split_votes, trial_world, wan_elections
from kraftlab.experiments.experiment import Experiment, trial
from kraftlab.experiments.page import compared, render
from kraftlab.experiments.split_votes import FIVE, FIVE_TWO, NINE, QUORUMS, split_rate
from kraftlab.experiments.trial_world import elect

SLOW = {leader_crash.SHORT, leader_crash.SHORT + leader_crash.PRE_VOTES}
"""Lines that have a leader only after many elections."""


@pytest.mark.parametrize("module", [leader_crash, wan_elections, split_votes])
def test_an_experiment_runs_end_to_end_with_the_same_page_again(module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIALS", {"small": 1, "full": 1})
    experiment: Experiment = module.EXPERIMENT
    pages = []
    for _ in range(2):
        trials = [one for one in experiment.trials("small", 1) if one.line not in SLOW]
        rows = [row for one in trials for row in runner.run_one(experiment.name, one)[1]]
        pages.append(render(experiment, rows, len(trials), "small", 1))
    assert pages[0] == pages[1]
    assert all(line.ours is not None for line in compared(experiment, rows) if line.what.partition(":")[0] not in SLOW)


@pytest.mark.cluster
@pytest.mark.nightly
def test_a_real_leader_is_killed(tmp_path: Path) -> None:
    (row,) = leader_kill.run_trial(trial(leader_kill.KILLED, 0, 1, controllers=3))
    assert row["new"] != row["old"] and float(row["ms"]) > 0


def test_the_page_of_real_processes_needs_no_published_number() -> None:
    rows = [{**runner.machine(), "line": line, "number": 0, "ms": 50.0} for line in (leader_kill.KILLED, leader_kill.STOPPED)]
    assert "SIGKILL: median, ms" in render(leader_kill.EXPERIMENT, rows, 2, "small", 1)


def test_the_curve_has_the_published_points() -> None:
    published = {
        (FIVE, 0.01): 0.0006,
        (FIVE, 0.1): 0.052,
        (FIVE, 0.2): 0.181,
        (FIVE_TWO, 0.2): 0.49,
        (NINE, 0.1): 0.41,
        (NINE, 0.2): 0.67,
    }
    for (line, latency), rate in published.items():
        assert split_rate(*QUORUMS[line], latency) == pytest.approx(rate, abs=0.006), (line, latency)


def test_a_refused_connection_is_noticed_at_once_and_silence_after_the_timeout() -> None:
    ms = {
        refuses: [elect(trial("x", number, 1, **{**leader_crash.DEFAULTS, "refuses": refuses}))[0]["ms"] for number in range(5)]
        for refuses in (True, False)
    }
    assert sorted(ms[True])[2] < 200 < sorted(ms[False])[2]


def test_a_quorum_without_a_majority_left_elects_nobody() -> None:
    (row,) = elect(trial("x", 0, 1, failed=2, spread_ms=150))
    assert (row["settled"], row["elected"], row["ms"]) == (True, False, 30_000)


def test_timers_shorter_than_the_network_keep_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_world, "FOLLOW_WITHIN_MS", 2_000)
    (row,) = elect(trial("x", 0, 1, timeout_ms=12, spread_ms=12, pre_vote=False))
    assert (row["settled"], row["elected"]) == (False, False)
