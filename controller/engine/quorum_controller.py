"""The replicated state machine of a controller: active on the quorum's leader, standby everywhere else.

Theory of operation. Everything that changes state is an event of one queue (`queue.py`). A write event on the active
controller runs to its end without waiting: a manager generates records from the newest state, the records are replayed into
a new state at the offsets that come next, and proposed to the log, which appends them as a batch at once (`log_writer.py`);
the answer goes to the purgatory until the batch is committed. Commits (`apply`) move the committed state along the states
kept for batches in flight, and release answers; a resignation drops them, fails the answers with NOT_CONTROLLER (outcome
unknown), and goes on from the committed state. A standby replays the same records through the same code when they are
committed.

While a metadata transaction is open (KIP-868), everything that readers and waiting answers are told stands at its beginning,
the last stable offset: its records count once its end is committed.

Reads see committed state only, on any controller, and need no turn in the queue; a linearizable one first lets the quorum
confirm the leadership and the committed state catch up with what that says (`catch_up`). Heartbeats that change nothing do not
either.

A write that takes long, a plan of thousands of entries, is worked out on a thread, from a state that never changes, while the
queue is paused: no other write comes in between, and the event loop goes on to answer the quorum and heartbeats. A leader that
was busy for longer than its followers' patience would be deposed, and its successor at the same request after it.

A manager that fails unexpectedly, or whose records cannot be replayed, has changed nothing: its caller gets
UNKNOWN_SERVER_ERROR and everything goes on. Replay comes first because a record that is committed and cannot be replayed
would end every node that reads it, for ever.
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

from kraftlab.metadata import codec
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.index import index_of
from kraftlab.metadata.peer_rpc import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.core.errors import InvariantViolation
from kraftlab.quorum.core.types import Endpoint, OffsetAndEpoch
from kraftlab.quorum.driver.errors import NotLeader, Overloaded
from kraftlab.quorum.state_machine import CommittedBatch

from ..cluster import brokers
from ..cluster.heartbeats import HeartbeatTable
from .activation import ActivationRefused, activation_records
from .answer_deadlines import AnswerDeadlines, CommitUnknown
from .background import Background
from .fencing import Fencing
from .log_writer import LogWriter, LostLeadership, MetadataQuorum, Misplaced, Plan, plan_of
from .move_upkeep import MoveUpkeep
from .offset_waiters import OffsetWaiters, Signal
from .purgatory import Answer, Purgatory
from .queue import NEVER_MS, Event, EventQueue, NotNow
from .state import EMPTY_STATE, GRPC, Context, ControllerState, Outcome, Settings

logger = logging.getLogger("kraftlab.controller")

R = TypeVar("R")
Generate = Callable[[ControllerState, Context], Outcome[R]]
WorkedOut = tuple[Outcome[Any], Plan | None]
"""The outcome of a write, and the batches that it comes to in the log."""
Aside = Callable[[Callable[[], WorkedOut], Callable[[Result[WorkedOut]], None]], None]
"""Runs the first function elsewhere, and then, on the event loop, the second with what came of it."""


class FromAside(NamedTuple):
    """The result of a write that was worked out aside; it holds if the log still ends at `next_offset`."""

    next_offset: int
    unwrap: Callable[[], WorkedOut]


NO_LEADER = -1
DEADLINE_TAG = "answers that may not wait longer"
HISTORY_LENGTH = 8192


class ActiveController(NamedTuple):
    """The active controller as far as this node knows, and its gRPC endpoint if known; `leader_id` -1: none is known."""

    epoch: int
    leader_id: int
    endpoint: Endpoint | None


class ControllerStatistics(NamedTuple):
    """`pending` batches are not committed, `waiting` answers are in the purgatory, `offset_waiters` want newer state."""

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
    """See the module's docstring. `clock` gives milliseconds; `attach` names the log before anything else is called. `aside`
    works out long writes; without it they run as all others do. `signal` makes what a task waits for: an event of trio, unless
    the tasks are another loop's.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], int],
        source: random.Random,
        on_timer_changed: Callable[[], None],
        aside: Aside | None = None,
        signal: Callable[[], Signal] = trio.Event,
    ) -> None:
        self.settings = settings
        self._aside = aside
        self._working_out: object | None = None
        """The long write that is being worked out aside; None: none is, or nobody waits for it any more."""
        self.heartbeats = HeartbeatTable(settings.session_timeout_ms)
        self.queue = EventQueue(clock, on_timer_changed)
        self.failure: BaseException | None = None
        """Why this node must end, once it must."""
        self.failed = trio.Event()
        self._clock = clock
        self._random = source
        self._quorum: MetadataQuorum | None = None
        self._claimed_epoch: int | None = None
        self._epoch = 0
        self._leader_id = NO_LEADER
        self._leader_endpoints: dict[str, Endpoint] = {}
        self._committed = EMPTY_STATE
        self._log = LogWriter(EMPTY_STATE)
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
            self._run_write,
            lambda: self._log.newest,
            lambda: self.is_active,
        )
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
        """The state that the next write starts from: on the active controller it includes what is not committed yet."""
        return self._log.newest

    @property
    def applied_offset(self) -> int:
        """End offset of the committed state; while a transaction is open, where it begins (the last stable offset)."""
        return self._applied_offset

    @property
    def is_loaded(self) -> bool:
        """Whether the committed state has been complete once: as far as the log was known to be committed when this node first
        heard of that. From then on it is as old as any follower's.
        """
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
        """The committed image that held at this end offset; None if it is not reached yet, or too long ago."""
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
        """How long ago each registered broker was heard, by id; empty on a controller that is not active."""
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
        """Queues an operation of the active controller. The answer comes once what it wrote, or what it saw, is committed.

        If it is not begun by `deadline_ms` it never is; if it is not committed by `answer_by_ms` its outcome is unknown. One that
        `is_long` may be worked out aside, while this loop goes on to answer the quorum: it may look at nothing that is changed in
        place.
        """
        answer: Answer[R] = Answer()

        def run(from_aside: FromAside | None = None) -> None:
            write = partial(self._run_write, name, generate, answer, from_aside)
            if answer_by_ms < NEVER_MS:
                self._run_limited(write, answer, answer_by_ms)
            else:
                write()

        is_worked_out = is_long and self._aside is not None
        begin = partial(self._work_out, name, generate, run, answer) if is_worked_out else run
        self.queue.append(Event(name, begin, answer.fail, deadline_ms))
        return answer

    def _work_out(self, name: str, generate: Generate[R], run: Callable[[FromAside | None], None], answer: Answer[R]) -> None:
        """Have a long write worked out aside, and `run` with the result; the queue is paused until then."""
        epoch, quorum = self._claimed_epoch, self._quorum
        if epoch is None or quorum is None or self._aside is None or not self._finish(quorum, epoch):
            answer.fail(self.not_controller())
            return
        context = Context(self._clock(), self._random, self.settings, quorum.end_offset)
        state = self._log.newest
        token = self._working_out = object()

        def work() -> WorkedOut:
            outcome = generate(state, context)
            return outcome, plan_of(state, context.next_offset, epoch, outcome, context.now_ms) if outcome.records else None

        def done(result: Result[WorkedOut]) -> None:
            if self._working_out is not token:
                answer.fail(self.not_controller())
                return
            self._working_out = None
            if quorum.end_offset != context.next_offset:
                # The quorum itself has written meanwhile.
                again = partial(self._work_out, name, generate, run, answer)
                self.queue.unpause(Event(name, again, answer.fail))
                return

            # If the log does not take the write at once, the event runs again, and a result unwraps only once.
            from_aside = FromAside(context.next_offset, cache(result.unwrap))
            self.queue.unpause(Event(name, partial(run, from_aside), answer.fail))

        self.queue.pause()
        self._aside(work, done)

    def _abandon_work(self) -> None:
        """What is worked out aside would build on a state that does not hold any more."""
        if self._working_out is not None:
            self._working_out = None
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

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Answer[BrokerHeartbeatResponse]:
        """Notes the contact now. What changes nothing is answered at once; the rest waits half a heartbeat interval at most."""
        now_ms = self._clock()
        if self.is_active and self._names_registration(request):
            self.heartbeats.arrived(request.broker_id, request.current_metadata_offset, now_ms)
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

        run = partial(self._run_write, "BrokerHeartbeat", generate, answer)
        self.queue.append(Event("BrokerHeartbeat", run, expired, now_ms + self.settings.heartbeat_interval_ms // 2))
        return answer

    def _names_registration(self, request: BrokerHeartbeatRequest) -> bool:
        broker = self._log.newest.image.cluster.brokers.get(request.broker_id)
        return broker is not None and broker.epoch == request.broker_epoch

    async def wait_applied(self, offset: int) -> None:
        """Returns once the committed state has reached this end offset."""
        if offset > self._applied_offset:
            await self._offset_waiters.wait(offset)

    async def catch_up(self) -> None:
        """For a linearizable read: returns once the committed state reflects everything acknowledged before this was called.

        ApiError: NOT_CONTROLLER if this node does not lead, or is not sure of it in the end; THROTTLING_QUOTA_EXCEEDED.
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

    def _run_write(self, name: str, generate: Generate[R], answer: Answer[R], from_aside: FromAside | None = None) -> None:
        epoch, quorum = self._claimed_epoch, self._quorum
        if epoch is None or quorum is None or not self._finish(quorum, epoch):
            answer.fail(self.not_controller())
            return
        context = Context(self._clock(), self._random, self.settings, quorum.end_offset)
        try:
            plan: Plan | None = None
            if from_aside is not None and from_aside.next_offset == context.next_offset:
                outcome, plan = from_aside.unwrap()
            else:
                outcome = generate(self._log.newest, context)
            end_offset = self._newest_offset()
            if outcome.records:
                end_offset = self._log.write(quorum, epoch, outcome, context.now_ms, plan)
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
            answer.fail(_changed_nothing(name, error))
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
        """Brings the rest of a large change into the log: False if this node cannot any more. NotNow if it takes no more yet."""
        if self._log.has_rest and self._claimed_epoch == epoch:
            planned = self._log.planned_end_offset
            try:
                self._log.finish(quorum)
            except (LostLeadership, Misplaced) as error:
                self._interrupted(error)
                return False
            finally:
                self._purgatory.postpone(planned, self._log.planned_end_offset)
        return True

    def _push_rest(self, quorum: MetadataQuorum, epoch: int) -> None:
        self._finish(quorum, epoch)

    def _interrupted(self, error: Exception) -> ApiError:
        """A change, or its rest, did not get into the log. What did may be committed; a transaction ends with the next leader."""
        return self._halt(error) if isinstance(error, Misplaced) else self.not_controller()

    def _newest_offset(self) -> int:
        """Where the newest state stands: the end of the last batch in flight, or of the committed state."""
        end_offset = self._log.end_offset
        return self._applied_offset if end_offset is None else end_offset

    def _defer(self, release: Callable[[int], None], fail: Callable[[ApiError], None], offset: int) -> None:
        if offset <= self._applied_offset:
            release(offset)
        else:
            self._purgatory.defer(offset, release, fail)

    def _halt(self, error: BaseException) -> ApiError:
        """This node must end; what to tell who waits."""
        if self.failure is None:
            logger.error("this controller must stop: %s", error)
            self.failure = error
            self.failed.set()
            self.queue.close()
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller must stop: {error}")

    # --- the log's side ------------------------------------------------------------------------------------------------------

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        """Moves the committed state; replays what this node did not write itself in this epoch."""
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
        self._purgatory.complete_to(end_offset)
        self._offset_waiters.reached(end_offset)
        if has_other_configs and self.is_active:
            self._background.configs_changed()
        self.queue.resume()

    def freeze(self) -> ImageSnapshot | None:
        """The committed image, whatever is in flight; None while a transaction is open."""
        image = self._committed.image
        return None if image.transaction is not None else ImageSnapshot(image)

    def read_snapshot(self, bodies: Iterable[bytes]) -> ControllerState:
        image = image_from(bodies)
        return ControllerState(image, index_of(image))

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: ControllerState) -> None:
        """Goes on from a state far ahead. A leader has everything, so one that still thinks that it leads does not any more."""
        if self._claimed_epoch is not None:
            self._leader_id = NO_LEADER
            self._step_down(f"it has loaded a snapshot of another leader, at {position}")
        logger.info("node %d goes on from a snapshot at %s", self.settings.node_id, position)
        self._history.clear()
        loaded = state.at(Provenance(position.offset, position.epoch, append_time_ms))
        self._history.append((position.offset, loaded.image))
        self._advance_committed(loaded)

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        """Another node leads, or nobody known."""
        self._epoch, self._leader_id, self._leader_endpoints = epoch, leader_id, endpoints
        if self._claimed_epoch is not None and leader_id != self.settings.node_id:
            self._step_down(f"node {leader_id} leads epoch {epoch}")

    async def became_leader(self, epoch: int) -> None:
        """Becomes active. Nothing else runs before the activation has been written."""
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
        self._background.activate()
        self.moves.activate(self._log.newest.image)

    async def resigned(self, epoch: int, reason: str) -> None:
        """Goes back to standby."""
        if self._claimed_epoch == epoch:
            self._leader_id = NO_LEADER
            self._step_down(reason)

    def _step_down(self, reason: str) -> None:
        lost = self._log.in_flight
        logger.info(
            "node %d is not the active controller any more (%s); %d batches of epoch %s may or may not survive",
            self.settings.node_id,
            reason,
            lost,
            self._claimed_epoch,
        )
        self._claimed_epoch = None
        self._log.reset_to(self._committed)
        self._abandon_work()
        self.heartbeats.deactivate()
        self._fencing.deactivate()
        self._background.deactivate()
        self.moves.deactivate()
        text = f"This controller lost the leadership ({reason}); the change may or may not survive."
        self._purgatory.fail_all(lambda offset: CommitUnknown(ErrorCode.NOT_CONTROLLER, text, offset))
        self.queue.resume()

    # --- activation ----------------------------------------------------------------------------------------------------------

    def activation(self, state: ControllerState, context: Context) -> Outcome[None]:
        """The bootstrap records of a new cluster, the end of what a predecessor left open."""
        records = activation_records(state.image, self.settings.first_records())
        if records:
            logger.info("activation writes %s", ", ".join(map(repr, records[:3])))
        return Outcome(records, None)

    def _activation_ended(self, answer: Answer[None]) -> None:
        """A controller that cannot even say that it has begun would refuse or spoil everything else: it must end."""
        if answer.error is not None and answer.error.code is not ErrorCode.NOT_CONTROLLER:
            self._halt(answer.error.__cause__ or answer.error)


def _changed_nothing(name: str, error: Exception) -> ApiError:
    """Logs the exception in hand."""
    logger.exception("%s failed; it changed nothing", name)
    refusal = ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{name} met an error the controller did not expect; nothing was changed. Its log has the details.",
    )
    refusal.__cause__ = error
    return refusal
