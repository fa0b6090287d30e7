"""Order of replica lists that makes preferred leaders even, without moving a byte.

Leaderships are passed along paths: from a broker with too many, over partitions that it leads and the next broker follows, to a
broker with room; as many along each path as it carries, the shortest path first. Then the same for brokers with too few. This is
a maximum flow: bounds that the given replicas can keep are kept afterwards.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .assignment import Assignment
from .cluster import Flags, Floats, Ints
from .goals import band_of_counts


def leader_counts(replicas: Ints, brokers: int) -> Ints:
    """Return [B], the number of partitions whose preferred leader each broker is."""
    counts: Ints = np.bincount(replicas[:, 0], minlength=brokers).astype(np.int64)
    return counts


def leader_bounds(counts: Ints, counted: Flags, eps: float) -> tuple[Floats, Floats]:
    """Return (fewest, most) per broker; infinite for a broker that does not count."""
    mean = counts[counted].sum() / max(int(counted.sum()), 1)
    fewest, most = band_of_counts(float(mean), eps)
    return np.where(counted, fewest, -np.inf), np.where(counted, most, np.inf)


def balance_leaders(assignment: Assignment, eligible: Flags) -> None:
    """Swap the first replica of eligible partitions ([P]) with another, as few times as possible."""
    scope = assignment.scope
    leads = _Leads(assignment.replicas, eligible, scope.counted)
    low, high = leader_bounds(leads.counts, scope.counted, scope.options.eps)
    _even_out(leads, low, high, down=True)
    _even_out(leads, low, high, down=False)


def _even_out(leads: _Leads, low: Floats, high: Floats, *, down: bool) -> None:
    """Take leaderships from brokers above `high` if `down`, otherwise bring them to brokers below `low`."""
    hopeless = np.zeros(len(low), dtype=bool)
    while True:
        counts = leads.counts
        wrong = np.where(hopeless, 0.0, counts - high if down else low - counts)
        start = int(wrong.argmax())
        if wrong[start] <= 0:
            return
        room = high - counts if down else counts - low
        path = _path(leads.edges if down else leads.edges.T, start, np.maximum(room, 0.0))
        if path is None:
            hopeless[start] = True
            continue
        amount = int(min(wrong[start], room[path[-1]]))
        leads.push(path if down else path[::-1], amount)


def _path(edges: Ints, start: int, room: Floats) -> list[int] | None:
    """Return the shortest path to a broker with room, among the nearest to the one with the most. None if there is no path."""
    came_from = np.full(len(room), -1)
    came_from[start] = start
    frontier = np.array([start])
    while len(frontier):
        carries = edges[frontier] > 0
        reached = np.nonzero(carries.any(0) & (came_from < 0))[0]
        came_from[reached] = frontier[carries[:, reached].argmax(0)]
        if len(reached) and room[reached].max() > 0:
            at = int(reached[room[reached].argmax()])
            path = [at]
            while at != start:
                at = int(came_from[at])
                path.append(at)
            return path[::-1]
        frontier = reached
    return None


class _Leads:
    """`edges`: [B, B], the number of eligible partitions that one broker leads and the other follows. `counts`: [B], of all
    partitions.
    """

    def __init__(self, replicas: Ints, eligible: Flags, counted: Flags) -> None:
        self.replicas, self.counted = replicas, counted
        brokers = len(counted)
        self.counts = leader_counts(replicas, brokers)
        rows = np.nonzero(eligible & counted[replicas[:, 0]])[0]
        leaders = replicas[rows, 0]
        self.edges = np.zeros((brokers, brokers), dtype=np.int64)
        for slot in range(1, replicas.shape[1]):
            followers = replicas[rows, slot]
            there = (followers >= 0) & counted[followers]
            np.add.at(self.edges, (leaders[there], followers[there]), 1)
        order = np.argsort(leaders, kind="stable")
        edges = np.searchsorted(leaders[order], np.arange(brokers + 1))
        self.led: list[Ints] = [rows[order[edges[at] : edges[at + 1]]] for at in range(brokers)]

    def push(self, path: list[int], amount: int) -> None:
        """Pass up to `amount` leaderships along a path, as many as every hop carries."""
        amount = min(amount, *(int(self.edges[a, b]) for a, b in pairwise(path)))
        for a, b in reversed(list(pairwise(path))):
            led = self.led[a]
            follows = (self.replicas[led, 1:] == b).any(1)
            chosen = led[follows][:amount]
            taken = follows & (np.cumsum(follows) <= amount)
            slot = (self.replicas[chosen] == b).argmax(1)
            self._count(chosen, a, -1)
            self.replicas[chosen, slot], self.replicas[chosen, 0] = a, b
            self._count(chosen, b, 1)
            self.led[a], self.led[b] = led[~taken], np.append(self.led[b], chosen)
            self.counts[a] -= len(chosen)
            self.counts[b] += len(chosen)

    def _count(self, rows: Ints, leader: int, sign: int) -> None:
        followers = self.replicas[rows, 1:]
        there = (followers >= 0) & self.counted[followers]
        np.add.at(self.edges[leader], followers[there], sign)
