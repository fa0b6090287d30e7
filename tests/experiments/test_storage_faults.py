"""Storage faults: the cells that are known, and the page that is made of them."""

from __future__ import annotations

import pytest

from kraftlab.experiments.damaged_world import FAULTS, LOST, MISDIRECTED, ROT, TORN, Damage, Outcome, Writes, measure
from kraftlab.experiments.recovery_rules import RULES
from kraftlab.experiments.storage_faults import COMBINATIONS, COMBINED, SINGLE, figures, measured, remarks, run_trial, trials


def outcome(rule: str, fault: str, *cells: str, writes: Writes = SINGLE) -> str:
    damages = tuple(Damage(cell[0], int(cell[1:]), fault) for cell in cells)
    return measure(RULES[rule], writes, damages, "a test")["outcome"]


@pytest.mark.parametrize("fault", [ROT, LOST, MISDIRECTED])
def test_an_entry_of_a_bare_majority_survives_only_without_truncation(fault) -> None:
    assert outcome("repair", fault, "B4") == Outcome.WAITS
    assert outcome("truncate", fault, "B4") == Outcome.LOST
    assert outcome("stop", fault, "B4") == Outcome.DOWN


@pytest.mark.parametrize("fault", FAULTS)
def test_an_entry_that_the_others_have_is_never_lost(fault) -> None:
    assert {outcome(rule, fault, "C2") for rule in RULES} <= {Outcome.WELL, Outcome.WAITS, Outcome.DOWN}


def test_the_torn_tail_of_an_entry_that_was_never_committed_stops_only_a_node_that_never_truncates() -> None:
    assert [outcome(rule, TORN, "A7") for rule in ("repair", "truncate", "stop")] == [Outcome.WELL, Outcome.WELL, Outcome.DOWN]


def test_damage_that_leaves_no_trace_is_lost_by_repair_too() -> None:
    assert outcome("repair", ROT, "B6") == Outcome.LOST
    assert outcome("repair", TORN, "A3") == Outcome.LOST


def test_repair_needs_a_majority_of_whole_logs() -> None:
    assert outcome("repair", ROT, "A1", "A3", writes=COMBINED) == Outcome.WELL
    assert outcome("repair", ROT, "A1", "B3", writes=COMBINED) == Outcome.SILENT


def test_trials_cover_each_cell_and_draw_combinations() -> None:
    small = trials("small", 1)
    assert len({(each.line, each.number) for each in small}) == len(small)
    assert {each.parameters["damage"] for each in small if each.line == "torn tail, stop"} >= {"A7", "B6", "C3"}
    assert sum(each.line == "combinations, repair" for each in trials("full", 1)) == COMBINATIONS


def test_the_page_shows_the_worst_of_each_cell() -> None:
    chosen = [each for each in trials("small", 1) if each.parameters["damage"] in ("B4", "B6") and each.line == "bit rot, repair"]
    chosen += [each for rule in RULES for each in trials("small", 1) if each.line == f"combinations, {rule}"][::40]
    rows = [{"line": each.line, "number": each.number, **row} for each in chosen for row in run_trial(each)]
    matrix, shares, combined = figures(rows)
    assert (matrix.svg.count(">x</text>"), matrix.svg.count(">w</text>")) == (1, 1)
    assert 'data-of="safe (%)">50</td>' in shares.svg
    assert combined.svg.count("<svg") == 3
    assert list(measured(rows)) == ["combinations, repair"]
    assert remarks(rows)[0] == "Repair loses a committed entry in these cells: bit rot B6."
