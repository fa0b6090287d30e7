"""Killed and paused nodes, and nodes with clocks that run wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

from .cluster_under_faults import ClusterUnderFaults
from .errors import CannotStrike
from .kind import Draft, Fault, Hit, Shape, one_of
from .targets import NEW_LEADER

RATES = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
JUMPS_MS = (100, 700, 3_000, 20_000)
OF_PROCESSES: Mapping[str, Sequence[float]] = {"rate": RATES, "jump_ms": JUMPS_MS}


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


def drawing(ways: Mapping[str, Sequence[float]]) -> Callable[[Random, Shape], list[Draft]]:
    """Return a function that draws the nodes whose clocks go wrong in one of these ways."""

    def draw(random: Random, shape: Shape) -> list[Draft]:
        weights = {"leader": 2, "follower": 2, "controller": 1, "controllers": 1, **({"broker": 1} if shape.brokers else {})}
        way = random.choice(list(ways))
        return [Draft(one_of(random, weights), {way: random.choice(ways[way])})]

    return draw


def clock(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Let the clocks by which nodes wait and measure run at another rate (`rate`) for a while, or jump ahead once (`jump_ms`)."""
    arguments = hit.arguments
    others = arguments.keys() - OF_PROCESSES.keys()
    if others:
        raise CannotStrike(f"{', '.join(sorted(others))}: real processes share the machine's time of day; take --world shell")
    hit.detail = ", ".join(f"{way} {value}" for way, value in arguments.items())
    return victim.kept_wrong(hit.nodes, rate=float(arguments.get("rate", 1)), jump_s=arguments.get("jump_ms", 0) / 1000)
