"""Small clusters, solved exactly: a mixed integer program with one column for each partition on each broker.

Where there are few enough columns, the fewest bytes within all bounds are found, or that there is no way within them; then the
least excess is found first, and the fewest bytes for it second. The search is cut off after so many nodes rather than after so
many seconds, so that it gives the same answer on any machine; what it has not proved by then is not used.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, sparse

from .assignment import Assignment
from .cluster import Flags, Floats, Ints

COLUMNS = 1500
NODES = 400
MOVE_COST = 1e-3
"""Of one move, in units of the mean size: of plans with equal bytes the one with fewer moves wins."""


def fits(assignment: Assignment) -> bool:
    return bool(assignment.cluster.broker_count * assignment.movable.any(1).sum() <= COLUMNS)


def solve(start: Assignment, budget_bytes: float) -> Ints | None:
    """[P, R], the best placement that keeps every rule, from where a plan starts: what has to move is homeless in `start`. Rows
    of brokers are in no order. None if it was not found.
    """
    program = _Program(start, budget_bytes)
    strict = program.run(slack_limit=0.0)
    if strict is None:
        least = program.run(slack_limit=None)
        if least is None:
            return None
        strict = program.run(slack_limit=program.slack_of(least) * (1 + 1e-6) + 1e-9)
        strict = least if strict is None else strict
    return program.placement(strict)


class _Program:
    """Columns: one per movable partition and broker [N × B], then slack: bytes low, high, replicas low, high [B each]."""

    def __init__(self, start: Assignment, budget_bytes: float) -> None:
        self.start = start
        self.brokers = start.cluster.broker_count
        self.rows = np.nonzero(start.movable.any(1))[0]
        self.cells = len(self.rows) * self.brokers
        self.size = start.size[self.rows]
        self.factor = start.used[self.rows].sum(1)
        self.held = self._marks(start.original)
        self.fixed = self._marks(np.where(start.movable, -1, start.replicas))
        self.here = self._marks(start.replicas)
        self.budget = budget_bytes

    def _marks(self, replicas: Ints) -> Flags:
        """[N, B]: whether a broker is in the row."""
        marks = np.zeros((len(self.rows), self.brokers + 1), dtype=bool)
        held = replicas[self.rows]
        marks[np.arange(len(self.rows))[:, None], held] = True
        return marks[:, :-1]

    def run(self, *, slack_limit: float | None) -> Floats | None:
        """The cheapest plan whose excess is at most the limit; without a limit the one with the least excess."""
        scope, bounds = self.start.scope, self.start.scope.bounds
        mean_size = max(float(self.size.mean()), 1.0) if len(self.size) else 1.0
        new = ~self.held
        cost = np.where(new, self.size[:, None] / mean_size + MOVE_COST, 0.0).ravel()
        slack = self._slack_weights()
        zeros = np.zeros(4 * self.brokers)
        objective = np.r_[cost, zeros] if slack_limit is not None else np.r_[cost * 0.0, slack]
        allowed = self.here | (self.held & scope.counted[None, :]) | scope.takes[None, :]
        most = np.r_[np.where(allowed, 1.0, 0.0).ravel(), np.full(4 * self.brokers, 0.0 if slack_limit == 0.0 else np.inf)]
        least = np.r_[self.fixed.astype(float).ravel(), zeros]
        matrix, low, high = self._rows(bounds.disk_low, bounds.disk_high, bounds.count_low, bounds.count_high)
        extra = sparse.csr_array(np.r_[np.zeros(self.cells), slack][None, :])
        copied = sparse.csr_array(np.r_[np.where(new, self.size[:, None], 0.0).ravel(), zeros][None, :])
        found = optimize.milp(
            objective,
            constraints=optimize.LinearConstraint(
                sparse.vstack([matrix, extra, copied], format="csr"),
                np.r_[low, -np.inf, -np.inf],
                np.r_[high, np.inf if slack_limit is None else slack_limit, self.budget],
            ),
            integrality=np.r_[np.ones(self.cells), zeros],
            bounds=optimize.Bounds(least, np.maximum(most, least)),
            options={"node_limit": NODES},
        )
        return np.asarray(found.x, dtype=np.float64) if found.status == 0 else None

    def _slack_weights(self) -> Floats:
        bounds = self.start.scope.bounds
        members = max(int(self.start.scope.counted.sum()), 1)
        disk = 1.0 / max(float(bounds.share_bytes.sum()) / members, 1.0)
        return np.repeat([disk, 1.0 / max(bounds.mean_count, 1e-9)], 2 * self.brokers)

    def _rows(
        self, disk_low: Floats, disk_high: Floats, count_low: Floats, count_high: Floats
    ) -> tuple[sparse.csr_array, Floats, Floats]:
        count = len(self.rows)
        one = np.ones((1, count))
        per_partition = sparse.kron(sparse.eye_array(count), np.ones((1, self.brokers)))
        eye = sparse.eye_array(self.brokers)
        by_size, by_count = sparse.kron(self.size[None, :], eye), sparse.kron(one, eye)
        none = sparse.csr_array((self.brokers, self.brokers))
        racks = int(self.start.cluster.rack.max()) + 1
        member = sparse.csr_array(
            (np.ones(self.brokers), (self.start.cluster.rack, np.arange(self.brokers))), shape=(racks, self.brokers)
        )
        by_rack = sparse.kron(sparse.eye_array(count), member)
        still = self._standing()
        blocks = [
            [per_partition, sparse.csr_array((count, 4 * self.brokers))],
            [by_size, sparse.hstack([eye, -eye, none, none])],
            [by_count, sparse.hstack([none, none, eye, -eye])],
            [by_rack, sparse.csr_array((count * racks, 4 * self.brokers))],
        ]
        limit = np.repeat(self.start.scope.rack_limit[self.rows], racks).astype(float)
        limit = np.maximum(limit, np.asarray(by_rack @ (self.here.astype(float).ravel())))
        low = np.r_[self.factor, disk_low - still[0], count_low - still[1], np.full(count * racks, -np.inf)]
        high = np.r_[self.factor, disk_high - still[0], count_high - still[1], limit]
        return sparse.csr_array(sparse.block_array(blocks)), low, high

    def _standing(self) -> tuple[Floats, Floats]:
        """(bytes, replicas) of partitions that are not in the program, [B] each."""
        rest = np.ones(len(self.start.size), dtype=bool)
        rest[self.rows] = False
        replicas = self.start.replicas[rest]
        placed = replicas >= 0
        weights = np.broadcast_to(self.start.size[rest][:, None], replicas.shape)[placed]
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
