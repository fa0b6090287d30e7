"""Splits of a cluster, as the directed links to cut. Pure.

A link (source, target) carries what the source sends to the target. All splits except the one-way ones are symmetric where
possible. With three nodes a ring of majorities cannot be symmetric, so each node hears its neighbour only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import permutations
from random import Random

Link = tuple[int, int]
Links = frozenset[Link]

HOW = ("halves", "random-halves", "one", "majorities-ring", "bridge")
"""The names of symmetric splits in a plan."""
ONE_WAYS = ("out", "in")


def split(how: str, nodes: Sequence[int], random: Random) -> Links:
    """Return the links that this split of the nodes cuts. ValueError if the split is unknown."""
    shuffled = random.sample(nodes, len(nodes))
    half = len(nodes) // 2
    match how:
        case "halves":
            ordered = sorted(nodes)
            return between([ordered[:half], ordered[half:]])
        case "random-halves":
            return between([shuffled[:half], shuffled[half:]])
        case "one":
            return between([shuffled[:1], shuffled[1:]])
        case "majorities-ring":
            return majorities_ring(shuffled)
        case "bridge":
            return bridge(shuffled)
    raise ValueError(f"unknown split {how!r}; known: {', '.join(HOW)}")


def between(groups: Iterable[Collection[int]]) -> Links:
    """Return every link from one group to another."""
    return frozenset(
        (source, target)
        for sources, targets in permutations([tuple(group) for group in groups], 2)
        for source in sources
        for target in targets
    )


def around(nodes: Collection[int], others: Collection[int]) -> Links:
    """Return every link between one of `nodes` and one of the others, in both directions."""
    return between([nodes, [other for other in others if other not in nodes]])


def one_way(way: str, nodes: Collection[int], others: Collection[int]) -> Links:
    """Return the links from `nodes` to the others ("out"), or from the others to `nodes` ("in")."""
    if way not in ONE_WAYS:
        raise ValueError(f"unknown direction {way!r}; known: {', '.join(ONE_WAYS)}")
    return frozenset((node, other) if way == "out" else (other, node) for node in nodes for other in others if other not in nodes)


def bridge(nodes: Sequence[int]) -> Links:
    """Return the links between two halves, except those of a middle node. Two nodes are simply separated."""
    middle = len(nodes) // 2
    if len(nodes) < 3:
        return between([nodes[:middle], nodes[middle:]])
    return between([nodes[:middle], nodes[middle + 1 :]])


def majorities_ring(nodes: Sequence[int]) -> Links:
    """Let each node hear itself and its nearest neighbours in the ring, just enough for a majority; no two nodes hear the same
    majority.
    """
    count = len(nodes)
    others = count // 2  # other nodes
    cut = set()
    for place, target in enumerate(nodes):
        near = sorted(range(1, count), key=lambda step: (min(step, count - step), step))[:others]
        hears = {nodes[(place + step) % count] for step in near}
        cut |= {(source, target) for source in nodes if source != target and source not in hears}
    return frozenset(cut)
