"""S19: the model allows every step of a node, and model and node agree after the step.

A step is an event and its effects. First the event takes effect: an answer counts, a fetch acknowledges, a disk operation ends.
Then each effect of Raft becomes an action of the model; the moves of Trace effects are the state transitions. Last, the replica
of the model is compared with the node's variables.
"""

from __future__ import annotations

from msgspec.structs import replace

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import KRaftVoters, check_all
from kraftlab.quorum.core.effects import (
    Append,
    Apply,
    Effect,
    Effects,
    InstallSnapshot,
    Move,
    Reply,
    Send,
    StoreElectionState,
    Trace,
    Truncate,
)
from kraftlab.quorum.core.events import ElectionStateStored, Event, RequestReceived, ResponseReceived, StorageCompleted
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    Diverging,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Records,
    Request,
    Response,
    SnapshotRequired,
    VoteRequest,
    VoteResponse,
)
from kraftlab.quorum.core.states import Candidate, Prospective
from kraftlab.quorum.storage import MetadataStore

from ..durable_log import DurableLog
from ..invariants import Checker, Violation
from ..observed import ObservedMachine, ObservedProcess, ObservedWorld
from . import actions
from .actions import NOBODY, IllegalAction
from .ghosts import Entry, Ghosts
from .replica import Replica


class Refinement(Checker):
    """S19 in one world. Must be added before the world begins."""

    def __init__(self, world: ObservedWorld) -> None:
        super().__init__(world)
        self.steps = 0
        """Number of steps that the model has allowed."""
        self._ghosts = Ghosts()
        self._replicas: dict[int, Replica] = {}

    def on_boot(self, machine: ObservedMachine, log: DurableLog, store: MetadataStore) -> None:
        entry = self._on_disk(machine, log)
        named = [record.voters for record in store.boot.bootstrap if isinstance(record, KRaftVoters)]
        self._replicas[machine.node_id] = Replica(
            key=machine.key,
            role="",
            epoch=0,
            leader=NOBODY,
            voted=None,
            log=entry,
            durable=entry,
            stored=store.election,
            base=named[-1] if named else self.world.static_voters,
            repair_until=store.boot.repair_until,
        )

    def on_step(self, process: ObservedProcess, event: Event, effects: Effects) -> None:
        replica = self._replicas[process.node_id]
        done: Effect | Event = event
        try:
            replica = self._receive(replica, event)
            for effect in effects:
                done = effect
                replica = self._carry_out(replica, process, event, effect)
            _agree(replica, process)
        except IllegalAction as error:
            raise Violation(f"S19 n{process.node_id} {event!r}: {done!r}: {error}; model: {replica}") from error
        self._replicas[process.node_id] = replica
        self.steps += 1

    def on_sent(self, process: ObservedProcess, request: Request) -> None:
        """Note a request that leaves, with the sender's durable log."""
        self._ghosts.sent(request, process.key, self._on_disk(process.machine, process.machine.durable))

    def _on_disk(self, machine: ObservedMachine, log: DurableLog) -> Entry:
        end, crc = (log.ends[-1], log.crcs[-1]) if log.ends else (log.start.offset, log.start_crc)
        entry = self._ghosts.find(end, crc)
        if entry is None:
            raise Violation(f"S19 n{machine.node_id} has a log up to {end} with crc {crc:08x} on its disk that was never written")
        return entry

    # Events

    def _receive(self, replica: Replica, event: Event) -> Replica:
        if type(event) is RequestReceived:
            return self._receive_request(replica, event)
        if type(event) is ResponseReceived:
            return self._receive_response(replica, event)
        if type(event) is StorageCompleted:
            done = [entry for write_id, entry in replica.writing if write_id <= event.append_id]
            left = tuple(pair for pair in replica.writing if pair[0] > event.append_id)
            return actions.flush(replica, max(replica.durable, *done, key=_end), left) if done else replica
        if type(event) is ElectionStateStored:
            stored = [state for version, state in replica.storing if version <= event.version]
            left_to_store = tuple(pair for pair in replica.storing if pair[0] > event.version)
            return replace(replica, stored=stored[-1], storing=left_to_store) if stored else replica
        return replica

    def _receive_request(self, replica: Replica, event: RequestReceived) -> Replica:
        request = event.request
        if type(request) is not FetchRequest:
            return replica
        sent = self._ghosts.origin(request)
        if sent is None:
            raise IllegalAction("nobody has sent this")
        if sent.sender != request.replica:
            raise IllegalAction(f"{sent.sender} has sent this as {request.replica}")
        if request.epoch != replica.epoch or request.replica.node_id < 0:
            return replica
        return actions.acknowledge(replica, request.replica, request.fetch_offset, request.last_fetched_epoch, sent.log)

    def _receive_response(self, replica: Replica, event: ResponseReceived) -> Replica:
        response = event.response
        sent = self._ghosts.origin(response)
        if sent is None or sent.sender.node_id != event.source:
            raise IllegalAction("nobody has sent this")
        if type(response) is VoteResponse and response.granted and response.leader.epoch == replica.epoch:
            return actions.count_grant(replica, sent.sender, response.pre_vote)
        return replica

    # Effects

    def _carry_out(self, replica: Replica, process: ObservedProcess, event: Event, effect: Effect) -> Replica:
        if type(effect) is Trace:
            return self._move(replica, event, effect.move) if effect.move is not None else replica
        if type(effect) is StoreElectionState:
            return replace(replica, storing=(*replica.storing, (effect.version, effect.state)))
        if type(effect) is Append:
            return self._append(replica, event, effect)
        if type(effect) is Truncate:
            replica = actions.truncate(replica, effect.to_offset, self._leaders_log(replica, event))
            return replace(replica, writing=(*replica.writing, (effect.append_id, replica.log)))
        if type(effect) is InstallSnapshot:
            replica = actions.install(replica, self._ghosts, effect.id.offset, effect.last_crc)
            return replace(replica, writing=(*replica.writing, (effect.append_id, replica.log)))
        if type(effect) is Apply:
            return actions.commit(replica, self._ghosts, effect.high_watermark, _high_watermark_in(replica, event))
        if type(effect) is Send:
            self._claims(replica, effect.request)
        elif type(effect) is Reply:
            inbound = process.inbound.get(effect.correlation)
            if inbound is not None:
                self._answers(replica, inbound.request, effect.response)
        return replica

    def _move(self, replica: Replica, event: Event, move: Move) -> Replica:
        if not move.source:
            voted = replica.stored.voted_key if replica.stored is not None and move.voted_id >= 0 else None
            return actions.begin(replica, self._ghosts, move.target, move.epoch, move.leader_id, voted)
        if move.source != replica.role:
            raise IllegalAction(f"it moves from {move.source}, and is {replica.role}")
        if move.target == "follower":
            return actions.follow(replica, self._ghosts, move.epoch, move.leader_id, _named_leaders(event))
        if move.target == "prospective":
            return actions.stand(replica)
        if move.target == "candidate":
            return actions.campaign(replica, self._ghosts, _does_not_know_pre_votes(event))
        if move.target == "leader":
            return actions.lead(replica, self._ghosts)
        if move.target == "resigned":
            return actions.resign(replica)
        if move.epoch > replica.epoch:
            return actions.see_epoch(replica, self._ghosts, move.epoch, _named_epochs(event))
        if move.voted_id >= 0 and replica.voted is None:
            candidate, asked = _candidate(event)
            if candidate.node_id != move.voted_id:
                raise IllegalAction(f"it votes for {move.voted_id}, and {candidate} has asked")
            return actions.vote(replica, candidate, asked)
        return actions.lose_leader(replica)

    def _append(self, replica: Replica, event: Event, effect: Append) -> Replica:
        headers = check_all(effect.data)
        if replica.role == "leader":
            for header in headers:
                start = header.base_offset - effect.base_offset
                if len(headers) != 1 or start != 0:
                    raise IllegalAction("a leader writes one batch at a time")
                replica = actions.write(replica, self._ghosts, header, effect.data)
        else:
            answer = _fetched(event)
            outcome = answer.outcome if answer is not None else None
            is_sent = type(outcome) is Records and outcome.data == effect.data
            if not is_sent:
                raise IllegalAction("it copies other batches than it was sent")
            replica = actions.copy(replica, self._ghosts, headers, self._leaders_log(replica, event))
        return replace(replica, writing=(*replica.writing, (effect.append_id, replica.log)))

    def _leaders_log(self, replica: Replica, event: Event) -> Entry:
        """Return the log that the leader had when it made this answer."""
        answer = _fetched(event)
        sent = self._ghosts.origin(answer)
        if answer is None or sent is None:
            raise IllegalAction("its leader has sent nothing")
        if (sent.sender.node_id, answer.leader.epoch) != (replica.leader, replica.epoch):
            raise IllegalAction("this is not from its leader")
        return sent.log

    # Claims of messages

    def _claims(self, replica: Replica, request: Request) -> None:
        """Check the claims of a request."""
        log, is_so = replica.log, True
        if type(request) is FetchRequest:
            claimed = (request.fetch_offset, request.last_fetched_epoch, request.high_watermark)
            is_so = claimed == (log.end, log.epoch, replica.high_watermark)
        elif type(request) is VoteRequest:
            role = "prospective" if request.pre_vote else "candidate"
            is_so = (request.end_offset, request.last_epoch) == (log.end, log.epoch)
            is_so &= (replica.role, replica.epoch) == (role, request.epoch)
        elif type(request) in _OF_LEADERS:
            is_so = self._ghosts.leaders.get(request.epoch) == replica.key.node_id
        if not is_so:
            raise IllegalAction(f"it sends {request!r}")

    def _answers(self, replica: Replica, request: Request, response: Response) -> None:
        """Check the claims of an answer."""
        self._ghosts.sent(response, replica.key, replica.log)
        view = response.leader
        if view.epoch != replica.epoch:
            raise IllegalAction(f"it answers {response!r}")
        if type(request) in _RAISE_EPOCHS and response.error not in _IGNORED and view.epoch < request.epoch:
            raise IllegalAction(f"it answers {response!r} to {request!r}, and stays in its epoch")
        if view.leader_id not in (NOBODY, self._ghosts.leaders.get(view.epoch)):
            raise IllegalAction(f"it answers {response!r}")
        if type(response) is VoteResponse and type(request) is VoteRequest and response.granted:
            may_be_granted = request.epoch == replica.epoch and replica.is_whole
            if request.pre_vote:
                may_be_granted &= actions.is_up_to_date(replica, request.last_epoch, request.end_offset)
            else:
                may_be_granted &= replica.voted == request.candidate
            if not may_be_granted:
                raise IllegalAction(f"it grants {request!r}")
        elif type(response) is FetchResponse and type(request) is FetchRequest and response.error is ErrorCode.NONE:
            self._serves(replica, request, response)

    def _serves(self, replica: Replica, request: FetchRequest, response: FetchResponse) -> None:
        """Check a leader's answer to a fetch."""
        if (replica.role, replica.epoch) != ("leader", request.epoch):
            raise IllegalAction(f"it serves {request!r}")
        is_known = replica.high_watermark > replica.epoch_start
        told = response.high_watermark
        if told > replica.high_watermark:
            raise IllegalAction(f"it serves {response!r}")
        if told != replica.high_watermark and is_known:
            raise IllegalAction(f"it serves {response!r}, below its high watermark")
        outcome, log, last_epoch = response.outcome, replica.log, request.last_fetched_epoch
        here = log.at(request.fetch_offset)
        is_prefix = here is not None and here.epoch == last_epoch
        if type(outcome) is Records:
            if not is_prefix:
                raise IllegalAction(f"it serves records after {request.fetch_offset}@{last_epoch}")
        elif type(outcome) is Diverging:
            if is_prefix:
                raise IllegalAction(f"it says {outcome!r} though the follower has a prefix of its log")
            if (outcome.end_offset, outcome.epoch) != log.end_of_epoch(last_epoch):
                raise IllegalAction(f"it serves {outcome!r}")
        elif type(outcome) is SnapshotRequired:
            snapshot = self._ghosts.committed.at(outcome.end_offset)
            if snapshot is None or snapshot.epoch != outcome.epoch:
                raise IllegalAction(f"it serves {outcome!r}")


_OF_LEADERS = (BeginQuorumEpochRequest, EndQuorumEpochRequest)
"""Requests that only the leader of an epoch sends."""
_RAISE_EPOCHS = (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest)
"""Requests after which a node must be in the request's epoch, if that is higher than its own (Raft §5.1, KIP-595)."""
_IGNORED = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_VOTER_KEY, ErrorCode.BROKER_NOT_AVAILABLE)
"""Errors of requests that a node ignores: they are invalid, for another disk, or the node is about to end."""


def _end(entry: Entry) -> int:
    return entry.end


def _fetched(event: Event) -> FetchResponse | None:
    """Return the answer to a fetch in the event, if there is one."""
    if type(event) is ResponseReceived and type(event.response) is FetchResponse:
        return event.response
    return None


def _high_watermark_in(replica: Replica, event: Event) -> int:
    """Return the high watermark in the leader's answer to a follower; -1 if the event is another one."""
    answer = _fetched(event)
    return answer.high_watermark if replica.role == "follower" and answer is not None else -1


def _named_epochs(event: Event) -> frozenset[int]:
    """Return the epochs that an event names."""
    if type(event) is RequestReceived:
        return frozenset((event.request.epoch,))
    if type(event) is ResponseReceived:
        return frozenset((event.response.leader.epoch,))
    return frozenset()


def _named_leaders(event: Event) -> frozenset[tuple[int, int]]:
    """Return the leaders that an event names, as (epoch, leader)."""
    if type(event) is RequestReceived and isinstance(event.request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
        return frozenset(((event.request.epoch, event.request.leader_id),))
    if type(event) is ResponseReceived:
        return frozenset(((event.response.leader.epoch, event.response.leader.leader_id),))
    return frozenset()


def _does_not_know_pre_votes(event: Event) -> bool:
    return type(event) is ResponseReceived and getattr(event.response, "error", None) is ErrorCode.UNSUPPORTED_VERSION


def _candidate(event: Event) -> tuple[ReplicaKey, tuple[int, int, int] | None]:
    """Return the candidate that asks for a vote, with (epoch, last epoch, end offset)."""
    if type(event) is RequestReceived and type(event.request) is VoteRequest and not event.request.pre_vote:
        request = event.request
        return request.candidate, (request.epoch, request.last_epoch, request.end_offset)
    return ReplicaKey(NOBODY), None


_VARIABLES = (
    "role",
    "epoch",
    "leader",
    "vote",
    "log's end",
    "log's last epoch",
    "log's last crc",
    "durable end",
    "high watermark",
    "voters",
    "stored election",
    "election's epoch",
    "election's leader",
    "election's vote",
)
"""The variables that node and model have in common."""


def _agree(replica: Replica, process: ObservedProcess) -> None:
    """Check that model and node agree, variable by variable."""
    quorum, log = process.quorum, process.local_log
    state, election, view, entry = quorum.state, quorum.election, log.view, replica.log
    epoch, leader, voted = replica.epoch, replica.leader, replica.voted
    real = (
        state.name,
        quorum.epoch,
        state.leader_id,
        state.voted_key,
        view.end_offset,
        view.last_epoch,
        view.last_crc,
        log.flushes.durable_end_offset,
        log.high_watermark,
        quorum.membership.voters,
        election,
        election.epoch,
        election.leader_id,
        election.voted_key,
    )
    model = (
        replica.role,
        epoch,
        leader,
        voted,
        entry.end,
        entry.epoch,
        entry.crc,
        replica.durable.end,
        replica.high_watermark,
        entry.config.voters if entry.config is not None else replica.base,
        replica.storing[-1][1] if replica.storing else replica.stored or replica.election,
        epoch,
        leader,
        voted,
    )
    if real != model:
        name, of_node, of_model = next(found for found in zip(_VARIABLES, real, model, strict=True) if found[1] != found[2])
        raise IllegalAction(f"its {name} is {of_node}, the model's {of_model}")
    if type(state) is Candidate or type(state) is Prospective:
        _agree_on_votes(replica, state)


def _agree_on_votes(replica: Replica, state: Candidate | Prospective) -> None:
    """Check that the node counts only votes that the model knows."""
    is_pre = state.name != "candidate"
    given = {replica.key.node_id, *(node_id for node_id, pre_vote in replica.grants if pre_vote == is_pre)}
    counted = state.tally.granting_voters()
    if not given.issuperset(counted):
        raise IllegalAction(f"it counts {counted} as votes in epoch {replica.epoch}, and has been given {given}")
