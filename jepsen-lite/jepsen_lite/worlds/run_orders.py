"""A run in progress for `kraftlab cluster status` and the console: its strikes as orders in force, and a line of progress.

Nobody else may break the cluster meanwhile: a run's faults come from its plan alone, otherwise no seed would play them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kraftlab.checking.facts import Strike
from kraftlab.console.lanes import text_of
from kraftlab.lab import ClusterError
from kraftlab.lab.faults.orders import Done, Order, OrderState, Status


class RunOrders:
    """Takes the place of a Breaker while a run strikes. `status` is called from other threads."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def carry_out(self, order: Order) -> Done:
        """Answer an order that only asks. ClusterError for any other."""
        if order.order not in ("status", "faults"):
            raise ClusterError(
                "the faults of this run come from its plan alone; wait for its end (--leave-running keeps the cluster), or "
                "break a cluster of kraftlab up --allow-chaos"
            )
        return Done("the run in progress", status=self._status())

    def close(self) -> None: ...


def orders_of(strikes: Iterable[Strike], names: Mapping[int, str], started_at_ms: int, first: int = 1) -> tuple[OrderState, ...]:
    """Return strikes as orders, by begin. Strikes that were impossible are left out. `started_at_ms`: time 0 of the run."""
    struck = sorted((strike for strike in strikes if not strike.error), key=lambda strike: strike.begin_ns)
    return tuple(_order_of(number, strike, names, started_at_ms) for number, strike in enumerate(struck, first))


def _order_of(number: int, strike: Strike, names: Mapping[int, str], started_at_ms: int) -> OrderState:
    nodes = tuple(names[node] for node in strike.nodes)
    ended_ms = None if strike.end_ns is None else started_at_ms + strike.end_ns // 1_000_000
    begun_ms = started_at_ms + strike.begin_ns // 1_000_000
    groups = (nodes,) if nodes else tuple(dict.fromkeys((names[source],) for source, _ in strike.links))
    return OrderState(number, text_of(strike), None, strike.kind, groups, nodes, begun_ms=begun_ms, ended_ms=ended_ms)
