"""Exact solutions for small clusters: a mixed integer program with one column for each partition on each broker.

With few enough columns the program finds the fewest bytes within all bounds, or that there is no solution within them. Then it
finds the least excess first, and the fewest bytes for that excess second. The search is limited by a number of nodes rather than
seconds, so that it gives the same answer on any machine. A result without proof is used only if it is better than that of flows
and repairs, and is not called exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from .assignment import Assignment
from .cluster import Flags, Floats, Ints
from .repair import HARD
from .solver import milp

COLUMNS = 1500
NODES = 400
MOVE_COST = 1e-5
"""Cost of one move, in units of the mean size: of plans with equal bytes the one with fewer moves wins."""
GAP = 1e-6
"""Relative excess over the least cost at which a placement still counts as the best."""


NO_SLACK = 1e-6


class Exact(NamedTuple):
    """`replicas`: [P, R], the brokers of a row in any order. `is_proved`: no placement is better, except by `GAP`."""

    replicas: Ints
    is_proved: bool


class _Solution(NamedTuple):
    values: Floats
    is_proved: bool


def fits(assignment: Assignment) -> bool:
    """Return whether there is anything to place, and little enough."""
    return bool(0 < assignment.cluster.broker_count * assignment.movable.any(1).sum() <= COLUMNS)


def solve(start: Assignment, budget_bytes: float) -> Exact | None:
    """Return the best placement that keeps every rule, from the start of a plan: replicas that have to move are homeless in
    `start`. None if there is no placement, or none was found.
    """
    program = _Program(start, budget_bytes)
    found = program.run(slack_limit=0.0)
    if found is None:
        least = program.run(slack_limit=None)
        if least is None:
            return None
        slack = program.slack_of(least.values)
        found = program.run(slack_limit=slack * (1 + 1e-6) + NO_SLACK) if slack > NO_SLACK else None
        found = _Solution(least.values, False) if found is None else _Solution(found.values, found.is_proved and least.is_proved)
    return Exact(program.placement(found.values), found.is_proved)


class _Program:
    """Columns: one per movable partition and broker [N × B], then slack: bytes low, high, replicas low, high, and, with hard
    bounds, bytes beyond them [B each]. Bytes are in units of a broker's mean load, since the solver's tolerances are absolute.
    """

    def __init__(self, start: Assignment, budget_bytes: float) -> None:
        self.start = start
        self.brokers = start.cluster.broker_count
        self.rows = np.nonzero(start.movable.any(1))[0]
        self.cells = len(self.rows) * self.brokers
        members = max(int(start.scope.counted.sum()), 1)
        self.unit = max(float(start.scope.bounds.share_bytes.sum()) / members, 1.0)
        self.size = start.size[self.rows] / self.unit
        self.factor = start.used[self.rows].sum(1)
        self.held = self._marks(start.original)
        self.blocks = 5 if np.isfinite(start.scope.bounds.disk_limit).any() else 4
        self.fixed = self._marks(np.where(start.movable, -1, start.replicas))
        self.here = self._marks(start.replicas)
        spent = start.moved.sum(1) * start.size
        spent[self.rows] = 0.0
        self.budget = (budget_bytes - float(spent.sum())) / self.unit

    def _marks(self, replicas: Ints) -> Flags:
        """Return [N, B]: whether a broker is in the row."""
        marks = np.zeros((len(self.rows), self.brokers + 1), dtype=bool)
        held = replicas[self.rows]
        marks[np.arange(len(self.rows))[:, None], held] = True
        return marks[:, :-1]

    def run(self, *, slack_limit: float | None) -> _Solution | None:
        """Return the cheapest plan whose excess is at most the limit; without a limit, the one with the least excess."""
        scope, bounds = self.start.scope, self.start.scope.bounds
        mean_size = float(self.size.mean()) or 1.0
        new = ~self.held
        cost = np.where(new, self.size[:, None] / mean_size + MOVE_COST, 0.0).ravel()
        slack = self._slack_weights()
        zeros = np.zeros(len(slack))
        objective = np.r_[cost, zeros] if slack_limit is not None else np.r_[cost * 0.0, slack]
        allowed = self.here | (self.held & scope.counted[None, :]) | scope.takes[None, :]
        most = np.r_[np.where(allowed, 1.0, 0.0).ravel(), np.full(len(slack), 0.0 if slack_limit == 0.0 else np.inf)]
        least = np.r_[self.fixed.astype(float).ravel(), zeros]
        matrix, low, high = self._rows(
            bounds.disk_low / self.unit, bounds.disk_high / self.unit, bounds.count_low, bounds.count_high
        )
        extra = sparse.csr_array(np.r_[np.zeros(self.cells), slack][None, :])
        copied = sparse.csr_array(np.r_[np.where(new, self.size[:, None], 0.0).ravel(), zeros][None, :])
        found = milp(
            objective,
            constraints=optimize.LinearConstraint(
                sparse.vstack([matrix, extra, copied], format="csr"),
                np.r_[low, -np.inf, -np.inf],
                np.r_[high, np.inf if slack_limit is None else slack_limit, self.budget],
            ),
            integrality=np.r_[np.ones(self.cells), zeros],
            bounds=optimize.Bounds(least, np.maximum(most, least)),
            options={"node_limit": NODES, "mip_rel_gap": GAP},
        )
        return _Solution(np.asarray(found.x, dtype=np.float64), found.status == 0) if found.x is not None else None

    def _slack_weights(self) -> Floats:
        of_count = 1.0 / max(self.start.scope.bounds.mean_count, 1e-9)
        return np.repeat([1.0, 1.0, of_count, of_count, HARD][: self.blocks], self.brokers)

    def _rows(
        self, disk_low: Floats, disk_high: Floats, count_low: Floats, count_high: Floats
    ) -> tuple[sparse.csr_array, Floats, Floats]:
        count = len(self.rows)
        one = np.ones((1, count))
        per_partition = sparse.kron(sparse.eye_array(count), np.ones((1, self.brokers)))
        eye = sparse.eye_array(self.brokers)
        by_size, by_count = sparse.kron(self.size[None, :], eye), sparse.kron(one, eye)
        none = sparse.csr_array((self.brokers, self.brokers))
        more = [none] * (self.blocks - 4)
        racks = int(self.start.cluster.rack.max()) + 1
        member = sparse.csr_array(
            (np.ones(self.brokers), (self.start.cluster.rack, np.arange(self.brokers))), shape=(racks, self.brokers)
        )
        by_rack = sparse.kron(sparse.eye_array(count), member)
        still = self._standing()
        blocks = [
            [per_partition, sparse.csr_array((count, self.blocks * self.brokers))],
            [by_size, sparse.hstack([eye, -eye, none, none, *more])],
            [by_count, sparse.hstack([none, none, eye, -eye, *more])],
            [by_rack, sparse.csr_array((count * racks, self.blocks * self.brokers))],
        ]
        limit = np.repeat(self.start.scope.rack_limit[self.rows], racks).astype(float)
        limit = np.maximum(limit, np.asarray(by_rack @ (self.here.astype(float).ravel())))
        low = np.r_[self.factor, disk_low - still[0], count_low - still[1], np.full(count * racks, -np.inf)]
        high = np.r_[self.factor, disk_high - still[0], count_high - still[1], limit]
        if more:
            blocks.append([by_size, sparse.hstack([none, none, none, none, -eye])])
            low = np.r_[low, np.full(self.brokers, -np.inf)]
            high = np.r_[high, self.start.scope.bounds.disk_limit / self.unit - still[0]]
        return sparse.csr_array(sparse.block_array(blocks)), low, high

    def _standing(self) -> tuple[Floats, Floats]:
        """Return (bytes, replicas) of partitions outside the program, [B] each."""
        rest = np.ones(len(self.start.size), dtype=bool)
        rest[self.rows] = False
        replicas = self.start.replicas[rest]
        placed = replicas >= 0
        weights = np.broadcast_to(self.start.size[rest][:, None] / self.unit, replicas.shape)[placed]
        disk = np.bincount(replicas[placed], weights=weights, minlength=self.brokers).astype(np.float64)
        return disk, np.bincount(replicas[placed], minlength=self.brokers).astype(np.float64)

    def slack_of(self, values: Floats) -> float:
        return float((values[self.cells :] * self._slack_weights()).sum())

    def placement(self, values: Floats) -> Ints:
        replicas = self.start.replicas.copy()
        chosen = values[: self.cells].reshape(len(self.rows), self.brokers) > 0.5
        for at, row in enumerate(self.rows.tolist()):
            held = np.nonzero(chosen[at])[0].tolist()
            replicas[row] = held + [-1] * (replicas.shape[1] - len(held))
        return replicas
