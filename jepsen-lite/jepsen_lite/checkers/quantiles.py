"""Quantiles of numbers, by rank."""

from __future__ import annotations

from collections.abc import Iterable

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def quantiles(numbers: Iterable[float]) -> dict[str, float]:
    """p50, p95, p99 and max; {} of nothing."""
    ordered = sorted(numbers)
    return {name: ordered[min(len(ordered) - 1, int(rank * len(ordered)))] for name, rank in RANKS.items()} if ordered else {}
