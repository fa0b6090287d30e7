"""The place of every replica during planning, with the resulting loads.

Rules of every move: a broker holds a partition at most once, and no rack gets more of its replicas than `Scope.rack_limit`. A
replica that has to move and has no place yet has broker -1 in its slot. Such replicas are `homeless`, and count in no load until
they are placed. Slots from a row's `factor` on are never used.
"""

from __future__ import annotations

import numpy as np

from .cluster import Cluster, Flags, Floats, Ints
from .options import Scope


class Assignment:
    """`replicas`: [P, R]. `disk`, `count`: [B], of everything placed. `topic_count`: [T, B]."""

    def __init__(self, cluster: Cluster, scope: Scope) -> None:
        self.cluster = cluster
        self.scope = scope
        width = max(cluster.replicas.shape[1], int(scope.factor.max()))
        self.original: Ints = np.full((cluster.partition_count, width), -1, dtype=np.int64)
        self.original[:, : cluster.replicas.shape[1]] = cluster.replicas
        self.replicas: Ints = self.original.copy()
        self.size = cluster.size_bytes.astype(np.float64)
        self.used: Flags = np.arange(width)[None, :] < scope.factor[:, None]
        self.taken_from: Ints = np.full_like(self.original, -1)
        """[P, R]: the old place of a replica that had to leave; -1 for one to be added."""
        self.movable: Flags = np.zeros_like(self.used)
        """[P, R]: slots that can change. Slots of excluded brokers cannot."""
        self.disk: Floats = np.zeros(cluster.broker_count)
        self.count: Ints = np.zeros(cluster.broker_count, dtype=np.int64)
        self.topic_count: Ints = np.zeros((len(cluster.topics), cluster.broker_count), dtype=np.int64)
        self.refresh()

    def refresh(self) -> None:
        """Compute movable slots and loads from `replicas`."""
        may = self.scope.counted | self.scope.leaves
        self.movable = self.used & ~self.scope.pinned[:, None] & (may[self.replicas] | (self.replicas < 0))
        self.recount()

    def recount(self) -> None:
        """Compute loads from `replicas`."""
        placed = self.replicas >= 0
        brokers, rows = self.replicas[placed], np.nonzero(placed)[0]
        size = self.cluster.broker_count
        self.disk = np.bincount(brokers, weights=self.size[rows], minlength=size).astype(np.float64)
        self.count = np.bincount(brokers, minlength=size)
        key = self.cluster.topic[rows] * size + brokers
        self.topic_count = np.bincount(key, minlength=len(self.cluster.topics) * size).reshape(-1, size)

    @property
    def moved(self) -> Flags:
        """[P, R]: placed on a broker that did not hold the partition before."""
        new = self.replicas >= 0
        for slot in range(self.original.shape[1]):
            new &= self.replicas != self.original[:, slot : slot + 1]
        return new

    @property
    def bytes_moved(self) -> float:
        return float((self.moved.sum(1) * self.size).sum())

    @property
    def bytes_planned(self) -> float:
        """Bytes moved, including those of homeless replicas."""
        return self.bytes_moved + float(self.size[self.homeless()[0]].sum())

    def homeless(self) -> tuple[Ints, Ints]:
        """Return (rows, slots) that wait for a broker."""
        rows, slots = np.nonzero(self.used & (self.replicas < 0))
        return rows, slots

    def _free(self, rows: Ints, slots: Ints, brokers: Ints) -> Flags:
        """Return for each replica ([N]) whether the broker holds no other replica of the partition and its rack
        has room for one.
        """
        others = self.replicas[rows].copy()
        others[np.arange(len(rows)), slots] = -1
        rack = self.cluster.rack
        neighbours = ((others >= 0) & (rack[others] == rack[brokers][:, None])).sum(1)
        free: Flags = ~(others == brokers[:, None]).any(1) & (neighbours < self.scope.rack_limit[rows])
        return free

    def legal(self, rows: Ints, slots: Ints, brokers: Ints) -> Flags:
        """Return whether each replica could move to each broker (all [N]), with the others of its partition in place."""
        return self._free(rows, slots, brokers) & self.scope.takes[brokers]

    def had_replica(self, rows: Ints, brokers: Ints) -> Flags:
        """Return whether the broker held the partition before the plan, so that a return costs nothing."""
        back: Flags = (self.original[rows] == brokers[:, None]).any(1)
        return back

    def legal_back(self, rows: Ints, slots: Ints, brokers: Ints) -> Flags:
        """Return the same as `legal`, but let a broker that takes nothing new keep its old replicas."""
        returns = self.scope.counted[brokers] & self.had_replica(rows, brokers)
        return self._free(rows, slots, brokers) & (self.scope.takes[brokers] | returns)

    def move(self, rows: Ints, slots: Ints, brokers: Ints) -> None:
        """Move replicas (all [N], no row twice) and update the loads. Broker -1 makes them homeless."""
        before = self.replicas[rows, slots]
        for side, sign in ((before, -1), (brokers, 1)):
            placed = side >= 0
            np.add.at(self.disk, side[placed], sign * self.size[rows[placed]])
            np.add.at(self.count, side[placed], sign)
            np.add.at(self.topic_count, (self.cluster.topic[rows[placed]], side[placed]), sign)
        self.replicas[rows, slots] = brokers

    def move_one(self, row: int, slot: int, broker: int) -> None:
        """Move one replica."""
        before = int(self.replicas[row, slot])
        topic, size = self.cluster.topic[row], self.size[row]
        for side, sign in ((before, -1), (broker, 1)):
            if side >= 0:
                self.disk[side] += sign * size
                self.count[side] += sign
                self.topic_count[topic, side] += sign
        self.replicas[row, slot] = broker

    def rack_surplus(self) -> Flags:
        """Return [P, R]: replicas in a rack whose limit the replicas before them in the row fill."""
        rack = np.where(self.replicas >= 0, self.cluster.rack[self.replicas], -1)
        surplus = np.zeros(self.replicas.shape, dtype=bool)
        for slot in range(1, rack.shape[1]):
            before = (rack[:, :slot] == rack[:, slot : slot + 1]).sum(1)
            surplus[:, slot] = (rack[:, slot] >= 0) & (before >= self.scope.rack_limit)
        return surplus

    def settle_slots(self) -> None:
        """Return every remaining replica to its old slot: only new replicas take the slots of those that left."""
        stays = self.replicas == self.original
        astray = ~stays & ((self.replicas < 0) | ~self.moved)
        for row in np.nonzero(astray.any(1))[0].tolist():
            old, new = self.original[row].tolist(), self.replicas[row].tolist()
            keep = set(new) - {-1}
            slots = [broker if broker in keep else -1 for broker in old]
            fresh = [broker for broker in new if broker >= 0 and broker not in old]
            ordered = _filled(slots, fresh, int(self.scope.factor[row]))
            self.replicas[row] = ordered + [-1] * (len(new) - len(ordered))


def _filled(slots: list[int], fresh: list[int], factor: int) -> list[int]:
    """Return the slots with new replicas in the gaps, closed up to `factor` replicas."""
    waiting = list(fresh)
    filled = [broker if broker >= 0 or not waiting else waiting.pop(0) for broker in slots]
    return ([broker for broker in filled if broker >= 0] + waiting)[:factor]
