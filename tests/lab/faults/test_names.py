"""Names of nodes, as people say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.lab import ClusterError, cluster_plan, layout
from kraftlab.lab.faults.names import leader_of, names_of, resolve

pytestmark = pytest.mark.cluster


@pytest.fixture
def plan(tmp_path: Path) -> cluster_plan.ClusterPlan:
    return layout.plan(tmp_path, 3, 2, 1)


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        ("controller-3001", (3001,)),
        ("broker-1,controller-3000", (1, 3000)),
        ("leader", (3002,)),
        ("active", (3002,)),
        ("followers", (3000, 3001)),
        ("controllers", (3000, 3001, 3002)),
        ("brokers", (0, 1)),
        ("all", (3000, 3001, 3002, 0, 1)),
        ("brokers,broker-1,leader", (0, 1, 3002)),
    ],
)
def test_names_mean_nodes_each_once(plan: cluster_plan.ClusterPlan, names: str, ids: tuple[int, ...]) -> None:
    assert resolve(plan, names.split(","), lambda: 3002) == ids


@pytest.mark.parametrize("name", ["3000", "broker-7", "Leader", ""])
def test_an_unknown_name_is_answered_with_the_valid_ones(plan: cluster_plan.ClusterPlan, name: str) -> None:
    with pytest.raises(ClusterError, match=", ".join(names_of(plan))):
        resolve(plan, [name] if name else [], lambda: 3002)


def test_the_leader_is_looked_up_only_if_a_name_needs_it_and_may_be_unknown(plan: cluster_plan.ClusterPlan) -> None:
    assert resolve(plan, ["controller-3000"], lambda: pytest.fail("nobody needs to know")) == (3000,)
    with pytest.raises(ClusterError, match="no controller knows the leader, so 'followers' names no node now"):
        resolve(plan, ["followers"], lambda: None)


def test_the_newest_leader_counts() -> None:
    assert leader_of([(3000, 4), (3001, 5), (-1, 6)]) == 3001
    assert leader_of([(-1, -1)]) is None
    assert leader_of([]) is None
