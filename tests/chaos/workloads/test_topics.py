"""Topics: an honest cluster is found to be one, and each lie about topics is seen."""

from __future__ import annotations

import pytest

LIES = {
    "stale read": {"witness", "linearizable"},
    "false offset": {"witness", "linearizable"},
    "goes back": {"witness"},
    "lost write": {"witness", "linearizable"},
    "half a write": {"witness", "linearizable"},
    "half a topic": {"witness", "linearizable"},
    "resurrected topic": {"linearizable", "lives of topics"},
}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_has_topics(played, seed):
    _, run, verdicts = played("topics", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    assert {op.outcome for op in run.history} == {"ok", "fail", "info"}
    assert {"TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"} <= {op.error for op in run.history}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_topics_is_seen(played, lie):
    cluster, _, verdicts = played("topics", lie, rate=0.3)
    assert cluster.lies_told
    assert {name for name, verdict in verdicts.items() if verdict.valid is False} == LIES[lie]
