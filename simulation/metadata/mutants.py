"""Deliberate bugs of the controller, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

import msgspec

from kraftlab.controller.cluster import brokers, producer_ids
from kraftlab.controller.cluster.heartbeats import HeartbeatTable
from kraftlab.controller.engine import exactly_once, log_writer
from kraftlab.controller.engine.exactly_once import RequestIdentity
from kraftlab.controller.engine.move_upkeep import MoveUpkeep
from kraftlab.controller.engine.purgatory import Purgatory
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.partitions import partitions
from kraftlab.controller.reassignment import arithmetic
from kraftlab.controller.reassignment.arithmetic import Reassignment
from kraftlab.metadata.acls import Acl, AclsImage
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.errors import ApiError
from kraftlab.metadata.image import BrokerImage, MetadataImage
from kraftlab.metadata.index import MetadataIndex
from kraftlab.metadata.moves import MovesImage
from kraftlab.metadata.moves_delta import MovesDelta
from kraftlab.metadata.peer_rpc import BrokerHeartbeatRequest
from kraftlab.metadata.records import AnyRecord, ProducerIds, RequestOutcome
from kraftlab.metadata.requests import RequestsDelta, RequestsImage
from kraftlab.metadata.snapshot import ImageSnapshot, _chunks
from kraftlab.metadata.uuids import Uuid

from ..consensus.mutants import Mutant, MutantDoesNotApply


def _answer_before_commit(_original: object) -> Callable[..., None]:
    def mutated(self: Purgatory, offset: int, release: Callable[[int], None], fail: Callable[[ApiError], None]) -> None:
        release(offset)

    return mutated


def _revert_forgotten(step_down: Callable[[QuorumController, str], None]) -> Callable[[QuorumController, str], None]:
    def mutated(self: QuorumController, reason: str) -> None:
        newest = self._log.newest
        step_down(self, reason)
        self._log.newest = newest

    return mutated


def _answers_forgotten(_original: object) -> Callable[[Purgatory, Callable[[int], ApiError]], None]:
    def mutated(self: Purgatory, error: Callable[[int], ApiError]) -> None:
        """Those who wait go on waiting, and get the answer when somebody else's batch is committed at that offset."""

    return mutated


def _refusals_at_once(_original: object) -> Callable[[QuorumController], int]:
    def mutated(self: QuorumController) -> int:
        return self.applied_offset

    return mutated


def _no_markers(_original: object) -> Callable[[ControllerState, Outcome[Any]], list[AnyRecord]]:
    def mutated(state: ControllerState, outcome: Outcome[Any]) -> list[AnyRecord]:
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


def _imbalance_forgotten(apply: Callable[..., MetadataIndex]) -> Callable[..., MetadataIndex]:
    def mutated(self: MetadataIndex, delta: MetadataDelta, after: MetadataImage) -> MetadataIndex:
        return msgspec.structs.replace(apply(self, delta, after), imbalanced=self.imbalanced)

    return mutated


def _queue_not_in_snapshots(_original: object) -> Callable[[ImageSnapshot], Iterator[tuple[bytes, int]]]:
    def mutated(self: ImageSnapshot) -> Iterator[tuple[bytes, int]]:
        moves = msgspec.structs.replace(self._image.moves, queued=MovesImage().queued)
        yield from _chunks(msgspec.structs.replace(self._image, moves=moves))

    return mutated


def _moves_go_on(_original: object) -> Callable[[MovesDelta, Uuid, int], None]:
    def mutated(self: MovesDelta, topic_id: Uuid, partition: int) -> None:
        """Whose move it was is remembered."""

    return mutated


def _cordons_as_told(_original: object) -> Callable[..., tuple[Uuid, ...] | None]:
    def mutated(broker: BrokerImage, request: BrokerHeartbeatRequest, level: int) -> tuple[Uuid, ...] | None:
        return None if request.cordoned_log_dirs is None else request.cordoned_log_dirs[::-1]

    return mutated


def _leaderships_stay(_original: object) -> Callable[..., list[AnyRecord]]:
    def mutated(*_arguments: object) -> list[AnyRecord]:
        return []

    return mutated


def _block_given_twice(next_block: Callable[..., tuple[int, ProducerIds]]) -> Callable[..., tuple[int, ProducerIds]]:
    def mutated(state: ControllerState, broker_id: int, broker_epoch: int) -> tuple[int, ProducerIds]:
        start, record = next_block(state, broker_id, broker_epoch)
        return start, msgspec.structs.replace(record, next_producer_id=max(start, 1))

    return mutated


def _rules_stay_said(after: Callable[..., AclsImage]) -> Callable[..., AclsImage]:
    def mutated(self: AclsImage, changed: Mapping[Uuid, Acl | None]) -> AclsImage:
        changes = after(self, changed)
        return msgspec.structs.replace(changes, said=self.said) if None in changed.values() else changes

    return mutated


def _no_deduplication(_original: object) -> Callable[[RequestsImage, RequestIdentity, int], None]:
    def mutated(requests: RequestsImage, identity: RequestIdentity, now_ms: int) -> None:
        return

    return mutated


def _broker_epoch_unchecked(_original: object) -> Callable[[ControllerState, int, int], BrokerImage | None]:
    def mutated(state: ControllerState, broker_id: int, broker_epoch: int) -> BrokerImage | None:
        return state.image.cluster.brokers.get(broker_id)

    return mutated


def _broker_epoch_reused(register: Callable[..., Outcome[Any]]) -> Callable[..., Outcome[Any]]:
    def mutated(state: ControllerState, table: Any, request: Any, context: Context) -> Outcome[Any]:
        known = state.image.cluster.brokers.get(request.broker_id)
        return register(state, table, request, context if known is None else context._replace(next_offset=known.epoch))

    return mutated


def _partition_epoch_unchecked(checks: tuple[tuple[str, Any, Any], ...]) -> tuple[tuple[str, Any, Any], ...]:
    left = tuple(check for check in checks if check[0] != "partition epoch is over")
    if len(left) != len(checks) - 1:
        raise MutantDoesNotApply("partition-epoch-unchecked: there is no check of the partition epoch any more")
    return left


def _reassigned_too_early(complete: Callable[..., Any]) -> Callable[..., Any]:
    def mutated(reassignment: Reassignment, isr: tuple[int, ...]) -> Any:
        return complete(reassignment, tuple(dict.fromkeys((*isr, *reassignment.adding))))

    return mutated


def _contacts_by_the_wall_clock(arrived: Callable[..., None]) -> Callable[[HeartbeatTable, int, int, int], None]:
    def mutated(self: HeartbeatTable, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        is_wrong = now_ms // WALL_CLOCK_SET_EVERY_MS % 2
        arrived(self, broker_id, metadata_offset, now_ms - is_wrong * WALL_CLOCK_WRONG_BY_MS)

    return mutated


def _answers_in_a_set(answer: Callable[..., None]) -> Callable[[RequestsDelta, RequestOutcome, int], None]:
    def mutated(self: RequestsDelta, record: RequestOutcome, end_offset: int) -> None:
        answer(self, record, end_offset)
        client = self._changed[record.client_id]
        assert client is not None, "it was answered just now"
        by_name = {f"{record.client_id.hex()}:{one.sequence}": one for one in client.answered}
        answered = tuple(by_name[name] for name in set(by_name))
        self._changed[record.client_id] = msgspec.structs.replace(client, answered=answered)

    return mutated


def _reads_as_it_is(_original: object) -> Callable[[QuorumController], Coroutine[Any, Any, None]]:
    async def mutated(self: QuorumController) -> None:
        """What is committed here is taken for what is committed."""

    return mutated


def _reads_uncommitted(_original: object) -> property:
    def mutated(self: QuorumController) -> ControllerState:
        return self.newest

    return property(mutated)


WALL_CLOCK_SET_EVERY_MS, WALL_CLOCK_WRONG_BY_MS = 2_000, 3_600_000
"""The time of day is set an hour back, and right again."""

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
            log_writer,
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
        Mutant(
            "imbalance-forgotten",
            "the index does not follow who is led by another than the preferred leader",
            MetadataIndex,
            "apply",
            _imbalance_forgotten,
        ),
        Mutant(
            "queue-not-in-snapshots",
            "a snapshot says nothing of moves that wait",
            ImageSnapshot,
            "batches",
            _queue_not_in_snapshots,
        ),
        Mutant("moves-go-on", "a move outlives its reassignment", MovesDelta, "ended", _moves_go_on),
        Mutant("cordons-as-told", "cordoned directories are noted as they are told", brokers, "_cordons", _cordons_as_told),
        Mutant("leaderships-stay", "a broker that is fenced goes on leading", brokers, "without_broker", _leaderships_stay),
        Mutant("block-given-twice", "a block of producer ids is given twice", producer_ids, "_next_block", _block_given_twice),
        Mutant(
            "no-deduplication",
            "a request with an id is carried out however often it comes",
            exactly_once,
            "find",
            _no_deduplication,
        ),
        Mutant(
            "broker-epoch-unchecked",
            "an in-sync set is changed by an incarnation that is gone",
            partitions,
            "check_broker_epoch",
            _broker_epoch_unchecked,
        ),
        Mutant("broker-epoch-reused", "a new incarnation gets the epoch of the last", brokers, "register", _broker_epoch_reused),
        Mutant(
            "partition-epoch-unchecked",
            "an in-sync set is changed as the partition was",
            partitions,
            "ALTER_PARTITION_CHECKS",
            _partition_epoch_unchecked,
        ),
        Mutant(
            "reassigned-too-early",
            "a reassignment ends before what it adds is in sync",
            arithmetic,
            "complete",
            _reassigned_too_early,
        ),
        Mutant(
            "contacts-by-the-wall-clock",
            "when a broker was heard is noted by the time of day, which is set now and then",
            HeartbeatTable,
            "arrived",
            _contacts_by_the_wall_clock,
        ),
        Mutant("rules-stay-said", "an access rule counts after it was removed", AclsImage, "after", _rules_stay_said),
    )
}

FOR_CLIENTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "linearizable-read-as-it-is",
            "a linearizable read is answered from what this controller has, whoever leads",
            QuorumController,
            "catch_up",
            _reads_as_it_is,
        ),
        Mutant(
            "uncommitted-state-shown",
            "reads see what is not committed",
            QuorumController,
            "committed",
            _reads_uncommitted,
        ),
    )
}
"""Bugs that only those see who read through the doors: the world's own administrator does not."""

FOR_TWO_PROCESSES: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "answers-in-a-set",
            "what a client was answered is in the order in which a set of strings is iterated",
            RequestsDelta,
            "answer",
            _answers_in_a_set,
        ),
    )
}
"""Bugs by which nodes differ that hash strings differently, which those of one process do not: a seed has to be played in two."""
