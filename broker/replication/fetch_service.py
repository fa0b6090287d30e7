"""Answers to fetches from followers and consumers: the leader's side of replication.

Theory of operation. A fetch is answered as a whole. If there is an error, a divergence, a newer high watermark, or a record to
read (below the log end for followers, below the high watermark for consumers), it is answered at once; otherwise it is parked
until one of its partitions changes or its wait is over. Fewer records than the fetch's `min_bytes` wait likewise, unless they are
throttled. A follower's fetch offset states that the follower holds all records
below. It is noted first, and may raise the high watermark, which wakes the other followers' parked fetches. So a high watermark
travels in one message after the fetch that raised it.

Consumers read from the leader, and from followers if the fetch allows that (KIP-392).

The positions of a follower are kept from fetch to fetch (`fetch_sessions.py`), and only partitions with possible news are looked
at. A partition whose follower is in sync and has every record rests until it changes. A partition whose follower is out of sync
is looked at in each fetch, since the follower may join for reasons outside of the partition. `Replicas` notes the time of each
follower's last fetch: a follower that rests at a log's end counts as caught up until then.

Followers that are throttled and out of sync get at most the bytes of the budget; while the budget is used up their records wait,
not those of other followers. A newer fetch of the same replica and session ends a parked one, since its sender has given it up.

A follower's answer leaves out partitions without news.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from contextlib import ExitStack
from typing import NamedTuple, Protocol

import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchedPartition, FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from kraftlab.records.errors import LogError
from kraftlab.wire.parts import NOTHING

from ..log.disks import Disks
from ..log.errors import LogClosed
from ..log.log_view import BatchPlaces
from ..log.partition_log import PartitionLog
from .byte_gate import ByteGate, Claim
from .divergence import leader_answer
from .fetch_sessions import NO_SESSION, FetchSession, FetchSessions, SessionRefused
from .partition import FollowerRole, LeaderRole, Partition, ReplicaId
from .replica_errors import ReplicaError, code_of
from .stored_records import StoredRecords

RESPONSE_BYTES_MAX = 10 * 1024 * 1024
"""Leaves room for one batch more below the frame limit of 16 MiB."""
READ_BYTES_MAX = 128 * 1024
"""Fewer records are read: that takes one step less than sending them from their file."""
FEW_FACTOR = 10
"""If few partitions have records for a follower, each may take so many times its `max_bytes`, up to its share of the answer."""
WAIT_MAX_MS = 30_000
BUDGET_PAUSE_S = 0.01


class Replicas(Protocol):
    """The partitions of this broker."""

    disks: Disks

    def hosted(self, replica: ReplicaId) -> Partition:
        """Return the partition if this broker hosts it; ReplicaError otherwise."""

    def is_leader_throttled(self, partition: Partition, follower_id: int) -> bool:
        """Return True if the follower is out of sync and in leader.replication.throttled.replicas, while a rate is set."""

    def note_fetch(self, follower_id: int) -> None:
        """Note the time of a fetch of that broker."""


class _Readable(NamedTuple):
    """A partition that has records for the fetch."""

    wanted: FetchPartition
    partition: Partition
    role: LeaderRole | FollowerRole
    log: PartitionLog
    upto: int
    is_throttled: bool
    is_filling: bool


class _Found(NamedTuple):
    """The answer about one partition. `size_bytes`: size of its records, which are in the answer or in `stored`."""

    part: FetchedPartition
    size_bytes: int = 0
    stored: StoredRecords | None = None


class _OpenFetch:
    """A fetch that is being answered."""

    def __init__(self, session: FetchSession, deadline: float) -> None:
        self.session = session
        self.deadline = deadline
        self.is_abandoned = False

    def abandon(self) -> None:
        """End the fetch: a newer one has come."""
        self.is_abandoned = True
        self.session.changed.set()


class FetchService:
    """One per broker. `gate` is the throttle of this broker as a leader."""

    def __init__(self, replicas: Replicas, gate: ByteGate) -> None:
        self._replicas = replicas
        self._gate = gate
        self.sessions = FetchSessions()
        self._open_fetches: dict[tuple[int, int], _OpenFetch] = {}

    async def fetch(
        self, request: ReplicaFetchRequest, stored: dict[ReplicaId, StoredRecords] | None = None
    ) -> ReplicaFetchResponse:
        """Wait up to `max_wait_ms` for an answer. Errors are in the partitions' answers, except those of the session.

        `stored` takes the records of partitions that have many: their answers have none. None: the answers have all records.
        """
        now = trio.current_time()
        key = (request.replica_id, request.lane)
        if request.replica_id >= 0:
            self._replicas.note_fetch(request.replica_id)
            if key in self._open_fetches:
                self._open_fetches.pop(key).abandon()
        try:
            session = self.sessions.session_of(request, now)
        except SessionRefused as error:
            return ReplicaFetchResponse(error.code, str(error))
        open_fetch = _OpenFetch(session, now + min(max(request.max_wait_ms, 0), WAIT_MAX_MS) / 1000)
        if request.replica_id >= 0:
            self._open_fetches[key] = open_fetch
        try:
            answers = await self._answer(request, open_fetch, stored)
            return ReplicaFetchResponse(ErrorCode.NONE, partitions=tuple(answers.values()), session_id=session.id)
        finally:
            if self._open_fetches.get(key) is open_fetch:
                del self._open_fetches[key]
            if session.id == NO_SESSION:
                session.close()

    async def _answer(
        self, request: ReplicaFetchRequest, open_fetch: _OpenFetch, stored: dict[ReplicaId, StoredRecords] | None
    ) -> dict[ReplicaId, FetchedPartition]:
        session = open_fetch.session
        answers = self._note_positions(request, session)
        with ExitStack() as claims:
            claim: Claim | None = None
            while not open_fetch.is_abandoned:
                changed = session.changed = trio.Event()
                readable = self._look(request, session, answers)
                throttled = sum(part.is_throttled for part in readable)
                if throttled and claim is None:
                    claim = claims.enter_context(self._gate.claim(self._claim_key(request, open_fetch), throttled))
                found = await self._read(request, readable, claim, may_place=stored is not None)
                now = trio.current_time()
                if not answers and not throttled and now < open_fetch.deadline and not _are_enough(found, request.min_bytes):
                    found = []
                for each in found:
                    key = (each.part.topic_id, each.part.partition)
                    answers[key] = each.part
                    if stored is not None and each.stored is not None:
                        stored[key] = each.stored
                    session.serve_last(key)
                if answers or now >= open_fetch.deadline or request.min_bytes <= 0:
                    break
                wake_at = max(self._gate.ready_at(), now + BUDGET_PAUSE_S) if throttled else open_fetch.deadline
                with trio.move_on_at(min(open_fetch.deadline, wake_at)):
                    await changed.wait()
        if request.replica_id < 0:
            self._complete(request, answers)
        return answers

    # --- what can be said ----------------------------------------------------------------------------------------------------

    def _note_positions(self, request: ReplicaFetchRequest, session: FetchSession) -> dict[ReplicaId, FetchedPartition]:
        """Check each partition and note the follower's position; return answers that need no read."""
        answers: dict[ReplicaId, FetchedPartition] = {}
        for key in tuple(session.due):
            wanted = session.wanted[key]
            try:
                answer = self._note_position(request, wanted)
            except (ReplicaError, LogError) as error:
                answer = FetchedPartition(wanted.topic_id, wanted.partition, code_of(error))
            if answer is not None:
                answers[key] = answer
        return answers

    def _note_position(self, request: ReplicaFetchRequest, wanted: FetchPartition) -> FetchedPartition | None:
        partition = self._replicas.hosted((wanted.topic_id, wanted.partition))
        role = _role(request, partition)
        log = partition.online_log()
        error = epoch_error(wanted.leader_epoch, role.epoch)
        if request.replica_id >= 0 and not error and request.replica_id not in partition.state.replicas:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        if error:
            return FetchedPartition(wanted.topic_id, wanted.partition, error)
        if isinstance(role, FollowerRole) and wanted.fetch_offset > log.log_end_offset:
            # Only the leader knows whether the offset exists: this follower may be behind.
            return FetchedPartition(wanted.topic_id, wanted.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        diverging = leader_answer(
            wanted.fetch_offset, wanted.last_fetched_epoch, log.log_end_offset, log.latest_epoch, log.end_offset_for
        )
        if diverging is not None:
            return self._about(wanted, log, diverging=diverging)
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            return self._about(wanted, log, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        if request.replica_id >= 0:
            partition.follower_fetched(request.replica_id, wanted.fetch_offset, wanted.log_start_offset, request.broker_epoch)
        return None

    def _look(
        self, request: ReplicaFetchRequest, session: FetchSession, answers: dict[ReplicaId, FetchedPartition]
    ) -> list[_Readable]:
        """Return the partitions with records to read. Answers that need no read (news, or a partition that was lost) go to
        `answers`; partitions without news rest from now on.
        """
        readable: list[_Readable] = []
        for key in tuple(session.due):
            if key in answers:
                continue
            wanted = session.wanted[key]
            try:
                partition = self._replicas.hosted(key)
                session.watch(key, partition)
                role = _role(request, partition)
                log = partition.online_log()
            except ReplicaError as error:
                answers[key] = FetchedPartition(*key, error.code)
                continue
            if epoch_error(wanted.leader_epoch, role.epoch):
                answers[key] = FetchedPartition(*key, ErrorCode.FENCED_LEADER_EPOCH)
                continue
            is_follower = request.replica_id >= 0
            out_of_sync = is_follower and request.replica_id not in partition.state.isr
            upto = log.log_end_offset if is_follower else log.high_watermark
            if upto > wanted.fetch_offset:
                throttled = out_of_sync and self._replicas.is_leader_throttled(partition, request.replica_id)
                readable.append(_Readable(wanted, partition, role, log, upto, throttled, out_of_sync))
            elif is_follower and _has_news(wanted, log):
                answers[key] = self._about(wanted, log, bytes_left=0)
            elif not out_of_sync:
                session.rest(key)
        return readable

    def _claim_key(self, request: ReplicaFetchRequest, open_fetch: _OpenFetch) -> Hashable:
        """The follower's key, which keeps its share; a separate one while an abandoned fetch still has that key."""
        key = (request.replica_id, request.lane)
        return (key, open_fetch) if self._gate.is_waiting(key) else key

    def _complete(self, request: ReplicaFetchRequest, answers: dict[ReplicaId, FetchedPartition]) -> None:
        """Add the offsets of every partition without news to a consumer's answer."""
        for wanted in request.partitions:
            key = (wanted.topic_id, wanted.partition)
            if key not in answers:
                try:
                    answers[key] = self._about(wanted, self._replicas.hosted(key).online_log())
                except ReplicaError as error:
                    answers[key] = FetchedPartition(*key, error.code)

    def _about(
        self,
        wanted: FetchPartition,
        log: PartitionLog,
        *,
        error: ErrorCode = ErrorCode.NONE,
        diverging: tuple[int, int] | None = None,
        records: memoryview = NOTHING,
        bytes_left: int = -1,
    ) -> FetchedPartition:
        return FetchedPartition(
            wanted.topic_id,
            wanted.partition,
            error,
            log.high_watermark,
            log.log_start_offset,
            log.log_end_offset,
            diverging,
            records,
            bytes_left,
        )

    # --- reading -------------------------------------------------------------------------------------------------------------

    async def _read(
        self, request: ReplicaFetchRequest, readable: list[_Readable], claim: Claim | None, *, may_place: bool
    ) -> list[_Found]:
        """Read records in the order of the request until the response is full, within the budget of throttled partitions."""
        found: list[_Found] = []
        remaining = min(request.max_bytes, RESPONSE_BYTES_MAX)
        share = remaining // max(len(readable), 1) if request.replica_id >= 0 else 0
        for part in readable:
            wanted_bytes = min(max(part.wanted.max_bytes, min(share, part.wanted.max_bytes * FEW_FACTOR)), remaining)
            if wanted_bytes <= 0:
                break
            granted = claim.try_take(wanted_bytes) if part.is_throttled and claim is not None else wanted_bytes
            if not granted:
                continue
            # The first partition, and one that only the throttle limits, may borrow for a whole batch.
            min_one_batch = not found or granted < wanted_bytes
            answer = await self._read_one(part, granted, min_one_batch=min_one_batch, may_place=may_place)
            # A borrowed batch may not fit into the response: it waits until its partition comes first.
            has_room = not found or answer.size_bytes <= remaining
            if part.is_throttled and claim is not None:
                claim.settle(granted, answer.size_bytes if has_room else 0)
            if has_room and (answer.size_bytes or answer.part.error):
                found.append(answer)
                remaining -= answer.size_bytes
        return found

    async def _read_one(self, part: _Readable, max_bytes: int, *, min_one_batch: bool, may_place: bool) -> _Found:
        wanted, log = part.wanted, part.log
        read_bytes_max = READ_BYTES_MAX if may_place else sys.maxsize

        def read() -> tuple[bytes | BatchPlaces, int, int]:
            at = wanted.fetch_offset
            found = log.read_or_place(at, max_bytes, read_bytes_max=read_bytes_max, upto=part.upto, min_one_batch=min_one_batch)
            size_bytes = found.size_bytes if isinstance(found, BatchPlaces) else len(found)
            return found, size_bytes, log.bytes_from(at) - size_bytes if part.is_filling else -1

        try:
            found, size_bytes, bytes_left = await self._replicas.disks.run(log.log_dir, read)
        except LogClosed:
            return _Found(FetchedPartition(wanted.topic_id, wanted.partition, ErrorCode.NONE))
        except LogError as error:
            return _Found(FetchedPartition(wanted.topic_id, wanted.partition, code_of(error)))
        if part.partition.role is not part.role:
            # Another leader meanwhile: the log may have been truncated, and the records may be those of the next leader.
            return _Found(FetchedPartition(wanted.topic_id, wanted.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if isinstance(found, BatchPlaces):
            stored = StoredRecords(log, found, self._replicas.disks)
            return _Found(self._about(wanted, log, bytes_left=bytes_left), size_bytes, stored)
        return _Found(self._about(wanted, log, records=memoryview(found), bytes_left=bytes_left), size_bytes)


def _role(request: ReplicaFetchRequest, partition: Partition) -> LeaderRole | FollowerRole:
    """Return the role that serves the fetch: the leader's, or a follower's for a consumer that may read there. ReplicaError."""
    return partition.reader_role() if request.any_replica and request.replica_id < 0 else partition.leader_role()


def epoch_error(asked: int, current: int) -> ErrorCode:
    """Return the error of a request that names a leader epoch (-1: none), NONE if it is the current one."""
    if asked == current or asked < 0:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def _are_enough(found: list[_Found], min_bytes: int) -> bool:
    """Return True if these partitions are worth an answer before the time is over."""
    return sum(each.size_bytes for each in found) >= min_bytes or any(each.part.error for each in found)


def _has_news(wanted: FetchPartition, log: PartitionLog) -> bool:
    """Return True if the follower could raise its high watermark or its log start."""
    return min(log.high_watermark, wanted.fetch_offset) > wanted.high_watermark or log.log_start_offset > wanted.log_start_offset
