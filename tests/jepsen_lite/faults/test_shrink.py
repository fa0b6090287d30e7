"""A failing run shrinks to the few faults, clients and nodes that matter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jepsen_lite.fault_plan import Action
from jepsen_lite.faults.shrink import Case, smallest_case
from jepsen_lite.workload import Options

cases = st.builds(
    lambda kinds, options: Case(
        options,
        tuple(Action(at_ms=100 * n, for_ms=50, kind=kind, number=n) for n, kind in enumerate(kinds)),
    ),
    st.lists(st.sampled_from(["kill", "pause", "partition", "loss"]), max_size=25),
    st.builds(
        Options,
        time_s=st.floats(3, 60),
        rate=st.sampled_from([0.0, 10.0, 200.0]),
        concurrency=st.integers(1, 20),
        controllers=st.sampled_from([1, 3, 5]),
        brokers=st.integers(0, 4),
    ),
)


def numbers(case: Case) -> set[int]:
    return {action.number for action in case.actions}


@given(cases, st.data())
def test_a_case_shrinks_to_what_it_takes(case: Case, data: st.DataObject) -> None:
    number = st.integers(0, len(case.actions) - 1)
    needed = data.draw(st.sets(number, max_size=3)) if case.actions else set()
    clients = data.draw(st.integers(1, case.options.concurrency))
    controllers = data.draw(st.sampled_from([count for count in (1, 3, 5) if count <= case.options.controllers]))

    def fails(smaller: Case) -> bool:
        options = smaller.options
        return needed <= numbers(smaller) and options.concurrency >= clients and options.controllers >= controllers

    least = smallest_case(case, fails)
    assert fails(least)
    assert numbers(least) == needed
    assert least.options.controllers == controllers
    assert least.options.concurrency // 2 < clients
    assert least.options.brokers == min(case.options.brokers, 1)
    assert least.options.rate in (0.0, 10.0, 12.5)
    assert least.options.time_s <= case.options.time_s
    assert least.options.time_s >= max((action.at_ms / 1000 for action in least.actions), default=0.5)
    assert least.options.time_s <= max((action.at_ms / 1000 for action in least.actions), default=0) + 2.06


def test_kinds_that_have_nothing_to_do_with_it_go_at_once() -> None:
    actions = tuple(Action(at_ms=n, kind="kill" if n == 50 else "pause", number=n) for n in range(100))
    asked: list[Case] = []

    def fails(case: Case) -> bool:
        asked.append(case)
        return any(action.kind == "kill" for action in case.actions) and case.options.concurrency == 5

    least = smallest_case(Case(Options(time_s=0.5, rate=10, controllers=1, brokers=1), actions), fails)
    assert [action.number for action in least.actions] == [50]
    assert len(asked) <= 6
