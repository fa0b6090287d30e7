"""Requests with ids and blocks of producer ids: an honest cluster is found to be one, and each lie about them is seen."""

from __future__ import annotations

import pytest

LIES = {
    "forgotten request": {"witness", "exactly-once", "blocks"},
    "other answer to a retry": {"witness", "exactly-once"},
    "lost write": {"witness", "blocks", "set-full", "exactly-once"},
    "answer before the end": {"witness", "exactly-once"},
    "stale read": {"witness", "set-full"},
}
LIES_ABOUT_BLOCKS = {
    "lost write": {"witness", "blocks"},
    "block again": {"witness", "blocks"},
    "answer before the end": {"witness"},
}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_carries_requests_out_once(played, seed):
    _, run, verdicts = played("exactly-once", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    sendings = {}
    for op in run.history:
        if op.request_id:
            sendings.setdefault(op.request_id, []).append(op.outcome)
    assert any(outcomes.count("ok") > 2 for outcomes in sendings.values())
    assert any("info" in outcomes and "ok" in outcomes for outcomes in sendings.values())
    assert {"DUPLICATE_SEQUENCE_NUMBER"} <= {op.error for op in run.history}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_requests_is_seen(played, lie):
    """Which of the checkers see it depends on what it was told about: so more than one run, if need be."""
    seen: set[str] = set()
    for seed in ("1", "2", "3"):
        cluster, _, verdicts = played("exactly-once", lie, rate=0.3, seed=seed)
        assert cluster.lies_told
        found = {name for name, verdict in verdicts.items() if verdict.valid is False}
        assert found
        seen |= found
        if seen == LIES[lie]:
            return
    assert seen == LIES[lie]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_gives_blocks_out_once(played, seed):
    _, run, verdicts = played("producer-ids", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    assert verdicts["blocks"].details["numbers_given"] > 50_000
    assert {op.outcome for op in run.history} >= {"ok", "info"}


@pytest.mark.parametrize("lie", LIES_ABOUT_BLOCKS)
def test_a_lie_about_blocks_is_seen(played, lie):
    cluster, _, verdicts = played("producer-ids", lie, rate=0.3)
    assert cluster.lies_told
    assert {name for name, verdict in verdicts.items() if verdict.valid is False} == LIES_ABOUT_BLOCKS[lie]
