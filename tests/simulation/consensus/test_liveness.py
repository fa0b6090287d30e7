"""After the heal, a core gets along with broken nodes outside it, and excuses are computed."""

from __future__ import annotations

import msgspec
import pytest

from kraftlab.checking.calls import Operation
from kraftlab.simulation.consensus import liveness
from kraftlab.simulation.consensus.clients import Call
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.invariants import Violation
from kraftlab.simulation.consensus.liveness import AFFLICTIONS, CONDITIONS, EXCUSES, find_excuse
from kraftlab.simulation.consensus.observed import Rot
from kraftlab.simulation.consensus.options import CALM, SimulationOptions, draw_options
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.consensus.world import World


def options_of(seed: int, **changes: object) -> SimulationOptions:
    options = draw_options(seed, FAULTS, fault_phase_ms=2_000)
    return msgspec.structs.replace(options, **{"voters": 3, "observers": 0, "heals_everything": False, **changes})


def play(seed: int, **changes: object) -> tuple[World, list[str]]:
    lines: list[str] = []
    world = World(options_of(seed, **changes), Transcript(lines.append))
    world.run()
    return world, lines


@pytest.mark.parametrize("affliction", AFFLICTIONS)
def test_a_core_gets_along_without_a_node_that(affliction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def afflict(liveness, machine, random):
        liveness.world.note(f"n{machine.node_id} {affliction}")
        AFFLICTIONS[affliction](liveness, machine)

    monkeypatch.setattr(liveness, "break_for_good", afflict)
    struck = 0
    for seed in range(8):
        world, lines = play(seed)
        struck += any(affliction in line for line in lines)
        assert world.liveness.excuse is None
    assert struck > 1


def test_everything_heals_in_half_of_the_seeds() -> None:
    healed = [draw_options(seed, FAULTS).heals_everything for seed in range(200)]
    assert 70 < sum(healed) < 130


def test_a_core_is_a_majority_of_the_voters() -> None:
    for seed in range(30):
        world = World(options_of(seed, voters=5, observers=2), Transcript())
        world.liveness.choose_core()
        voters = [machine for machine in world.liveness.core if machine.node_id < 5]
        assert len(voters) >= 3
        assert len(world.liveness.core) + len(world.liveness.outside) == 7


def world_after_a_run() -> World:
    world, _ = play(1, heals_everything=True)
    assert find_excuse(world.liveness) is None
    return world


def test_a_core_without_a_majority_is_excused() -> None:
    world = world_after_a_run()
    world.liveness.core = world.liveness.core[:1]
    leader = world.liveness.leader()
    assert leader is not None
    reason = f"n{leader.node_id} leads, and of its voters {{0,1,2}} only [0] are there"
    assert find_excuse(world.liveness) == f"leader-lacks-a-majority: {reason}"


def test_a_core_that_has_lost_committed_records_is_excused() -> None:
    world = world_after_a_run()
    for machine in world.machines:
        machine.durable.cut(1)
    excuse = find_excuse(world.liveness)
    assert excuse is not None
    assert excuse.startswith("committed-data-is-gone: no voter of the core has everything below the committed offset ")


def test_what_rots_under_a_process_that_runs_excuses_no_core_before_it_is_repaired() -> None:
    world = world_after_a_run()
    world.liveness.core = core = [machine for machine in world.machines if not machine.process.is_leading]
    world.leaders = ()
    for machine in core:
        machine.rot = Rot("a segment", 1, range(1), is_fatal=False)
    assert find_excuse(world.liveness) is None
    core[0].process.raft.quorum.repair.until = 1_000_000
    excuse = find_excuse(world.liveness)
    assert excuse is not None
    assert excuse.startswith("nobody-can-be-elected")


def test_a_core_that_is_led_by_a_node_it_can_not_reach_is_excused() -> None:
    world = world_after_a_run()
    leader = world.liveness.leader()
    assert leader is not None
    world.liveness.core = [machine for machine in world.machines if machine is not leader.machine]
    assert find_excuse(world.liveness) is None, "it reaches all of them"
    world.network.cut_for_good(leader.node_id, world.liveness.core[0].node_id)
    excuse = find_excuse(world.liveness)
    assert excuse is not None
    assert excuse.startswith(f"led-from-outside: n{leader.node_id} leads from outside the core")


def test_conditions_and_excuses_have_names() -> None:
    assert [condition.name for condition in CONDITIONS] == ["L4", "L1", "L2", "L3", "L6"]
    assert len({name for name, _ in EXCUSES}) == len(EXCUSES)


def test_a_call_without_an_answer_is_noticed() -> None:
    world, _ = play(3, heals_everything=True, faults=(), network=CALM, clients=2, client_interval_us=20_000)
    clients, leader = world.clients, world.liveness.leader()
    assert clients is not None
    assert leader is not None
    assert len(clients.history) > 10
    assert clients.unanswered() is None
    clients.current[1] = Call(client=1, key=0, value=None, invoked_us=7, process=leader)
    assert clients.unanswered() == f"client 1 waits for n{leader.node_id} since 7 us"


def test_an_acknowledged_append_that_is_gone_is_noticed() -> None:
    world, _ = play(3, heals_everything=True, faults=(), network=CALM, clients=2, client_interval_us=20_000)
    clients, leader = world.clients, world.liveness.leader()
    assert clients is not None
    assert leader is not None
    clients.acknowledged.append(1 << 31)
    with pytest.raises(Violation, match=r"S15 acknowledged and not in the lists at the end: \[2147483648\]"):
        clients.judge(leader)


def test_a_stale_read_is_noticed() -> None:
    world, _ = play(3, heals_everything=True, faults=(), network=CALM, clients=2, client_interval_us=20_000)
    clients, leader = world.clients, world.liveness.leader()
    assert clients is not None
    assert leader is not None
    clients.judge(leader)
    key = max(operation.key for operation in clients.history if operation.input[0] == "append")
    clients.history.append(Operation(key, world.now_us, world.now_us + 1, ("read",), (0, 0)))
    with pytest.raises(Violation, match="S16 the history of list"):
        clients.judge(leader)
