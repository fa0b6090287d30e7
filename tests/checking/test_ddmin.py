"""The result of delta debugging fails, and no single item of it can be left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.checking.ddmin import simplest, smallest

culprits = st.sets(st.integers(0, 30), max_size=5)
causes = st.lists(culprits, min_size=1, max_size=3)
"""A sequence fails if it contains all of one of these sets."""


def failing(causes: list[set[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    asked: list[tuple[int, ...]] = []

    def fails(items: tuple[int, ...]) -> bool:
        asked.append(items)
        return any(cause <= set(items) for cause in causes)

    return smallest(range(31), fails), asked


def naive(causes: list[set[int]]) -> tuple[int, ...]:
    """Leave out one item at a time, from the first on, until none can go."""
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
