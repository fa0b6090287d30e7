"""The simulated cluster for clients: the voters that can be removed."""

from __future__ import annotations

import pytest

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.simulation.clients.world import ClientWorld
from kraftlab.simulation.consensus.fault_atlas import sets_in_force
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.observed import Rot
from kraftlab.simulation.consensus.operators import Operators
from kraftlab.simulation.consensus.options import draw_options
from kraftlab.simulation.consensus.transcript import Transcript


def test_no_operator_removes_a_voter_that_is_needed_beside_a_rotten_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[ReplicaKey] = []
    monkeypatch.setattr(Operators, "remove", lambda _operators, key, timeout_ms, process=None: removed.append(key))
    options = next(options for options in (draw_options(str(seed), FAULTS) for seed in range(100)) if options.voters == 3)
    world = ClientWorld(options, Transcript(), 1, {}, is_judged=True)
    whole, rotten, _ = sorted((voter.key for voter in sets_in_force(world)[0].voters), key=lambda key: key.node_id)
    world.machines[rotten.node_id].rot = Rot("a segment", 3, range(3), False)
    for key in (whole, rotten):
        world.operators.remove(key, 600)
    assert removed == [rotten]
