"""Killed and paused nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from .cluster_under_faults import ClusterUnderFaults
from .kind import Draft, Hit, Shape, one_of
from .targets import NEW_LEADER


def draw_for_processes(random: Random, shape: Shape) -> list[Draft]:
    """Draw the nodes to kill or pause. After half of the strikes at the leader comes one at the next leader (Raft, figure 8)."""
    target = one_of(
        random,
        {
            "leader": 4,
            "follower": 2,
            "controller": 1,
            **({"minority": 1} if shape.controllers > 2 else {}),
            "majority": 1,
            "all": 0.5,
            **({"broker": 2, "brokers": 0.5} if shape.brokers else {}),
        },
    )
    if target == "leader" and random.random() < 0.5:
        return [Draft("leader"), Draft(NEW_LEADER)]
    return [Draft(target)]


@asynccontextmanager
async def kill(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """kill -9; undone by a start."""
    async with victim.kept_down(hit.nodes) as hit.nodes:
        yield


@asynccontextmanager
async def pause(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """SIGSTOP; undone by SIGCONT."""
    async with victim.kept_stopped(hit.nodes) as hit.nodes:
        yield
