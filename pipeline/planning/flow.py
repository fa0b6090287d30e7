"""Number of replicas of each size class that every broker gives and takes, so that all bounds hold and the fewest bytes move.

Loads do not depend on which broker gives to which, only on the numbers of each class. So this is a linear program with three
columns per broker and class (taken, given from the old replicas, given from the plan's replicas) rather than one per pair of
brokers: 9,000 for 300 brokers, which HiGHS solves at once. Bounds are soft: excess costs far more than any move, so an impossible
bound costs its impossible part and nothing else. Two families of rows add bounds that classes alone do not have: of a rack, by
the partitions of a class, and of a broker, by the number of partitions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from .assignment import Assignment
from .cluster import Flags, Floats, Ints
from .solver import milp

CLASSES = 10
EXCESS_COST = 1000.0
"""Cost of holding a broker's mean load too much or too little, in units of moving it once."""
HARD_COST = 100 * EXCESS_COST
"""Cost of holding that much more than a hard bound allows."""
TAKING_COST = 0.001
"""Cost of taking, in units of moving the mean replica: enough that no broker takes and gives the same."""
COUNT_COST = 0.001
"""Cost of moving a replica of any size, in units of moving the mean one."""


AGAIN_COST = 0.1
"""Cost of moving on a replica that the plan moves anyway, in units of moving it. It costs no bytes, but can fail
to find a match.
"""


class Flow(NamedTuple):
    """[B, C] each, whole numbers: replicas that each broker takes, gives of its old ones, gives of its new ones. `excess` is the
    part out of bounds even if replicas could be cut, in the program's units; 0 if all bounds can be kept.
    """

    take: Ints
    give: Ints
    give_on: Ints
    excess: float


def size_classes(size: Floats, weight: Ints) -> Ints:
    """Return [P], the class of each partition: by size, with cuts where the running sum of √size × replicas passes equal parts.
    This is between equal numbers, which describe the large ones badly, and equal bytes, which describe the small ones badly.
    """
    order = np.argsort(size, kind="stable")
    running = np.cumsum(np.sqrt(size[order] + 1.0) * weight[order])
    parts = np.minimum((running / max(running[-1], 1.0) * CLASSES).astype(np.int64), CLASSES - 1)
    first = np.r_[True, size[order][1:] != size[order][:-1]]
    parts = np.maximum.accumulate(np.where(first, parts, 0))
    classes = np.empty(len(size), dtype=np.int64)
    classes[order] = np.unique(parts, return_inverse=True)[1]
    return classes


def solve(assignment: Assignment, classes: Ints, *, margin: float, budget_bytes: float) -> Flow:
    """Return the cheapest flow from the current placement. `margin` is the distance to aim inside the bounds, as a part of the
    mean, since whole replicas of uneven sizes will miss the program's numbers.
    """
    model = _Model(assignment, classes, margin, budget_bytes)
    found = milp(
        model.cost,
        constraints=optimize.LinearConstraint(model.rows(), model.low, model.high),
        bounds=optimize.Bounds(np.zeros(len(model.cost)), model.most),
    )
    cells = model.brokers * model.classes
    if found.x is None:
        nothing = np.zeros((model.brokers, model.classes), dtype=np.int64)
        return Flow(nothing, nothing.copy(), nothing.copy(), 0.0)
    values = [found.x[at * cells : (at + 1) * cells].reshape(model.brokers, model.classes) for at in range(3)]
    take, give, give_on = (rounded(value) for value in values)
    return Flow(take, give, give_on, float((model.cost[3 * cells :] * found.x[3 * cells :]).sum()) / EXCESS_COST)


def rounded(values: Floats) -> Ints:
    """Return whole numbers whose running sum along each row never differs from the row's by more than a half."""
    running = np.rint(np.cumsum(values, axis=1) - 1e-7).astype(np.int64)
    whole: Ints = np.diff(running, axis=1, prepend=0)
    return np.maximum(whole, 0)


class _Model:
    """Columns: take, give, give_on [B × C each], then four of excess [B each]: disk low, disk high, count low, count high, and,
    with hard bounds, disk beyond them. Bytes are in units of a broker's mean load, since the solver's tolerances are absolute.
    """

    def __init__(self, assignment: Assignment, classes: Ints, margin: float, budget_bytes: float) -> None:
        scope, bounds = assignment.scope, assignment.scope.bounds
        self.brokers = assignment.cluster.broker_count
        self.classes = int(classes.max()) + 1
        self.cells = self.brokers * self.classes
        movable = assignment.movable & (assignment.replicas >= 0)
        rows, slots = np.nonzero(movable)
        holders = assignment.replicas[rows, slots]
        key = holders * self.classes + classes[rows]
        fresh = assignment.moved[rows, slots]
        self.held = np.bincount(key[~fresh], minlength=self.cells)
        self.fresh = np.bincount(key[fresh], minlength=self.cells)
        placed = np.maximum((assignment.replicas >= 0).sum(1), 1)
        total = np.bincount(classes, weights=assignment.size * placed, minlength=self.classes)
        counted = int(max(scope.counted.sum(), 1))
        unit = max(float(bounds.share_bytes.sum()) / counted, 1.0)
        replicas = np.bincount(classes, weights=placed.astype(float), minlength=self.classes)
        self.mean_size = total / np.maximum(replicas, 1) / unit
        waiting, _ = assignment.homeless()
        self.supply = np.bincount(classes[waiting], minlength=self.classes)
        self.disk, self.count = assignment.disk / unit, assignment.count
        self.rack = assignment.cluster.rack
        whole = ~scope.pinned
        self.partitions = np.bincount(classes[whole], minlength=self.classes)
        self.rack_room = np.bincount(classes[whole], weights=scope.rack_limit[whole].astype(float), minlength=self.classes)
        self.mean_count = max(bounds.mean_count, 1e-9)
        aside = margin * np.maximum(bounds.share_bytes, 0.0) / unit
        self.disk_low, self.disk_high = _inside(bounds.disk_low / unit, bounds.disk_high / unit, aside)
        less = np.full(self.brokers, margin * bounds.mean_count)
        self.count_low, self.count_high = _inside(bounds.count_low, bounds.count_high, less)
        self.disk_limit = bounds.disk_limit / unit
        self.blocks = 5 if np.isfinite(bounds.disk_limit).any() else 4
        self.budget = budget_bytes / unit
        self._fill(scope.takes)

    def _fill(self, takes: Flags) -> None:
        size = np.tile(self.mean_size, self.brokers)
        small = float(self.mean_size.mean()) * COUNT_COST
        of_count = EXCESS_COST / self.mean_count
        excess = np.repeat([EXCESS_COST, EXCESS_COST, of_count, of_count, HARD_COST][: self.blocks], self.brokers)
        taking = np.full(self.cells, TAKING_COST * small)
        self.cost = np.concatenate([taking, size + small, AGAIN_COST * (size + small), excess])
        room = np.maximum(np.tile(self.partitions, self.brokers) - self.held - self.fresh, 0)
        takes_cells = np.repeat(takes, self.classes)
        self.most = np.concatenate([np.where(takes_cells, room, 0), self.held, self.fresh, np.full(len(excess), np.inf)])

    def rows(self) -> sparse.csr_array:
        """Return the matrix, and set `low` and `high`, the bounds of its rows."""
        one_per_broker = sparse.kron(sparse.eye_array(self.brokers), np.ones((1, self.classes)))
        by_size = sparse.kron(sparse.eye_array(self.brokers), self.mean_size[None, :])
        by_class = sparse.kron(np.ones((1, self.brokers)), sparse.eye_array(self.classes))
        eye, none = sparse.eye_array(self.brokers), sparse.csr_array((self.brokers, self.brokers))
        racks = int(self.rack.max()) + 1
        membership = sparse.csr_array((np.ones(self.brokers), (self.rack, np.arange(self.brokers))), shape=(racks, self.brokers))
        by_rack = sparse.kron(membership, sparse.eye_array(self.classes))
        held = (self.held + self.fresh).astype(float)
        in_rack = np.asarray(by_rack @ held)
        room = np.maximum(np.tile(self.rack_room, racks) - in_rack, 0.0)
        paid = np.tile(self.mean_size, self.brokers)[None, :]
        flat = sparse.csr_array((1, self.blocks * self.brokers))
        more = [none] * (self.blocks - 4)
        blocks = [
            [by_size, -by_size, -by_size, sparse.hstack([eye, -eye, none, none, *more])],
            [one_per_broker, -one_per_broker, -one_per_broker, sparse.hstack([none, none, eye, -eye, *more])],
            [by_class, -by_class, -by_class, sparse.csr_array((self.classes, self.blocks * self.brokers))],
            [by_rack, -by_rack, -by_rack, sparse.csr_array((racks * self.classes, self.blocks * self.brokers))],
            [sparse.csr_array((1, self.cells)), sparse.csr_array(paid), sparse.csr_array((1, self.cells)), flat],
        ]
        open_end = np.full(racks * self.classes, -np.inf)
        self.low = np.concatenate([self.disk_low - self.disk, self.count_low - self.count, self.supply, open_end, [-np.inf]])
        self.high = np.concatenate([self.disk_high - self.disk, self.count_high - self.count, self.supply, room, [self.budget]])
        if more:
            blocks.append([by_size, -by_size, -by_size, sparse.hstack([none, none, none, none, -eye])])
            self.low = np.concatenate([self.low, np.full(self.brokers, -np.inf)])
            self.high = np.concatenate([self.high, self.disk_limit - self.disk])
        return sparse.csr_array(sparse.block_array(blocks))


def _inside(low: Floats, high: Floats, aside: Floats) -> tuple[Floats, Floats]:
    """Return the bounds drawn in by `aside`, never past each other."""
    inner_low, inner_high = low + aside, high - aside
    crossed = inner_low > inner_high
    middle = np.where(crossed, np.where(crossed, low, 0.0) / 2 + np.where(crossed, high, 0.0) / 2, 0.0)
    return np.where(crossed, middle, inner_low), np.where(crossed, middle, inner_high)
