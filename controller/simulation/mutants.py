"""Deliberate bugs of the controller, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kraftlab.metadata.errors import ApiError
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import AnyRecord, RequestOutcome
from kraftlab.metadata.requests import RequestsImage
from kraftlab.metadata.snapshot import ImageSnapshot, _chunks
from kraftlab.quorum.simulation.mutants import Mutant

from ..engine import exactly_once
from ..engine.exactly_once import RequestIdentity
from ..engine.log_writer import LogWriter
from ..engine.move_upkeep import MoveUpkeep
from ..engine.purgatory import Purgatory
from ..engine.quorum_controller import QuorumController
from ..engine.state import ControllerState, Outcome


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


def _outcome_apart(recorded: Callable[..., Outcome[Any]]) -> Callable[..., Outcome[Any]]:
    late: list[RequestOutcome] = []

    def mutated(api: str, identity: RequestIdentity, outcome: Outcome[Any], state: ControllerState, now_ms: int) -> Outcome[Any]:
        whole = recorded(api, identity, outcome, state, now_ms)
        *records, own = whole.records
        assert isinstance(own, RequestOutcome)
        for earlier in late:
            client = state.image.requests.get(earlier.client_id)
            if client is None or not (client.get(earlier.sequence) or client.is_too_old(earlier.sequence)):
                records.append(earlier)
        late[:] = [own]
        return whole._replace(records=records)

    return mutated


def _outcomes_not_in_snapshots(_original: object) -> Callable[[ImageSnapshot], Iterator[tuple[bytes, int]]]:
    def mutated(self: ImageSnapshot) -> Iterator[tuple[bytes, int]]:
        yield from _chunks(msgspec.structs.replace(self._image, requests=RequestsImage()))

    return mutated


def _queue_stands_still(_original: object) -> Callable[[MoveUpkeep, MetadataImage], None]:
    def mutated(self: MoveUpkeep, image: MetadataImage) -> None:
        """Nobody looks at the queue when slots get free."""

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
        Mutant(
            "outcome-apart",
            "what a request was answered is written in another batch than what it did",
            exactly_once,
            "recorded",
            _outcome_apart,
        ),
        Mutant(
            "outcomes-not-in-snapshots",
            "a snapshot says nothing of what requests were answered",
            ImageSnapshot,
            "batches",
            _outcomes_not_in_snapshots,
        ),
        Mutant(
            "queue-stands-still",
            "queued moves are not started when others end",
            MoveUpkeep,
            "changed",
            _queue_stands_still,
        ),
    )
}
