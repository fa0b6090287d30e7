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

import heapq
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

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
from kraftlab.metadata.records import NoOp
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.core.errors import InvariantViolation
from kraftlab.quorum.core.types import Endpoint, OffsetAndEpoch
from kraftlab.quorum.driver.errors import NotLeader, Overloaded
from kraftlab.quorum.state_machine import CommittedBatch

from ..cluster import brokers
from ..cluster.heartbeats import HeartbeatTable
from .activation import ActivationRefused, activation_records
from .answer_deadlines import AnswerDeadlines, OutcomeUnknown
from .background import BackgroundTask, background_tasks
from .log_writer import LogWriter, LostLeadership, MetadataQuorum, Misplaced, Plan, plan_of
from .move_upkeep import MoveUpkeep
from .purgatory import Answer, Purgatory
from .queue import NEVER_MS, Event, EventQueue, NotNow
from .state import EMPTY_STATE, GRPC, Context, ControllerState, Outcome, Settings

logger = logging.getLogger("kraftlab.controller")

R = TypeVar("R")
Generate = Callable[[ControllerState, Context], Outcome[R]]
WorkedOut = tuple[Outcome[Any], Plan | None]
"""What a write decided, and what that comes to in the log."""
Aside = Callable[[Callable[[], WorkedOut], Callable[[Result[WorkedOut]], None]], None]
"""Runs the first function elsewhere, and then, on the event loop, the second with what came of it."""

NO_LEADER = -1
FENCE_TAG = "fence stale brokers"
IDLE_TAG = "write a no-op"
DEADLINE_TAG = "answers that may not wait longer"
FENCE_RETRY_MS = 100
"""The pause after a fencing that failed: most often the leadership is lost and the notice of it is on its way."""
STALL_MS = 200
"""A check that runs this much late means that this process stood still; nobody is fenced for that."""
HISTORY_LENGTH = 8192


class Leadership(NamedTuple):
    """Who is active as far as this node knows; `leader_id` -1: nobody known. `endpoint` is its gRPC endpoint, if known."""

    epoch: int
    leader_id: int
    endpoint: Endpoint | None


class Signal(Protocol):
    """Set once, and then nobody waits for it any more."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    async def wait(self) -> None: ...


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
        self._signal = signal
        self._working_out: object | None = None
        """The long write that is being worked out aside; None: none is, or nobody waits for it any more."""
        self._plan: Plan | None = None
        """What was worked out of the write that runs now."""
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
        self._offset_waiters: list[tuple[int, int, Signal]] = []
        self._waiter_number = itertools.count()
        self._background = background_tasks(settings)
        self._last_append_ms = 0
        self._quick_heartbeats = 0
        self._heartbeats_timed_out = 0
        self._brokers_fenced = 0

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
    def leadership(self) -> Leadership:
        endpoint = self._leader_endpoints.get(GRPC)
        controller = self._committed.image.cluster.controllers.get(self._leader_id)
        listener = controller.listener(GRPC) if controller is not None else None
        if listener is not None:
            endpoint = Endpoint(listener.host, listener.port)
        return Leadership(self._epoch, self._leader_id, endpoint)

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
            self._brokers_fenced,
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

        def run(generate: Generate[R]) -> None:
            write = partial(self._run_write, name, generate, answer)
            if answer_by_ms < NEVER_MS:
                self._run_limited(write, answer, answer_by_ms)
            else:
                write()

        is_worked_out = is_long and self._aside is not None
        begin = partial(self._work_out, name, generate, run, answer) if is_worked_out else partial(run, generate)
        self.queue.append(Event(name, begin, answer.fail, deadline_ms))
        return answer

    def _work_out(self, name: str, generate: Generate[R], run: Callable[[Generate[R]], None], answer: Answer[R]) -> None:
        """Has a long write worked out aside; the queue stands still until then, so that what it builds on is what it changes."""
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

            def worked_out(state: ControllerState, now: Context) -> Outcome[R]:
                # The log may not have taken it at once.
                if now.next_offset != context.next_offset:
                    return generate(state, now)
                outcome, self._plan = result.unwrap()
                return outcome

            self.queue.unpause(Event(name, partial(run, worked_out), answer.fail))

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
        if offset <= self._applied_offset:
            return
        reached = self._signal()
        entry = (offset, next(self._waiter_number), reached)
        heapq.heappush(self._offset_waiters, entry)
        try:
            await reached.wait()
        finally:
            if not reached.is_set():
                self._offset_waiters.remove(entry)
                heapq.heapify(self._offset_waiters)

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

    def _run_write(self, name: str, generate: Generate[R], answer: Answer[R]) -> None:
        epoch, quorum = self._claimed_epoch, self._quorum
        if epoch is None or quorum is None or not self._finish(quorum, epoch):
            answer.fail(self.not_controller())
            return
        context = Context(self._clock(), self._random, self.settings, quorum.end_offset)
        try:
            outcome = generate(self._log.newest, context)
            end_offset = self._newest_offset()
            if outcome.records:
                plan, self._plan = self._plan, None
                end_offset = self._log.write(quorum, epoch, outcome, context.now_ms, plan)
                self._last_append_ms = context.now_ms
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
        self._committed_is(state.at(Provenance(last.end_offset, last.epoch, last.append_time_ms)))

    def _committed_is(self, state: ControllerState) -> None:
        """Moves to a newer committed state and releases who waited for it."""
        has_other_configs = state.image.configs is not self._committed.image.configs
        self._committed = state
        self._applied_offset = end_offset = state.image.stable_offset
        if not self._log.in_flight and not self._log.has_rest:
            self._log.standing_at(state)
        self._purgatory.complete_to(end_offset)
        while self._offset_waiters and self._offset_waiters[0][0] <= end_offset:
            heapq.heappop(self._offset_waiters)[2].set()
        if has_other_configs and self.is_active:
            for task in self._background:
                if task.follows_configs:
                    self._schedule_task(task, 0)
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
        self._committed_is(loaded)

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
        now_ms = self._clock()
        self._last_append_ms = now_ms
        self.heartbeats.activate(self._committed.image.cluster.brokers, now_ms)
        logger.info(
            "node %d is the active controller of epoch %d, at offset %d", self.settings.node_id, epoch, self._applied_offset
        )
        answer: Answer[None] = Answer()
        answer.when_done(self._activation_ended)
        run = partial(self._run_write, "activation", self._activation, answer)
        self.queue.prepend(Event("activation", run, answer.fail))
        self._schedule_fencing()
        self._schedule_no_op()
        for task in self._background:
            self._schedule_task(task, task.interval_ms)
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
        self._log.standing_at(self._committed)
        self._abandon_work()
        self.heartbeats.deactivate()
        self.queue.cancel(FENCE_TAG)
        self.queue.cancel(IDLE_TAG)
        for task in self._background:
            self.queue.cancel(task.name)
        self.moves.deactivate()
        self._purgatory.fail_all(
            OutcomeUnknown(
                ErrorCode.NOT_CONTROLLER,
                f"This controller lost the leadership ({reason}); the change may or may not survive.",
                self._applied_offset,
            )
        )
        self.queue.resume()

    # --- activation and timers -----------------------------------------------------------------------------------------------

    def _activation(self, state: ControllerState, context: Context) -> Outcome[None]:
        """The bootstrap records of a new cluster, the end of what a predecessor left open."""
        records = activation_records(state.image, self.settings.first_records())
        if records:
            logger.info("activation writes %s", ", ".join(map(repr, records[:3])))
        return Outcome(records, None)

    def _activation_ended(self, answer: Answer[None]) -> None:
        """A controller that cannot even say that it has begun would refuse or spoil everything else: it must end."""
        if answer.error is not None and answer.error.code is not ErrorCode.NOT_CONTROLLER:
            self._halt(answer.error.__cause__ or answer.error)

    def _schedule_fencing(self, pause_ms: int = 0) -> None:
        stalest = self.heartbeats.stalest(self._unfenced_brokers())
        now_ms = self._clock()
        limit_ms = now_ms + self.settings.session_timeout_ms
        at_ms = limit_ms if stalest is None else max(now_ms + pause_ms, min(limit_ms, stalest[1] + 1))
        self.queue.schedule(FENCE_TAG, at_ms, partial(self._fence_stale, at_ms))

    def _unfenced_brokers(self) -> list[int]:
        return [broker_id for broker_id, broker in self._log.newest.image.cluster.brokers.items() if not broker.fenced]

    def _fence_stale(self, due_ms: int) -> None:
        now_ms = self._clock()
        if now_ms - due_ms > STALL_MS:
            logger.warning("this process stood still for %d ms; brokers get that time back", now_ms - due_ms)
            self.heartbeats.forgive(now_ms - due_ms, now_ms)
        pause_ms = 0
        stalest = self.heartbeats.stalest(self._unfenced_brokers())
        while stalest is not None and stalest[1] < now_ms and self._claimed_epoch is not None:
            broker_id = stalest[0]
            logger.info("fencing broker %d: not heard for %d ms", broker_id, self.settings.session_timeout_ms)
            answer: Answer[None] = Answer()
            self._run_write("fence", partial(self._fence, broker_id), answer)
            if answer.error is not None:
                pause_ms = FENCE_RETRY_MS
                break
            self._brokers_fenced += 1
            stalest = self.heartbeats.stalest(self._unfenced_brokers())
        if self._claimed_epoch is not None:
            self._schedule_fencing(pause_ms)

    def _fence(self, broker_id: int, state: ControllerState, context: Context) -> Outcome[None]:
        return brokers.fence(state, self.heartbeats, broker_id, context)

    def _schedule_task(self, task: BackgroundTask, pause_ms: int) -> None:
        self.queue.schedule(task.name, self._clock() + pause_ms, partial(self._run_task, task))

    def _run_task(self, task: BackgroundTask) -> None:
        has_more = False

        def generate(state: ControllerState, context: Context) -> Outcome[bool]:
            nonlocal has_more
            outcome = task.run(state, context)
            has_more = outcome.response
            if outcome.records:
                logger.info("%s: %d changes", task.name, len(outcome.records))
            return outcome

        answer: Answer[bool] = Answer()
        self._run_write(task.name, generate, answer)
        if self.is_active:
            self._schedule_task(task, task.pause_ms(has_more, answer.error is not None))

    def _schedule_no_op(self) -> None:
        interval_ms = self.settings.max_idle_interval_ms
        if interval_ms > 0:
            self.queue.schedule(IDLE_TAG, max(self._clock(), self._last_append_ms) + interval_ms, self._write_no_op)

    def _write_no_op(self) -> None:
        """Keeps an idle log moving; while something is in flight it moves anyway, or cannot."""
        idle_ms = self._clock() - self._last_append_ms
        if idle_ms >= self.settings.max_idle_interval_ms and not self._log.in_flight:
            answer: Answer[None] = Answer()
            self._run_write("no-op", lambda state, context: Outcome([NoOp(0)], None), answer)
        self._schedule_no_op()


def _changed_nothing(name: str, error: Exception) -> ApiError:
    """Logs the exception in hand."""
    logger.exception("%s failed; it changed nothing", name)
    refusal = ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{name} met an error the controller did not expect; nothing was changed. Its log has the details.",
    )
    refusal.__cause__ = error
    return refusal
