"""From a cluster and options to a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .assignment import Assignment
from .cluster import Cluster, Flags, Floats, Ints, cluster_of
from .documents import ClusterDocument
from .goals import DISK, GOALS, LEADERS, RACK, REPLICAS, TOPICS, GoalState, band_of_counts
from .leaders import balance_leaders
from .log_dirs import current_directories, place_in_directories
from .measure import hard_excess, loads, lower_bound_bytes, measure, worse
from .options import PlanOptions, Scope, scope_of
from .placement import place
from .plan import ANY, FORMAT, BrokerLoad, GoalReport, PartitionMove, Plan, Reason, kept_in_directories, plan_id
from .waves import Caps, with_waves


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan as arrays. `directory_before`: of replicas that stay on their broker, -1 for new ones; `directory`:
    after the plan.
    """

    cluster: Cluster
    scope: Scope
    assignment: Assignment
    solver: str
    directory_before: Ints
    directory: Ints
    before: dict[str, GoalState]
    after: dict[str, GoalState]
    worse: dict[str, int]
    lower_bound_bytes: int
    notes: tuple[str, ...]


def solve(cluster: Cluster, options: PlanOptions) -> Solution:
    """Solve the placement. WrongUse if the options do not fit the cluster."""
    scope = scope_of(cluster, options)
    assignment, solver, notes = place(cluster, scope)
    if LEADERS in options.goals and options.balances:
        touched = (assignment.replicas != assignment.original).any(1)
        free = options.balances_directories | touched
        fixed = (assignment.replicas >= 0) & ~scope.counted[assignment.replicas]
        balance_leaders(assignment, ~scope.pinned & free & ~fixed[:, 0])
    directory = place_in_directories(assignment)
    after = measure(cluster, scope, assignment.replicas, directory)
    notes.extend(_unmet(cluster, scope, after))
    return Solution(
        cluster=cluster,
        scope=scope,
        assignment=assignment,
        solver=solver,
        directory_before=current_directories(assignment),
        directory=directory,
        before=measure(cluster, scope, cluster.replicas, cluster.directory),
        after=after,
        worse=worse(
            hard_excess(cluster, scope, cluster.replicas, cluster.directory),
            hard_excess(cluster, scope, assignment.replicas, directory),
        ),
        lower_bound_bytes=lower_bound_bytes(cluster, scope),
        notes=(*scope.notes, *notes),
    )


def propose(document: ClusterDocument, options: PlanOptions) -> Plan:
    """Return the plan for a validated document. WrongUse if the options do not fit it."""
    return to_plan(document, solve(cluster_of(document), options))


def _unmet(cluster: Cluster, scope: Scope, after: dict[str, GoalState]) -> list[str]:
    """Return reasons for unmet soft goals, if they are obvious."""
    notes = []
    disk = after.get(DISK)
    if disk and disk.violations and scope.options.balances:
        largest = int(np.where((cluster.replicas >= 0).any(1), cluster.size_bytes, 0).argmax())
        counted = scope.bounds.share_bytes[scope.counted]
        width = 2 * scope.options.eps * float(counted.min()) if len(counted) else 0.0
        size = int(cluster.size_bytes[largest])
        if size > width:
            notes.append(
                f"the band of bytes is {width:.0f} bytes wide and a replica of {cluster.name(largest)} has {size}: "
                "a broker that holds one can stay out of the band in any plan"
            )
    return notes


# -- writing it down ----------------------------------------------------------------------------------------------------------


def to_plan(document: ClusterDocument, solution: Solution) -> Plan:
    """Return the plan as a document, with waves by the usual caps."""
    cluster, work = solution.cluster, solution.assignment
    moves = _Writer(solution).moves()
    goals = tuple(
        GoalReport(goal.name, goal.hard, solution.before[goal.name], solution.after[goal.name], solution.worse.get(goal.name, 0))
        for goal in GOALS
        if goal.name in solution.after
    )
    plan = Plan(
        format=FORMAT,
        version=1,
        plan_id=plan_id(document, solution.scope.options),
        solver=solution.solver,
        as_of_offset=cluster.as_of_offset,
        options=solution.scope.options,
        goals=goals,
        notes=(*solution.notes, *_kept_notes(kept_in_directories(document, solution.scope.options, moves))),
        bytes_moved=sum(move.bytes for move in moves),
        lower_bound_bytes=solution.lower_bound_bytes,
        replica_moves=sum(len(move.added) for move in moves),
        intra_moves=sum(1 for move in moves for why in move.why if why.source_dir),
        intra_bytes=sum(move.intra_bytes for move in moves),
        leader_changes=sum(move.leader_changes for move in moves),
        waves=0,
        brokers=_broker_loads(cluster, solution.scope, work.replicas),
        moves=tuple(moves),
        cluster=document,
    )
    return with_waves(plan, Caps())


def _kept_notes(kept: dict[tuple[int, str], int]) -> list[str]:
    return [
        f"{count} replicas stay in {path} of broker {broker}, which was to be drained: they cannot move, "
        "or no other directory of the broker can be used"
        for (broker, path), count in kept.items()
    ]


def _broker_loads(cluster: Cluster, scope: Scope, replicas: Ints) -> tuple[BrokerLoad, ...]:
    columns = [
        side.astype(np.int64).tolist()
        for pair in zip(loads(cluster, cluster.replicas), loads(cluster, replicas), strict=True)
        for side in pair
    ]
    shares = np.where(scope.counted, scope.bounds.share_bytes, -1).astype(np.int64).tolist()
    racks = [cluster.racks[at] for at in cluster.rack.tolist()]
    return tuple(
        BrokerLoad(broker.id, racks[at], shares[at], *(column[at] for column in columns))
        for at, broker in enumerate(cluster.brokers)
    )


class _Writer:
    """Turns changed rows of arrays into moves with reasons."""

    def __init__(self, solution: Solution) -> None:
        self.cluster, self.scope = solution.cluster, solution.scope
        self.work = solution.assignment
        self.directory, self.directory_before = solution.directory, solution.directory_before
        self.ids = [broker.id for broker in self.cluster.brokers]
        self.paths = [[entry.path for entry in broker.log_dirs] for broker in self.cluster.brokers]
        self.reasons = _Reasons(self.cluster, self.scope)
        self.drained = set(self.scope.options.drain_dirs)

    def moves(self) -> list[PartitionMove]:
        work = self.work
        changed_place = (work.replicas != work.original).any(1)
        changed_dir = ((self.directory_before >= 0) & (self.directory_before != self.directory)).any(1)
        rows = np.nonzero(changed_place | changed_dir)[0]
        cluster = self.cluster
        names = [cluster.topics[at] for at in cluster.topic[rows].tolist()]
        columns = (
            names,
            cluster.partition[rows].tolist(),
            work.original[rows].tolist(),
            work.replicas[rows].tolist(),
            rows.tolist(),
            self.directory_before[rows].tolist(),
            self.directory[rows].tolist(),
            cluster.size_bytes[rows].tolist(),
        )
        return [self._move(*fields) for fields in zip(*columns, strict=True)]

    def _move(
        self,
        topic: str,
        partition: int,
        old: list[int],
        new: list[int],
        row: int,
        dirs_before: list[int],
        dirs: list[int],
        size: int,
    ) -> PartitionMove:
        ids = self.ids
        why: list[Reason] = []
        named: list[str] = []
        copied = intra = 0
        gone = [broker for broker in old if broker >= 0 and broker not in new]
        left = [broker for slot, broker in enumerate(old) if broker in gone and new[slot] in old]
        for slot, broker in enumerate(new):
            if broker < 0:
                continue
            if broker not in old:
                source = old[slot] if old[slot] in gone else left.pop(0) if left else -1
                if source >= 0:
                    gone.remove(source)
                why.append(Reason(self.reasons.of(row, source, broker), ids[source] if source >= 0 else -1, ids[broker]))
                named.append(self.paths[broker][dirs[slot]] if dirs[slot] >= 0 else ANY)
                copied += size
            elif 0 <= dirs_before[slot] != dirs[slot]:
                paths = self.paths[broker]
                leaving = paths[dirs_before[slot]]
                reason = "drain-dir" if (ids[broker], leaving) in self.drained else "directory"
                why.append(Reason(reason, ids[broker], ids[broker], leaving, paths[dirs[slot]]))
                named.append(paths[dirs[slot]])
                intra += size
            else:
                named.append(ANY)
        why.extend(Reason("rf", ids[broker], -1) for broker in gone)
        if old[0] != new[0] and (old[0] in new or new[0] in old):
            why.append(Reason("leader" if old[0] in new else "leader-leaves", ids[old[0]], ids[new[0]]))
        before = tuple(ids[broker] for broker in old if broker >= 0)
        after = tuple(ids[broker] for broker in new if broker >= 0)
        return PartitionMove(topic, partition, before, after, tuple(named), copied, intra, size, 0, tuple(why))


BALANCE_REASONS = ("disk-high", "disk-low", "count-high", "count-low", "exchange")


class _Reasons:
    """Reasons for moves between brokers, by the state before the plan."""

    def __init__(self, cluster: Cluster, scope: Scope) -> None:
        self.cluster, self.scope = cluster, scope
        replaced = {cluster.index_of[source] for source, _ in scope.options.replace}
        leaving = np.nonzero(scope.leaves)[0].tolist()
        self.leaving = {broker: "replace" if broker in replaced else "drain" for broker in leaving}
        self.balance = _balance_reasons(cluster, scope)
        self.overfull: Flags = loads(cluster, cluster.replicas)[0] > scope.bounds.disk_limit
        placed = cluster.replicas >= 0
        key = cluster.topic[np.nonzero(placed)[0]] * cluster.broker_count + cluster.replicas[placed]
        held = np.bincount(key, minlength=len(cluster.topics) * cluster.broker_count).reshape(-1, cluster.broker_count)
        self.crowded = (held > scope.bounds.topic_limit[:, None]) & (TOPICS in scope.options.goals)

    def of(self, row: int, source: int, target: int) -> str:
        """Return a key of `explain.MOVED` or `explain.OTHERS`. `source` -1 means an additional replica."""
        if source < 0:
            return "rf"
        if source in self.leaving:
            return self.leaving[source]
        cluster = self.cluster
        rack = cluster.rack[source]
        together = sum(1 for broker in cluster.replicas[row].tolist() if broker >= 0 and cluster.rack[broker] == rack)
        if together > self.scope.rack_limit[row] and RACK in self.scope.options.goals:
            return "rack"
        if self.overfull[source]:
            return "disk-full"
        reason = BALANCE_REASONS[int(self.balance[source, target])]
        return "topic" if reason == "exchange" and self.crowded[cluster.topic[row], source] else reason


def _balance_reasons(cluster: Cluster, scope: Scope) -> Ints:
    """Return [B, B], indexes of BALANCE_REASONS: the most violated bound between a giver and a taker."""
    disk, count, _ = loads(cluster, cluster.replicas)
    bounds, eps = scope.bounds, scope.options.eps
    fill = disk / np.maximum(bounds.share_bytes, 1.0) - 1
    often = count / max(bounds.mean_count, 1e-9) - 1
    fewest, most = band_of_counts(bounds.mean_count, eps)
    by_disk, by_count = scope.counted & (DISK in scope.options.goals), scope.counted & (REPLICAS in scope.options.goals)
    sides = (
        np.where(by_disk & (fill > eps), fill, 0.0)[:, None],
        np.where(by_disk & (fill < -eps), -fill, 0.0)[None, :],
        np.where(by_count & (count > most), often, 0.0)[:, None],
        np.where(by_count & (count < fewest), -often, 0.0)[None, :],
    )
    table: Floats = np.stack(np.broadcast_arrays(*sides))
    return np.where(table.max(0) > 0, table.argmax(0), len(BALANCE_REASONS) - 1)
