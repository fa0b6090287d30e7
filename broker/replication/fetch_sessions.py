"""Fetch sessions: a follower sends each leader its positions once, and from then on only changed ones (KIP-227).

Theory of operation. Without sessions a fetch names all its partitions, and the leader of thousands of idle ones looks at each of
them several times a second. In a session the leader remembers the position that the follower sent of each partition. A fetch
brings changed positions, and names partitions that are no longer wanted. The fetches of a session are numbered (its epoch). If
one is lost or repeated, the next number is wrong: the leader refuses the fetch, and the follower sends all positions again, in a
new session.

The leader remembers positions that it received, never answers that it sent. So an answer that got lost is given again: a
partition with news is looked at in every fetch until the follower sends another position. A partition whose follower is in sync
and has every record is not looked at before it changes (`Partition.watch`), so idle partitions cost nothing.

=================  =================  =========================================================================
session id         session epoch      meaning
=================  =================  =========================================================================
any                -1                 no session; the named one ends
any                0                  all positions; a new session begins, the named one ends
known              the next number    changes since the fetch before
known              another number     INVALID_FETCH_SESSION_EPOCH
unknown            1 and above        FETCH_SESSION_ID_NOT_FOUND: it was given up, or belongs to another broker epoch
=================  =================  =========================================================================

A follower has one session in each of its lanes: a new one replaces the last. A leader keeps a bounded number of sessions, and
drops the least recently used one; sessions without a fetch for long are dropped whenever a new one begins.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchPartition, ReplicaFetchRequest

from .partition import Partition, ReplicaId

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
LAST_EPOCH = 2**31 - 1
SESSIONS_MAX = 1000
IDLE_S = 120.0


def next_epoch(epoch: int) -> int:
    """Return the next number. After the last one comes 1, since 0 would begin a new session."""
    return 1 if epoch >= LAST_EPOCH else epoch + 1


class _Watch:
    """Waits for a change of one partition of a session."""

    __slots__ = ("_key", "_session", "partition")

    def __init__(self, session: FetchSession, key: ReplicaId, partition: Partition) -> None:
        self._session = session
        self._key = key
        self.partition = partition

    def set(self) -> None:
        self._session.mark_due(self._key)


class FetchSession:
    """A follower's positions on this leader.

    `wanted`: each partition's position as last received. `due`: partitions with possible news, in the order in which they are
    served. `changed` is set when one more becomes due.
    """

    def __init__(self, session_id: int = NO_SESSION, broker_epoch: int = -1) -> None:
        self.id = session_id
        self.broker_epoch = broker_epoch
        self.epoch = 1
        """Number of the next fetch."""
        self.used_s = float("-inf")
        self.wanted: dict[ReplicaId, FetchPartition] = {}
        self.due: dict[ReplicaId, None] = {}
        self.changed = trio.Event()
        self._watches: dict[ReplicaId, _Watch] = {}

    def update(self, partitions: Iterable[FetchPartition], forgotten: Iterable[ReplicaId] = ()) -> None:
        """Take over the positions of a fetch."""
        for topic_id, number in forgotten:
            key = (topic_id, number)
            self.wanted.pop(key, None)
            self.due.pop(key, None)
            self._unwatch(key)
        for wanted in partitions:
            key = (wanted.topic_id, wanted.partition)
            self.wanted[key] = wanted
            self.due.setdefault(key)

    def mark_due(self, key: ReplicaId) -> None:
        """Look at a partition that has changed."""
        if key in self.wanted:
            self.due.setdefault(key)
            self.changed.set()

    def watch(self, key: ReplicaId, partition: Partition) -> None:
        """Make the partition due when it changes. Call this before each look at it."""
        watch = self._watches.get(key)
        if watch is None or watch.partition is not partition:
            self._unwatch(key)
            watch = self._watches[key] = _Watch(self, key, partition)
        partition.watch(watch)

    def rest(self, key: ReplicaId) -> None:
        """Do not look at the partition until it changes."""
        self.due.pop(key, None)

    def serve_last(self, key: ReplicaId) -> None:
        """Serve other partitions first the next time, since this one got records."""
        if key in self.due:
            del self.due[key]
            self.due[key] = None

    def close(self) -> None:
        for key in list(self._watches):
            self._unwatch(key)

    def _unwatch(self, key: ReplicaId) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.partition.unwatch(watch)


class SessionRefused(Exception):
    """The fetch does not continue its session."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class FetchSessions:
    """The sessions of a leader's followers, by replica and lane."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._by_lane: dict[tuple[int, int], FetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_lane)

    def session_of(self, request: ReplicaFetchRequest, now_s: float) -> FetchSession:
        """Return the fetch's session, with the positions of the fetch. A session without an id ends with the fetch: close it.

        SessionRefused: see the table in the module's docstring.
        """
        lane = (request.replica_id, request.lane)
        if request.replica_id < 0 or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            known = self._by_lane.get(lane)
            if known is not None and request.session_id == known.id:
                self._end(lane)
            is_kept = request.replica_id >= 0 and request.session_epoch == INITIAL_EPOCH
            session = self._begin(lane, request.broker_epoch, now_s) if is_kept else FetchSession()
            session.update(request.partitions)
            return session
        session = self._continued(lane, request)
        session.used_s = now_s
        session.epoch = next_epoch(session.epoch)
        session.update(request.partitions, request.forgotten)
        return session

    def _continued(self, lane: tuple[int, int], request: ReplicaFetchRequest) -> FetchSession:
        session = self._by_lane.get(lane)
        if session is None or session.id != request.session_id or session.broker_epoch != request.broker_epoch:
            raise SessionRefused(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {request.session_id} of broker {request.replica_id} is unknown; begin a new session",
            )
        if session.epoch != request.session_epoch:
            raise SessionRefused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch {request.session_epoch} of session {session.id} came, expected {session.epoch}; begin a new session",
            )
        return session

    def _begin(self, lane: tuple[int, int], broker_epoch: int, now_s: float) -> FetchSession:
        self._end(lane)
        for other in [other for other, session in self._by_lane.items() if session.used_s + IDLE_S < now_s]:
            self._end(other)
        while len(self._by_lane) >= self._sessions_max:
            self._end(min(self._by_lane, key=lambda other: self._by_lane[other].used_s))
        session = self._by_lane[lane] = FetchSession(random.randint(1, 2**31 - 1), broker_epoch)
        session.used_s = now_s
        return session

    def _end(self, lane: tuple[int, int]) -> None:
        session = self._by_lane.pop(lane, None)
        if session is not None:
            session.close()


class SentPositions:
    """The follower's side of one session: positions that the leader knows, and those that have to be sent."""

    def __init__(self) -> None:
        self.wanted: dict[ReplicaId, FetchPartition] = {}
        self._unsent: dict[ReplicaId, None] = {}
        self._forgotten: dict[ReplicaId, None] = {}
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    @property
    def is_full(self) -> bool:
        """The next fetch sends all positions."""
        return self._epoch == INITIAL_EPOCH

    def is_sent(self, position: FetchPartition) -> bool:
        """Return True if the leader knows exactly that position, or the next fetch sends it."""
        return self.wanted.get((position.topic_id, position.partition)) == position

    def want(self, position: FetchPartition) -> None:
        """Fetch the partition from that position on."""
        key = (position.topic_id, position.partition)
        if self.wanted.get(key) != position:
            self.wanted[key] = position
            self._unsent[key] = None
            self._forgotten.pop(key, None)

    def forget(self, key: ReplicaId) -> None:
        """Stop fetching the partition."""
        if self.wanted.pop(key, None) is not None:
            self._unsent.pop(key, None)
            self._forgotten[key] = None

    def next_fetch(self) -> tuple[int, int, tuple[FetchPartition, ...], tuple[ReplicaId, ...]]:
        """Return (session id, session epoch, partitions, forgotten) of the next fetch, which counts as sent."""
        session_id, epoch = self._session_id, self._epoch
        sent, forgotten = (self.wanted, ()) if self.is_full else (self._unsent, tuple(self._forgotten))
        partitions = tuple(self.wanted[key] for key in sent)
        self._unsent.clear()
        self._forgotten.clear()
        if not self.is_full:
            self._epoch = next_epoch(epoch)
        return session_id, epoch, partitions, forgotten

    def began(self, session_id: int) -> None:
        """Note the answer to a fetch with all positions: its session (0: none) continues."""
        if self.is_full:
            self._session_id = session_id
            self._epoch = INITIAL_EPOCH if session_id == NO_SESSION else next_epoch(INITIAL_EPOCH)

    def start_over(self) -> None:
        """Send all positions with the next fetch, since it is uncertain which ones the leader knows."""
        self._epoch = INITIAL_EPOCH
