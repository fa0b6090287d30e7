"""Clusters that are up on this machine, as other commands find them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kraftlab.lab import ClusterError, contexts, layout
from kraftlab.lab.locking import lock

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return contexts.state_directory()


def test_clusters_are_found_newest_first_while_they_are_up(tmp_path: Path, state: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert contexts.running() == []
    with lock(first), contexts.published(first):
        os.utime(next(state.iterdir()), ns=(1, 1))
        with lock(second), contexts.published(second):
            assert contexts.running() == [second, first]
        assert contexts.running() == [first]
    assert contexts.running() == []


def test_a_cluster_that_was_killed_is_not_up(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    with contexts.published(killed):
        killed.mkdir()
        assert contexts.running() == []


def test_the_plan_of_a_cluster_that_is_up_has_its_endpoints(tmp_path: Path) -> None:
    plan = layout.write(tmp_path, layout.plan(tmp_path, 1, 1, 1), {})
    with lock(tmp_path):
        assert [node.grpc for node in contexts.plan_of(tmp_path).nodes] == [node.grpc for node in plan.nodes]
    with pytest.raises(ClusterError, match=f"not up; start it with: kraftlab up --data {re.escape(str(tmp_path))}"):
        contexts.plan_of(tmp_path)
    with pytest.raises(ClusterError, match="holds no cluster; start one with"):
        contexts.plan_of(tmp_path / "elsewhere")
