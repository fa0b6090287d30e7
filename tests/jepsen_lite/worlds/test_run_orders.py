"""A run in progress tells its strikes as orders, and takes none."""

from __future__ import annotations

import pytest

from jepsen_lite.worlds.run_orders import RunOrders, orders_of
from kraftlab.checking.facts import Strike
from kraftlab.lab import ClusterError
from kraftlab.lab.faults.orders import Order, Status

NAMES = {3000: "controller-3000", 1: "broker-1"}


def test_strikes_are_orders_by_begin_in_ms_since_1970_and_impossible_ones_are_left_out() -> None:
    strikes = [
        Strike(kind="kill", begin_ns=2_000_000_000, end_ns=None, nodes=(1,)),
        Strike(kind="cut", begin_ns=1_000_000_000, end_ns=1_500_000_000, links=((3000, 1),)),
        Strike(kind="disk-full", begin_ns=0, end_ns=0, error="needs root"),
    ]
    first, second = orders_of(strikes, NAMES, 10_000)
    assert (first.number, first.order, first.groups, first.begun_ms, first.ended_ms) == (
        1,
        "cut",
        (("controller-3000",),),
        11_000,
        11_500,
    )
    assert (second.number, second.text, second.nodes, second.begun_ms, second.ended_ms) == (
        2,
        "kill 1",
        ("broker-1",),
        12_000,
        None,
    )


def test_orders_are_refused_while_a_run_strikes_but_its_state_is_told() -> None:
    orders = RunOrders(lambda: Status((), (), (), progress="clients, 3 of 10 s"))
    told = orders.carry_out(Order("faults")).status
    assert told is not None and told.progress == "clients, 3 of 10 s"
    with pytest.raises(ClusterError, match="come from its plan alone"):
        orders.carry_out(Order("heal"))
