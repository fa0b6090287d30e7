"""Log directory of every replica of a plan, broker by broker.

New replicas go to the emptiest directory with room for them, the largest first. Then directories above their band give to those
below, each time the replica that fits best, until all are in the band or nothing helps. Shares go by capacity if every open
directory of the broker reports it, otherwise they are equal. Drained directories give everything. They take nothing, like offline
and cordoned ones, and like full ones if there are others. A replica in an offline directory stays there: only another broker
could have it.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from .assignment import Assignment
from .cluster import Flags, Floats, Ints, directory_bytes, directory_capacities
from .goals import DIRECTORY, DIRECTORY_CAPACITY, DISK_CAPACITY_SHARE


def place_in_directories(assignment: Assignment) -> Ints:
    """Return [P, R], the index of the directory in its broker's list; -1 means any, or, for a remaining replica, unknown."""
    scope, cluster = assignment.scope, assignment.cluster
    directory = current_directories(assignment)
    goals = {DIRECTORY, DIRECTORY_CAPACITY} & set(scope.options.goals)
    drained = {(cluster.index_of[id], path) for id, path in scope.options.drain_dirs}
    capacity = directory_capacities(
        cluster.brokers, directory_bytes(cluster.brokers, cluster.replicas, cluster.directory, cluster.size_bytes)
    )
    rows, slots = np.nonzero(assignment.replicas >= 0)
    moved = assignment.moved
    holders = assignment.replicas[rows, slots]
    order = np.argsort(holders, kind="stable")
    edges = np.searchsorted(holders[order], np.arange(cluster.broker_count + 1))
    for broker, entry in enumerate(cluster.brokers):
        part = order[edges[broker] : edges[broker + 1]]
        takes = np.array(
            [one.online and not one.cordoned and (broker, one.path) not in drained for one in entry.log_dirs], dtype=bool
        )
        if not len(part) or not takes.any() or not entry.alive:
            continue
        row, slot = rows[part], slots[part]
        leaves = np.array([(broker, one.path) in drained and one.online for one in entry.log_dirs], dtype=bool)
        may_move = scope.counted[broker] and scope.options.balances_directories
        room = _Room(capacity[broker], takes, leaves, scope.options.eps, DIRECTORY in goals)
        stays = ~assignment.scope.pinned[row] if may_move and goals else np.zeros(len(row), dtype=bool)
        comes = moved[row, slot]
        directory[row, slot] = room.place(directory[row, slot], assignment.size[row], comes, stays, ~scope.pinned[row])
    return directory


def current_directories(assignment: Assignment) -> Ints:
    """Return [P, R]: the directory of each remaining replica; -1 for new replicas and unknown directories."""
    found = np.full_like(assignment.replicas, -1)
    known = np.full_like(assignment.original, -1)
    known[:, : assignment.cluster.directory.shape[1]] = assignment.cluster.directory
    for slot in range(assignment.original.shape[1]):
        here = (assignment.replicas == assignment.original[:, slot : slot + 1]) & (assignment.replicas >= 0)
        found = np.where(here, known[:, slot : slot + 1], found)
    return found


class _Room:
    """The directories of one broker."""

    def __init__(self, capacity: Floats, takes: Flags, leaves: Flags, eps: float, banded: bool) -> None:
        self.takes, self.leaves = takes, leaves
        roomy = takes & (capacity != 0)
        self.open: list[int] = np.nonzero(roomy if roomy.any() else takes)[0].tolist()
        known = bool((capacity[self.open] > 0).all())
        self.weight: list[float] = np.where(takes, capacity if known else 1.0, 0.0).tolist()
        self.limit: list[float] = np.where(capacity >= 0, capacity * DISK_CAPACITY_SHARE, np.inf).tolist()
        self.eps, self.banded = eps, banded

    def place(self, held: Ints, size: Floats, comes: Flags, movable: Flags, drainable: Flags) -> Ints:
        """Return the directory of each replica ([N]). `comes` marks new replicas. A remaining replica of an unknown directory
        stays there.
        """
        leaving = drainable & (held >= 0) & self.leaves[np.maximum(held, 0)]
        placed = np.where(leaving, -1, held)
        load = [0.0] * len(self.weight)
        for at, amount in enumerate(np.bincount(placed[placed >= 0], weights=size[placed >= 0], minlength=len(load)).tolist()):
            load[at] = amount
        fresh = np.nonzero(leaving | comes)[0]
        fresh = fresh[np.argsort(-size[fresh], kind="stable")]
        filled = [load[at] / self.weight[at] for at in self.open]
        chosen = []
        for amount in size[fresh].tolist():
            emptiest = filled.index(min(filled))
            if load[self.open[emptiest]] + amount > self.limit[self.open[emptiest]]:
                emptiest = self._roomiest(load, amount)
            at = self.open[emptiest]
            load[at] += amount
            filled[emptiest] = load[at] / self.weight[at]
            chosen.append(at)
        placed[fresh] = chosen
        if movable.any() and len(self.open) > 1:
            self._even_out(placed, size, movable, [load[at] for at in self.open])
        return placed

    def _roomiest(self, load: list[float], amount: float) -> int:
        """Return the emptiest of the open directories that can hold that much more, or the one that it overfills least."""
        over = [load[at] + amount - self.limit[at] for at in self.open]
        return min(range(len(over)), key=lambda n: (max(over[n], 0.0), load[self.open[n]] / self.weight[self.open[n]]))

    def _bands(self, load: list[float]) -> tuple[list[float], list[float]]:
        """Return (low, high) of the open directories."""
        weights = [self.weight[at] for at in self.open]
        share = [sum(load) * weight / sum(weights) for weight in weights]
        low = [one * (1 - self.eps) if self.banded else 0.0 for one in share]
        limits = [self.limit[at] for at in self.open]
        high = [min(one * (1 + self.eps) if self.banded else np.inf, limit) for one, limit in zip(share, limits, strict=True)]
        return low, high

    def _even_out(self, placed: Ints, size: Floats, movable: Flags, load: list[float]) -> None:
        """Even out the open directories. `load` and the indexes here follow their order."""
        low, high = self._bands(load)
        inverse = [1 / self.weight[at] for at in self.open]
        held = [self._ordered(np.nonzero((placed == at) & movable)[0], size) for at in self.open]
        given_up: set[int] = set()
        while True:
            over = [
                amount - most if amount > most else least - amount for amount, least, most in zip(load, low, high, strict=True)
            ]
            for at in given_up:
                over[at] = 0.0
            worst = over.index(max(over))
            if over[worst] <= 0:
                return
            full = load[worst] > high[worst]
            filled = [amount * one for amount, one in zip(load, inverse, strict=True)]
            filled[worst] = np.inf if full else -np.inf
            other = filled.index(min(filled) if full else max(filled))
            source, target = (worst, other) if full else (other, worst)
            wanted = max(load[source] - high[source], low[target] - load[target])
            allowed = min(high[target] - load[target], load[source] - low[source])
            index = _fitting(held[source], wanted, allowed)
            if index is None:
                given_up.add(worst)
                continue
            amount, item = held[source].pop(index)
            held[target].insert(bisect_right(held[target], (amount, item)), (amount, item))
            load[source] -= amount
            load[target] += amount
            placed[item] = self.open[target]
            given_up.clear()

    @staticmethod
    def _ordered(items: Ints, size: Floats) -> list[tuple[float, int]]:
        return sorted(zip(size[items].tolist(), items.tolist(), strict=True))


def _fitting(items: list[tuple[float, int]], wanted: float, allowed: float) -> int | None:
    """Return the smallest item that is enough, if it is allowed, otherwise the largest allowed one; None if no
    item has a size.
    """
    enough = bisect_right(items, (wanted, -1))
    if enough < len(items) and items[enough][0] <= allowed:
        return enough
    largest = bisect_right(items, (allowed, len(items) + 1 << 40)) - 1
    return largest if largest >= 0 and items[largest][0] > 0 else None
