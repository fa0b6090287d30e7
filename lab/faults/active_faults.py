"""Orders in force on a local cluster: added, ended when their time is over, and healed by people.

An order that cannot be executed leaves nothing. A fault that cannot be undone, such as a disk that cannot be mounted again,
stays with its order: the status still shows it, and the next heal tries again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ..cluster_plan import ClusterError
from .fault_steps import FaultSteps
from .holds import Fault, Hold, Holds

if TYPE_CHECKING:
    from ..local import LocalCluster


PAST_ORDERS = 200


class InForce(Hold, eq=False, kw_only=True):
    """An order and its text for people. `until`: its end, on the monotonic clock. `groups`: names of the nodes that it names."""

    number: int
    text: str
    until: float | None = None
    order: str = ""
    groups: tuple[tuple[str, ...], ...] = ()
    directory: str = ""
    begun_ms: int = 0
    ended_ms: int | None = None


class ActiveFaults:
    """The orders in force, and the cluster as they want it. `past`: orders that are over. One thread at a time."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.orders: list[InForce] = []
        self.past: deque[InForce] = deque(maxlen=PAST_ORDERS)
        self.holds: Holds[InForce] = Holds()
        self._cluster = cluster
        self._steps = FaultSteps(cluster, self.holds, cluster)

    def add(self, order: InForce, faults: Collection[Fault]) -> None:
        """Put an order in force. ClusterError if that fails; then nothing of it stays."""
        self.orders.append(order)
        self.holds.add(order, faults)
        try:
            for _, step in self._steps.steps(faults):
                step()
        except BaseException:
            self.end([order])
            self.past.remove(order)
            raise

    def end(self, orders: Iterable[InForce], *, drop: bool = False) -> None:
        """Undo these orders, whose time is over. `drop`: messages that their links held are lost. ClusterError as `forget`."""
        ended = {order: self.holds.held_by(order) for order in orders}
        for order in ended:
            order.until = None
        self._undo(ended, drop=drop)

    def forget(self, faults: Collection[Fault], *, drop: bool = False) -> None:
        """Undo these faults, in every order that holds them. A node that no fault keeps off is started.

        ClusterError, after the rest, about faults that cannot be undone and stay.
        """
        self._undo({order: self.holds.held_by(order).intersection(faults) for order in self.orders}, faults, drop=drop)

    def _undo(self, held: Mapping[InForce, frozenset[Fault]], faults: Collection[Fault] = (), *, drop: bool) -> None:
        for order, own in held.items():
            self.holds.drop(order, own)
        stuck: list[Fault] = []
        reasons: list[str] = []
        for concerned, step in self._steps.steps(frozenset(faults).union(*held.values()), drop=drop):
            try:
                step()
            except (ClusterError, OSError) as error:
                reasons.append(str(error))
                for order, own in held.items():
                    self.holds.add(order, own.intersection(concerned))
                    stuck += own.intersection(concerned)
        for order in self.orders:
            if not self.holds.held_by(order):
                order.ended_ms = time.time_ns() // 1_000_000
                self.past.append(order)
        self.orders = [order for order in self.orders if order.ended_ms is None]
        if reasons:
            left = ", ".join(sorted({self._shown(fault) for fault in stuck}))
            raise ClusterError("; ".join(reasons) + (f"; still in force: {left}; fix that, then heal again" if left else ""))

    def _shown(self, fault: Fault) -> str:
        names = [self._cluster.node(node_id).name for node_id in (fault.node, fault.other) if node_id is not None]
        return " ".join(filter(None, (" → ".join(names), fault.directory, fault.kind)))

    def of(self, kinds: Collection[str], nodes: Collection[int]) -> set[Fault]:
        """The faults of those kinds that concern any of these nodes."""
        return {fault for fault in self.holds if fault.kind in kinds and fault.concerns(nodes)}
