"""Deliberate bugs of the controller, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftlab.metadata.errors import ApiError
from kraftlab.metadata.records import AnyRecord
from kraftlab.quorum.simulation.mutants import Mutant

from ..engine.log_writer import LogWriter
from ..engine.purgatory import Purgatory
from ..engine.quorum_controller import QuorumController
from ..engine.state import Outcome


def _answer_before_commit(_original: object) -> Callable[..., None]:
    def mutated(self: Purgatory, offset: int, release: Callable[[], None], fail: Callable[[ApiError], None]) -> None:
        release()

    return mutated


def _revert_forgotten(step_down: Callable[[QuorumController, str], None]) -> Callable[[QuorumController, str], None]:
    def mutated(self: QuorumController, reason: str) -> None:
        newest = self._log.newest
        step_down(self, reason)
        self._log.newest = newest

    return mutated


def _answers_forgotten(_original: object) -> Callable[[Purgatory, ApiError], None]:
    def mutated(self: Purgatory, error: ApiError) -> None:
        """Those who wait go on waiting, and get the answer when somebody else's batch is committed at that offset."""

    return mutated


def _refusals_at_once(_original: object) -> Callable[[QuorumController], int]:
    def mutated(self: QuorumController) -> int:
        return self.applied_offset

    return mutated


def _no_markers(_original: object) -> Callable[[LogWriter, Outcome[Any]], list[AnyRecord]]:
    def mutated(self: LogWriter, outcome: Outcome[Any]) -> list[AnyRecord]:
        return list(outcome.records)

    return mutated


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("answer-before-commit", "the purgatory lets answers go at once", Purgatory, "defer", _answer_before_commit),
        Mutant(
            "revert-forgotten", "uncommitted state outlives the leadership", QuorumController, "_step_down", _revert_forgotten
        ),
        Mutant(
            "answers-forgotten",
            "answers that wait when leadership is lost wait for the next commit",
            Purgatory,
            "fail_all",
            _answers_forgotten,
        ),
        Mutant(
            "refusals-at-once",
            "a refusal computed from uncommitted state is told at once",
            QuorumController,
            "_newest_offset",
            _refusals_at_once,
        ),
        Mutant(
            "transaction-in-parts",
            "a change of several batches that must be one for readers is written without saying so",
            LogWriter,
            "_as_transaction",
            _no_markers,
        ),
    )
}
