"""Quantiles and 95 % intervals. Everything is pure: the same numbers give the same results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, log10, sqrt
from random import Random
from statistics import linear_regression

from .experiment import Estimate

RESAMPLES = 400
NORMAL_95 = 1.959964


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the sorted numbers that at least `share` of them do not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def bootstrapped(numbers: Sequence[float], statistic: Callable[[Sequence[float]], float]) -> Estimate:
    """Return a statistic of the sorted numbers, with the interval that holds 95 % of its values in resamples of them."""
    ordered = sorted(numbers)
    random = Random(f"{len(ordered)}/{ordered[0]}/{ordered[-1]}")
    places = range(len(ordered))
    values = sorted(
        statistic([ordered[place] for place in sorted(random.choices(places, k=len(ordered)))]) for _ in range(RESAMPLES)
    )
    return Estimate(statistic(ordered), quantile(values, 0.025), quantile(values, 0.975))


def quantile_of(numbers: Sequence[float], share: float) -> Estimate:
    """Return a quantile with its bootstrap interval."""
    return bootstrapped(numbers, partial(quantile, share=share))


def median_of(numbers: Sequence[float]) -> Estimate:
    """Return the median with its bootstrap interval."""
    return quantile_of(numbers, 0.5)


def mean_of(numbers: Sequence[float]) -> Estimate:
    """Return the mean with its bootstrap interval."""
    return bootstrapped(numbers, mean)


def worst_of(numbers: Sequence[float]) -> Estimate:
    """Return the maximum. More trials can only raise it, so its interval is the point itself."""
    return Estimate(max(numbers), max(numbers), max(numbers))


def share_of(hits: int, trials: int) -> Estimate:
    """Return a share with its Wilson interval, which is right for shares near 0 and 1 as well."""
    share, z = hits / trials, NORMAL_95
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


def log_slope(points: Mapping[int, float]) -> float:
    """Return the slope of the line through (x, y) on axes with logarithms: 0 is flat, 1 grows with x."""
    if len(points) < 2:
        return 0.0
    return float(linear_regression([log10(x) for x in points], [log10(y) for y in points.values()]).slope)
