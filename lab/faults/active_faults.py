"""What orders that are in force do to a cluster, and how it is brought about and undone.

Theory of operation. An order stands until its time is over or somebody heals what it broke. It holds faults: this link cut, that
node down. Two orders may hold the same fault; it ends with the last of them, so a short cut within a long one changes nothing.
`_settle` makes the cluster agree with the orders that stand, for the faults that it is given: it asks what is wanted now, not
what was done before. A fault that cannot be undone, such as a disk that cannot be mounted again, stays its order's: the cluster
goes on saying so, and the next heal tries again.

Of several that shape the same link, the newest says how; delays and chances are separate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..layout import ClusterError
from ..links.shape import PLAIN, LinkShape
from . import full_disk

if TYPE_CHECKING:
    from ..local import LocalCluster

CUT, SLOW, LOSSY, DARK, DOWN, PAUSED, FULL = "cut", "slow", "lossy", "dark", "down", "paused", "full"
WRONG_CLOCK = "wrong clock"
NODE_FAULTS = (DARK, DOWN, PAUSED, FULL, WRONG_CLOCK)
OFF = (DARK, DOWN)
"""Nodes with one of these do not run."""


class Fault(NamedTuple):
    """`other` is the target of a link from `node`, None for a fault of the node itself."""

    kind: str
    node: int
    other: int | None = None

    @property
    def link(self) -> tuple[int, int]:
        assert self.other is not None, f"{self} is no link's"
        return self.node, self.other

    def concerns(self, nodes: Collection[int]) -> bool:
        return self.node in nodes or self.other in nodes


class InForce(msgspec.Struct):
    """An order and the faults that it holds. `shape`, `reset` and, of clocks, `rate` say how. `until`: of the monotonic clock."""

    number: int
    text: str
    faults: frozenset[Fault]
    shape: LinkShape = PLAIN
    reset: bool = False
    rate: float = 1.0
    until: float | None = None


class Faults:
    """The orders in force, and the cluster as they want it. One thread at a time."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.orders: list[InForce] = []
        self._cluster = cluster

    def wanted(self, fault: Fault) -> InForce | None:
        """The newest order that holds it."""
        return next((order for order in reversed(self.orders) if fault in order.faults), None)

    def add(self, order: InForce) -> None:
        """ClusterError if it cannot be done; then nothing of it stands."""
        self.orders.append(order)
        try:
            for _, settle in self._steps(order.faults):
                settle()
        except BaseException:
            self.end([order])
            raise

    def end(self, orders: Iterable[InForce], *, drop: bool = False) -> None:
        """Undoes them. `drop`: what their links held is lost. ClusterError as `forget`; their time is over all the same."""
        ended = {order.number: order.faults for order in orders}
        for order in self.orders:
            order.until = None if order.number in ended else order.until
        self._undo(ended, frozenset().union(*ended.values()), drop=drop)

    def forget(self, faults: Collection[Fault], *, drop: bool = False) -> None:
        """Undoes these, whoever holds them. ClusterError, after the rest, about those that cannot be undone and stand still."""
        self._undo({order.number: order.faults.intersection(faults) for order in self.orders}, frozenset(faults), drop=drop)

    def _undo(self, held: Mapping[int, frozenset[Fault]], faults: frozenset[Fault], *, drop: bool) -> None:
        """`held`: which of them go from which orders, by number."""
        standing = {order.number: order for order in self.orders}
        for number, own in held.items():
            standing[number].faults -= own
        stuck: list[Fault] = []
        reasons: list[str] = []
        for concerned, settle in self._steps(faults, drop=drop):
            try:
                settle()
            except (ClusterError, OSError) as error:
                reasons.append(str(error))
                for number, own in held.items():
                    standing[number].faults |= own.intersection(concerned)
                    stuck += own.intersection(concerned)
        self.orders = [order for order in self.orders if order.faults]
        if reasons:
            left = ", ".join(sorted({self._shown(fault) for fault in stuck}))
            raise ClusterError("; ".join(reasons) + (f"; still in force: {left}; mend that, then heal again" if left else ""))

    def _shown(self, fault: Fault) -> str:
        names = [self._cluster.node(node_id).name for node_id in (fault.node, fault.other) if node_id is not None]
        return f"{' → '.join(names)} {fault.kind}"

    def of(self, kinds: Collection[str], nodes: Collection[int]) -> set[Fault]:
        """The faults of those kinds that concern any of these nodes."""
        held = {fault for order in self.orders for fault in order.faults}
        return {fault for fault in held if fault.kind in kinds and fault.concerns(nodes)}

    def _steps(self, faults: Collection[Fault], *, drop: bool = False) -> Iterator[tuple[Collection[Fault], Callable[[], None]]]:
        """What makes the cluster agree with the orders that stand, step by step, each with the faults that it settles."""
        of_links = [fault for fault in faults if fault.other is not None]
        cuts = [fault for fault in of_links if fault.kind == CUT]
        yield cuts, lambda: self._settle_cuts(cuts, drop)
        shaped = [fault for fault in of_links if fault.kind != CUT]
        yield shaped, lambda: self._settle_shapes({fault.link for fault in of_links})
        if dark := [fault for fault in faults if fault.kind == DARK and self.wanted(fault)]:
            yield dark, lambda: self._cluster.lose_power([fault.node for fault in dark])
        for kind in NODE_FAULTS:
            for fault in faults:
                if fault.kind == kind:
                    yield [fault], partial(self._settle_node, fault)

    def _settle_cuts(self, faults: Collection[Fault], drop: bool) -> None:
        wanted: defaultdict[bool | None, list[tuple[int, int]]] = defaultdict(list)
        for fault in faults:
            order = self.wanted(fault)
            wanted[None if order is None else order.reset].append(fault.link)
        for reset, links in wanted.items():
            if reset is None:
                self._cluster.heal_links(links, drop=drop)
            else:
                self._cluster.cut_all(links, reset=reset)

    def _settle_shapes(self, links: Iterable[tuple[int, int]]) -> None:
        wanted: defaultdict[LinkShape, list[tuple[int, int]]] = defaultdict(list)
        for link in links:
            slow, lossy = self._shape(SLOW, link), self._shape(LOSSY, link)
            wanted[
                LinkShape(
                    delay_ms=slow.delay_ms,
                    jitter_ms=slow.jitter_ms,
                    loss=lossy.loss,
                    duplicate=lossy.duplicate,
                    reorder=lossy.reorder,
                )
            ].append(link)
        for shape, alike in wanted.items():
            self._cluster.shape_links(alike, shape)

    def _shape(self, kind: str, link: tuple[int, int]) -> LinkShape:
        order = self.wanted(Fault(kind, *link))
        return order.shape if order is not None else PLAIN

    def _settle_node(self, fault: Fault) -> None:
        cluster, node_id = self._cluster, fault.node
        is_wanted, pid = self.wanted(fault) is not None, cluster.pid(node_id)
        match fault.kind:
            case "dark" if not is_wanted and pid is None:
                cluster.restore_power(node_id)
                self._start(node_id)
            case "down" if is_wanted:
                cluster.kill_node(node_id)
            case "down":
                self._start(node_id)
            case "paused" if is_wanted:
                cluster.pause_node(node_id)
            case "paused":
                cluster.resume_node(node_id)
            case "wrong clock":
                order = self.wanted(fault)
                cluster.clock(node_id).run_at(1.0 if order is None else order.rate)
            case "full" if pid is not None:
                (full_disk.fill if is_wanted else full_disk.free)(pid)

    def _start(self, node_id: int) -> None:
        """Unless it runs, or is to be off for another reason."""
        if self._cluster.pid(node_id) is not None or any(self.wanted(Fault(kind, node_id)) for kind in OFF):
            return
        self._cluster.start_node(node_id)
        for kind in (PAUSED, FULL):
            if self.wanted(Fault(kind, node_id)):
                self._settle_node(Fault(kind, node_id))
