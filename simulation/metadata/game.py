"""Plays seeds with controllers in them (`kraftlab sim --metadata`); results are those of simulation/consensus's runner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kraftlab.checking.mutant import Mutant, planted

from ..consensus import runner
from ..consensus.faults import FAULTS
from ..consensus.mutants.seeds import Seeds
from ..consensus.options import draw_options
from ..consensus.plan import Plan
from ..consensus.runner import SeedResult
from .mutants import MUTANTS
from .world import MetadataWorld

FAULT_PHASE_MS = 5_000
METADATA = "metadata"


def controller_mutants() -> Mapping[str, Mutant[Seeds]]:
    """The bugs that can be planted here."""
    return MUTANTS


def run_seed(
    seed: int,
    *,
    faults: Iterable[str] | None = None,
    mutant: str | None = None,
    write: Callable[[str], None] | None = None,
    trace: Callable[[str], object] | None = None,
    refine: bool = False,
) -> SeedResult:
    """Play one seed; `mutant` names one of the controller's. In the result `acknowledged` counts operations, not batches."""
    options = draw_options(seed, FAULTS if faults is None else faults, fault_phase_ms=FAULT_PHASE_MS)
    with planted(MUTANTS[mutant] if mutant else None):
        return runner.play(
            options, mutant=mutant, write=write, trace=trace, refine=refine, make_world=MetadataWorld, world_name=METADATA
        )


def run_plan(
    plan: Plan,
    *,
    write: Callable[[str], None] | None = None,
    trace: Callable[[str], object] | None = None,
    with_mutant: bool = True,
    with_tail: bool = True,
) -> SeedResult:
    """Play what a plan of this world says, with or without the bug that it plants."""
    with planted(MUTANTS[plan.mutant] if plan.mutant and with_mutant else None):
        return runner.play(
            plan.options,
            plan=plan,
            write=write,
            trace=trace,
            refine=plan.refine,
            make_world=MetadataWorld,
            world_name=METADATA,
            with_tail=with_tail,
        )
