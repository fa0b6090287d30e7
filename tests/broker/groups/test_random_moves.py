"""Commits while coordinators move, cut off and crash at random: what was confirmed is never lost, and what was read stays."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from kraftlab.broker.groups.coordinator import OFFSETS_TOPIC, partition_of
from kraftlab.common.errors import ApiError, ErrorCode

GROUPS = ("a", "b", "c", "d")
DURATION_S = 60.0


class Clients:
    """One client per group commits rising offsets and reads them back."""

    def __init__(self, cluster: Any, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.known = dict.fromkeys(GROUPS, -1)
        """The highest offset that was confirmed or read."""
        self.confirmed = 0

    async def run(self, group_id: str) -> None:
        offset = 0
        while True:
            await trio.sleep(self.chance.uniform(0, 0.2))
            try:
                if self.chance.random() < 0.5:
                    offset += 1
                    if await self.cluster.commit(group_id, offset) == ErrorCode.NONE:
                        self.known[group_id] = max(self.known[group_id], offset)
                        self.confirmed += 1
                    continue
                read, _ = await self.cluster.committed(group_id)
            except (ApiError, KeyError):
                continue  # The coordinator has crashed.
            if read >= -1:
                assert read >= self.known[group_id], f"{group_id}: {read} after {self.known[group_id]}"
                self.known[group_id] = read


async def disturb(cluster: Any, chance: random.Random) -> None:
    """Move leaderships, cut brokers off, and crash one at a time."""
    world = cluster.world
    brokers = dict(world.brokers)
    while True:
        await trio.sleep(chance.uniform(0.1, 2))
        number = chance.randrange(2)
        state = world.state(OFFSETS_TOPIC, number)
        candidates = [each for each in state.isr if each in world.brokers]
        match chance.choice(("move", "cut off", "crash")):
            case "move" if candidates:
                await world.change(OFFSETS_TOPIC, number, leader=chance.choice(candidates))
            case "cut off":
                world.unreachable.add(chance.choice(list(brokers)))
                await trio.sleep(chance.uniform(0, 6))
                world.unreachable.clear()
            case "crash" if len(world.brokers) == len(brokers):
                broker = brokers[chance.choice(list(brokers))]
                broker.crash()
                for each in range(2):
                    state = world.state(OFFSETS_TOPIC, each)
                    alive = [member for member in state.isr if member != broker.broker_id]
                    if state.leader == broker.broker_id and alive:
                        await world.change(OFFSETS_TOPIC, each, leader=chance.choice(alive))
                await trio.sleep(chance.uniform(0, 5))
                await broker.restart()


@pytest.mark.parametrize("seed", (0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 6))))
async def test_what_was_confirmed_or_read_is_never_lost(seed: int, cluster: Any, autojump_clock: Any) -> None:
    chance = random.Random(seed)
    clients = Clients(cluster, chance)
    with trio.move_on_after(DURATION_S):
        async with trio.open_nursery() as nursery:
            for group_id in GROUPS:
                nursery.start_soon(clients.run, group_id)
            nursery.start_soon(disturb, cluster, chance)
    cluster.world.unreachable.clear()
    assert clients.confirmed > 50
    for group_id in GROUPS:
        await cluster.loaded(group_id)
        with trio.fail_after(60):
            while (read := (await cluster.committed(group_id))[0]) < -1:  # noqa: ASYNC110 - there is no event to wait on
                await trio.sleep(0.1)
        assert read >= clients.known[group_id]
    assert {partition_of(group_id, 2) for group_id in GROUPS} == {0, 1}
