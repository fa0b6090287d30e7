"""The last steps with real sizes: single moves and swaps that bring the remaining brokers within bounds.

A flow counts in classes of sizes and leaves brokers a little off. Here the worst broker is chosen again and again, and of all
moves from it, moves to it and swaps with it, the one is made that lowers the total excess most for its bytes. A swap keeps the
numbers of replicas, which can bring a broker into the band of bytes at the edge of its band of replicas. Every step lowers the
sum, so it ends; brokers that nothing helps are skipped. At the end, moves of the flow that are no longer needed are undone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .assignment import Assignment
from .cluster import Flags, Floats, Ints

PARTNERS = 12
SINGLE_SAMPLE = 400
SWAP_SAMPLE = 40
TRIED = 400
STEPS_PER_BROKER = 40
BYTES_WEIGHT = 0.02
"""Moving a broker's mean load costs this part of it in excess."""
LEAST_GAIN = 1e-9
HARD = 1000.0
"""Weight of excess over a hard bound relative to a band: enough that no band is worth it."""


class _Step(NamedTuple):
    """Moves of one step: (row, slot, broker) once or twice."""

    moves: tuple[tuple[int, int, int], ...]
    bytes: float


class Holdings:
    """The movable replicas of every broker, updated by each step."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        rows, slots = np.nonzero(assignment.movable & (assignment.replicas >= 0))
        holders = assignment.replicas[rows, slots]
        order = np.argsort(holders, kind="stable")
        edges = np.searchsorted(holders[order], np.arange(assignment.cluster.broker_count + 1))
        self.of: list[tuple[Ints, Ints]] = [(rows[order[a:b]], slots[order[a:b]]) for a, b in pairwise(edges.tolist())]

    def of_many(self, brokers: Ints) -> tuple[Ints, Ints]:
        parts = [self.of[broker] for broker in brokers.tolist()]
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *(rows for rows, _ in parts)]), np.concatenate([none, *(slots for _, slots in parts)])

    def make(self, step: _Step) -> None:
        """Make a step's moves."""
        work = self.assignment
        for row, slot, broker in step.moves:
            rows, slots = self.of[int(work.replicas[row, slot])]
            left = (rows != row) | (slots != slot)
            self.of[int(work.replicas[row, slot])] = rows[left], slots[left]
            rows, slots = self.of[broker]
            self.of[broker] = np.append(rows, row), np.append(slots, slot)
            work.move_one(row, slot, broker)


class Excess:
    """Distance of brokers from their bounds, in parts of the mean load plus parts of the mean number of replicas. Excess over the
    hard bound of bytes counts `HARD` times.
    """

    def __init__(self, assignment: Assignment) -> None:
        bounds = assignment.scope.bounds
        self.bounds = bounds
        self.mean_disk = max(float(bounds.share_bytes.sum()) / max(int(assignment.scope.counted.sum()), 1), 1.0)
        self.mean_count = max(bounds.mean_count, 1e-9)

    def of(self, brokers: Ints, disk: Floats, count: Floats | Ints) -> Floats:
        bounds = self.bounds
        high = np.maximum(disk - bounds.disk_high[brokers], 0.0) + np.maximum(bounds.disk_low[brokers] - disk, 0.0)
        high += HARD * np.maximum(disk - bounds.disk_limit[brokers], 0.0)
        many = np.maximum(count - bounds.count_high[brokers], 0.0) + np.maximum(bounds.count_low[brokers] - count, 0.0)
        total: Floats = high / self.mean_disk + many / self.mean_count
        return total

    def gain(self, work: Assignment, sources: Ints, targets: Ints, size: Floats, replicas: int = 1) -> Floats:
        """Return by how much the excess falls if these bytes and replicas go from each source to its target."""
        disk, count = work.disk, work.count
        now = self.of(sources, disk[sources], count[sources]) + self.of(targets, disk[targets], count[targets])
        after = self.of(sources, disk[sources] - size, count[sources] - replicas)
        after += self.of(targets, disk[targets] + size, count[targets] + replicas)
        difference: Floats = now - after
        return difference

    def all(self, assignment: Assignment) -> Floats:
        return self.of(np.arange(assignment.cluster.broker_count), assignment.disk, assignment.count)


def repair(assignment: Assignment, budget_bytes: float) -> float:
    """Make steps until no broker is out of bounds or nothing helps. Return the bytes added to the plan."""
    excess = Excess(assignment)
    holdings = Holdings(assignment)
    spent = 0.0
    given_up = np.zeros(assignment.cluster.broker_count, dtype=bool)
    for _ in range(STEPS_PER_BROKER * assignment.cluster.broker_count):
        amount = np.where(given_up, 0.0, excess.all(assignment))
        worst = int(amount.argmax())
        if amount[worst] <= LEAST_GAIN:
            break
        step = _Search(holdings, excess, worst, budget_bytes - spent).best()
        if step is None:
            given_up[worst] = True
            continue
        holdings.make(step)
        spent += step.bytes
        given_up[:] = False
    return spent


class _Search:
    """The best step for one broker."""

    def __init__(self, holdings: Holdings, excess: Excess, broker: int, budget_bytes: float) -> None:
        assignment = holdings.assignment
        self.assignment, self.holdings = assignment, holdings
        self.excess, self.broker, self.budget = excess, broker, budget_bytes
        bounds = assignment.scope.bounds
        fill = assignment.disk / np.maximum(bounds.share_bytes, 1.0)
        often = assignment.count / max(bounds.mean_count, 1e-9)
        counted = assignment.scope.counted.copy()
        counted[broker] = False
        others = np.nonzero(counted)[0]
        half = PARTNERS // 2
        self.emptiest = np.unique(np.r_[others[np.argsort(fill[others], kind="stable")[:half]], _least(often, others, half)])
        self.fullest = np.unique(np.r_[others[np.argsort(-fill[others], kind="stable")[:half]], _least(-often, others, half)])
        self.mine = holdings.of[broker]

    def best(self) -> _Step | None:
        steps = [step for step in (self._outward(), self._inward(), self._swap()) if step is not None]
        return min(steps, key=lambda step: step[0])[1] if steps else None

    def _outward(self) -> tuple[float, _Step] | None:
        takers = self.emptiest[self.assignment.scope.takes[self.emptiest]]
        rows, slots = self._sample(self.mine, SINGLE_SAMPLE)
        return self._single(np.repeat(rows, len(takers)), np.repeat(slots, len(takers)), np.tile(takers, len(rows)))

    def _inward(self) -> tuple[float, _Step] | None:
        if not len(self.fullest):
            return None
        parts = [self._sample(self.holdings.of[broker], SINGLE_SAMPLE) for broker in self.fullest.tolist()]
        rows, slots = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        return self._single(rows, slots, np.full(len(rows), self.broker))

    def _single(self, rows: Ints, slots: Ints, targets: Ints) -> tuple[float, _Step] | None:
        if not len(rows):
            return None
        work = self.assignment
        gain = self.excess.gain(work, work.replicas[rows, slots], targets, work.size[rows])
        cost = self._cost(rows, slots, targets)
        score = BYTES_WEIGHT * cost / self.excess.mean_disk - gain
        order = self._promising(score, gain, cost)
        legal = work.legal_back(rows[order], slots[order], targets[order]) & self._topic_fits(rows[order], targets[order])
        if not legal.any():
            return None
        chosen = order[int(legal.argmax())]
        return float(score[chosen]), _Step(((int(rows[chosen]), int(slots[chosen]), int(targets[chosen])),), float(cost[chosen]))

    def _swap(self) -> tuple[float, _Step] | None:
        work = self.assignment
        rows, slots = self._sample(self.mine, SWAP_SAMPLE)
        partners = np.unique(np.r_[self.emptiest, self.fullest])
        if not len(partners):
            return None
        theirs = [self._sample(self.holdings.of[partner], SWAP_SAMPLE) for partner in partners.tolist()]
        rows_b, slots_b = np.concatenate([part[0] for part in theirs]), np.concatenate([part[1] for part in theirs])
        if not len(rows) or not len(rows_b):
            return None
        a, b = np.repeat(np.arange(len(rows)), len(rows_b)), np.tile(np.arange(len(rows_b)), len(rows))
        row_a, slot_a, row_b, slot_b = rows[a], slots[a], rows_b[b], slots_b[b]
        other = work.replicas[row_b, slot_b]
        mine = np.full(len(a), self.broker)
        gain = self.excess.gain(work, other, mine, work.size[row_b] - work.size[row_a], 0)
        cost = self._cost(row_a, slot_a, other) + self._cost(row_b, slot_b, mine)
        score = BYTES_WEIGHT * cost / self.excess.mean_disk - gain
        order = self._promising(score, gain, cost)
        legal = (row_a[order] != row_b[order]) & work.legal_back(row_a[order], slot_a[order], other[order])
        legal &= work.legal_back(row_b[order], slot_b[order], mine[order])
        legal &= self._topic_fits(row_a[order], other[order]) & self._topic_fits(row_b[order], mine[order])
        if not legal.any():
            return None
        at = order[int(legal.argmax())]
        moves = ((int(row_a[at]), int(slot_a[at]), int(other[at])), (int(row_b[at]), int(slot_b[at]), self.broker))
        return float(score[at]), _Step(moves, float(cost[at]))

    def _sample(self, held: tuple[Ints, Ints], number: int) -> tuple[Ints, Ints]:
        """Return replicas of all sizes, evenly over their order by size."""
        rows, slots = held
        if len(rows) <= number:
            return rows, slots
        order = np.argsort(self.assignment.size[rows], kind="stable")
        picked = order[np.linspace(0, len(order) - 1, number).astype(np.int64)]
        return rows[picked], slots[picked]

    def _cost(self, rows: Ints, slots: Ints, targets: Ints) -> Floats:
        """Return bytes that a move adds to the plan: none for a replica that moves already, fewer than none for
        one that returns.
        """
        work = self.assignment
        size = work.size[rows]
        new_before = ~work.had_replica(rows, work.replicas[rows, slots])
        new_after = ~work.had_replica(rows, targets)
        return np.where(new_after, size, 0.0) - np.where(new_before, size, 0.0)

    def _promising(self, score: Floats, gain: Floats, cost: Floats) -> Ints:
        usable = np.nonzero((gain > LEAST_GAIN) & (cost <= self.budget))[0]
        if len(usable) > TRIED:
            usable = usable[np.argpartition(score[usable], TRIED)[:TRIED]]
        return usable[np.argsort(score[usable], kind="stable")]

    def _topic_fits(self, rows: Ints, brokers: Ints) -> Flags:
        topic = self.assignment.cluster.topic[rows]
        fits: Flags = self.assignment.topic_count[topic, brokers] < self.assignment.scope.bounds.topic_limit[topic]
        return fits


def undo_needless_moves(assignment: Assignment) -> None:
    """Undo moves that are no longer needed, the largest first, if the return adds no excess and no crowding."""
    excess = Excess(assignment)
    rows, slots = np.nonzero(assignment.moved & assignment.movable)
    order = np.argsort(-assignment.size[rows], kind="stable")
    rows, slots = rows[order], slots[order]
    for origin in assignment.original.T:
        good = _may_return(assignment, excess, rows, slots, origin[rows])
        for row, slot in zip(rows[good].tolist(), slots[good].tolist(), strict=True):
            one = np.array([row]), np.array([slot]), origin[[row]]
            if _may_return(assignment, excess, *one).all():
                assignment.move_one(row, slot, int(origin[row]))


def _may_return(assignment: Assignment, excess: Excess, rows: Ints, slots: Ints, targets: Ints) -> Flags:
    """Return for each of these moved replicas ([N]) whether it could return to the target, which held its partition, without
    harm.
    """
    sources = assignment.replicas[rows, slots]
    gain = excess.gain(assignment, sources, targets, assignment.size[rows])
    topic = assignment.cluster.topic[rows]
    roomy = assignment.topic_count[topic, targets] < assignment.scope.bounds.topic_limit[topic]
    good: Flags = (targets >= 0) & ~assignment.had_replica(rows, sources) & (gain >= -LEAST_GAIN) & roomy
    good &= assignment.legal_back(rows, slots, targets)
    return good


def _least(values: Floats, among: Ints, number: int) -> Ints:
    return among[np.argsort(values[among], kind="stable")[:number]]


def spread_topics(assignment: Assignment, budget_bytes: float) -> float:
    """Thin out topics that are crowded on a broker, by a move, or a swap with a replica of similar size, that puts no broker out
    of its bounds. Return the bytes added.
    """
    bounds = assignment.scope.bounds
    excess = Excess(assignment)
    holdings = Holdings(assignment)
    order = np.argsort(assignment.cluster.topic, kind="stable")
    edges = np.searchsorted(assignment.cluster.topic[order], np.arange(len(assignment.cluster.topics) + 1))
    spent = 0.0
    crowded = (assignment.topic_count > bounds.topic_limit[:, None]) & assignment.scope.counted[None, :]
    for topic, broker in zip(*(side.tolist() for side in np.nonzero(crowded)), strict=True):
        rows = order[edges[topic] : edges[topic + 1]]
        while assignment.topic_count[topic, broker] > bounds.topic_limit[topic]:
            step = _thinned(holdings, excess, rows, topic, broker, budget_bytes - spent)
            if step is None:
                break
            holdings.make(step)
            spent += step.bytes
    return spent


def _thinned(
    holdings: Holdings, excess: Excess, rows_of_topic: Ints, topic: int, broker: int, budget_bytes: float
) -> _Step | None:
    assignment = holdings.assignment
    bounds, scope = assignment.scope.bounds, assignment.scope
    at, slots = np.nonzero((assignment.replicas[rows_of_topic] == broker) & assignment.movable[rows_of_topic])
    rows = rows_of_topic[at]
    takers = np.nonzero(scope.takes & (assignment.topic_count[topic] < bounds.topic_limit[topic]))[0]
    if not len(rows) or not len(takers):
        return None
    row, slot, target = np.repeat(rows, len(takers)), np.repeat(slots, len(takers)), np.tile(takers, len(rows))
    fill = assignment.topic_count[topic, target] * 10.0 + assignment.disk[target] / np.maximum(bounds.share_bytes[target], 1.0)
    size = assignment.size[row]
    source = np.full(len(row), broker)
    gain = excess.gain(assignment, source, target, size)
    good = assignment.legal(row, slot, target) & (gain >= -LEAST_GAIN) & (size <= budget_bytes)
    if good.any():
        best = int(np.where(good, size + fill, np.inf).argmin())
        return _Step(((int(row[best]), int(slot[best]), int(target[best])),), float(size[best]))
    partners = takers[np.argsort(fill[: len(takers)], kind="stable")[:PARTNERS]]
    return _exchange(holdings, excess, rows, slots, broker, partners, budget_bytes)


def _exchange(
    holdings: Holdings, excess: Excess, rows: Ints, slots: Ints, broker: int, partners: Ints, budget_bytes: float
) -> _Step | None:
    """Return a swap of one of these replicas with one of similar size on a partner."""
    assignment = holdings.assignment
    rows_b, slots_b = holdings.of_many(partners)
    topic_b = assignment.cluster.topic[rows_b]
    roomy = assignment.topic_count[topic_b, broker] < assignment.scope.bounds.topic_limit[topic_b]
    rows_b, slots_b = rows_b[roomy], slots_b[roomy]
    for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
        near = np.argsort(np.abs(assignment.size[rows_b] - assignment.size[row]), kind="stable")[:SWAP_SAMPLE]
        row_b, slot_b = rows_b[near], slots_b[near]
        if not len(row_b):
            continue
        partner, mine = assignment.replicas[row_b, slot_b], np.full(len(near), broker)
        gain = excess.gain(assignment, partner, mine, assignment.size[row_b] - assignment.size[row], 0)
        cost = assignment.size[row_b] + assignment.size[row]
        good = (gain >= -LEAST_GAIN) & (cost <= budget_bytes) & (row_b != row)
        many = np.full(len(near), row), np.full(len(near), slot)
        good &= assignment.legal(*many, partner) & assignment.legal(row_b, slot_b, mine)
        if good.any():
            best = int(np.where(good, cost, np.inf).argmin())
            moves = ((row, slot, int(partner[best])), (int(row_b[best]), int(slot_b[best]), broker))
            return _Step(moves, float(cost[best]))
    return None
