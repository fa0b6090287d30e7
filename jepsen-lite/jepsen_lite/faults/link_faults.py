"""Links that are cut, slow or unreliable: partitions, isolated leaders, links that fail in one direction only.

A cut link holds messages or breaks its connections. When it is healed, held messages are delivered late or never. Real networks
do both, and epochs exist to reject a message of an old leader that arrives two elections late.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from kraftlab.lab.links.shape import LinkShape

from . import splits
from .cluster_under_faults import ClusterUnderFaults
from .errors import CannotStrike
from .kind import Draft, Fault, Hit, Shape, one_of
from .targets import NEW_LEADER


def _draw_cut(random: Random) -> dict[str, bool]:
    """Draw the behaviour of a cut link."""
    return {"reset": random.random() < 0.3, "drop": random.random() < 0.5}


def draw_partition(random: Random, shape: Shape) -> list[Draft]:
    target = random.choice(("all", "controllers")) if shape.brokers else "controllers"
    return [Draft(target, {"how": random.choice(splits.HOW), **_draw_cut(random)})]


def partition(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Split the nodes; all other nodes keep all their links."""
    how = hit.arguments["how"]
    return _cut(victim, hit, splits.split(how, hit.nodes, hit.random), how)


def draw_isolated(random: Random, shape: Shape) -> list[Draft]:
    """Isolate the leader or the next leader; both if a majority remains."""
    arguments = _draw_cut(random)
    is_next = random.random() < 0.3
    targets = ("leader",) if not is_next else ("leader", NEW_LEADER) if shape.controllers > 3 else (NEW_LEADER,)
    return [Draft(target, arguments) for target in targets]


def isolate(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Cut every link between the nodes and the others."""
    return _cut(victim, hit, splits.around(hit.nodes, victim.nodes), "from all others")


def draw_one_way(random: Random, shape: Shape) -> list[Draft]:
    weights = {"leader": 3, "follower": 2, "controller": 1, **({"broker": 1} if shape.brokers else {})}
    return [Draft(one_of(random, weights), {"way": random.choice(splits.ONE_WAYS), **_draw_cut(random)})]


def one_way(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Lose what the nodes send, or what is sent to them."""
    way = hit.arguments["way"]
    return _cut(victim, hit, splits.one_way(way, hit.nodes, victim.nodes), way)


def draw_late(random: Random, shape: Shape) -> list[Draft]:
    return [Draft("controllers", {"of": random.choice(("leader", "follower"))})]


@asynccontextmanager
async def late(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Hold everything that is sent on one link between two controllers, and deliver it at the end: votes, requests and answers of
    an epoch that may be over. The leader is the source or the target of the link.
    """
    leads = await victim.find_leader()
    leader = leads.node if leads is not None and leads.node in hit.nodes else hit.random.choice(hit.nodes)
    others = [node for node in hit.nodes if node != leader]
    if not others:
        raise CannotStrike(f"no link between controllers {','.join(map(str, hit.nodes))}")
    other = hit.random.choice(others)
    source, target = (leader, other) if hit.arguments["of"] == "leader" else (other, leader)
    hit.nodes, hit.links, hit.detail = (source,), ((source, target),), f"to {target}, held, then delivered"
    async with victim.kept_cut(hit.links):
        yield


def _cut(victim: ClusterUnderFaults, hit: Hit, links: splits.Links, what: str) -> Fault:
    if not links:
        raise CannotStrike(f"no link to cut around {','.join(map(str, hit.nodes))}")
    reset, drop = bool(hit.arguments.get("reset")), bool(hit.arguments.get("drop"))
    hit.links = tuple(sorted(links))
    hit.detail = f"{what}, {'connections break' if reset else 'nothing passes'}{', waiting messages are lost' if drop else ''}"
    return victim.kept_cut(hit.links, reset=reset, drop=drop)


# -- links that shape messages --------------------------------------------------------------------------------------------


def _draw_shape(amounts: Callable[[Random], Mapping[str, float]]) -> Callable[[Random, Shape], list[Draft]]:
    def draw(random: Random, shape: Shape) -> list[Draft]:
        weights = {"leader": 2, "follower": 1, "controllers": 2, "all": 2, **({"broker": 1} if shape.brokers else {})}
        return [Draft(one_of(random, weights), {"way": random.choice(("out", "in", "both")), **amounts(random)})]

    return draw


def _chance(random: Random, highest: float) -> float:
    return round(random.uniform(highest / 10, highest), 3)


draw_slow = _draw_shape(
    lambda random: {"delay_ms": random.choice((5, 20, 80, 200, 500)), "jitter_ms": random.choice((0, 20, 100, 300))}
)
draw_loss = _draw_shape(lambda random: {"loss": _chance(random, 0.3)})
draw_duplicate = _draw_shape(lambda random: {"duplicate": _chance(random, 0.5)})
draw_reorder = _draw_shape(lambda random: {"reorder": _chance(random, 0.5)})


def shaped(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Delay, lose, duplicate or reorder what the nodes send, or what is sent to them."""
    amounts: dict[str, Any] = {name: amount for name, amount in hit.arguments.items() if name != "way"}
    way = hit.arguments.get("way", "both")
    ways = splits.ONE_WAYS if way == "both" else (way,)
    inside = splits.between([[node] for node in hit.nodes])
    links = inside.union(*(splits.one_way(one, hit.nodes, victim.nodes) for one in ways))
    if not links:
        raise CannotStrike(f"no link around {','.join(map(str, hit.nodes))}")
    hit.links = tuple(sorted(links))
    hit.detail = " ".join(f"{name}={amount:g}" for name, amount in amounts.items())
    return victim.kept_shaped(hit.links, LinkShape(**amounts))
