"""Every order is a command of `kraftlab cluster` that gives the same order."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kraftlab.cli import main
from kraftlab.lab.faults import caller
from kraftlab.lab.faults.breaker import ORDERS
from kraftlab.lab.faults.order_text import command_of
from kraftlab.lab.faults.orders import Done, NodeState, Order, Status

GROUPS = st.lists(st.sampled_from(["leader", "controller-3000", "broker-1", "all"]), min_size=1, max_size=3).map(tuple)
TIMES = st.one_of(st.integers(1, 86_400_000).map(float), st.floats(0.001, 1000.0))
CHANCES = st.floats(0, 1)
VALUES = {
    "delay_ms": TIMES,
    "jitter_ms": TIMES,
    "jump_ms": TIMES,
    "loss": CHANCES,
    "duplicate": CHANCES,
    "reorder": CHANCES,
    "rate": st.floats(0.001, 1000),
    "directory": st.sampled_from(["d0", "/tmp/with space/d1"]),
    "number": st.integers(1, 999),
}


@st.composite
def orders(draw: st.DrawFn) -> Order:
    name = draw(st.sampled_from([name for name in ORDERS if name != "faults"]))
    kind = ORDERS[name]
    names = tuple(draw(st.lists(GROUPS, min_size=kind.least, max_size=min(kind.most, 4))))
    fields = {field: draw(VALUES.get(field, st.booleans())) for field in kind.fields}
    for_ms = draw(st.none() | TIMES) if kind.stays else None
    return Order(name, names, for_ms=for_ms, **fields)


@example(Order("slow", (("leader",),), for_ms=1500.0, delay_ms=0.0, jitter_ms=0.1))
@example(Order("lossy", (("leader",),)))
@example(Order("heal"))
@example(Order("fill-disk", (("broker-1",),), for_ms=10_000.0))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(orders())
def test_a_command_gives_the_order_that_it_was_made_of(monkeypatch: pytest.MonkeyPatch, order: Order) -> None:
    given_orders: list[Order] = []

    def give(data: Path, order: Order) -> Done:
        given_orders.append(order)
        return Done("done", status=Status((NodeState("broker-1", 1, "running", False),), (), ()))

    monkeypatch.setattr(caller, "give", give)
    command = command_of(order, ("--data", "/tmp/lab", "--json"))
    program, *words = shlex.split(command)
    assert (program, main.run(words)) == ("kraftlab", 0)
    [sent] = given_orders
    for field in Order.__struct_fields__:
        assert getattr(sent, field) == pytest.approx(getattr(order, field)) if field != "names" else sent.names == order.names
