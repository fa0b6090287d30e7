"""Answers to fetches from followers and consumers: the leader's side of replication.

Theory of operation. A fetch is answered as a whole. If there is an error, a divergence, a newer high watermark, or a record to
read (below the log end for followers, below the high watermark for consumers), it is answered at once; otherwise it is parked
until one of its partitions changes or its wait is over. Fewer records than the fetch's `min_bytes` wait likewise, unless they are
throttled. A follower's fetch offset states that the follower holds all records
below. It is noted first, and may raise the high watermark, which wakes the other followers' parked fetches. So a high watermark
travels in one message after the fetch that raised it.

Consumers read from the leader, and from followers if the fetch allows that (KIP-392).

Positions are kept from fetch to fetch (`fetch_sessions.py`), and only partitions with possible news are looked at. A partition
without records for its reader rests until it changes. A partition whose follower is out of sync is looked at in each fetch, since
the follower may join for reasons outside of the partition. `Replicas` notes the time of each follower's last fetch: a follower
that rests at a log's end counts as caught up until then.

Followers that are throttled and out of sync get at most the bytes of the budget; while the budget is used up their records wait,
not those of other followers. A newer fetch of a session ends a parked one, since its sender has given it up.

A follower's answer leaves out partitions without news. A consumer's has those too with an offset that the consumer does not know.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchedPartition, FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from kraftlab.records.errors import LogError
from kraftlab.wire.parts import NOTHING

from ..log.errors import LogClosed
from ..log.log_view import BatchPlaces
from ..log.partition_log import PartitionLog
from .byte_gate import ByteGate, Claim
from .divergence import leader_answer
from .fetch_sessions import IDLE_S, NO_SESSION, FetchSession, FetchSessions, Marks, SessionRefused
from .partition import FollowerRole, LeaderRole, Partition, ReplicaId
from .readers import Consumer, Follower, Reader, Replicas
from .replica_errors import ReplicaError, code_of
from .stored_records import StoredRecords

if TYPE_CHECKING:
    from kraftlab.gateway.data import ReadableTopics

RESPONSE_BYTES_MAX = 10 * 1024 * 1024
"""Leaves room for one batch more below the frame limit of 16 MiB."""
READ_BYTES_MAX = 128 * 1024
"""Fewer records are read: that takes one step less than sending them from their file."""
FEW_FACTOR = 10
"""If few partitions have records for a follower, each may take so many times its `max_bytes`, up to its share of the answer."""
WAIT_MAX_MS = 30_000
BUDGET_PAUSE_S = 0.01


class _Readable(NamedTuple):
    """A partition that has records for the fetch."""

    wanted: FetchPartition
    partition: Partition
    role: LeaderRole | FollowerRole | None
    log: PartitionLog
    upto: int
    is_throttled: bool
    is_filling: bool


class _Found(NamedTuple):
    """The answer about one partition. `size_bytes`: size of its records, which are in the answer or in `stored`."""

    partition: Partition
    part: FetchedPartition
    size_bytes: int = 0
    stored: StoredRecords | None = None


class FetchService:
    """One per broker. `gate` is the throttle of this broker as a leader."""

    def __init__(self, replicas: Replicas, gate: ByteGate) -> None:
        self._replicas = replicas
        self._gate = gate
        self.sessions = FetchSessions(idle_s=IDLE_S)
        self.consumer_sessions = FetchSessions()

    async def fetch(
        self,
        request: ReplicaFetchRequest,
        stored: dict[ReplicaId, StoredRecords] | None = None,
        topics: ReadableTopics | None = None,
    ) -> ReplicaFetchResponse:
        """Wait up to `max_wait_ms` for an answer. Errors are in the partitions' answers, except those of the session.

        `stored` takes the records of partitions that have many: their answers have none. None: the answers have all records.
        `topics`: those of a Kafka client, which may have sessions.
        """
        now = trio.current_time()
        try:
            if request.replica_id < 0:
                session = self.consumer_sessions.session_of(request, Consumer(self._replicas, request, topics), now)
            else:
                self._replicas.note_fetch(request.replica_id)
                session = self.sessions.session_of(request, Follower(self._replicas, request), now)
        except SessionRefused as error:
            return ReplicaFetchResponse(error.code, str(error))
        try:
            answers = await self._answer(request, session, stored)
            return ReplicaFetchResponse(ErrorCode.NONE, partitions=tuple(answers.values()), session_id=session.id)
        finally:
            if session.id == NO_SESSION:
                session.close()

    async def _answer(
        self, request: ReplicaFetchRequest, session: FetchSession, stored: dict[ReplicaId, StoredRecords] | None
    ) -> dict[ReplicaId, FetchedPartition]:
        turn = session.next_turn()
        # A consumer that wants nothing has nothing to wait for; a follower may be waiting for its first partition.
        max_wait_ms = request.max_wait_ms if session.wanted or session.marks is None else 0
        deadline = trio.current_time() + min(max(max_wait_ms, 0), WAIT_MAX_MS) / 1000
        answers: dict[ReplicaId, FetchedPartition] = {}
        is_new = True
        with ExitStack() as claims:
            claim: Claim | None = None
            while session.turn == turn:
                changed = session.changed = trio.Event()
                readable = self._look(session, answers, is_new=is_new)
                is_new = False
                throttled = sum(part.is_throttled for part in readable)
                if throttled and claim is None:
                    claim = claims.enter_context(self._gate.claim(self._claim_key(request, session), throttled))
                found = await self._read(request, readable, claim, may_place=stored is not None)
                now = trio.current_time()
                if not answers and not throttled and now < deadline and not _are_enough(found, request.min_bytes):
                    found = []
                for each in found:
                    key = (each.part.topic_id, each.part.partition)
                    answers[key] = each.part
                    if stored is not None and each.stored is not None:
                        stored[key] = each.stored
                    session.serve_last(key)
                    if each.part.error:
                        session.reader.refused(each.partition, each.part.error)
                    else:
                        session.reader.served(each.partition, each.size_bytes)
                if answers or now >= deadline or request.min_bytes <= 0:
                    break
                wake_at = max(self._gate.ready_at(), now + BUDGET_PAUSE_S) if throttled else deadline
                with trio.move_on_at(min(deadline, wake_at)):
                    await changed.wait()
        if session.marks is not None:
            answers = self._with_marks(session, session.marks, answers)
            if session.turn == turn:
                session.marks.told(answers)
        return answers

    # --- what can be said ----------------------------------------------------------------------------------------------------

    def _look(self, session: FetchSession, answers: dict[ReplicaId, FetchedPartition], *, is_new: bool) -> list[_Readable]:
        """Return the partitions with records to read. Answers that need no read go to `answers`: errors, divergence, news.

        Partitions without news rest from now on. The positions of a new fetch are noted.
        """
        reader = session.reader
        readable: list[_Readable] = []
        for key in tuple(session.due):
            wanted = session.wanted[key]
            try:
                partition = reader.partition(wanted)
                if is_new:
                    reader.asked(partition)
                log = partition.online_log()
                answer = self._refusal(reader, wanted, partition, log)
                if answer is None and is_new:
                    reader.note(wanted, partition)
            except (ReplicaError, LogError) as error:
                answer = FetchedPartition(*key, code_of(error))
            if answer is not None:
                answers[key] = answer
                continue
            session.watch(key, partition)
            if session.marks is not None:
                session.marks.compare(key, log)
            upto, is_filling = reader.upto(log), reader.is_filling(partition)
            if upto > wanted.fetch_offset:
                is_throttled = is_filling and self._replicas.is_leader_throttled(partition, reader.broker_id)
                readable.append(_Readable(wanted, partition, partition.role, log, upto, is_throttled, is_filling))
            elif reader.has_news(wanted, log):
                answers[key] = self._about(wanted, log, bytes_left=0)
            elif not is_filling:
                session.rest(key)
        return readable

    def _refusal(
        self, reader: Reader, wanted: FetchPartition, partition: Partition, log: PartitionLog
    ) -> FetchedPartition | None:
        """Return the answer about a position that may not be read: an error, or the divergence of the logs."""
        if error := reader.refusal(wanted, partition):
            return FetchedPartition(wanted.topic_id, wanted.partition, error)
        diverging = leader_answer(
            wanted.fetch_offset, wanted.last_fetched_epoch, log.log_end_offset, log.latest_epoch, log.end_offset_for
        )
        if diverging is not None and not reader.is_from_the_future(wanted, diverging, log):
            return self._about(wanted, log, diverging=diverging)
        if diverging is not None or not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            return self._about(wanted, log, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return None

    def _claim_key(self, request: ReplicaFetchRequest, session: FetchSession) -> Hashable:
        """The follower's key, which keeps its share; a separate one while an abandoned fetch still has that key."""
        key = (request.replica_id, request.lane)
        return (key, session, session.turn) if self._gate.is_waiting(key) else key

    def _with_marks(
        self, session: FetchSession, marks: Marks, answers: dict[ReplicaId, FetchedPartition]
    ) -> dict[ReplicaId, FetchedPartition]:
        """Return a consumer's answer: that about partitions without records, too, where it does not know the offsets."""
        whole: dict[ReplicaId, FetchedPartition] = {}
        for key in marks.untold:
            wanted = session.wanted[key]
            try:
                whole[key] = answers.get(key) or self._about(wanted, session.reader.partition(wanted).online_log())
            except ReplicaError as error:
                whole[key] = FetchedPartition(*key, error.code)
        return whole | answers

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
        wanted, log, partition = part.wanted, part.log, part.partition
        read_bytes_max = READ_BYTES_MAX if may_place else sys.maxsize

        def read() -> tuple[bytes | BatchPlaces, int, int]:
            at = wanted.fetch_offset
            found = log.read_or_place(at, max_bytes, read_bytes_max=read_bytes_max, upto=part.upto, min_one_batch=min_one_batch)
            size_bytes = found.size_bytes if isinstance(found, BatchPlaces) else len(found)
            return found, size_bytes, log.bytes_from(at) - size_bytes if part.is_filling else -1

        try:
            found, size_bytes, bytes_left = await self._replicas.disks.run(log.log_dir, read)
        except LogClosed:
            return _Found(partition, FetchedPartition(wanted.topic_id, wanted.partition, ErrorCode.NONE))
        except LogError as error:
            # A follower that is out of range needs the log's bounds: the log start may have passed it just now.
            return _Found(partition, self._about(wanted, log, error=code_of(error)))
        if partition.role is not part.role:
            # Another leader meanwhile: the log may have been truncated, and the records may be those of the next leader.
            return _Found(partition, FetchedPartition(wanted.topic_id, wanted.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if isinstance(found, BatchPlaces):
            stored = StoredRecords(log, found, self._replicas.disks)
            return _Found(partition, self._about(wanted, log, bytes_left=bytes_left), size_bytes, stored)
        return _Found(partition, self._about(wanted, log, records=memoryview(found), bytes_left=bytes_left), size_bytes)


def _are_enough(found: list[_Found], min_bytes: int) -> bool:
    """Return True if these partitions are worth an answer before the time is over."""
    return sum(each.size_bytes for each in found) >= min_bytes or any(each.part.error for each in found)
