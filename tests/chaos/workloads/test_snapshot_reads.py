"""Reads of one moment: an honest cluster is found to give them, and each lie about them is seen."""

from __future__ import annotations

import pytest

LIES = {
    "stale read": {"witness", "linearizable"},
    "torn read": {"witness", "linearizable"},
    "goes back": {"witness"},
    "false past": {"time travel"},
    "another past": {"time travel"},
    "half a write": {"witness", "linearizable"},
}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_gives_reads_of_one_moment(played, seed):
    _, run, verdicts = played("snapshot-reads", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    assert len({op.node for op in run.history if op.f == "peek" and op.outcome == "ok"}) == 7
    assert verdicts["time travel"].details["reads"] > 20


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_moments_is_seen(played, lie):
    cluster, _, verdicts = played("snapshot-reads", lie, rate=0.4)
    assert cluster.lies_told
    assert {name for name, verdict in verdicts.items() if verdict.valid is False} == LIES[lie]
