"""Dependencies among transactions, and the shortest cycles of dependencies.

A graph of numbered nodes with edges of a few kinds. The first `transactions` nodes are transactions; the others are *relays*,
each of which represents many edges at once (everything that returned before a moment precedes everything that began after it), so
that the graph stays linear in the history. An edge into a relay has the kind of the edges that it represents; leaving a relay
costs nothing. Most histories have no cycle. Removing nodes without predecessors shows this in linear time, and only the remaining
nodes are searched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

WW, WR, RW, REALTIME, RELAY = range(5)
KIND_NAMES = ("ww", "wr", "rw", "realtime", "relay")
_BITS, _MASK = 3, 7
"""An edge is one integer, its target and below it its kind: a graph has millions."""


class Edge(NamedTuple):
    """An edge between transactions. `by_relay`: a relay represents it."""

    source: int
    target: int
    kind: int
    by_relay: bool = False


class Cycle(NamedTuple):
    """A cycle of edges. `name` is "G0" (writes only), "G1c" (writes and reads of them), "G-single" (one anti-dependency) or "G2"
    (several); with the suffix "-realtime" if the cycle needs real time.
    """

    name: str
    edges: tuple[Edge, ...]


CLASSES: tuple[tuple[str, frozenset[int], bool], ...] = (
    ("G0", frozenset({WW}), False),
    ("G1c", frozenset({WW, WR}), False),
    ("G-single", frozenset({WW, WR}), True),
    ("G2", frozenset({WW, WR, RW}), True),
    ("G0-realtime", frozenset({WW, REALTIME}), False),
    ("G1c-realtime", frozenset({WW, WR, REALTIME}), False),
    ("G-single-realtime", frozenset({WW, WR, REALTIME}), True),
    ("G2-realtime", frozenset({WW, WR, RW, REALTIME}), True),
)
"""Name, kinds of edges on the way, and whether an anti-dependency closes the cycle; worst first."""
STARTS_MAX = 300
"""The search for cycles of one class starts from at most so many edges. Each lies on a cycle of some class, so a cycle is always
found.
"""


class Graph:
    """Add all edges, then ask for cycles."""

    def __init__(self, transactions: int) -> None:
        self.transactions = transactions
        self._edges: list[list[int]] = [[] for _ in range(transactions)]
        self._before = [0] * transactions
        """Node → number of edges into it."""

    @property
    def edge_count(self) -> int:
        return sum(map(len, self._edges))

    def relay(self) -> int:
        """Add a relay and return its number."""
        self._edges.append([])
        self._before.append(0)
        return len(self._edges) - 1

    def add(self, source: int, target: int, kind: int) -> None:
        if source != target:
            self._edges[source].append(target << _BITS | kind)
            self._before[target] += 1

    def cycles(self) -> list[Cycle]:
        """Return the shortest cycle of each class, worst class first. A cycle that already counts for a worse class is not
        repeated, and real time is used only if there is no cycle without it.
        """
        left = self._components()
        found: list[Cycle] = []
        for name, kinds, closes in CLASSES if left else ():
            if found and REALTIME in kinds and not found[-1].name.endswith("realtime"):
                break
            cycle = self._shortest(name, left, kinds, closes)
            if cycle is not None and all(set(cycle.edges) != set(other.edges) for other in found):
                found.append(cycle)
        return found

    def _components(self) -> dict[int, list[int]]:
        """Return the nodes on cycles, with their edges on cycles."""
        edges, before = self._edges, self._before.copy()
        work = [node for node, count in enumerate(before) if not count]
        peeled = 0
        while work:
            node = work.pop()
            peeled += 1
            for edge in edges[node]:
                target = edge >> _BITS
                before[target] -= 1
                if not before[target]:
                    work.append(target)
        if peeled == len(edges):
            return {}
        kept = {node: [edge for edge in edges[node] if before[edge >> _BITS]] for node, count in enumerate(before) if count}
        return _on_cycles(kept)

    def _shortest(self, name: str, left: dict[int, list[int]], kinds: frozenset[int], closes: bool) -> Cycle | None:
        best: tuple[Edge, ...] | None = None
        wanted = {RW} if closes else kinds - {REALTIME}
        starts = [(node, edge) for node in sorted(left) for edge in left[node] if edge & _MASK in wanted]
        for source, edge in starts[:STARTS_MAX]:
            way = _way(edge >> _BITS, source, left, kinds | {RELAY}, len(best) if best else None)
            if way is None:
                continue
            cycle = self._without_relays([(source, edge), *way])
            if best is None or len(cycle) < len(best):
                best = cycle
        return None if best is None else Cycle(name, best)

    def _without_relays(self, steps: Sequence[tuple[int, int]]) -> tuple[Edge, ...]:
        merged: list[Edge] = []
        for source, edge in steps:
            target = edge >> _BITS
            if source >= self.transactions:
                merged[-1] = merged[-1]._replace(target=target, by_relay=True)
            else:
                merged.append(Edge(source, target, edge & _MASK))
        return tuple(merged)


def _on_cycles(edges: dict[int, list[int]]) -> dict[int, list[int]]:
    """Return the nodes on cycles, with their edges on cycles: the edges within strongly connected components (Tarjan 1972). Edges
    that only lead from one cycle to another would use up the starts.
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    for root in edges:
        work = [] if root in order else [(root, iter(edges[root]))]
        while work:
            node, left = work[-1]
            if node not in order:
                order[node] = lowest[node] = len(order)
                stack.append(node)
            for edge in left:
                target = edge >> _BITS
                if target not in order:
                    work.append((target, iter(edges[target])))
                    break
                if target not in component:
                    lowest[node] = min(lowest[node], order[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    while node not in component:
                        component[stack.pop()] = node
    kept = {node: [edge for edge in ways if component[edge >> _BITS] == component[node]] for node, ways in edges.items()}
    return {node: ways for node, ways in kept.items() if ways}


def _way(
    start: int, end: int, left: dict[int, list[int]], kinds: frozenset[int], shorter_than: int | None
) -> list[tuple[int, int]] | None:
    """Return the shortest path as (node, edge out of it); edges out of relays are free."""
    came: dict[int, tuple[int, int]] = {}
    distance = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if node == end:
            break
        if shorter_than is not None and distance[node] >= shorter_than:
            continue
        for edge in left[node]:
            kind, target = edge & _MASK, edge >> _BITS
            if kind not in kinds:
                continue
            cost = distance[node] + (kind != RELAY)
            if target not in distance or cost < distance[target]:
                distance[target], came[target] = cost, (node, edge)
                (queue.append if kind != RELAY else queue.appendleft)(target)
    else:
        return None
    steps: list[tuple[int, int]] = []
    while node != start:
        steps.append(came[node])
        node = came[node][0]
    return steps[::-1]
