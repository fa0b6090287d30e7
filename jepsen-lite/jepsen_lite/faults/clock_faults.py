"""Clocks that run wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from .cluster_under_faults import ClusterUnderFaults
from .errors import CannotStrike
from .kind import Draft, Fault, Hit, Shape, one_of

RATES = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
JUMPS_MS = (100, 700, 3_000, 20_000)
OF_PROCESSES: Mapping[str, Sequence[float]] = {"rate": RATES, "jump_ms": JUMPS_MS}


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
