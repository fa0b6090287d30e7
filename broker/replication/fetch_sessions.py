"""Fetch sessions: a reader sends each leader its positions once, and from then on only changed ones (KIP-227).

Theory of operation. Without sessions a fetch names all its partitions, and the leader of thousands of idle ones looks at each of
them several times a second. In a session the leader remembers the position that the reader sent of each partition. A fetch
brings changed positions, and names partitions that are no longer wanted. The fetches of a session are numbered (its epoch). If
one is lost or repeated, the next number is wrong: the leader refuses the fetch, and the reader sends all positions again, in a
new session.

The leader remembers positions that it received, never answers that it sent. So an answer that got lost is given again: a
partition with news is looked at in every fetch until the reader sends another position. A partition without news is not looked
at before it changes (`Partition.watch`), unless its follower is out of sync. So idle partitions cost nothing.

Of a consumer the leader also remembers the high watermarks and log starts in its answers (`Marks`), since the positions of a
consumer do not have them. An answer leaves out partitions without records or errors whose marks the consumer knows.

=================  =================  =========================================================================
session id         session epoch      meaning
=================  =================  =========================================================================
any                -1                 no session; the named one ends
any                0                  all positions; a new session begins, the named one ends
known              the next number    changes since the fetch before
known              another number     INVALID_FETCH_SESSION_EPOCH
known              the next number    FETCH_SESSION_TOPIC_ID_ERROR if one fetch names topics by id, another by name
unknown            1 and above        FETCH_SESSION_ID_NOT_FOUND: it was given up, or belongs to another broker epoch
=================  =================  =========================================================================

A follower has one session in each of its lanes: a new one replaces the last. A consumer has as many as it begins; one that wants
no partition any longer ends. A leader keeps a bounded number of sessions of followers, and as many of consumers, and drops the
least recently used one. Sessions of followers without a fetch for long are dropped whenever a new one begins.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterable, Mapping

import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchedPartition, FetchPartition, ReplicaFetchRequest

from ..log.partition_log import PartitionLog
from .partition import Partition, ReplicaId
from .readers import Follower, Reader

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


class Marks:
    """High watermarks and log starts that a consumer knows. `untold`: partitions that are in its next answer in any case."""

    def __init__(self) -> None:
        self._known: dict[ReplicaId, tuple[int, int]] = {}
        self.untold: dict[ReplicaId, None] = {}

    def want(self, key: ReplicaId) -> None:
        if key not in self._known:
            self.untold.setdefault(key)

    def forget(self, key: ReplicaId) -> None:
        self._known.pop(key, None)
        self.untold.pop(key, None)

    def compare(self, key: ReplicaId, log: PartitionLog) -> None:
        """Note that the partition is in the next answer if the consumer knows other marks."""
        if self._known.get(key) != (log.high_watermark, log.log_start_offset):
            self.untold.setdefault(key)

    def told(self, answers: Mapping[ReplicaId, FetchedPartition]) -> None:
        """Note the marks of an answer. A partition with an error has none."""
        for key, answer in answers.items():
            self.forget(key)
            if not answer.error:
                self._known[key] = answer.high_watermark, answer.log_start_offset


class FetchSession:
    """A reader's positions on this leader.

    `wanted`: each partition's position as last received. `due`: partitions with possible news, in the order in which they are
    served. `changed` is set when one more becomes due. `marks`: None for followers, which send theirs with their positions.
    """

    def __init__(self, reader: Reader, session_id: int = NO_SESSION) -> None:
        self.reader = reader
        self.id = session_id
        self.marks = None if isinstance(reader, Follower) else Marks()
        self.epoch = 1
        """Number of the next fetch."""
        self.used_s = float("-inf")
        self.wanted: dict[ReplicaId, FetchPartition] = {}
        self.due: dict[ReplicaId, None] = {}
        self.changed = trio.Event()
        self.turn = 0
        """Number of the fetch that may be parked. A newer fetch, or the end of the session, ends an older one."""
        self._watches: dict[ReplicaId, _Watch] = {}

    def update(self, partitions: Iterable[FetchPartition], forgotten: Iterable[ReplicaId] = ()) -> None:
        """Take over the positions of a fetch."""
        for topic_id, number in forgotten:
            key = (topic_id, number)
            self.wanted.pop(key, None)
            self.due.pop(key, None)
            self._unwatch(key)
            if self.marks is not None:
                self.marks.forget(key)
        for wanted in partitions:
            key = (wanted.topic_id, wanted.partition)
            self.wanted[key] = wanted
            self.due.setdefault(key)
            if self.marks is not None:
                self.marks.want(key)

    def read_by(self, reader: Reader) -> None:
        """Look at every partition again if the reader's rights, or the replicas that it may read, are not the same as before."""
        if reader.view != self.reader.view:
            self.due |= dict.fromkeys(self.wanted)
        self.reader = reader

    def next_turn(self) -> int:
        """Begin a fetch, and end a parked one, since its sender has given it up."""
        self.turn += 1
        self.changed.set()
        return self.turn

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
        """End a parked fetch, and stop watching."""
        self.next_turn()
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
    """Sessions of readers: of followers by replica and lane, or of consumers by their ids.

    `idle_s`: sessions without a fetch for so long end when another begins.
    """

    def __init__(self, sessions_max: int = SESSIONS_MAX, *, idle_s: float = math.inf) -> None:
        self._sessions_max = sessions_max
        self._idle_s = idle_s
        self._by_place: dict[Hashable, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_place)

    def session_of(self, request: ReplicaFetchRequest, reader: Reader, now_s: float) -> FetchSession:
        """Return the fetch's session, with the positions of the fetch. A session without an id ends with the fetch: close it.

        SessionRefused: see the table in the module's docstring.
        """
        place = reader.place(request.session_id)
        if place is None or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            known = self._by_place.get(place)
            if known is not None and request.session_id == known.id:
                self._end(place)
            is_kept = place is not None and request.session_epoch == INITIAL_EPOCH
            session = self._begin(reader, now_s) if is_kept else FetchSession(reader)
            session.update(request.partitions)
            return session
        session = self._continued(place, request, reader)
        session.used_s = now_s
        session.epoch = next_epoch(session.epoch)
        session.read_by(reader)
        session.update(request.partitions, request.forgotten)
        if session.marks is not None and not session.wanted:
            self._end(place)
            return FetchSession(reader)
        return session

    def _continued(self, place: Hashable, request: ReplicaFetchRequest, reader: Reader) -> FetchSession:
        session = self._by_place.get(place)
        if session is None or session.id != request.session_id or session.reader.broker_epoch != reader.broker_epoch:
            raise SessionRefused(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {request.session_id} of {reader} is unknown; begin a new session",
            )
        if session.epoch != request.session_epoch:
            raise SessionRefused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch {request.session_epoch} of session {session.id} came, expected {session.epoch}; begin a new session",
            )
        if session.reader.uses_ids != reader.uses_ids:
            raise SessionRefused(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.id} names its topics in another way; begin a new session",
            )
        return session

    def _begin(self, reader: Reader, now_s: float) -> FetchSession:
        session = FetchSession(reader, random.randint(1, 2**31 - 1))
        place = reader.place(session.id)
        self._end(place)
        for other in [other for other, known in self._by_place.items() if known.used_s + self._idle_s < now_s]:
            self._end(other)
        while len(self._by_place) >= self._sessions_max:
            self._end(min(self._by_place, key=lambda other: self._by_place[other].used_s))
        session.used_s = now_s
        self._by_place[place] = session
        return session

    def _end(self, place: Hashable) -> None:
        session = self._by_place.pop(place, None)
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
