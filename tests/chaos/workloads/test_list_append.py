"""Transactions over lists: an honest cluster is found to be one, and each lie about lists is seen."""

from __future__ import annotations

import pytest

LIES = {
    "stale read": {"witness", "list-append"},
    "false offset": {"witness", "list-append"},
    "torn read": {"witness", "list-append"},
    "lost write": {"witness", "list-append"},
    "half a write": {"witness", "list-append"},
}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_has_serializable_lists(played, seed):
    _, run, verdicts = played("list-append", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    assert {op.outcome for op in run.history} == {"ok", "info"}
    assert verdicts["list-append"].details["edges"] > 500


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_lists_is_seen(played, lie):
    cluster, _, verdicts = played("list-append", lie, rate=0.3)
    assert cluster.lies_told
    assert {name for name, verdict in verdicts.items() if verdict.valid is False} == LIES[lie]


def test_an_answer_of_two_moments_makes_a_cycle(played):
    _, _, verdicts = played("list-append", "torn read", rate=0.3)
    names = {cycle["name"] for cycle in verdicts["list-append"].details["cycles"]}
    assert any(name.startswith(("G-single", "G2")) for name in names)
