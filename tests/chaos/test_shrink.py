"""What is left of a failing plan fails, and nothing more can go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jepsen_lite.fault_plan import Action
from jepsen_lite.faults.shrink import Case, simplest, smallest, smallest_case
from jepsen_lite.workload import Options

culprits = st.sets(st.integers(0, 30), max_size=5)
causes = st.lists(culprits, min_size=1, max_size=3)
"""Whatever has all of one of these sets fails."""


def failing(causes: list[set[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    asked: list[tuple[int, ...]] = []

    def fails(items: tuple[int, ...]) -> bool:
        asked.append(items)
        return any(cause <= set(items) for cause in causes)

    return smallest(range(31), fails), asked


def naive(causes: list[set[int]]) -> tuple[int, ...]:
    """Leaves out one at a time, from the first on, until none can go."""
    left = list(range(31))
    for item in range(31):
        without = [other for other in left if other != item]
        if any(cause <= set(without) for cause in causes):
            left = without
    return tuple(left)


@given(culprits)
def test_one_cause_is_found_as_by_leaving_out_one_by_one(cause: set[int]) -> None:
    assert failing([cause])[0] == naive([cause]) == tuple(sorted(cause))


@given(causes)
def test_of_several_causes_one_is_left_and_nothing_else(causes: list[set[int]]) -> None:
    left, asked = failing(causes)
    minimal = [cause for cause in causes if not any(other < cause for other in causes)]
    assert set(left) in minimal
    assert list(left) == sorted(left)
    assert len(asked) == len(set(asked)), "nothing is tried twice"
    assert len(asked) <= 31 * 31 + 3 * 31


@given(st.sets(st.integers(0, 1023), min_size=1, max_size=3))
def test_few_culprits_among_many_cost_little(cause: set[int]) -> None:
    asked = 0

    def fails(items: tuple[int, ...]) -> bool:
        nonlocal asked
        asked += 1
        return cause <= set(items)

    assert smallest(range(1024), fails) == tuple(sorted(cause))
    assert asked <= 160


def test_interest_that_is_not_monotonic_still_ends_in_something_that_fails() -> None:
    def fails(items: tuple[int, ...]) -> bool:
        return len(items) % 3 == 1

    assert len(smallest(range(10), fails)) == 1


def test_steps_are_taken_as_long_as_they_help() -> None:
    def fewer(number: int) -> int | None:
        return number - 2 if number >= 2 else None

    def less(number: int) -> int:
        return number - 1

    assert simplest(10, [fewer], lambda number: number >= 3) == 4
    assert simplest(10, [fewer, less], lambda number: number >= 3) == 3
    assert simplest(10, [lambda number: None, lambda number: number], lambda number: True) == 10


# -- of a run ----------------------------------------------------------------------------------------------------------

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
