"""Pre-votes and check-quorum together: one node with broken links does not keep the others busy with elections (KIP-996)."""

from __future__ import annotations

import msgspec
import pytest

from kraftlab.simulation.consensus.options import CALM, draw_options
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.consensus.world import World


def healthy_world(seed: int) -> World:
    options = draw_options(f"stable/{seed}", (), fault_phase_ms=8_000)
    calm: dict[str, object] = {
        "voters": 3,
        "observers": 0,
        "network": CALM,
        "disk_latency_us": 200,
        "clock_drift": False,
        "propose_interval_us": 100_000,
        "heals_everything": True,
    }
    return World(msgspec.structs.replace(options, **calm), Transcript())


def leader_id(world: World) -> int:
    return next(m.node_id for m in world.machines if m.process is not None and m.process.raft.is_leader)


def epoch_growth(world: World, links: str) -> int:
    """Return the rise of the epoch in the six seconds after the links were cut for good."""
    epochs: list[int] = []

    def cut() -> None:
        leader = leader_id(world)
        odd, other = [m.node_id for m in world.machines if m.node_id != leader]
        pairs = {
            "hears nobody": [(leader, odd), (other, odd)],
            "is heard by nobody": [(odd, leader), (odd, other)],
            "hears all but the leader": [(leader, odd), (odd, leader)],
            "is alone": [(leader, odd), (odd, leader), (other, odd), (odd, other)],
        }[links]
        for source, target in pairs:
            world.network.cut(source, target)
        note()

    def note() -> None:
        epochs.append(max(m.process.raft.epoch for m in world.machines if m.process is not None))

    world.after(1_900_000, cut)
    world.after(7_900_000, note)
    world.run()
    return epochs[-1] - epochs[0]


@pytest.mark.parametrize("links", ["hears nobody", "is heard by nobody", "hears all but the leader", "is alone"])
def test_one_follower_with_broken_links_starts_no_new_epoch(links):
    assert [epoch_growth(healthy_world(seed), links) for seed in range(2)] == [0] * 2


def test_a_healthy_cluster_elects_once():
    for seed in range(3):
        world = healthy_world(seed)
        world.run()
        assert world.machines[0].process is not None
        assert world.machines[0].process.raft.epoch <= 2
