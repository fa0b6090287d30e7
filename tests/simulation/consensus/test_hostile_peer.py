"""A hostile peer that is not a node: it changes no epoch, no vote and no leader, and does not stop the quorum."""

from __future__ import annotations

import pytest

from kraftlab.quorum.core.quorum_state import QuorumState
from kraftlab.simulation.consensus.hostile_world import HostileWorld
from kraftlab.simulation.consensus.options import SimulationOptions
from kraftlab.simulation.consensus.runner import run_seed
from kraftlab.simulation.consensus.transcript import Transcript

SEEDS = 5


def played(seed: int) -> tuple[list[str], HostileWorld]:
    worlds: list[HostileWorld] = []

    def make(options: SimulationOptions, transcript: Transcript) -> HostileWorld:
        worlds.append(HostileWorld(options, transcript))
        return worlds[-1]

    result = run_seed(seed, make_world=make, fault_phase_ms=2_000)
    return [*result.violations, *result.tail], worlds[-1]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rules_and_liveness_hold_beside_a_hostile_peer(seed: int) -> None:
    broken, world = played(seed)
    assert not broken, "\n".join(broken)
    assert world.attacks > 300
    assert world.answers > 0


@pytest.mark.nightly
def test_two_hundred_seeds_hold_beside_a_hostile_peer() -> None:
    for seed in range(200):
        broken, _ = played(seed)
        assert not broken, "\n".join(broken)


def test_an_epoch_that_every_node_believes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The world finds the faults that it is there for."""

    def believes(self: QuorumState, epoch: int, *, is_answer: bool = False) -> bool:
        return self.epoch <= epoch

    monkeypatch.setattr(QuorumState, "believes", believes)
    assert "H1" in played(0)[0][0]
