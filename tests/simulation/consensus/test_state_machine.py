"""The simulation can run any state machine, and notices a wrong one."""

from __future__ import annotations

from functools import partial

from kraftlab.simulation.consensus.runner import run_seed
from kraftlab.simulation.consensus.state_machine import HashingStateMachine
from kraftlab.simulation.consensus.world import World


class Forgetful(HashingStateMachine):
    """A state machine whose digest differs between nodes."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def digest(self) -> int:
        return super().digest() + self._node_id


def test_states_that_differ_at_equal_offsets_are_noticed():
    assert "S14" in run_seed(1, make_world=partial(World, make_state_machine=Forgetful)).violations[0]


def test_state_machines_of_leaders_are_notified():
    machines: list[HashingStateMachine] = []

    def make(_node_id: int) -> HashingStateMachine:
        machines.append(HashingStateMachine())
        return machines[-1]

    assert run_seed(1, make_world=partial(World, make_state_machine=make)).ok
    assert any(machine.active_epoch > 0 for machine in machines)
