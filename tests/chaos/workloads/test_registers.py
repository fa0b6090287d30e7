"""Registers: an honest cluster is found to be one, and each lie about a register is seen."""

from __future__ import annotations

import pytest

from jepsen_lite.verdicts import combined


@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_honest_cluster_has_registers(played, seed):
    _, run, verdicts = played("registers", seed=seed)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    kinds = {op.key.partition("/")[0] for op in run.history if op.outcome == "ok"}
    assert kinds == {"values", "replicas", "lists"}
    assert {op.outcome for op in run.history} == {"ok", "fail", "info"}
    assert verdicts["witness"].details["resolved"] > 0


LIES = {
    "stale read": {"witness", "linearizable"},
    "false offset": {"witness", "linearizable"},
    "goes back": {"witness"},
    "lost write": {"witness", "linearizable"},
    "half a write": {"witness", "linearizable"},
    "ignored expectation": {"witness", "linearizable"},
    "answer before the end": {"witness"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_registers_is_seen(played, lie):
    cluster, _, verdicts = played("registers", lie, rate=0.3)
    assert cluster.lies_told
    assert {name for name, verdict in verdicts.items() if verdict.valid is False} == LIES[lie]
    assert combined(verdicts.values()) is False
