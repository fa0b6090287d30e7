"""Replicas for a flow's numbers, matched with brokers that can have them.

Class by class, the leaving replicas are drawn (those that came with the plan first if the flow says so, then those of topics that
are crowded on their broker, then at random), paired with the places that brokers take, and shuffled until they fit. A pair is
accepted if it breaks no rule, with each row at most once at a time. The random generator has a fixed seed. Replicas without a
place stay; only replicas that have to move are forced, each to the best legal broker.
"""

from __future__ import annotations

import numpy as np

from .assignment import Assignment
from .cluster import Flags, Floats, Ints
from .flow import Flow

ATTEMPTS = 30
IDLE_ATTEMPTS = 6


def realise(assignment: Assignment, flow: Flow, classes: Ints, random: np.random.Generator, budget_bytes: float) -> int:
    """Make the moves of a flow that fit, and return their number. Moves beyond the budget are not made."""
    made = 0
    left = budget_bytes
    class_count = int(classes.max()) + 1
    candidates = _Candidates(assignment, classes)
    for number in range(class_count - 1, -1, -1):
        waiting_rows, waiting_slots = assignment.homeless()
        here = classes[waiting_rows] == number
        rows, slots = _drawn(assignment, candidates, number, flow, random)
        rows, slots = np.concatenate([waiting_rows[here], rows]), np.concatenate([waiting_slots[here], slots])
        places = np.repeat(np.arange(assignment.cluster.broker_count), flow.take[:, number])
        count, spent = _match(assignment, rows, slots, places, random, left)
        made += count
        left -= spent
    return made


class _Candidates:
    """Movable replicas by class, computed once per round."""

    def __init__(self, assignment: Assignment, classes: Ints) -> None:
        rows, slots = np.nonzero(assignment.movable & (assignment.replicas >= 0))
        order = np.argsort(classes[rows], kind="stable")
        self.rows, self.slots = rows[order], slots[order]
        self.edges = np.searchsorted(classes[self.rows], np.arange(int(classes.max()) + 2))
        self.fresh = assignment.moved[self.rows, self.slots]

    def of(self, number: int) -> tuple[Ints, Ints, Flags]:
        part = slice(self.edges[number], self.edges[number + 1])
        return self.rows[part], self.slots[part], self.fresh[part]


def _drawn(
    assignment: Assignment, candidates: _Candidates, number: int, flow: Flow, random: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return leaving replicas of a class, as many from each broker as the flow has."""
    rows, slots, fresh = candidates.of(number)
    holders = assignment.replicas[rows, slots]
    chosen = np.zeros(len(rows), dtype=bool)
    topics, limit = assignment.cluster.topic, assignment.scope.bounds.topic_limit
    for kind, quota in ((~fresh, flow.give[:, number]), (fresh, flow.give_on[:, number])):
        eligible = np.nonzero(kind & (holders >= 0) & (quota[holders] > 0))[0]
        of, topic = holders[eligible], topics[rows[eligible]]
        comfortable = assignment.topic_count[topic, of] <= limit[topic]
        order = np.argsort(2.0 * of + comfortable + random.random(len(of)), kind="stable")
        eligible, of = eligible[order], of[order]
        rank = np.arange(len(of)) - np.searchsorted(of, of)
        chosen[eligible[rank < quota[of]]] = True
    return rows[chosen], slots[chosen]


def _match(
    assignment: Assignment, rows: Ints, slots: Ints, places: Ints, random: np.random.Generator, budget_bytes: float
) -> tuple[int, float]:
    """Return (moves made, bytes moved)."""
    made, spent, idle = 0, 0.0, 0
    for _ in range(ATTEMPTS):
        if not len(rows) or not len(places) or idle >= IDLE_ATTEMPTS:
            break
        items, targets = random.permutation(len(rows)), random.permutation(len(places))
        length = min(len(items), len(targets))
        items, targets = items[:length], targets[:length]
        row, slot, broker = rows[items], slots[items], places[targets]
        good = assignment.legal(row, slot, broker) & _first_of_each(row)
        good &= _topics_fit(assignment, row, broker, good)
        cost = np.where(assignment.had_replica(row, broker), 0.0, assignment.size[row])
        held = assignment.replicas[row, slot]
        already = (held < 0) | ~assignment.had_replica(row, held)
        running = np.cumsum(np.where(good & ~already, cost, 0.0))
        good &= (running <= budget_bytes - spent) | already
        if not good.any():
            idle += 1
            continue
        idle = 0
        spent += float(cost[good & ~already].sum())
        row, slot, broker = row[good], slot[good], broker[good]
        assignment.move(row, slot, broker)
        made += len(row)
        rows, slots = np.delete(rows, items[good]), np.delete(slots, items[good])
        places = np.delete(places, targets[good])
    return made, spent


def _first_of_each(values: Ints) -> Flags:
    """Mark the first appearance of every value."""
    first = np.zeros(len(values), dtype=bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def _topics_fit(assignment: Assignment, rows: Ints, brokers: Ints, good: Flags) -> Flags:
    """Return whether a topic stays within its limit on the broker after all good moves before it."""
    topic = assignment.cluster.topic[rows]
    key = np.where(good, topic * assignment.cluster.broker_count + brokers, -1)
    order = np.argsort(key, kind="stable")
    ranked = np.empty(len(key), dtype=np.int64)
    ranked[order] = np.arange(len(key)) - np.searchsorted(key[order], key[order])
    fits: Flags = assignment.topic_count[topic, brokers] + ranked < assignment.scope.bounds.topic_limit[topic]
    return fits


def place_homeless(assignment: Assignment) -> list[tuple[int, int]]:
    """Place each replica without a broker, the largest first, on the legal broker that will be least full. Replicas without a
    legal broker go back to their old place and are returned as (row, slot).
    """
    rows, slots = assignment.homeless()
    order = np.argsort(-assignment.size[rows], kind="stable")
    stranded: list[tuple[int, int]] = []
    everyone = np.arange(assignment.cluster.broker_count)
    bounds = assignment.scope.bounds
    share = np.maximum(bounds.share_bytes, 1.0)
    for row, slot in zip(rows[order].tolist(), slots[order].tolist(), strict=True):
        many = np.full(len(everyone), row), np.full(len(everyone), slot)
        legal = assignment.legal(*many, everyone)
        if not legal.any():
            stranded.append((row, slot))
            continue
        score = _score(assignment, row, share, legal)
        assignment.move_one(row, slot, int(score.argmin()))
    return stranded


def _score(assignment: Assignment, row: int, share: Floats, legal: Flags) -> Floats:
    """Return the fullness of brokers with one more replica of the row: the larger of bytes and count, crowded topics and full
    disks last, illegal ones never.
    """
    bounds = assignment.scope.bounds
    disk = (assignment.disk + assignment.size[row]) / share
    count = (assignment.count + 1) / max(bounds.mean_count, 1e-9)
    topic = assignment.cluster.topic[row]
    crowded = assignment.topic_count[topic] >= bounds.topic_limit[topic]
    full = assignment.disk + assignment.size[row] > bounds.disk_high
    return np.where(legal, np.maximum(disk, count) + 10.0 * crowded + 100.0 * full, np.inf)
