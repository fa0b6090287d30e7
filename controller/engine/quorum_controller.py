"""The replicated state machine of a controller: active on the quorum's leader, standby on all other controllers.

Theory of operation. Every change of state is an event of one queue (`queue.py`). A write on the active controller runs to its
end without waiting. A manager generates records from the newest state. The records are replayed into a new state at the next
offsets and proposed to the log, which appends them as a batch at once (`log_writer.py`). The answer waits in the purgatory
until the batch is committed. A commit (`apply`) moves the committed state along the states of the batches in flight, and
releases answers. A resignation drops the batches in flight, fails their answers with NOT_CONTROLLER (outcome unknown), and
continues from the committed state. A standby replays the same records with the same code when they are committed.

While a metadata transaction is open (KIP-868), readers and waiting answers see the state at its beginning, the last stable
offset. Its records count once its end is committed.

Reads see committed state only, on any controller, and do not go through the queue. A linearizable read first lets the quorum
confirm the leadership, and waits until the committed state has caught up (`catch_up`). Heartbeats that change nothing do not
go through the queue either.

A long write, such as a plan of thousands of entries or the fence of a broker with thousands of partitions, is computed on a
thread, from a state that never changes. The queue is paused meanwhile: no other write comes in between, and the event loop keeps
serving the quorum and heartbeats. A leader that is busy for longer than its followers' fetch timeout would be deposed, and the
next leader would fail at the same request.

A manager that fails unexpectedly, or whose records cannot be replayed, has changed nothing: its caller gets
UNKNOWN_SERVER_ERROR, and the controller goes on. Replay comes before the proposal because a committed record that cannot be
replayed would stop every node that reads it, forever.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import trio
from outcome import Outcome as Result

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode, InvariantViolation
from kraftlab.common.line_limit import LimitedLog
from kraftlab.metadata import codec
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.index import index_of
from kraftlab.metadata.peer_rpc import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver.errors import NotLeader, Overloaded
from kraftlab.quorum.state_machine import CommittedBatch

from ..cluster import brokers
from ..cluster.heartbeats import HeartbeatTable
from .activation import ActivationRefused, activation_records
from .answer_deadlines import AnswerDeadlines, CommitUnknown
from .background import Background
from .election_counts import ElectionCounts
from .fencing import Fencing
from .log_writer import LogWriter, LostLeadership, MetadataQuorum, Misplaced, PreparedWrite, prepare_write
from .lost_connections import LostConnections, Probe
from .move_upkeep import MoveUpkeep
from .offset_waiters import OffsetWaiters, Signal
from .purgatory import Answer, Purgatory
from .queue import NEVER_MS, Event, EventQueue, NotNow
from .state import EMPTY_STATE, GRPC, Context, ControllerState, Outcome, Settings

logger = logging.getLogger("kraftlab.controller")

R = TypeVar("R")
Generate = Callable[[ControllerState, Context], Outcome[R]]
WriteResult = tuple[Outcome[Any], PreparedWrite | None]
"""Outcome of a write, with its batches if they are prepared."""
Offload = Callable[[Callable[[], WriteResult], Callable[[Result[WriteResult]], None]], None]
"""Run the first function on another thread, and then the second on the event loop, with the first one's result."""


class OffloadedWrite(NamedTuple):
    """Result of a write that was computed on another thread. It is valid while the log ends at `next_offset`."""

    next_offset: int
    unwrap: Callable[[], WriteResult]


NO_LEADER = -1
DEADLINE_TAG = "answers that may not wait longer"
HISTORY_LENGTH = 8192


class ActiveController(NamedTuple):
    """The active controller as this node knows it, with its gRPC endpoint if known. `leader_id` -1: the leader is unknown."""

    epoch: int
    leader_id: int
    endpoint: Endpoint | None


class ControllerStatistics(NamedTuple):
    """`pending`: batches that are not committed. `waiting`: answers in the purgatory. `offset_waiters`: tasks that wait for
    newer state.
    """

    is_active: bool
    epoch: int
    applied_offset: int
    pending: int
    waiting: int
    offset_waiters: int
    queue: dict[str, int]
    writes: int
    quick_heartbeats: int
    heartbeats_timed_out: int
    brokers_fenced: int


class QuorumController:
    """See the module's docstring. `clock` gives milliseconds. `attach` names the log and comes before any other call.
    `offload` computes long writes on a thread; without it they run as all others do. `signal` makes the event that a task
    waits for: trio's, unless the tasks run on another event loop. `probe` tries the ports of brokers whose connection ended;
    without it, only sessions end.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], int],
        source: random.Random,
        on_timer_changed: Callable[[], None],
        offload: Offload | None = None,
        signal: Callable[[], Signal] = trio.Event,
        probe: Probe | None = None,
    ) -> None:
        self.settings = settings
        self._offload = offload
        self._offloaded_write: object | None = None
        """Token of the long write that is being computed. None: there is none, or its result is no longer needed."""
        self.heartbeats = HeartbeatTable(settings.session_timeout_ms)
        self.queue = EventQueue(clock, on_timer_changed)
        self.failure: BaseException | None = None
        """Reason why this node must stop, None while it need not."""
        self.failed = trio.Event()
        self._clock = clock
        self._lines = LimitedLog(logger, lambda: clock() / 1000)
        self._random = source
        self._quorum: MetadataQuorum | None = None
        self._claimed_epoch: int | None = None
        self._lost_epoch = -1
        """Epoch in which the log refused the rest of a change: the newest state may be in the middle of a transaction."""
        self._epoch = 0
        self._leader_id = NO_LEADER
        self._leader_endpoints: dict[str, Endpoint] = {}
        self._committed = EMPTY_STATE
        self._log = LogWriter(EMPTY_STATE, settings.batch_records_max)
        self._applied_offset = 0
        self._first_high_watermark = -1
        self._history: deque[tuple[int, MetadataImage]] = deque(maxlen=HISTORY_LENGTH)
        self._purgatory = Purgatory()
        self._deadlines = AnswerDeadlines()
        self.moves = MoveUpkeep(self.queue, clock, self._run_write, lambda: self._log.newest)
        self._offset_waiters = OffsetWaiters(signal)
        self._background = Background(
            self.queue, clock, settings, self._run_write, lambda: self.is_active, lambda: bool(self._log.in_flight)
        )
        self._fencing = Fencing(
            self.queue,
            clock,
            self.heartbeats,
            settings.session_timeout_ms,
            lambda broker_id: partial(self._change_broker, broker_id),
            lambda: self._log.newest,
            lambda: self.is_active,
        )
        self._connections = LostConnections(
            self.queue, clock, lambda: self._log.newest.image.cluster.brokers, self._fencing.fence_dead, probe
        )
        self.elections = ElectionCounts()
        self._quick_heartbeats = 0
        self._heartbeats_timed_out = 0

    def attach(self, quorum: MetadataQuorum) -> None:
        self._quorum = quorum

    # --- what it knows -------------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._claimed_epoch is not None

    @property
    def committed(self) -> ControllerState:
        """The state that readers see."""
        return self._committed

    @property
    def newest(self) -> ControllerState:
        """The state that the next write starts from. On the active controller it includes uncommitted batches."""
        return self._log.newest

    @property
    def applied_offset(self) -> int:
        """End offset of the committed state. While a transaction is open, the offset of its beginning (last stable offset)."""
        return self._applied_offset

    @property
    def is_loaded(self) -> bool:
        """True once the committed state has reached the first high watermark that this node received."""
        return self.is_active or 0 <= self._first_high_watermark <= self._applied_offset

    @property
    def active_controller(self) -> ActiveController:
        endpoint = self._leader_endpoints.get(GRPC)
        controller = self._committed.image.cluster.controllers.get(self._leader_id)
        listener = controller.listener(GRPC) if controller is not None else None
        if listener is not None:
            endpoint = Endpoint(listener.host, listener.port)
        return ActiveController(self._epoch, self._leader_id, endpoint)

    def image_at(self, offset: int) -> MetadataImage | None:
        """Committed image at this end offset. None if the offset is not reached yet, or too old."""
        if offset > self._applied_offset:
            return None
        return next((image for end_offset, image in reversed(self._history) if end_offset <= offset), None)

    def not_controller(self) -> ApiError:
        leader = self._leader_id
        if leader in (NO_LEADER, self.settings.node_id):
            return ApiError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active; retry until one is elected.")
        return ApiError(ErrorCode.NOT_CONTROLLER, f"The active controller appears to be node {leader}.")

    def statistics(self) -> ControllerStatistics:
        return ControllerStatistics(
            self.is_active,
            self._epoch,
            self._applied_offset,
            self._log.in_flight,
            len(self._purgatory),
            len(self._offset_waiters),
            self.queue.statistics(),
            self._log.batches_written,
            self._quick_heartbeats,
            self._heartbeats_timed_out,
            self._fencing.fenced,
        )

    def silences_ms(self) -> dict[int, int]:
        """Time since the last heartbeat of each registered broker, by id. Empty on a standby."""
        return {broker_id: contact["silent_ms"] for broker_id, contact in self.heartbeats.statistics(self._clock()).items()}

    # --- requests ------------------------------------------------------------------------------------------------------------

    def write(
        self,
        name: str,
        generate: Generate[R],
        *,
        deadline_ms: int = NEVER_MS,
        answer_by_ms: int = NEVER_MS,
        is_long: bool = False,
    ) -> Answer[R]:
        """Queue an operation of the active controller. Its answer comes once its records, or the state that it saw, are
        committed.

        An operation that has not begun by `deadline_ms` never runs. If it is not committed by `answer_by_ms`, its outcome is
        unknown. An operation that `is_long` may be computed on another thread, so it must not look at anything that is changed
        in place.
        """
        answer: Answer[R] = Answer()

        def run(offloaded: OffloadedWrite | None = None) -> None:
            write = partial(self._run_write, name, generate, answer, offloaded)
            if answer_by_ms < NEVER_MS:
                self._run_limited(write, answer, answer_by_ms)
            else:
                write()

        is_offloaded = is_long and self._offload is not None
        begin = partial(self._offload_write, name, generate, run, answer) if is_offloaded else run
        self.queue.append(Event(name, begin, answer.fail, deadline_ms))
        return answer

    def _offload_write(
        self, name: str, generate: Generate[R], run: Callable[[OffloadedWrite | None], None], answer: Answer[R]
    ) -> None:
        """Compute a long write on another thread and give its result to `run`. The queue is paused until then."""
        epoch, quorum = self._claimed_epoch, self._quorum
        if epoch is None or quorum is None or self._offload is None or not self._finish(quorum, epoch):
            answer.fail(self.not_controller())
            return
        context = Context(self._clock(), self._random, self.settings, quorum.end_offset)
        state = self._log.newest
        token = self._offloaded_write = object()

        def work() -> WriteResult:
            outcome = generate(state, context)
            if not outcome.records:
                return outcome, None
            records_max = self.settings.batch_records_max
            return outcome, prepare_write(state, context.next_offset, epoch, outcome, context.now_ms, records_max)

        def done(result: Result[WriteResult]) -> None:
            if self._offloaded_write is not token:
                answer.fail(self.not_controller())
                return
            self._offloaded_write = None
            if quorum.end_offset != context.next_offset:
                # The quorum has written a record of its own meanwhile.
                again = partial(self._offload_write, name, generate, run, answer)
                self.queue.unpause(Event(name, again, answer.fail))
                return

            # If the log does not take the write at once, the event runs again, but a result can be unwrapped only once.
            offloaded = OffloadedWrite(context.next_offset, cache(result.unwrap))
            self.queue.unpause(Event(name, partial(run, offloaded), answer.fail))

        self.queue.pause()
        self._offload(work, done)

    def _change_broker(self, broker_id: int, name: str, generate: Generate[R], answer: Answer[R]) -> None:
        """Run an operation that may change all partitions of a broker, on another thread if the broker has very many."""
        if self._offload is not None and brokers.is_long(self._log.newest, broker_id):
            self._offload_write(name, generate, partial(self._run_write, name, generate, answer), answer)
        else:
            self._run_write(name, generate, answer)

    def _abandon_offloaded(self) -> None:
        """Drop the long write that is being computed: the state that it starts from no longer holds."""
        if self._offloaded_write is not None:
            self._offloaded_write = None
            self.queue.unpause()

    def _run_limited(self, run: Callable[[], None], answer: Answer[R], answer_by_ms: int) -> None:
        run()
        if not answer.done:
            self._deadlines.add(answer_by_ms, self._newest_offset(), answer)
            self._schedule_deadlines()

    def _schedule_deadlines(self) -> None:
        at_ms = self._deadlines.next_ms()
        if at_ms < NEVER_MS:
            self.queue.schedule(DEADLINE_TAG, at_ms, self._expire_answers)

    def _expire_answers(self) -> None:
        self._deadlines.expire(self._clock())
        self._schedule_deadlines()

    def heartbeat(self, request: BrokerHeartbeatRequest, connection: object | None = None) -> Answer[BrokerHeartbeatResponse]:
        """Note the contact now. A heartbeat that changes nothing is answered at once; any other waits at most half a heartbeat
        interval. The owner reports the end of `connection` to `connection_closed`.
        """
        now_ms = self._clock()
        if self.is_active and self._names_registration(request):
            self.heartbeats.note_contact(request.broker_id, request.current_metadata_offset, now_ms)
            self._connections.heard(request.broker_id, request.broker_epoch, connection)
            quick = brokers.quick_heartbeat(self._committed, self._log.newest, self.heartbeats, request)
            if quick is not None:
                self._quick_heartbeats += 1
                answer: Answer[BrokerHeartbeatResponse] = Answer()
                answer.succeed(quick, self._applied_offset)
                return answer
        answer = Answer()

        def generate(state: ControllerState, context: Context) -> Outcome[BrokerHeartbeatResponse]:
            return brokers.heartbeat(state, self.heartbeats, request, context)

        def expired(error: ApiError) -> None:
            self._heartbeats_timed_out += error.code is ErrorCode.REQUEST_TIMED_OUT
            answer.fail(error)

        run = partial(self._change_broker, request.broker_id, "BrokerHeartbeat", generate, answer)
        self.queue.append(Event("BrokerHeartbeat", run, expired, now_ms + self.settings.heartbeat_interval_ms // 2))
        return answer

    def connection_closed(self, connection: object) -> None:
        """Note the end of a connection that has carried heartbeats."""
        if self.is_active:
            self._connections.closed(connection)

    def _names_registration(self, request: BrokerHeartbeatRequest) -> bool:
        broker = self._log.newest.image.cluster.brokers.get(request.broker_id)
        return broker is not None and broker.epoch == request.broker_epoch

    async def wait_applied(self, offset: int) -> None:
        """Return once the committed state has reached this end offset."""
        if offset > self._applied_offset:
            await self._offset_waiters.wait(offset)

    async def catch_up(self) -> None:
        """Prepare a linearizable read: return once the committed state includes everything that was acknowledged before this
        call.

        ApiError: NOT_CONTROLLER if this node does not lead, or cannot confirm that it does; THROTTLING_QUOTA_EXCEEDED.
        """
        if self._quorum is None:
            raise self.not_controller()
        try:
            offset = await self._quorum.read_index()
        except NotLeader as error:
            raise self.not_controller() from error
        except Overloaded as error:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"Not answered: {error}.") from error
        await self.wait_applied(offset)

    # --- writing -------------------------------------------------------------------------------------------------------------

    def _run_write(self, name: str, generate: Generate[R], answer: Answer[R], offloaded: OffloadedWrite | None = None) -> None:
        epoch, quorum = self._claimed_epoch, self._quorum
        if epoch is None or quorum is None or not self._finish(quorum, epoch):
            answer.fail(self.not_controller())
            return
        context = Context(self._clock(), self._random, self.settings, quorum.end_offset)
        try:
            prepared: PreparedWrite | None = None
            if offloaded is not None and offloaded.next_offset == context.next_offset:
                outcome, prepared = offloaded.unwrap()
            else:
                outcome = generate(self._log.newest, context)
            end_offset = self._newest_offset()
            if outcome.records:
                before = self._log.newest.image
                end_offset = self._log.write(quorum, epoch, outcome, context.now_ms, prepared)
                self.elections.add(before, outcome.records)
                self._background.appended(context.now_ms)
                self.moves.changed(self._log.newest.image)
        except ApiError as error:
            refusal = error
            self._defer(lambda offset: answer.fail(refusal), answer.fail, self._newest_offset())
            return
        except ActivationRefused as error:
            answer.fail(self._halt(error))
            return
        except (NotNow, InvariantViolation):
            raise
        except (LostLeadership, Misplaced) as error:
            answer.fail(self._interrupted(error))
            return
        except Exception as error:
            answer.fail(self._changed_nothing(name, error))
            return
        if self._log.has_rest:
            self.queue.prepend(Event(f"the rest of {name}", lambda: self._push_rest(quorum, epoch), lambda error: None))
        if outcome.appended is not None:
            outcome.appended(end_offset)
        reflects = outcome.reflects
        self._defer(
            lambda offset: answer.succeed(outcome.response, offset if reflects is None else reflects), answer.fail, end_offset
        )

    def _finish(self, quorum: MetadataQuorum, epoch: int) -> bool:
        """Propose the rest of a large change. Return False if this node has lost the leadership. NotNow if the log takes no
        more yet.
        """
        if epoch == self._lost_epoch:
            return False
        if self._log.has_rest and self._claimed_epoch == epoch:
            planned = self._log.planned_end_offset
            try:
                self._log.finish(quorum)
            except (LostLeadership, Misplaced) as error:
                self._lost_epoch = epoch
                self._interrupted(error)
                text = "This controller lost the leadership during the change; a part of the change may survive."
                self._purgatory.fail_last(planned, CommitUnknown(ErrorCode.NOT_CONTROLLER, text, planned))
                return False
            finally:
                self._purgatory.postpone(planned, self._log.planned_end_offset)
        return True

    def _push_rest(self, quorum: MetadataQuorum, epoch: int) -> None:
        self._finish(quorum, epoch)

    def _interrupted(self, error: Exception) -> ApiError:
        """Error for a change of which a part did not get into the log. The other part may be committed; the next leader aborts
        a transaction.
        """
        return self._halt(error) if isinstance(error, Misplaced) else self.not_controller()

    def _newest_offset(self) -> int:
        """End offset of the newest state: of the last batch in flight, or of the committed state."""
        end_offset = self._log.end_offset
        return self._applied_offset if end_offset is None else end_offset

    def _defer(self, release: Callable[[int], None], fail: Callable[[ApiError], None], offset: int) -> None:
        if offset <= self._applied_offset:
            release(offset)
        else:
            self._purgatory.defer(offset, release, fail)

    def _halt(self, error: BaseException) -> ApiError:
        """Stop this node. Return the error for its callers."""
        if self.failure is None:
            logger.error("this controller must stop: %s", error)
            self.failure = error
            self.failed.set()
            self.queue.close()
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller must stop: {error}")

    # --- the log's side ------------------------------------------------------------------------------------------------------

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        """Move the committed state forward. Replay the batches that this node did not write itself in this epoch."""
        if self._first_high_watermark < 0:
            self._first_high_watermark = high_watermark
        if self._claimed_epoch is not None and batches[-1].epoch > self._claimed_epoch:
            self._step_down(f"epoch {batches[-1].epoch} has begun")
        state = self._committed
        for batch in batches:
            own = self._log.take(batch.end_offset) if batch.epoch == self._claimed_epoch else None
            if own is not None:
                state = own
            elif batch.body:
                if self._log.in_flight:
                    raise AssertionError(
                        f"batch {batch.base_offset}..{batch.end_offset} is committed, but this node wrote another"
                    )
                provenance = Provenance(batch.end_offset, batch.epoch, batch.append_time_ms)
                records = codec.decode(batch.body, batch.base_offset, batch.end_offset - batch.base_offset)
                state = state.replay(records, batch.base_offset, provenance)
            self._history.append((batch.end_offset, state.image))
        last = batches[-1]
        self._advance_committed(state.at(Provenance(last.end_offset, last.epoch, last.append_time_ms)))

    def _advance_committed(self, state: ControllerState) -> None:
        """Move to a newer committed state and release the answers that waited for it."""
        has_other_configs = state.image.configs is not self._committed.image.configs
        self._committed = state
        self._applied_offset = end_offset = state.image.stable_offset
        if not self._log.in_flight and not self._log.has_rest:
            self._log.reset_to(state)
        # A record of the quorum's own can take the offset that the last change is planned to end at: its rest comes later then.
        self._purgatory.complete_to(min(end_offset, self._log.planned_end_offset - 1) if self._log.has_rest else end_offset)
        self._offset_waiters.reached(end_offset)
        if has_other_configs and self.is_active:
            self._background.configs_changed()
        self.queue.resume()

    def freeze(self) -> ImageSnapshot | None:
        """The committed image as a snapshot, without batches in flight. None while a transaction is open."""
        image = self._committed.image
        return None if image.transaction is not None else ImageSnapshot(image)

    def read_snapshot(self, bodies: Iterable[bytes]) -> ControllerState:
        image = image_from(bodies)
        return ControllerState(image, index_of(image))

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: ControllerState) -> None:
        """Continue from a snapshot far ahead. A leader never needs one, so a node that loads one no longer leads."""
        if self._claimed_epoch is not None:
            self._leader_id = NO_LEADER
            self._step_down(f"it has loaded a snapshot of another leader, at {position}")
        logger.info("node %d continues from a snapshot at %s", self.settings.node_id, position)
        self._history.clear()
        loaded = state.at(Provenance(position.offset, position.epoch, append_time_ms))
        self._history.append((position.offset, loaded.image))
        self._advance_committed(loaded)

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        """Note that another node leads, or that the leader is unknown."""
        self._epoch, self._leader_id, self._leader_endpoints = epoch, leader_id, endpoints
        if self._claimed_epoch is not None and leader_id != self.settings.node_id:
            self._step_down(f"node {leader_id} leads epoch {epoch}")

    async def became_leader(self, epoch: int) -> None:
        """Become active. Nothing else runs before the activation has been written."""
        if self._claimed_epoch is not None:
            self._step_down(f"it leads epoch {epoch} now")
        self._epoch, self._leader_id, self._leader_endpoints = epoch, self.settings.node_id, {}
        self._claimed_epoch = epoch
        self.heartbeats.activate(self._committed.image.cluster.brokers, self._clock())
        logger.info(
            "node %d is the active controller of epoch %d, at offset %d", self.settings.node_id, epoch, self._applied_offset
        )
        answer: Answer[None] = Answer()
        answer.when_done(self._activation_ended)
        run = partial(self._run_write, "activation", self.activation, answer)
        self.queue.prepend(Event("activation", run, answer.fail))
        self._fencing.activate()
        self._connections.activate()
        self._background.activate()
        self.moves.activate(self._log.newest.image)

    async def resigned(self, epoch: int, reason: str) -> None:
        """Become standby."""
        if self._claimed_epoch == epoch:
            self._leader_id = NO_LEADER
            self._step_down(reason)

    def _step_down(self, reason: str) -> None:
        lost = self._log.in_flight
        logger.info(
            "node %d is no longer the active controller (%s); %d batches of epoch %s may or may not survive",
            self.settings.node_id,
            reason,
            lost,
            self._claimed_epoch,
        )
        self._claimed_epoch = None
        self._log.reset_to(self._committed)
        self._abandon_offloaded()
        self.heartbeats.deactivate()
        self._fencing.deactivate()
        self._connections.deactivate()
        self._background.deactivate()
        self.moves.deactivate()
        text = f"This controller lost the leadership ({reason}); the change may or may not survive."
        self._purgatory.fail_all(lambda offset: CommitUnknown(ErrorCode.NOT_CONTROLLER, text, offset))
        self.queue.resume()

    # --- activation ----------------------------------------------------------------------------------------------------------

    def activation(self, state: ControllerState, context: Context) -> Outcome[None]:
        """Bootstrap records of a new cluster, and the abort of a predecessor's transaction."""
        records = activation_records(state.image, self.settings.first_records())
        if records:
            logger.info("activation writes %s", ", ".join(map(repr, records[:3])))
        return Outcome(records, None)

    def _activation_ended(self, answer: Answer[None]) -> None:
        """Stop the node if its activation failed: it could not serve any request."""
        if answer.error is not None and answer.error.code is not ErrorCode.NOT_CONTROLLER:
            self._halt(answer.error.__cause__ or answer.error)

    def _changed_nothing(self, name: str, error: Exception) -> ApiError:
        """Log the exception, and return the error for the caller."""
        self._lines.exception("%s failed; it changed nothing", name)
        refusal = ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{name} met an error the controller did not expect; nothing was changed. Its log has the details.",
        )
        refusal.__cause__ = error
        return refusal
