"""Simulated brokers see the cluster through one node, as long as that node exists."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from kraftlab.simulation.metadata.simulated_broker import SimulatedBroker


def machine(leader_id: int | None) -> SimpleNamespace:
    """Return a machine whose process knows that leader, or one that is down."""
    return SimpleNamespace(process=None if leader_id is None else SimpleNamespace(raft=SimpleNamespace(leader_id=leader_id)))


@pytest.mark.parametrize(("is_healed", "leader"), [(False, -1), (True, 7)])
def test_a_home_that_is_gone_for_good_when_all_has_healed_is_left(is_healed: bool, leader: int) -> None:
    """Otherwise its broker would keep the last view of a node whose disk has died."""
    world = SimpleNamespace(options=SimpleNamespace(random=Random), machines=[machine(None)], is_healed=is_healed)
    broker = SimulatedBroker(world, 100)
    world.machines += [machine(None), machine(7)]
    assert broker.leader_id == leader
