"""Ways to split a cluster, as the directed links to cut. Pure.

A link is (source, target): what the source sends to the target. All splits but the one-way ones are symmetric where they can be;
with three nodes a ring of majorities cannot, so each then hears its neighbour only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import permutations
from random import Random

Link = tuple[int, int]
Links = frozenset[Link]

HOW = ("halves", "random-halves", "one", "majorities-ring", "bridge")
"""The names of symmetric splits, as a plan has them."""
ONE_WAYS = ("out", "in")


def split(how: str, nodes: Sequence[int], random: Random) -> Links:
    """The links that such a split of these nodes cuts. ValueError if there is no such split."""
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
    raise ValueError(f"there is no split {how!r}; splits are {', '.join(HOW)}")


def between(groups: Iterable[Collection[int]]) -> Links:
    """Every link from one group to another."""
    return frozenset(
        (source, target)
        for sources, targets in permutations([tuple(group) for group in groups], 2)
        for source in sources
        for target in targets
    )


def around(nodes: Collection[int], others: Collection[int]) -> Links:
    """Every link between one of `nodes` and one of the others, both ways."""
    return between([nodes, [other for other in others if other not in nodes]])


def one_way(way: str, nodes: Collection[int], others: Collection[int]) -> Links:
    """What `nodes` send to the others ("out"), or what the others send to them ("in")."""
    if way not in ONE_WAYS:
        raise ValueError(f"there is no way {way!r}; ways are {', '.join(ONE_WAYS)}")
    return frozenset((node, other) if way == "out" else (other, node) for node in nodes for other in others if other not in nodes)


def bridge(nodes: Sequence[int]) -> Links:
    """Two halves, and the middle one that talks to both. Two nodes are merely parted."""
    middle = len(nodes) // 2
    if len(nodes) < 3:
        return between([nodes[:middle], nodes[middle:]])
    return between([nodes[:middle], nodes[middle + 1 :]])


def majorities_ring(nodes: Sequence[int]) -> Links:
    """Each node hears itself and the nearest others in the ring, just enough for a majority; no two hear the same ones."""
    count = len(nodes)
    heard = count // 2  # others than itself
    cut = set()
    for place, target in enumerate(nodes):
        near = sorted(range(1, count), key=lambda step: (min(step, count - step), step))[:heard]
        hears = {nodes[(place + step) % count] for step in near}
        cut |= {(source, target) for source in nodes if source != target and source not in hears}
    return frozenset(cut)
