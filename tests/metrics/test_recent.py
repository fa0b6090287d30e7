from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.metrics.recent import QUANTILES, VALUES_MAX, WINDOW_S, RecentRate, RecentValues

READINGS = st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 1000)), min_size=1, max_size=40)


@given(READINGS)
def test_a_rate_is_that_since_the_oldest_reading_of_the_last_minute(steps: list[tuple[float, int]]) -> None:
    rate, now, total, seen = RecentRate(), 0.0, 0, []
    for pause, growth in steps:
        now, total = now + pause, total + growth
        seen.append((now, total))
        found = rate.read(total, now)
        begun, before = next((each for index, each in enumerate(seen) if [*seen, (math.inf, 0)][index + 1][0] > now - WINDOW_S))
        assert found == pytest.approx((total - before) / (now - begun) if now > begun else 0.0)


def test_a_total_that_falls_counts_from_there() -> None:
    rate = RecentRate()
    assert [rate.read(total, at) for at, total in ((0, 10), (1, 30), (2, 0), (3, 5))] == [0, 20, 0, 5]


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_quantiles_are_values_of_which_so_many_are_not_larger(values: list[float]) -> None:
    recent = RecentValues()
    for value in values:
        recent.observe(value, 0.0)
    found = recent.quantiles()
    assert set(found) == (set(QUANTILES) if values else set())
    for label, value in found.items():
        assert value in values
        assert sum(each <= value for each in values) >= QUANTILES[label] * len(values)


def test_old_values_count_for_quantiles_and_not_for_the_mean_of_the_last_minute() -> None:
    recent = RecentValues()
    recent.observe(8.0, 0.0)
    recent.observe(2.0, 100.0)
    recent.observe(4.0, 101.0)
    assert recent.mean_and_max(101.0) == (3.0, 4.0)
    assert recent.quantiles()["0.999"] == 8.0
    assert recent.count == 3
    assert all(map(math.isnan, RecentValues().mean_and_max(0.0)))


def test_the_newest_values_are_kept() -> None:
    recent = RecentValues()
    for value in range(VALUES_MAX + 10):
        recent.observe(value, 0.0)
    assert recent.since(-1.0)[0] == 10
    assert recent.count == VALUES_MAX + 10
