"""Links that are cut: partitions, isolated leaders, links that fail one way only."""

from __future__ import annotations

from random import Random

from . import splits
from .kind import Draft, Fault, Hit, Shape, one_of
from .scene import CannotStrike, Scene


def draw_partition(random: Random, shape: Shape) -> list[Draft]:
    how = random.choice(splits.HOW)
    return [Draft(random.choice(("all", "controllers")) if shape.brokers else "controllers", {"how": how})]


def partition(scene: Scene, hit: Hit) -> Fault:
    """The nodes are split; those that are not named keep all their links."""
    return _cut(scene, hit, splits.split(hit.arguments["how"], hit.nodes, hit.random), hit.arguments["how"])


def draw_isolated(random: Random, shape: Shape) -> list[Draft]:
    if random.random() < 0.3:
        return [Draft("leader"), Draft("new-leader")] if shape.controllers > 3 else [Draft("new-leader")]
    return [Draft("leader")]


def isolate(scene: Scene, hit: Hit) -> Fault:
    """The nodes lose every link to the others."""
    return _cut(scene, hit, splits.around(hit.nodes, scene.nodes), "isolated")


def draw_one_way(random: Random, shape: Shape) -> list[Draft]:
    weights = {"leader": 3, "follower": 2, "controller": 1, **({"broker": 1} if shape.brokers else {})}
    return [Draft(one_of(random, weights), {"way": random.choice(splits.ONE_WAYS)})]


def one_way(scene: Scene, hit: Hit) -> Fault:
    """What the nodes send is lost, or what is sent to them."""
    return _cut(scene, hit, splits.one_way(hit.arguments["way"], hit.nodes, scene.nodes), hit.arguments["way"])


def _cut(scene: Scene, hit: Hit, links: splits.Links, detail: str) -> Fault:
    if not links:
        raise CannotStrike(f"there is no link to cut around {','.join(map(str, hit.nodes))}")
    hit.links, hit.detail = tuple(sorted(links)), detail
    return scene.kept_cut(hit.links)
