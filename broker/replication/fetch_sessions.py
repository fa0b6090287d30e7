"""Fetch sessions: a follower tells each leader once what it wants, and from then on only what is different (KIP-227).

Theory of operation. Without sessions a fetch names all its partitions, and whoever leads thousands of idle ones looks at each of
them several times a second. In a session the leader remembers the position that the follower told of each partition; a fetch
brings those that have changed, and names those that are not wanted any more. The fetches of a session are numbered (its epoch),
so that one that was lost, or is repeated, cannot leave the two with different pictures: the number does not fit, the leader
refuses, and the follower tells everything anew, in a new session.

What the leader remembers is what it was *told*, never what it has answered. An answer that got lost is given again: a partition
about which there was something to say is looked at in every fetch until the follower says that it stands elsewhere. Of the
others, whose follower is in sync and has everything, none is looked at before it changes (`Partition.watch`); that is what makes
idle partitions cost nothing.

=================  =================  =========================================================================
session id         session epoch      what it means
=================  =================  =========================================================================
any                -1                 no session; the one that is named ends
any                0                  everything is told here; a new session begins, the one that is named ends
known              the next number    what has changed since the fetch before
known              another number     INVALID_FETCH_SESSION_EPOCH
unknown            1 and above        FETCH_SESSION_ID_NOT_FOUND: it was given up, or belongs to another broker epoch
=================  =================  =========================================================================

A follower has one session in each of its lanes: a new one takes the place of the last. A leader keeps a bounded number, and gives
up the one that was used least recently; sessions that were not used for long go whenever a new one begins.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import trio

from kraftlab.metadata.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchPartition, ReplicaFetchRequest

from .partition import Partition, ReplicaId

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
LAST_EPOCH = 2**31 - 1
SESSIONS_MAX = 1000
IDLE_S = 120.0


def next_epoch(epoch: int) -> int:
    """After the last number comes 1: 0 would begin a new session."""
    return 1 if epoch >= LAST_EPOCH else epoch + 1


class _Watch:
    """Waits for a change of one partition of a session."""

    __slots__ = ("_key", "_session", "partition")

    def __init__(self, session: FetchSession, key: ReplicaId, partition: Partition) -> None:
        self._session = session
        self._key = key
        self.partition = partition

    def set(self) -> None:
        self._session.stir(self._key)


class FetchSession:
    """What a follower wants of this leader, and which of it has to be looked at.

    `wanted`: each partition's position as told last. `stirred`: those about which there may be something to say, in the order in
    which they are served. `changed` is set when one more is.
    """

    def __init__(self, session_id: int = NO_SESSION, broker_epoch: int = -1) -> None:
        self.id = session_id
        self.broker_epoch = broker_epoch
        self.epoch = 1
        """The number of the fetch that has to come next."""
        self.used_s = float("-inf")
        self.wanted: dict[ReplicaId, FetchPartition] = {}
        self.stirred: dict[ReplicaId, None] = {}
        self.changed = trio.Event()
        self._watches: dict[ReplicaId, _Watch] = {}

    def tell(self, partitions: Iterable[FetchPartition], forgotten: Iterable[ReplicaId] = ()) -> None:
        """What a fetch says."""
        for topic_id, number in forgotten:
            key = (topic_id, number)
            self.wanted.pop(key, None)
            self.stirred.pop(key, None)
            self._unwatch(key)
        for wanted in partitions:
            key = (wanted.topic_id, wanted.partition)
            self.wanted[key] = wanted
            self.stirred.setdefault(key)

    def stir(self, key: ReplicaId) -> None:
        """That partition has changed."""
        if key in self.wanted:
            self.stirred.setdefault(key)
            self.changed.set()

    def watch(self, key: ReplicaId, partition: Partition) -> None:
        """Have the partition looked at again when it changes. To be called before it is looked at, each time."""
        watch = self._watches.get(key)
        if watch is None or watch.partition is not partition:
            self._unwatch(key)
            watch = self._watches[key] = _Watch(self, key, partition)
        partition.watch(watch)

    def settle(self, key: ReplicaId) -> None:
        """There is nothing to say about it until it changes."""
        self.stirred.pop(key, None)

    def serve_last(self, key: ReplicaId) -> None:
        """It has got records: the next time, others come first."""
        if key in self.stirred:
            del self.stirred[key]
            self.stirred[key] = None

    def close(self) -> None:
        for key in list(self._watches):
            self._unwatch(key)

    def _unwatch(self, key: ReplicaId) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.partition.unwatch(watch)


class SessionRefused(Exception):
    """The fetch does not fit into its session."""

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
        """What the fetch is to be answered from, with all that it says told. One without an id ends with the fetch: close it.

        SessionRefused: see the table in the module's docstring.
        """
        lane = (request.replica_id, request.lane)
        if request.replica_id < 0 or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            known = self._by_lane.get(lane)
            if known is not None and request.session_id == known.id:
                self._end(lane)
            is_kept = request.replica_id >= 0 and request.session_epoch == INITIAL_EPOCH
            session = self._begin(lane, request.broker_epoch, now_s) if is_kept else FetchSession()
            session.tell(request.partitions)
            return session
        session = self._continued(lane, request)
        session.used_s = now_s
        session.epoch = next_epoch(session.epoch)
        session.tell(request.partitions, request.forgotten)
        return session

    def _continued(self, lane: tuple[int, int], request: ReplicaFetchRequest) -> FetchSession:
        session = self._by_lane.get(lane)
        if session is None or session.id != request.session_id or session.broker_epoch != request.broker_epoch:
            raise SessionRefused(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {request.session_id} of broker {request.replica_id} is not known here; begin a new one",
            )
        if session.epoch != request.session_epoch:
            raise SessionRefused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch {request.session_epoch} of session {session.id} came where {session.epoch} is due; begin a new one",
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


class ToldPositions:
    """The follower's side of one session: what the leader knows, and what it has to be told."""

    def __init__(self) -> None:
        self.wanted: dict[ReplicaId, FetchPartition] = {}
        self._untold: dict[ReplicaId, None] = {}
        self._forgotten: dict[ReplicaId, None] = {}
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    @property
    def is_full(self) -> bool:
        """The next fetch tells everything."""
        return self._epoch == INITIAL_EPOCH

    def is_told(self, position: FetchPartition) -> bool:
        """The leader knows exactly that, or the next fetch says it."""
        return self.wanted.get((position.topic_id, position.partition)) == position

    def want(self, position: FetchPartition) -> None:
        """The partition is wanted, from there on."""
        key = (position.topic_id, position.partition)
        if self.wanted.get(key) != position:
            self.wanted[key] = position
            self._untold[key] = None
            self._forgotten.pop(key, None)

    def forget(self, key: ReplicaId) -> None:
        """It is not wanted any more."""
        if self.wanted.pop(key, None) is not None:
            self._untold.pop(key, None)
            self._forgotten[key] = None

    def next_fetch(self) -> tuple[int, int, tuple[FetchPartition, ...], tuple[ReplicaId, ...]]:
        """(session id, session epoch, partitions, forgotten) of the next fetch, which counts as sent."""
        session_id, epoch = self._session_id, self._epoch
        told, forgotten = (self.wanted, ()) if self.is_full else (self._untold, tuple(self._forgotten))
        partitions = tuple(self.wanted[key] for key in told)
        self._untold.clear()
        self._forgotten.clear()
        if not self.is_full:
            self._epoch = next_epoch(epoch)
        return session_id, epoch, partitions, forgotten

    def began(self, session_id: int) -> None:
        """The leader has answered a fetch that told everything: in that session (0: it keeps none) it goes on."""
        if self.is_full:
            self._session_id = session_id
            self._epoch = INITIAL_EPOCH if session_id == NO_SESSION else next_epoch(INITIAL_EPOCH)

    def start_over(self) -> None:
        """What the leader knows is uncertain: the next fetch tells everything."""
        self._epoch = INITIAL_EPOCH
