"""Placement of replicas on brokers: replicas that have to move are taken off, then flows and repairs bring everything within
bounds.
"""

from __future__ import annotations

import math

import numpy as np

from . import exact, flow
from .assignment import Assignment
from .cluster import Cluster, Flags, Ints
from .goals import RACK, TOPICS
from .options import Scope
from .realiser import place_homeless, realise
from .repair import LEAST_GAIN, Excess, repair, spread_topics, undo_needless_moves

MARGINS = (0.004, 0.004, 0.006, 0.008, 0.008, 0.008)
"""Distance inside the bounds at which each round aims, as a part of the mean."""
SEED = 20_130_610
POSSIBLE = 1e-6
"""Excess within the solver's tolerance."""


def place(cluster: Cluster, scope: Scope) -> tuple[Assignment, str, list[str]]:
    """Return (the plan's replicas, the solver that found them, notes about impossible parts)."""
    assignment = Assignment(cluster, scope)
    notes: list[str] = []
    budget = math.inf if scope.options.max_bytes is None else float(scope.options.max_bytes)
    _shrink(assignment)
    _replace_brokers(assignment, budget)
    _make_leaving_homeless(assignment)
    _afford(assignment, budget, notes)
    if not scope.options.balances:
        assignment.movable &= assignment.replicas < 0
    better = exact.solve(assignment, budget) if exact.fits(assignment) else None
    classes = flow.size_classes(assignment.size, scope.factor)
    _flow(assignment, classes, budget, notes)
    solver = "flow"
    if better is not None and _adopt(assignment, better.replicas):
        solver = "exact" if better.is_proved else "search"
    notes.extend(_impossible(assignment, solver, classes, budget))
    if TOPICS in scope.options.goals:
        spread_topics(assignment, budget - assignment.bytes_moved)
    undo_needless_moves(assignment)
    _leave_dead(assignment, notes)
    assignment.settle_slots()
    assignment.recount()
    return assignment, solver, notes


def _impossible(assignment: Assignment, solver: str, classes: Ints, budget: float) -> list[str]:
    """Return notes on whether unmet bounds could be met."""
    if _within(assignment) or not assignment.scope.options.balances:
        return []
    if solver == "exact":
        return ["bytes and numbers of replicas: solved exactly; no placement within the rules has less excess over the bands"]
    spare = max(budget - assignment.bytes_planned, 0.0)
    if flow.solve(assignment, classes, margin=0.0, budget_bytes=spare).excess > POSSIBLE:
        return ["bytes and numbers of replicas: not all bands can be met with these racks, exclusions and budget"]
    return []


def _flow(assignment: Assignment, classes: Ints, budget: float, notes: list[str]) -> None:
    random = np.random.default_rng(SEED)
    for number, margin in enumerate(MARGINS):
        if number and _within(assignment):
            break
        spare = max(budget - assignment.bytes_planned, 0.0)
        planned = flow.solve(assignment, classes, margin=margin, budget_bytes=spare)
        made = realise(assignment, planned, classes, random, spare)
        if not number:
            _note_stranded(assignment, place_homeless(assignment), notes)
        elif not made:
            break
    repair(assignment, budget - assignment.bytes_moved)


def _adopt(assignment: Assignment, replicas: Ints) -> bool:
    """Take an exact placement unless it is worse than the current one."""
    ours = assignment.replicas
    rating = _rating(assignment)
    assignment.replicas = replicas
    assignment.recount()
    if _rating(assignment) <= rating:
        return True
    assignment.replicas = ours
    assignment.recount()
    return False


def _rating(assignment: Assignment) -> tuple[int, float, float]:
    """Return (misplaced replicas, excess, bytes)."""
    placed = assignment.replicas >= 0
    undone = int(assignment.scope.factor.sum() - placed.sum() + (placed & assignment.scope.leaves[assignment.replicas]).sum())
    return undone, round(float(Excess(assignment).all(assignment).sum()), 6), assignment.bytes_moved


def _within(assignment: Assignment) -> bool:
    return bool(Excess(assignment).all(assignment).max() <= LEAST_GAIN)


def _shrink(assignment: Assignment) -> None:
    """Remove replicas of partitions that get fewer: from leaving brokers first, then from crowded racks, then from the fullest
    broker; the preferred leader last, and replicas of excluded brokers only if nothing else is left.
    """
    scope, cluster = assignment.scope, assignment.cluster
    surplus = np.nonzero((assignment.replicas >= 0).sum(1) > scope.factor)[0]
    share = np.where(scope.counted, np.maximum(scope.bounds.share_bytes, 1.0), np.inf)
    excluded = {cluster.index_of[id] for id in scope.options.exclude_brokers}
    for row in surplus.tolist():
        held = [broker for broker in assignment.replicas[row].tolist() if broker >= 0]
        leader = held[0]
        while len(held) > scope.factor[row]:
            racks = [int(cluster.rack[broker]) for broker in held]
            held.remove(
                max(
                    held,
                    key=lambda broker: (
                        broker not in excluded,
                        bool(scope.leaves[broker]),
                        not bool(scope.counted[broker]) and not bool(cluster.alive[broker]),
                        broker != leader,
                        racks.count(int(cluster.rack[broker])),
                        float(assignment.disk[broker] / share[broker]),
                        broker,
                    ),
                )
            )
        assignment.replicas[row] = held + [-1] * (assignment.replicas.shape[1] - len(held))
    if len(surplus):
        assignment.refresh()


def _replace_brokers(assignment: Assignment, budget: float) -> None:
    """Give the replicas of a replaced broker to its replacement, one for one, if no rule forbids it; the small ones first if a
    budget does not allow all.
    """
    for source, target in assignment.scope.options.replace:
        old, new = assignment.cluster.index_of[source], assignment.cluster.index_of[target]
        rows, slots = np.nonzero((assignment.replicas == old) & assignment.movable)
        legal = assignment.legal(rows, slots, np.full(len(rows), new))
        rows, slots = rows[legal], slots[legal]
        order = np.argsort(assignment.size[rows], kind="stable")
        order = order[assignment.bytes_moved + np.cumsum(assignment.size[rows[order]]) <= budget]
        rows, slots = rows[order], slots[order]
        assignment.move(rows, slots, np.full(len(rows), new))
        assignment.movable[rows, slots] = False


def _make_leaving_homeless(assignment: Assignment) -> None:
    """Make replicas homeless that need another broker or are to be added."""
    scope = assignment.scope
    leaving = (assignment.replicas >= 0) & assignment.movable & scope.leaves[assignment.replicas]
    _make_homeless(assignment, leaving)
    if RACK in scope.options.goals and scope.options.balances:
        _make_homeless(assignment, _crowding(assignment))


def _make_homeless(assignment: Assignment, flags: Flags) -> None:
    for slot in range(flags.shape[1]):
        rows = np.nonzero(flags[:, slot])[0]
        assignment.taken_from[rows, slot] = assignment.replicas[rows, slot]
        assignment.move(rows, np.full(len(rows), slot), np.full(len(rows), -1))


def _crowding(assignment: Assignment) -> Flags:
    """Return the movable replicas that must leave for the rack rule, as few as possible: the later ones of a row, if they can
    move.
    """
    surplus = assignment.rack_surplus()
    chosen = surplus & assignment.movable
    for row, slot in zip(*(side.tolist() for side in np.nonzero(surplus & ~assignment.movable)), strict=True):
        rack = assignment.cluster.rack[assignment.replicas[row, slot]]
        for other in range(slot):
            held = assignment.replicas[row, other]
            if held >= 0 and assignment.movable[row, other] and not chosen[row, other] and assignment.cluster.rack[held] == rack:
                chosen[row, other] = True
                break
    return chosen


def _afford(assignment: Assignment, budget: float, notes: list[str]) -> None:
    """Put back moves that a budget does not allow. Rack faults and new replicas have priority, then small ones."""
    rows, slots = assignment.homeless()
    spent = assignment.bytes_moved
    source = assignment.taken_from[rows, slots]
    order = np.lexsort((assignment.size[rows], (source >= 0) & assignment.scope.leaves[source]))
    over = order[spent + np.cumsum(assignment.size[rows[order]]) > budget]
    if len(over):
        notes.append(
            f"--max-bytes is too small for the required moves: {len(over)} replicas with "
            f"{assignment.size[rows[over]].sum():.0f} bytes "
            "stay on their brokers; make another plan after this one"
        )
    for at in over.tolist():
        _put_back(assignment, int(rows[at]), int(slots[at]))


def _put_back(assignment: Assignment, row: int, slot: int) -> None:
    """Leave a homeless replica at its old place, or do not add it."""
    before = int(assignment.taken_from[row, slot])
    if before >= 0:
        assignment.move_one(row, slot, before)
    else:
        assignment.used[row, slot] = False
    assignment.movable[row, slot] = False


def _leave_dead(assignment: Assignment, notes: list[str]) -> None:
    """Restore partitions with a replica that had to stay on a broker that is down."""
    alive = assignment.cluster.alive
    dead = ((assignment.replicas >= 0) & ~alive[assignment.replicas]).any(1)
    changed = dead & (assignment.replicas != assignment.original).any(1)
    assignment.replicas[changed] = assignment.original[changed]
    assignment.scope.pinned[dead] = True
    if changed.any():
        notes.append(
            f"{changed.sum()} partitions keep a replica on a broker that is down and do not move, "
            "since no reassignment can name it"
        )


def _note_stranded(assignment: Assignment, stranded: list[tuple[int, int]], notes: list[str]) -> None:
    if stranded:
        names = ", ".join(assignment.cluster.name(row) for row, _ in stranded[:3]) + (" …" if len(stranded) > 3 else "")
        notes.append(
            f"{len(stranded)} replicas have to move, but no broker can take them ({names}): they stay; add a broker or rack"
        )
    for row, slot in stranded:
        _put_back(assignment, row, slot)
