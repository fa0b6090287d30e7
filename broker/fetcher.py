"""Copies partitions from their leaders: the follower's side of replication.

Theory of operation. For each broker that leads something here there are lanes, each with at most one fetch in flight. The
steady lane carries replicas that are in sync or not throttled, and parks at the leader until there is news. Replicas that are
out of sync and throttled, by follower.replication.throttled.replicas or by the move that adds them, go in a lane for their
throttles, which asks only for what those budgets allow, so that filling a new replica never delays those in sync. A replica
changes lanes by itself when it comes into the ISR or its throttle goes; a lane that nobody needs any more ends.

A fetch offset is the log's end, and says that everything below is held. What comes back is appended, or the log is cut where
the leader says that the two part (`divergence.py`), or the replica pauses if the leader refused: the metadata log, or the
leader's, is about to catch up. The set of partitions and their leaders is changed by the replica manager only. When it changes,
a parked fetch is given up and sent anew.
"""

from __future__ import annotations

import itertools
import logging
from contextlib import ExitStack
from typing import Protocol

import msgspec
import trio

from kraftlab.metadata.errors import ErrorCode
from kraftlab.metadata.peer_rpc import Api, FetchedPartition, FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from kraftlab.quorum.core.types import Endpoint
from kraftlab.quorum.driver.signal import Signal
from kraftlab.quorum.driver.transport import PeerError, PeerTimeout, PeerUnreachable

from .byte_gate import ByteGate
from .divergence import truncation_offset
from .log.errors import LogError
from .partition import FollowerRole, Partition, ReplicaId

logger = logging.getLogger("kraftlab.broker.fetcher")

Gates = tuple[ByteGate, ...]
"""What a replica's bytes have to pass through; () if it is not throttled. Which lane it goes in."""
STEADY: Gates = ()
BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0
THROTTLED_WAIT_MAX_MS = 50
"""The throttled lane holds budget while it waits, so it waits for a short time only."""
TIMEOUT_MARGIN_MS = 5000
WAIT_PER_PARTITION_MS = 2
LONGEST_WAIT_MS = 5000
"""A request names all its partitions, and leaders look at each. So that thousands of idle ones do not keep the brokers busy, the
leader may think the longer about an answer the more there are; it answers at once when there is something to say.
"""

_encode = msgspec.msgpack.encode
_response = msgspec.msgpack.Decoder(ReplicaFetchResponse)


class Leaders(Protocol):
    """Who carries a request to another broker."""

    async def request(self, endpoint: Endpoint, api: int, body: bytes, *, timeout_ms: int) -> bytes: ...


class FetchLimits(msgspec.Struct, frozen=True):
    """replica.fetch.{wait.max.ms, min.bytes, max.bytes, response.max.bytes}"""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024


class FetchContext(Protocol):
    """What fetchers must know of this broker."""

    broker_id: int

    def broker_epoch(self) -> int: ...

    def endpoint_of(self, broker_id: int) -> Endpoint | None:
        """The peer listener of a broker, None while the metadata does not name it."""

    def follower_gates(self, partition: Partition) -> Gates:
        """The throttles of a replica that is out of sync: those of the broker's configuration and of the move that adds it."""


class _Source:
    """One leader epoch of one partition that is being followed. `retry_at`, `backoff_s`: its pause after an error."""

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.retry_at = 0.0
        self.backoff_s = BACKOFF_S
        self.is_busy = False

    def pause(self) -> None:
        self.retry_at = trio.current_time() + self.backoff_s
        self.backoff_s = min(self.backoff_s * 2, BACKOFF_MAX_S)

    def resume(self) -> None:
        self.retry_at = 0.0
        self.backoff_s = BACKOFF_S


class Fetchers:
    """All fetchers of a broker. `run` owns their tasks; `follow` and `forget` are called by the replica manager."""

    def __init__(self, context: FetchContext, leaders: Leaders, limits: FetchLimits) -> None:
        self.context = context
        self.leaders = leaders
        self.limits = limits
        self._by_leader: dict[int, _LeaderFetcher] = {}
        self._leader_of: dict[ReplicaId, int] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def follow(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Copies from that leader from now on, in that epoch."""
        self.forget(partition.id)
        assert self._nursery is not None, "the fetchers are not running"
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = self._by_leader[leader_id] = _LeaderFetcher(self, leader_id, self._nursery)
        self._leader_of[partition.id] = leader_id
        fetcher.add(_Source(partition, leader_epoch))

    def forget(self, replica: ReplicaId) -> None:
        """No longer copies that replica."""
        leader_id = self._leader_of.pop(replica, None)
        if leader_id is not None:
            self._by_leader[leader_id].remove(replica)

    def reconsider(self) -> None:
        """Throttles, endpoints or the ISR changed: replicas may have to change lanes."""
        for fetcher in self._by_leader.values():
            fetcher.wake()


class _Lane:
    """Replicas with the same throttles. The leader keeps lanes apart by `session`."""

    def __init__(self, gates: Gates, session: int) -> None:
        self.gates = gates
        self.session = session
        self.wake = Signal()
        self.in_flight: trio.CancelScope | None = None
        """What is given up when replicas may have to change lanes: the steady fetch, or the wait for what throttles grant."""


class _LeaderFetcher:
    """The lanes to one leader."""

    def __init__(self, owner: Fetchers, leader_id: int, nursery: trio.Nursery) -> None:
        self._owner = owner
        self._leader_id = leader_id
        self._nursery = nursery
        self._sources: dict[ReplicaId, _Source] = {}
        self._lanes: dict[Gates, _Lane] = {}
        self._sessions = itertools.count()
        self._backoff_s = BACKOFF_S
        self._is_reachable = True
        self._open_lane(STEADY)

    def add(self, source: _Source) -> None:
        """Costs the same however many there are already: whole plans come one by one."""
        self._sources[source.partition.id] = source
        self._make_way_for(source)
        self._stir()

    def remove(self, replica: ReplicaId) -> None:
        self._sources.pop(replica, None)

    def wake(self) -> None:
        """Sources or their throttles may have changed: every lane looks again."""
        for source in self._sources.values():
            self._make_way_for(source)
        self._stir()

    def _make_way_for(self, source: _Source) -> None:
        gates = self._owner.context.follower_gates(source.partition)
        if gates not in self._lanes:
            self._open_lane(gates)

    def _stir(self) -> None:
        for lane in self._lanes.values():
            lane.wake.set()
            if lane.in_flight is not None:
                lane.in_flight.cancel()

    def _open_lane(self, gates: Gates) -> None:
        lane = self._lanes[gates] = _Lane(gates, next(self._sessions))
        self._nursery.start_soon(self._run_lane, lane)

    async def _run_lane(self, lane: _Lane) -> None:
        while True:
            sources, retry_at = self._ready(lane)
            if not sources:
                if lane.gates and not self._is_needed(lane):
                    del self._lanes[lane.gates]
                    return
                with trio.move_on_at(retry_at):
                    await lane.wake.wait()
                continue
            for source in sources:
                source.is_busy = True
            try:
                await (self._fetch_throttled(lane, sources) if lane.gates else self._fetch_steady(lane, sources, retry_at))
            finally:
                for source in sources:
                    source.is_busy = False
            if any(self._owner.context.follower_gates(source.partition) != lane.gates for source in sources):
                # It goes in another lane from now on, which passed it over as long as it was busy here.
                self.wake()

    def _is_needed(self, lane: _Lane) -> bool:
        return any(self._owner.context.follower_gates(source.partition) == lane.gates for source in self._sources.values())

    def _ready(self, lane: _Lane) -> tuple[list[_Source], float]:
        """The sources of a lane that may be asked now, least recently served first, and when the next one may be."""
        now = trio.current_time()
        ready: list[_Source] = []
        retry_at = float("inf")
        for source in self._sources.values():
            if source.is_busy or self._owner.context.follower_gates(source.partition) != lane.gates:
                continue
            if source.retry_at > now:
                retry_at = min(retry_at, source.retry_at)
            elif source.partition.log is not None:
                ready.append(source)
        return ready, retry_at

    async def _fetch_steady(self, lane: _Lane, sources: list[_Source], retry_at: float) -> None:
        """One fetch; given up when the set of sources changes, or a pausing one may be asked again at `retry_at`."""
        limits = self._owner.limits
        wait_max_ms = max(limits.wait_max_ms, min(len(sources) * WAIT_PER_PARTITION_MS, LONGEST_WAIT_MS))
        response: ReplicaFetchResponse | None = None
        with trio.CancelScope(deadline=retry_at) as scope:
            lane.in_flight = scope
            try:
                response = await self._ask(sources, lane.session, limits.response_max_bytes, wait_max_ms)
            finally:
                lane.in_flight = None
        if response is not None:
            await self._take_in(sources, response)

    async def _fetch_throttled(self, lane: _Lane, sources: list[_Source]) -> None:
        """One fetch of what every throttle of the lane grants."""
        limits = self._owner.limits
        with ExitStack() as claims:
            granted, taken = limits.response_max_bytes, []
            with trio.CancelScope() as scope:
                lane.in_flight = scope
                try:
                    for gate in lane.gates:
                        claim = claims.enter_context(gate.claim((self._leader_id, lane.session), len(sources)))
                        granted = await claim.take(granted)
                        taken.append((claim, granted))
                finally:
                    lane.in_flight = None
            if scope.cancelled_caught:
                # A replica that is no longer throttled must not wait until a debt of others is paid.
                for claim, own_grant in taken:
                    claim.settle(own_grant, 0)
                return
            wait_max_ms = min(limits.wait_max_ms, THROTTLED_WAIT_MAX_MS)
            response = await self._ask(sources, lane.session, granted, wait_max_ms)
            used = sum(len(part.records) for part in response.partitions) if response is not None else 0
            for claim, own_grant in taken:
                claim.settle(own_grant, used)
            if response is not None:
                await self._take_in(sources, response)

    async def _ask(self, sources: list[_Source], session: int, max_bytes: int, wait_max_ms: int) -> ReplicaFetchResponse | None:
        """One request; None if it failed, after a pause."""
        owner = self._owner
        endpoint = owner.context.endpoint_of(self._leader_id)
        if endpoint is None:
            await self._pause(f"the metadata names no peer listener of broker {self._leader_id}")
            return None
        wanted = tuple(part for part in (self._position(source, max_bytes) for source in sources) if part is not None)
        request = ReplicaFetchRequest(
            owner.context.broker_id,
            owner.context.broker_epoch(),
            wait_max_ms,
            owner.limits.min_bytes,
            max_bytes,
            wanted,
            session,
        )
        try:
            body = await owner.leaders.request(
                endpoint, Api.REPLICA_FETCH, _encode(request), timeout_ms=wait_max_ms + TIMEOUT_MARGIN_MS
            )
            response = _response.decode(body)
        except (PeerError, PeerTimeout, PeerUnreachable, msgspec.MsgspecError) as error:
            await self._pause(str(error))
            return None
        if not self._is_reachable:
            logger.info("broker %d answers fetches again", self._leader_id)
        self._is_reachable, self._backoff_s = True, BACKOFF_S
        return response

    async def _pause(self, reason: str) -> None:
        if self._is_reachable:
            logger.info("cannot fetch from broker %d: %s; trying again", self._leader_id, reason)
        self._is_reachable = False
        backoff_s, self._backoff_s = self._backoff_s, min(self._backoff_s * 2, BACKOFF_MAX_S)
        await trio.sleep(backoff_s)

    def _position(self, source: _Source, max_bytes: int) -> FetchPartition | None:
        log = source.partition.log
        if log is None:
            return None
        return FetchPartition(
            source.partition.topic_id,
            source.partition.number,
            source.leader_epoch,
            log.log_end_offset,
            log.latest_epoch,
            log.log_start_offset,
            min(self._owner.limits.max_bytes, max_bytes),
            log.high_watermark,
        )

    # --- answers -------------------------------------------------------------------------------------------------------------

    async def _take_in(self, sources: list[_Source], response: ReplicaFetchResponse) -> None:
        """Partitions are handled beside each other: a slow disk holds up only its own."""
        asked = {source.partition.id: source for source in sources}
        async with trio.open_nursery() as nursery:
            for part in sorted(response.partitions, key=lambda part: len(part.records)):
                source = asked.get((part.topic_id, part.partition))
                if source is None or self._sources.get(source.partition.id) is not source:
                    continue
                if part.records:
                    # Asked last in the next fetch, after those that got less.
                    self._sources[source.partition.id] = self._sources.pop(source.partition.id)
                nursery.start_soon(self._take_in_one, source, part)

    async def _take_in_one(self, source: _Source, part: FetchedPartition) -> None:
        partition, log = source.partition, source.partition.log
        if log is None:
            return
        try:
            match part.error:
                case ErrorCode.NONE if part.diverging is not None:
                    cut = truncation_offset(part.diverging, log.log_end_offset, log.end_offset_for)
                    await partition.truncate(source.leader_epoch, cut)
                case ErrorCode.NONE:
                    await partition.append_fetched(source.leader_epoch, part)
                case ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._return_to_range(source, part)
                case _:
                    self._note_error(partition, f"the leader answered {ErrorCode(part.error).name}")
                    source.pause()
                    return
        except LogError as error:
            logger.warning("%s: %s", partition, error)
            self._note_error(partition, str(error))
            source.pause()
            return
        source.resume()

    async def _return_to_range(self, source: _Source, part: FetchedPartition) -> None:
        """The leader's log does not hold this replica's end: cut to the leader's end, or start over at its start."""
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
