"""Partial partitions: the known outcomes, one trial each, and the numbers that are drawn from them."""

from __future__ import annotations

from itertools import permutations

import pytest

from kraftlab.experiments import partitioned_world
from kraftlab.experiments.partial_partitions import EXPERIMENT, SCENARIOS, VARIANTS, figures, measured, remarks, run_trial, trials
from kraftlab.experiments.partitioned_world import Scenario, measure, outages_ms
from kraftlab.experiments.probed_world import Round


@pytest.fixture(autouse=True)
def _short(monkeypatch) -> None:
    """Cut the links for 8 s instead of 30 s."""
    monkeypatch.setattr(partitioned_world, "CUT_US", 8_000_000)
    monkeypatch.setattr(partitioned_world, "HEALED_US", 4_000_000)


def outcome(scenario: str, variant: str):
    return measure(SCENARIOS[scenario], VARIANTS[variant], "a test")


def test_a_scenario_cuts_every_link_that_it_does_not_keep() -> None:
    numbers = {"L": 4, "H": 0, "A": 2}
    assert Scenario("LHA", "L", "LH HA").cuts(numbers) == {(4, 2), (2, 4)}
    assert Scenario("LHA", "L", "LH HA LA", lost="LA").cuts(numbers) == {(4, 2)}
    assert Scenario("LHA", "L", "").cuts(numbers) == set(permutations((4, 0, 2), 2))


def test_outages_are_the_periods_between_writes_that_succeed() -> None:
    rounds = [Round(2_000, (1,), {0}), Round(3_000, (1,)), Round(5_000, (1,), {0, 1})]
    assert list(outages_ms(rounds, 1_000, 9_000)) == [1, 3, 4]


def test_quorum_loss_needs_check_quorum_beside_pre_votes() -> None:
    assert outcome("quorum loss", "pre-vote")["somewhere"] < 0.1
    both = outcome("quorum loss", "both")
    assert both["somewhere"] > 0.8
    assert (both["leaders"], both["longest_outage_ms"] < 4 * 600) == (1, True)


@pytest.mark.parametrize("variant", ["plain", "both"])
def test_nobody_can_be_elected_when_only_a_server_with_an_old_log_hears_a_majority(variant) -> None:
    row = outcome("constrained election", variant)
    assert (row["somewhere"] < 0.1, row["leaders"]) == (True, 0)


def test_five_servers_have_a_stable_leader_only_with_pre_votes() -> None:
    assert outcome("five servers", "check quorum")["leaders"] > 3
    assert outcome("five servers", "pre-vote")["leaders"] == 0


def test_a_server_that_comes_back_costs_a_leader_without_pre_votes() -> None:
    assert outcome("rejoining server", "check quorum")["leaders_after"] == 1
    assert outcome("rejoining server", "both")["leaders_after"] == 0


def test_check_quorum_ends_the_reign_of_a_leader_that_is_cut_off() -> None:
    assert outcome("leader cut off", "pre-vote")["old_leader_ms"] == 8_000
    assert 600 < outcome("leader cut off", "both")["old_leader_ms"] <= 900


def test_the_small_size_has_every_scenario_with_every_variant() -> None:
    lines = [each.line for each in trials("small", 1)]
    assert len(set(lines)) == len(SCENARIOS) * len(VARIANTS)
    assert len(trials("full", 1)) > len(lines)


def test_figures_numbers_and_remarks_come_from_the_rows_that_are_there() -> None:
    chosen = [
        each for each in trials("small", 1) if each.line in ("leader cut off, plain", "leader cut off, both") and not each.number
    ]
    rows = [{"line": each.line, "number": 0, **row} for each in chosen for row in run_trial(each)]
    cut_off, numbers = figures(rows)
    assert cut_off.svg.count("<svg") == 2
    assert "leader cut off, both" in numbers.svg
    [(what, estimate)] = measured(rows).items()
    assert what in [published.what for published in EXPERIMENT.published]
    assert 1 < estimate.value <= 1.5
    assert remarks(rows)[0] == "Hardly any commit while the links are cut: in no line."
