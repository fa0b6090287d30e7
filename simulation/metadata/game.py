"""The game of `kraftlab sim --metadata`. `acknowledged` in its results counts operations, not batches."""

from __future__ import annotations

from ..consensus.runner import Game
from .mutants import MUTANTS
from .world import MetadataWorld

GAME = Game(MetadataWorld, MUTANTS, fault_phase_ms=5_000)
