"""Plays seeds with controllers in them: what `kraftlab sim --metadata` runs, with the results of quorum/simulation's runner."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftlab.quorum.simulation import runner
from kraftlab.quorum.simulation.mutants import planted
from kraftlab.quorum.simulation.runner import SeedResult

from .mutants import MUTANTS
from .world import MetadataWorld

FAULT_PHASE_MS = 5_000


def run_seed(
    seed: int,
    *,
    faults: Iterable[str] | None = None,
    mutant: str | None = None,
    write: Callable[[str], None] | None = None,
) -> SeedResult:
    """Play one seed; `mutant` names one of the controller's. In the result `acknowledged` counts operations, not batches."""
    with planted(MUTANTS[mutant] if mutant else None):
        return runner.run_seed(seed, faults=faults, fault_phase_ms=FAULT_PHASE_MS, write=write, make_world=MetadataWorld)
