"""Deliberate bugs of the controller, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from kraftlab.checking.mutant import MutantDoesNotApply, Table
from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import Uuid
from kraftlab.controller.cluster import brokers, producer_ids
from kraftlab.controller.cluster.heartbeats import HeartbeatTable
from kraftlab.controller.engine import exactly_once, log_writer, lost_connections
from kraftlab.controller.engine.exactly_once import RequestIdentity
from kraftlab.controller.engine.fencing import Fencing
from kraftlab.controller.engine.lost_connections import LostConnections
from kraftlab.controller.engine.move_upkeep import MoveUpkeep
from kraftlab.controller.engine.purgatory import Purgatory
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.partitions import partitions
from kraftlab.controller.reassignment import arithmetic
from kraftlab.controller.reassignment.arithmetic import Reassignment
from kraftlab.metadata.acls import Acl, AclsImage
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import BrokerImage, MetadataImage
from kraftlab.metadata.index import MetadataIndex
from kraftlab.metadata.moves import MovesImage
from kraftlab.metadata.moves_delta import MovesDelta
from kraftlab.metadata.peer_rpc import BrokerHeartbeatRequest
from kraftlab.metadata.records import AnyRecord, ProducerIds, RequestOutcome
from kraftlab.metadata.requests import RequestsDelta, RequestsImage
from kraftlab.metadata.snapshot import ImageSnapshot, _chunks

from ..consensus.mutants.seeds import Seeds

MUTANTS: Table[Seeds] = Table()
FOR_CLIENTS: Table[Seeds] = Table()
"""Bugs that show only in what clients read."""
FOR_TWO_PROCESSES: Table[Seeds] = Table()
"""Bugs that show if nodes hash strings differently. One process has one hash seed, so a seed is played in two."""
WALL_CLOCK_SET_EVERY_MS, WALL_CLOCK_WRONG_BY_MS = 2_000, 3_600_000
"""Period and amount by which the time of day is set back and right again."""


@MUTANTS.row(Purgatory, "defer", Seeds("M3"))
def answer_before_commit(
    _: object, self: Purgatory, offset: int, release: Callable[[int], None], fail: Callable[[ApiError], None]
) -> None:
    """The purgatory lets answers go at once."""
    release(offset)


@MUTANTS.row(QuorumController, "_step_down", Seeds("M5"))
def revert_forgotten(step_down: Callable[..., None], self: QuorumController, reason: str) -> None:
    """Uncommitted state outlives the leadership."""
    newest = self._log.newest
    step_down(self, reason)
    self._log.newest = newest


@MUTANTS.row(QuorumController, "_step_down", Seeds("M8"))
def no_state_after_control_batch(step_down: Callable[..., None], self: QuorumController, reason: str) -> None:
    """A control batch moves the committed offset and no state is kept there, so a leader has none to revert to (KAFKA-17608)."""
    if self._history and self._history[-1][1].provenance.offset != self._history[-1][0]:
        self._halt(LookupError(f"no state is kept at offset {self._history[-1][0]}"))
    step_down(self, reason)


@MUTANTS.row(Purgatory, "fail_all", Seeds("M3", "M4"))
def answers_forgotten(_: object, self: Purgatory, error: Callable[[int], ApiError]) -> None:
    """Answers that wait when leadership is lost wait for the next commit."""


@MUTANTS.row(QuorumController, "_newest_offset", Seeds("M3"))
def refusals_at_once(_: object, self: QuorumController) -> int:
    """A refusal computed from uncommitted state is sent at once."""
    return self.applied_offset


@MUTANTS.row(log_writer, "_as_transaction", Seeds("M4", "M9"))
def transaction_in_parts(_: object, state: ControllerState, outcome: Outcome[object], records_max: int) -> list[AnyRecord]:
    """A change of several batches that must be one for readers is written without saying so."""
    return list(outcome.records)


def _outcome_apart(recorded: Callable[..., Outcome[Any]]) -> Callable[..., Outcome[Any]]:
    """Keep the outcome of a request for the next batch. No outcome is kept beyond the time that the bug is planted."""
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


MUTANTS.add(
    "outcome-apart",
    (exactly_once,),
    "recorded",
    _outcome_apart,
    "the outcome of a request is written in another batch than its records",
    Seeds("M10"),
)


@MUTANTS.row(ImageSnapshot, "batches", Seeds("M1", "M2", "M10"))
def outcomes_not_in_snapshots(_: object, self: ImageSnapshot) -> Iterator[tuple[bytes, int]]:
    """A snapshot says nothing of what requests were answered."""
    yield from _chunks(msgspec.structs.replace(self._image, requests=RequestsImage()))


@MUTANTS.row(MoveUpkeep, "changed", Seeds("M11"))
def queue_stands_still(_: object, self: MoveUpkeep, image: MetadataImage) -> None:
    """Queued moves are not started when others end."""


@MUTANTS.row(MetadataIndex, "apply", Seeds("M1", "M2"))
def imbalance_forgotten(
    apply: Callable[..., MetadataIndex], self: MetadataIndex, delta: MetadataDelta, after: MetadataImage
) -> MetadataIndex:
    """The index does not follow who is led by another than the preferred leader."""
    return msgspec.structs.replace(apply(self, delta, after), imbalanced=self.imbalanced)


@MUTANTS.row(ImageSnapshot, "batches", Seeds("M1", "M2", "ReplayError"))
def queue_not_in_snapshots(_: object, self: ImageSnapshot) -> Iterator[tuple[bytes, int]]:
    """A snapshot says nothing of moves that wait."""
    moves = msgspec.structs.replace(self._image.moves, queued=MovesImage().queued)
    yield from _chunks(msgspec.structs.replace(self._image, moves=moves))


@MUTANTS.row(MovesDelta, "ended", Seeds("M1"))
def moves_go_on(_: object, self: MovesDelta, topic_id: Uuid, partition: int) -> None:
    """A move outlives its reassignment."""


@MUTANTS.row(brokers, "_cordons", Seeds("M1"))
def cordons_as_told(_: object, broker: BrokerImage, request: BrokerHeartbeatRequest, level: int) -> tuple[Uuid, ...] | None:
    """Cordoned directories are recorded in the order of the request."""
    return None if request.cordoned_log_dirs is None else request.cordoned_log_dirs[::-1]


@MUTANTS.row(brokers, "without_broker", Seeds("M1"))
def leaderships_stay(_: object, *_arguments: object) -> list[AnyRecord]:
    """A broker that is fenced goes on leading."""
    return []


@MUTANTS.row(producer_ids, "_next_block", Seeds("M8"))
def block_given_twice(
    next_block: Callable[..., tuple[int, ProducerIds]], state: ControllerState, broker_id: int, broker_epoch: int
) -> tuple[int, ProducerIds]:
    """A block of producer ids is given twice."""
    start, record = next_block(state, broker_id, broker_epoch)
    return start, msgspec.structs.replace(record, next_producer_id=max(start, 1))


@MUTANTS.row(exactly_once, "find", Seeds("M8", "M10"))
def no_deduplication(_: object, requests: RequestsImage, identity: RequestIdentity, now_ms: int) -> None:
    """A request with an id is executed however often it comes."""


@MUTANTS.row(partitions, "check_broker_epoch", Seeds("M12"))
def broker_epoch_unchecked(_: object, state: ControllerState, broker_id: int, broker_epoch: int) -> BrokerImage | None:
    """An in-sync set is changed by an incarnation that is gone."""
    return state.image.cluster.brokers.get(broker_id)


@MUTANTS.row(brokers, "register", Seeds("M1"))
def broker_epoch_reused(
    register: Callable[..., Outcome[object]], state: ControllerState, table: object, request: Any, context: Context
) -> Outcome[object]:
    """A new incarnation gets the epoch of the last."""
    known = state.image.cluster.brokers.get(request.broker_id)
    return register(state, table, request, context if known is None else context._replace(next_offset=known.epoch))


@MUTANTS.row(partitions, "ALTER_PARTITION_CHECKS", Seeds("M12"))
def partition_epoch_unchecked(checks: tuple[tuple[str, object, object], ...]) -> tuple[tuple[str, object, object], ...]:
    """An in-sync set is changed as the partition was."""
    left = tuple(check for check in checks if check[0] != "partition epoch is over")
    if len(left) != len(checks) - 1:
        raise MutantDoesNotApply("partition-epoch-unchecked: the check of the partition epoch no longer exists")
    return left


@MUTANTS.row(arithmetic, "complete", Seeds("M1", "M8"))
def reassigned_too_early(complete: Callable[..., object], reassignment: Reassignment, isr: tuple[int, ...]) -> object:
    """A reassignment ends before what it adds is in sync."""
    return complete(reassignment, tuple(dict.fromkeys((*isr, *reassignment.adding))))


@MUTANTS.row(HeartbeatTable, "note_contact", Seeds("M13"))
def contacts_by_the_wall_clock(
    arrived: Callable[..., None], self: HeartbeatTable, broker_id: int, metadata_offset: int, now_ms: int
) -> None:
    """Heartbeats are noted by the time of day, which is set now and then."""
    is_wrong = now_ms // WALL_CLOCK_SET_EVERY_MS % 2
    arrived(self, broker_id, metadata_offset, now_ms - is_wrong * WALL_CLOCK_WRONG_BY_MS)


@MUTANTS.row(lost_connections, "REFUSALS", Seeds("M13"))
def one_refusal_is_enough(_: int) -> int:
    """A broker is fenced after one refused connection."""
    return 1


@MUTANTS.row(LostConnections, "_tried", Seeds("M13"))
def any_try_confirms(tried: Callable[..., None], self: LostConnections, suspicion: object, was_refused: bool) -> None:
    """A broker whose connection ended is fenced although its port accepts."""
    tried(self, suspicion, True)


@MUTANTS.row(LostConnections, "_suspect", Seeds("M14"))
def broker_flaps(suspect: Callable[..., None], self: LostConnections, broker_id: int, broker_epoch: int) -> None:
    """A broker that lives behind a port that refuses is fenced again and again."""
    self._fenced_epochs.clear()
    suspect(self, broker_id, broker_epoch)


@MUTANTS.row(LostConnections, "heard", Seeds("M13"))
def suspicion_stays(_: object, self: LostConnections, broker_id: int, broker_epoch: int, connection: object) -> None:
    """A heartbeat does not end the suspicion of its broker."""
    self._heard[broker_id] = (broker_epoch, connection)


@MUTANTS.row(Fencing, "fence_dead", Seeds("M13", most=1000))
def fence_goes_through(
    fence_dead: Callable[..., None], self: Fencing, broker_id: int, broker_epoch: int, is_suspect: Callable[[], bool]
) -> None:
    """A fence that waited for the log is executed although the broker has sent a heartbeat meanwhile."""
    fence_dead(self, broker_id, broker_epoch, lambda: True)


@MUTANTS.row(AclsImage, "after", Seeds("M1"))
def rules_stay_said(after: Callable[..., AclsImage], self: AclsImage, changed: Mapping[Uuid, Acl | None]) -> AclsImage:
    """An access rule counts after it was removed."""
    changes = after(self, changed)
    return msgspec.structs.replace(changes, permissions=self.permissions) if None in changed.values() else changes


@FOR_CLIENTS.row(QuorumController, "catch_up", Seeds())
async def linearizable_read_as_it_is(_: object, self: QuorumController) -> None:
    """A linearizable read is answered from this controller's state, even if it does not lead."""


@FOR_CLIENTS.row(QuorumController, "committed", Seeds())
def uncommitted_state_shown(_: object, self: QuorumController) -> ControllerState:
    """Reads see what is not committed."""
    return self.newest


@FOR_TWO_PROCESSES.row(RequestsDelta, "answer", Seeds())
def answers_in_a_set(answer: Callable[..., None], self: RequestsDelta, record: RequestOutcome, end_offset: int) -> None:
    """Answers to a client are kept in the order in which a set of strings is iterated."""
    answer(self, record, end_offset)
    client = self._changed[record.client_id]
    assert client is not None, "it was answered just now"
    by_name = {f"{record.client_id.hex()}:{one.sequence}": one for one in client.answered}
    answered = tuple(by_name[name] for name in set(by_name))
    self._changed[record.client_id] = msgspec.structs.replace(client, answered=answered)
