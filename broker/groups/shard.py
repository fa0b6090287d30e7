"""The groups of one partition of `__consumer_offsets`, while this broker is their coordinator.

Theory of operation. One task owns all groups of the partition and executes one job after the other: requests, alarms, expiry.
A job decides on the present state, without changing it. Its records are appended; then the state changes, and the answers wait
until the records are replicated. If the log refuses the records, the state stays as it was, and the request gets an error. So the
state in memory is always that of the log, and it is never ahead of it.

Answers keep their order: an answer that reads the state waits for all records before it, so nobody sees an offset that a later
coordinator would not know. Heartbeats tell nothing of records and do not wait.

The end of the leader epoch ends the task: whatever waits is answered with NOT_COORDINATOR, and the state is dropped. The next
epoch has its own shard, which reads the log again.

Times of sessions run on the event loop's clock, shifted to the time of day, so that a step of the system's clock ends no session.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import trio

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.line_limit import LimitedLog
from kraftlab.records.record_batch import Record

from .group import Alarm, Event, Group, Heartbeat, Limits, Token
from .offsets import CommittedOffset, Place
from .rebalance import step
from .records import Entry, OffsetEntry, group_record
from .store import LeadershipOver, NotWritten, Store

logger = logging.getLogger("kraftlab.broker.groups")
_lines = LimitedLog(logger, time.monotonic)
"""Lines that requests can cause, of all shards."""

Answer = TypeVar("Answer")

COMMIT_TIMEOUT_MS = 5_000
"""Kafka's default of offsets.commit.timeout.ms."""
ALARM_RETRY_MS = 1_000
"""Time until an alarm rings again whose record could not be written."""

GROUP_TOO_LARGE = (
    "The group's record is larger than a batch may be. Use fewer members or smaller assignments, or raise max.message.bytes of "
    "__consumer_offsets."
)

ANSWERS_TO_FAULTS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Error of an append → error of the request, as in Kafka."""


class Change(NamedTuple):
    """Outcome of a job. `records` are written first, then `apply` changes the state, then the answers go out."""

    records: Sequence[Record] = ()
    apply: Callable[[], None] = lambda: None
    answers: Sequence[tuple[Token, object]] = ()


class _Job(NamedTuple):
    """`decide` returns the change and must not change anything itself. `token`: the request that asks, None for a job of ours."""

    decide: Callable[[], Change]
    token: Token | None = None
    on_refused: Callable[[], None] = lambda: None
    waits: bool = True
    """True if the answers wait for the records before them."""


class _Slot:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.value: object = None
        self.error = ErrorCode.NOT_COORDINATOR


class _UnreplicatedWrite(NamedTuple):
    end_offset: int
    since_s: float
    answers: Sequence[tuple[Token, object]]


class Shard:
    """`run` serves until the leader epoch ends. `groups` and `offsets` are for jobs, and for nobody else to change."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[Place, CommittedOffset]] = {}
        self.is_loaded = False
        self.is_over = False
        self._limits = limits
        self._tokens = itertools.count(1)
        self._slots: dict[Token, _Slot] = {}
        self._jobs_in, self._jobs = trio.open_memory_channel[_Job](math.inf)
        self._alarms: list[tuple[int, str]] = []
        """Heap of (time, group id). An alarm that is too early finds nothing to do and is set again."""
        self._alarm_of: dict[str, int] = {}
        """Group id → the earliest alarm that is set; others in the heap are left over."""
        self._unreplicated: deque[_UnreplicatedWrite] = deque()
        self._has_unreplicated = trio.Event()
        self._clock_shift_ms = wall_clock_ms() - int(trio.current_time() * 1000)

    def __repr__(self) -> str:
        return f"groups of {self.store}"

    def now_ms(self) -> int:
        return self._clock_shift_ms + int(trio.current_time() * 1000)

    def statistics(self) -> dict[str, int]:
        return {"groups": len(self.group_ids()), "waiting": len(self._slots), "unreplicated": len(self._unreplicated)}

    def group_ids(self) -> list[str]:
        """Ids of the groups that have members or offsets, or had members."""
        return list(dict.fromkeys((*self.groups, *self.offsets)))

    # --- life ----------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load the groups, then serve until the leader epoch ends."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve)
                nursery.start_soon(self._deliver_replicated)
                await self.store.ended()
                nursery.cancel_scope.cancel()
        finally:
            self.is_over = True
            for token in list(self._slots):
                self._fail(token, ErrorCode.NOT_COORDINATOR)
            self._log_if_used("%s: no longer coordinated here", self)

    async def _serve(self) -> None:
        try:
            await self._load()
            while True:
                await self._carry_out(await self._next_job())
        except LeadershipOver:
            await trio.sleep_forever()  # `run` is about to end this task.

    async def _load(self) -> None:
        count = await self.store.load(self._take, self.now_ms())
        for group in self.groups.values():
            self._set_alarm(group)
        self.is_loaded = True
        self._log_if_used("%s: loaded %d groups from %d records", self, len(self.group_ids()), count)

    def _log_if_used(self, text: str, *arguments: object) -> None:
        """Log a line about this shard, at level DEBUG only if it has no groups: most shards of a small cluster have none."""
        logger.log(logging.INFO if self.groups or self.offsets else logging.DEBUG, text, *arguments)

    def _take(self, entry: Entry) -> None:
        """Replay a record."""
        if isinstance(entry, OffsetEntry):
            self.keep_offsets(entry.group_id, ((entry.place, entry.committed),))
            if not self.offsets[entry.group_id]:
                del self.offsets[entry.group_id]
        elif entry.group is None:
            self.groups.pop(entry.group_id, None)
        else:
            self.groups[entry.group_id] = entry.group

    # --- requests ------------------------------------------------------------------------------------------------------------

    async def ask(self, kind: type[Answer], decide: Callable[[Token], Change], *, waits: bool = True) -> Answer:
        """Let the owner decide on a request; return its answer, of that kind. ApiError with the code of a coordinator's fault."""
        if self.is_over:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not self.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        token = next(self._tokens)
        slot = self._slots[token] = _Slot()
        self._jobs_in.send_nowait(_Job(partial(decide, token), token, waits=waits))
        try:
            await slot.done.wait()
        finally:
            self._slots.pop(token, None)
        if slot.error:
            raise ApiError(slot.error)
        assert isinstance(slot.value, kind), f"an answer is a {type(slot.value).__name__} instead of a {kind.__name__}"
        return slot.value

    async def send(self, kind: type[Answer], group_id: str, event_of: Callable[[Token], Event], *, waits: bool = True) -> Answer:
        """Send an event to a group; return the answer of its state machine, of that kind. ApiError as for `ask`."""
        try:
            return await self.ask(kind, lambda token: self._stepped(group_id, event_of(token)), waits=waits)
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                raise
            _lines.warning("%s: group %r: %s", self, group_id, GROUP_TOO_LARGE)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error

    def do(self, decide: Callable[[], Change]) -> None:
        """Queue a job of the coordinator's own. Nothing happens before the groups are loaded."""
        if self.is_loaded and not self.is_over:
            self._jobs_in.send_nowait(_Job(decide))

    def _stepped(self, group_id: str, event: Event) -> Change:
        group = self.groups.get(group_id) or Group(group_id=group_id, since_ms=self.now_ms())
        after, answers, must_write = step(group, event, self.now_ms(), self._limits)
        records = (group_record(after, wall_clock_ms()),) if must_write else ()
        return Change(records, partial(self.put_group, after, sets_alarm=not isinstance(event, Heartbeat)), answers)

    def put_group(self, group: Group, *, sets_alarm: bool = True) -> None:
        """Keep a group, unless it never had a member. `sets_alarm` False: no alarm has become earlier."""
        if group.generation or group.members or group.pending:
            self.groups[group.group_id] = group
            if sets_alarm:
                self._set_alarm(group)
        else:
            self.groups.pop(group.group_id, None)

    def keep_offsets(self, group_id: str, offsets: Iterable[tuple[Place, CommittedOffset | None]]) -> None:
        """Keep committed offsets; None removes one. A group that loses its last offset is known until it expires, as in Kafka."""
        kept = self.offsets.setdefault(group_id, {})
        for place, committed in offsets:
            if committed is None:
                kept.pop(place, None)
            else:
                kept[place] = committed

    # --- the owner -----------------------------------------------------------------------------------------------------------

    async def _next_job(self) -> _Job:
        """Return the next request, or an alarm that is due."""
        while True:
            due_ms = self._alarms[0][0] if self._alarms else None
            wait_s = math.inf if due_ms is None else max(0.0, (due_ms - self.now_ms()) / 1000)
            if wait_s > 0:
                with trio.move_on_after(wait_s):
                    return await self._jobs.receive()
                continue
            at_ms, group_id = heapq.heappop(self._alarms)
            if self._alarm_of.get(group_id) != at_ms:
                continue
            del self._alarm_of[group_id]
            group = self.groups.get(group_id)
            alarm_ms = group.next_alarm_ms() if group is not None else None
            if alarm_ms is not None and alarm_ms > self.now_ms():
                self._alarm_at(group_id, alarm_ms)
            elif alarm_ms is not None:
                await trio.lowlevel.checkpoint()
                again = partial(self._alarm_at, group_id, self.now_ms() + ALARM_RETRY_MS)
                return _Job(partial(self._stepped, group_id, Alarm()), on_refused=again)

    def _set_alarm(self, group: Group) -> None:
        alarm_ms = group.next_alarm_ms()
        if alarm_ms is not None:
            self._alarm_at(group.group_id, alarm_ms)

    def _alarm_at(self, group_id: str, alarm_ms: int) -> None:
        if alarm_ms < self._alarm_of.get(group_id, math.inf):
            self._alarm_of[group_id] = alarm_ms
            heapq.heappush(self._alarms, (alarm_ms, group_id))

    async def _carry_out(self, job: _Job) -> None:
        try:
            change = job.decide()
        except Exception:
            _lines.exception("%s: a request failed", self)
            self._fail(job.token, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if change.records:
            try:
                await self.store.append(change.records)
            except NotWritten as error:
                _lines.warning("%s: %d records were not written: %s", self, len(change.records), error)
                job.on_refused()
                self._fail(job.token, ANSWERS_TO_FAULTS.get(error.code, error.code))
                return
        change.apply()
        if not job.waits or (self.store.is_replicated and not self._unreplicated):
            self._deliver(change.answers)
        elif change.answers:
            self._unreplicated.append(_UnreplicatedWrite(self.store.end_offset, trio.current_time(), change.answers))
            self._has_unreplicated.set()

    # --- answers -------------------------------------------------------------------------------------------------------------

    async def _deliver_replicated(self) -> None:
        """Deliver the answers that wait for their records to be replicated, in order."""
        while True:
            if not self._unreplicated:
                self._has_unreplicated = trio.Event()
                await self._has_unreplicated.wait()
            end_offset, since_s, answers = self._unreplicated[0]
            rest_ms = max(0, COMMIT_TIMEOUT_MS - int((trio.current_time() - since_s) * 1000))
            code = await self.store.replicated(end_offset, rest_ms)
            self._unreplicated.popleft()
            if code is ErrorCode.NONE:
                self._deliver(answers)
            else:
                for token, _ in answers:
                    self._fail(token, ANSWERS_TO_FAULTS.get(code, code))

    def _deliver(self, answers: Sequence[tuple[Token, object]]) -> None:
        for token, value in answers:
            slot = self._slots.pop(token, None)
            if slot is not None:
                slot.value, slot.error = value, ErrorCode.NONE
                slot.done.set()

    def _fail(self, token: Token | None, code: ErrorCode) -> None:
        slot = self._slots.pop(token, None) if token is not None else None
        if slot is not None:
            slot.error = code
            slot.done.set()
