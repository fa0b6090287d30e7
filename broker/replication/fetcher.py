"""Fetchers, which copy partitions from their leaders: the follower's side of replication.

Theory of operation. For each broker that leads a partition here there are lanes, each with at most one fetch in flight, in a
separate fetch session (`fetch_sessions.py`): a fetch names only changed positions. Steady lanes carry replicas that are in sync,
and park at the leader until there is news. Replicas that are out of sync are filled in lanes of their own, on connections of
their own: so filling a replica never delays those in sync. Replicas that are throttled, by
follower.replication.throttled.replicas or by the move that adds them, have a lane for their throttles, which asks only for the
bytes that those budgets allow. A replica changes lanes by itself when it joins the ISR or its throttle goes; a filling lane
without members ends. Each kind of lane exists `num.replica.fetchers` times; a partition's number among them is fixed.

A source (a replica with its leader) is marked as changed by its partition (`Partition.watch`), by the end of its pause, and by
new throttles: then its position may differ from the one that the leader knows, or it may be in the wrong lane. Only changed
sources are looked at. A steady fetch is cancelled, and sent again, if a source has a new position; one that fills replicas is
not, since its bytes may be on their way: it waits for a short time only. While a lane handles an answer, its sources wait, so
that no replica is ever in two fetches.

A fetch offset is the log's end, and states that all records below are held. The answer's records are appended, or the log is
truncated at the divergence from the leader's (`divergence.py`), or the replica pauses after an error: the metadata log, or the
leader's, is about to catch up. Only the replica manager changes the set of partitions and their leaders.
"""

from __future__ import annotations

import itertools
import logging
import zlib
from contextlib import ExitStack
from typing import NamedTuple, Protocol

import msgspec
import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode, describe
from kraftlab.common.signal import Signal
from kraftlab.config.models import BrokerConfig
from kraftlab.metadata.peer_rpc import Api, FetchedPartition, FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from kraftlab.records.errors import LogError
from kraftlab.wire.parts import InMemory
from kraftlab.wire.transport import ANY_NODE, PeerError, PeerTimeout, PeerUnreachable

from .byte_gate import ByteGate
from .divergence import truncation_offset
from .fetch_sessions import SentPositions
from .partition import FollowerRole, Partition, ReplicaId

logger = logging.getLogger("kraftlab.broker.fetcher")

Gates = tuple[ByteGate, ...]
"""Throttles that a replica's bytes have to pass; () if it is not throttled."""
BACKOFF_S = 0.05
"""The first pause after an error. It doubles with each error, up to replica.fetch.backoff.ms."""
FILLING_WAIT_MAX_MS = 100
THROTTLED_WAIT_MAX_MS = 50
"""A throttled lane holds budget while it waits, so it waits for a short time only."""

PASSING = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors while the metadata of the leader, or of this broker, is out of date; they are not logged."""

_encode = msgspec.msgpack.encode
_response = Decoder(ReplicaFetchResponse)


class Leaders(Protocol):
    """The way to other brokers. Requests with another `channel` have another connection. Only the answer of `node_id` counts."""

    async def request(
        self, endpoint: Endpoint, api: int, body: bytes, *, timeout_ms: int, channel: int = 0, node_id: int = ANY_NODE
    ) -> InMemory: ...


class FetchContext(Protocol):
    """The part of this broker that fetchers use."""

    broker_id: int

    def broker_epoch(self) -> int: ...

    def endpoint_of(self, broker_id: int) -> Endpoint | None:
        """The peer listener of a broker, None while the metadata does not name it."""

    def follower_gates(self, partition: Partition) -> Gates:
        """Throttles of a replica that is out of sync: those of the broker's configuration and of the move that adds it."""

    def fetchers_per_leader(self) -> int:
        """The configured num.replica.fetchers."""


class LaneKey(NamedTuple):
    """Replicas with the same key share a lane. `fetcher` is below num.replica.fetchers."""

    gates: Gates
    is_filling: bool
    fetcher: int

    @property
    def channel(self) -> int:
        """Number of the lane's connection."""
        return 2 * self.fetcher + self.is_filling


class _Source:
    """One leader epoch of one followed partition. `answered`: the leader's last error."""

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.retry_at = 0.0
        self.backoff_s = BACKOFF_S
        self.answered: int = ErrorCode.NONE
        self.lane: _Lane | None = None
        self.fetcher: _LeaderFetcher | None = None

    def set(self) -> None:
        """Note that the partition has changed."""
        if self.fetcher is not None:
            self.fetcher.mark_changed(self)

    def pause(self, longest_s: float) -> None:
        self.retry_at = trio.current_time() + min(self.backoff_s, longest_s)
        self.backoff_s = min(self.backoff_s * 2, longest_s)

    def resume(self) -> None:
        self.retry_at = 0.0
        self.backoff_s = BACKOFF_S
        self.answered = ErrorCode.NONE

    def position(self, max_bytes: int) -> FetchPartition | None:
        """The position for the leader; None without a log, or on a failed directory: the leader must not count on it."""
        log = self.partition.log
        if log is None or not log.is_open:
            return None
        return FetchPartition(
            self.partition.topic_id,
            self.partition.number,
            self.leader_epoch,
            log.log_end_offset,
            log.latest_epoch,
            log.log_start_offset,
            max_bytes,
            log.high_watermark,
        )


class Fetchers:
    """All fetchers of a broker. `run` owns their tasks; the replica manager calls `follow` and `forget`."""

    def __init__(self, context: FetchContext, leaders: Leaders, config: BrokerConfig) -> None:
        self.context = context
        self.leaders = leaders
        self.config = config
        self.backoff_max_s = max(config.replica_fetch_backoff_ms, 1) / 1000
        self._by_leader: dict[int, _LeaderFetcher] = {}
        self._leader_of: dict[ReplicaId, int] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def follow(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Copy from that leader from now on, in that epoch."""
        self.forget(partition.id)
        assert self._nursery is not None, "the fetchers are not running"
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = self._by_leader[leader_id] = _LeaderFetcher(self, leader_id, self._nursery)
        self._leader_of[partition.id] = leader_id
        fetcher.add(_Source(partition, leader_epoch))

    def forget(self, replica: ReplicaId) -> None:
        """Stop copying that replica."""
        leader_id = self._leader_of.pop(replica, None)
        if leader_id is not None:
            self._by_leader[leader_id].remove(replica)

    def reconsider(self) -> None:
        """Check the lanes of all replicas, after a change of throttles, endpoints or the ISR."""
        for fetcher in self._by_leader.values():
            fetcher.mark_all_changed()


class _Lane:
    """Replicas that are fetched together. The leader keeps lanes apart by `number`."""

    def __init__(self, key: LaneKey, number: int) -> None:
        self.key = key
        self.number = number
        self.members: dict[ReplicaId, _Source] = {}
        self.sent = SentPositions()
        self.wake = Signal()
        self.is_asking = False
        """True from the moment a fetch is made until its answer is handled: meanwhile no source joins or leaves."""
        self.in_flight: trio.CancelScope | None = None
        """Cancelled so that sources may join and leave: the fetch, or the wait for grants of throttles."""

    def is_idle(self, *, is_urgent: bool = False) -> bool:
        """Return True if sources may join and leave. Otherwise cancel what is in flight, so that they soon may; but not the bytes
        that fill replicas, unless that is urgent.
        """
        if self.in_flight is not None and (is_urgent or self.key.gates or not self.key.is_filling):
            self.in_flight.cancel()
        return not self.is_asking

    def join(self, source: _Source, position: FetchPartition) -> None:
        source.lane = self
        self.members[source.partition.id] = source
        self.sent.want(position)
        self.wake.set()

    def leave(self, source: _Source) -> None:
        source.lane = None
        if self.members.get(source.partition.id) is source:
            del self.members[source.partition.id]
            self.sent.forget(source.partition.id)


class _LeaderFetcher:
    """The lanes to one leader."""

    def __init__(self, owner: Fetchers, leader_id: int, nursery: trio.Nursery) -> None:
        self._owner = owner
        self._leader_id = leader_id
        self._nursery = nursery
        self._sources: dict[ReplicaId, _Source] = {}
        self._changed: dict[_Source, None] = {}
        self._paused: dict[_Source, None] = {}
        self._wake = Signal()
        self._lanes: dict[LaneKey, _Lane] = {}
        self._numbers = itertools.count()
        self._backoff_s = BACKOFF_S
        self._is_reachable = True
        nursery.start_soon(self._keep_sorted)

    def add(self, source: _Source) -> None:
        """Add a source. The cost does not grow with the number of sources, since whole plans come one by one."""
        self._sources[source.partition.id] = source
        source.fetcher = self
        self.mark_changed(source)

    def remove(self, replica: ReplicaId) -> None:
        source = self._sources.pop(replica, None)
        if source is not None:
            source.partition.unwatch(source)
            self.mark_changed(source)

    def mark_changed(self, source: _Source) -> None:
        """Note that a source may have a new position or be in the wrong lane. A busy lane sorts it afterwards."""
        self._changed[source] = None
        lane = source.lane
        if lane is None or not lane.is_asking or lane.in_flight is not None:
            self._wake.set()

    def mark_all_changed(self) -> None:
        for source in self._sources.values():
            self.mark_changed(source)

    async def _keep_sorted(self) -> None:
        """Sort changed sources, and paused ones when their pause is over."""
        while True:
            with trio.move_on_at(min((source.retry_at for source in self._paused), default=float("inf"))):
                await self._wake.wait()
            now = trio.current_time()
            for source in [source for source in self._paused if source.retry_at <= now]:
                del self._paused[source]
                self._changed[source] = None
            self._sort()

    def _sort(self) -> None:
        """Move changed sources to their lanes, with their positions. Sources that have to wait for a lane stay changed."""
        changed, self._changed = self._changed, {}
        for source in changed:
            if not self._sort_one(source):
                self._changed[source] = None

    def _sort_one(self, source: _Source) -> bool:
        is_followed = self._sources.get(source.partition.id) is source
        if is_followed:
            source.partition.watch(source)
        key = self._key_of(source.partition)
        position = source.position(self._owner.config.replica_fetch_max_bytes) if is_followed else None
        if position is not None and source.retry_at > trio.current_time():
            if source not in self._paused:
                self._paused[source] = None
                # `_keep_sorted` has to wake at the end of this pause, whichever task sorts now.
                self._wake.set()
            position = None
        before, lane = source.lane, None if position is None else self._lane_of(key)
        if before is not None and before is not lane:
            is_now_throttled = bool(key.gates) and not before.key.gates
            if not before.is_idle(is_urgent=is_now_throttled):
                return False
            before.leave(source)
        if lane is not None and position is not None and not (source.lane is lane and lane.sent.is_sent(position)):
            if not lane.is_idle():
                return False
            lane.join(source, position)
        return True

    def _key_of(self, partition: Partition) -> LaneKey:
        context = self._owner.context
        topic_id, number = partition.id
        fetcher = (zlib.crc32(topic_id) + number) % context.fetchers_per_leader()
        if context.broker_id in partition.state.isr:
            return LaneKey((), False, fetcher)
        return LaneKey(context.follower_gates(partition), True, fetcher)

    def _lane_of(self, key: LaneKey) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, next(self._numbers))
            self._nursery.start_soon(self._run_lane, lane)
        return lane

    async def _run_lane(self, lane: _Lane) -> None:
        while True:
            self._sort()
            if not lane.members:
                if lane.key.is_filling or lane.key.fetcher >= self._owner.context.fetchers_per_leader():
                    del self._lanes[lane.key]
                    return
                await lane.wake.wait()
                continue
            lane.is_asking = True
            try:
                await (self._fetch_throttled(lane) if lane.key.gates else self._fetch_freely(lane))
            except Exception as error:  # A bug: the lane begins again as after a lost connection.
                logger.exception("a fetch from broker %d failed unexpectedly", self._leader_id)
                lane.in_flight = None
                lane.sent.start_over()
                await self._pause(f"{type(error).__name__}: {error}")
            finally:
                lane.is_asking = False

    async def _fetch_freely(self, lane: _Lane) -> None:
        """Send one fetch for as much as an answer may hold."""
        config = self._owner.config
        wait_max_ms = config.replica_fetch_wait_max_ms
        if lane.key.is_filling:
            wait_max_ms = min(wait_max_ms, FILLING_WAIT_MAX_MS)
        response: ReplicaFetchResponse | None = None
        with trio.CancelScope() as lane.in_flight:
            response = await self._ask(lane, config.replica_fetch_response_max_bytes, wait_max_ms)
        lane.in_flight = None
        if response is not None:
            await self._take_in(lane, response)

    async def _fetch_throttled(self, lane: _Lane) -> None:
        """Send one fetch for the bytes that every throttle of the lane grants."""
        config = self._owner.config
        with ExitStack() as claims:
            granted, taken = config.replica_fetch_response_max_bytes, []
            with trio.CancelScope() as scope:
                lane.in_flight = scope
                for gate in lane.key.gates:
                    claim = claims.enter_context(gate.claim((self._leader_id, lane.number), len(lane.members)))
                    granted = await claim.take(granted)
                    taken.append((claim, granted))
            lane.in_flight = None
            if scope.cancelled_caught:
                # A replica that is no longer throttled must not wait for the debt of other replicas.
                for claim, own_grant in taken:
                    claim.settle(own_grant, 0)
                return
            wait_max_ms = min(config.replica_fetch_wait_max_ms, THROTTLED_WAIT_MAX_MS)
            response = await self._ask(lane, granted, wait_max_ms)
            used = sum(len(part.records) for part in response.partitions) if response is not None else 0
            for claim, own_grant in taken:
                claim.settle(own_grant, used)
            if response is not None:
                await self._take_in(lane, response)

    async def _ask(self, lane: _Lane, max_bytes: int, wait_max_ms: int) -> ReplicaFetchResponse | None:
        """Send one request; None if it failed, after a pause, or if the leader needs all positions."""
        owner, sent = self._owner, lane.sent
        endpoint = owner.context.endpoint_of(self._leader_id)
        if endpoint is None:
            await self._pause(f"the metadata names no peer listener of broker {self._leader_id}")
            return None
        begins = sent.is_full
        if begins:
            # The answer names the session and must not get lost, so the leader does not wait.
            wait_max_ms = 0
        session_id, session_epoch, partitions, forgotten = sent.next_fetch()
        request = ReplicaFetchRequest(
            owner.context.broker_id,
            owner.context.broker_epoch(),
            wait_max_ms,
            owner.config.replica_fetch_min_bytes,
            max_bytes,
            partitions,
            lane.number,
            session_id,
            session_epoch,
            forgotten,
        )
        try:
            timeout_ms = max(owner.config.replica_socket_timeout_ms, wait_max_ms)
            body = await owner.leaders.request(
                endpoint,
                Api.REPLICA_FETCH,
                _encode(request),
                timeout_ms=timeout_ms,
                channel=lane.key.channel,
                node_id=self._leader_id,
            )
            response = _response.decode(body)
        except (PeerError, PeerTimeout, PeerUnreachable, msgspec.MsgspecError) as error:
            sent.start_over()
            await self._pause(str(error))
            return None
        if response.error != ErrorCode.NONE:
            sent.start_over()
            if begins:
                await self._pause(f"it answered {response.error}: {response.message}")
            return None
        if begins:
            sent.began(response.session_id)
        if not self._is_reachable:
            logger.info("broker %d answers fetches again", self._leader_id)
        self._is_reachable, self._backoff_s = True, BACKOFF_S
        return response

    async def _pause(self, reason: str) -> None:
        if self._is_reachable:
            logger.info("cannot fetch from broker %d: %s; trying again", self._leader_id, reason)
        self._is_reachable = False
        longest_s = self._owner.backoff_max_s
        backoff_s, self._backoff_s = min(self._backoff_s, longest_s), min(self._backoff_s * 2, longest_s)
        await trio.sleep(backoff_s)

    # --- answers -------------------------------------------------------------------------------------------------------------

    async def _take_in(self, lane: _Lane, response: ReplicaFetchResponse) -> None:
        """Handle the partitions beside each other: a slow disk delays only its own."""
        async with trio.open_nursery() as nursery:
            for part in sorted(response.partitions, key=lambda part: len(part.records)):
                source = lane.members.get((part.topic_id, part.partition))
                if source is not None and self._sources.get(source.partition.id) is source:
                    nursery.start_soon(self._take_in_one, source, part)

    async def _take_in_one(self, source: _Source, part: FetchedPartition) -> None:
        partition, log = source.partition, source.partition.log
        if log is None:
            return
        try:
            with partition.ending_log():
                match part.error:
                    case ErrorCode.NONE if part.diverging is not None:
                        cut = truncation_offset(part.diverging, log.log_end_offset, log.end_offset_for)
                        await partition.truncate(source.leader_epoch, cut)
                    case ErrorCode.NONE:
                        await partition.append_fetched(source.leader_epoch, part)
                    case ErrorCode.OFFSET_OUT_OF_RANGE:
                        await self._return_to_range(source, part)
                    case _:
                        self._refused(source, part.error)
                        return
        except LogError as error:
            logger.warning("%s: %s", partition, error)
            self._note_error(partition, str(error))
            self._pause_source(source)
            return
        source.resume()

    def _refused(self, source: _Source, error: int) -> None:
        text = f"the leader answered {describe(error)}"
        if error not in PASSING and error != source.answered:
            logger.warning("%s: %s; trying again", source.partition, text)
        source.answered = error
        self._note_error(source.partition, text)
        self._pause_source(source)

    def _pause_source(self, source: _Source) -> None:
        source.pause(self._owner.backoff_max_s)
        self.mark_changed(source)

    async def _return_to_range(self, source: _Source, part: FetchedPartition) -> None:
        """Truncate to the leader's end, or start over at its log start: the leader's log does not hold this replica's end."""
        partition, log = source.partition, source.partition.log
        if log is None:
            return
        if part.log_end_offset < log.log_end_offset:
            await partition.truncate(source.leader_epoch, part.log_end_offset)
        elif part.log_start_offset > log.log_end_offset:
            await partition.start_over_at(source.leader_epoch, part.log_start_offset)

    def _note_error(self, partition: Partition, text: str) -> None:
        if isinstance(partition.role, FollowerRole) and partition.role.filling is not None:
            partition.role.filling.error = text
