"""Everything may fail, every invariant holds after every event, and after the heal the cluster comes together."""

from __future__ import annotations

import os

import pytest

from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.runner import Tally, report, run_many, run_seed

SEEDS = 50
"""The same ones each time; `make nightly` plays thousands that are new."""


def test_fifty_seeds_break_no_rule():
    results = list(run_many(range(SEEDS), processes=min(4, os.cpu_count() or 1)))
    failures = [f"seed {r.seed}: {r.violations[0]}\n" + "\n".join(r.tail) for r in results if not r.ok]
    assert not failures, "\n\n".join(failures)
    assert [r.seed for r in results] == list(range(SEEDS))
    assert {fault for r in results for fault in r.faults} == set(FAULTS), "a fault was never drawn"
    assert {r.voters for r in results} == {1, 2, 3, 4, 5}
    assert {r.observers for r in results} == {0, 1, 2, 3}
    assert sum(r.acknowledged for r in results) > 20 * SEEDS, "the workload hardly got anything committed"
    assert sum(r.mended_logs for r in results) > SEEDS // 10, "recovery hardly ever found a torn tail"
    assert sum(r.epochs for r in results) > 2 * SEEDS, "leaders hardly ever changed"
    tally = Tally(results)
    assert tally.failed_seeds == []
    assert report(tally).startswith(f"{SEEDS} seeds, all invariants held")


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_alone_is_survived(fault):
    for seed in range(3):
        result = run_seed(seed, faults=[fault], fault_phase_ms=3_000)
        assert result.ok, f"seed {seed}: {result.violations[0]}\n" + "\n".join(result.tail)
