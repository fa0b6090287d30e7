"""Fetch sessions of consumers: a consumer sends its positions once, and from then on only changed ones (KIP-227).

Theory of operation. A fetch with session epoch 0 names all wanted partitions and begins a session. Later fetches of the session
have the next epochs, name changed positions and forgotten partitions, and their answers leave out partitions without news: no
records, no error, and the same high watermark and log start as in the last answer. A lost or repeated fetch has a wrong epoch and
is refused; the consumer then begins a new session. Epoch -1 reads without a session, and ends the named one.

The broker keeps a bounded number of sessions and drops the one that was not used for longest. A session names its topics either
all by name or all by id, as the version of its fetches does.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.messages.generated import fetch_request as kafka
from kraftlab.messages.generated.fetch_response import PartitionData
from kraftlab.metadata.peer_rpc import FetchPartition

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
LAST_EPOCH = 2**31 - 1
SESSIONS_MAX = 1000
LEAST_BYTES = 1
"""A limit of 0 gets one batch too: with none a consumer would not get on."""

IDS_SINCE = 13
"""The first version of Fetch, and of Produce, that names topics by their ids."""

TopicKey = str | Uuid
Key = tuple[TopicKey, int]
"""The topic's name or id, as the consumer names it, and the partition."""


class SessionError(Exception):
    """The fetch does not continue its session."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.message)
        self.code = code


class Wanted(NamedTuple):
    """One partition of a fetch, as the request has it."""

    key: Key
    position: kafka.FetchPartition

    def position_in(self, topic_id: Uuid) -> FetchPartition:
        """Return the position as the broker's own fetches have it."""
        entry = self.position
        return FetchPartition(
            topic_id,
            entry.partition,
            entry.current_leader_epoch,
            entry.fetch_offset,
            entry.last_fetched_epoch,
            -1,
            max(entry.partition_max_bytes, LEAST_BYTES),
        )


class ConsumerSession:
    """The partitions of one fetch or session, in the order in which they are read."""

    def __init__(self, session_id: int = NO_SESSION, *, uses_ids: bool = False) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        """Epoch of the next fetch."""
        self.used_s = float("-inf")
        self.wanted: dict[Key, Wanted] = {}
        self._marks: dict[Key, tuple[int, int]] = {}
        """High watermark and log start that the consumer knows."""

    def update(self, topics: Iterable[kafka.FetchTopic], forgotten: Iterable[kafka.ForgottenTopic] = ()) -> None:
        """Take over the positions of a fetch."""
        for gone in forgotten:
            for partition in gone.partitions:
                key = self._named(gone), partition
                self.wanted.pop(key, None)
                self._marks.pop(key, None)
        for topic in topics:
            for position in topic.partitions:
                key = self._named(topic), position.partition
                self.wanted[key] = Wanted(key, position)

    def _named(self, topic: kafka.FetchTopic | kafka.ForgottenTopic) -> TopicKey:
        return topic.topic_id if self.uses_ids else topic.topic

    def shown(self, answers: Mapping[Key, PartitionData]) -> list[Key]:
        """Return the partitions that the answer has. The ones with records are read last the next time."""
        found = []
        for key in tuple(self.wanted):
            answer = answers.get(key)
            if answer is None:
                continue
            marks = answer.high_watermark, answer.log_start_offset
            has_records = bool(answer.records)
            if has_records or answer.error_code or answer.diverging_epoch.epoch >= 0 or self._marks.get(key) != marks:
                found.append(key)
            if answer.error_code:
                self._marks.pop(key, None)
            else:
                self._marks[key] = marks
            if has_records:
                self.wanted[key] = self.wanted.pop(key)
        return found


class ConsumerSessions:
    """The sessions of a broker's consumers."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[int, ConsumerSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def session_of(self, body: kafka.FetchRequest, version: int, now_s: float) -> ConsumerSession:
        """Return the session of a fetch, with the positions of the fetch. SessionError."""
        session_id, epoch = body.session_id, body.session_epoch
        uses_ids = version >= IDS_SINCE
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = self._begin(now_s, uses_ids=uses_ids) if epoch == INITIAL_EPOCH else ConsumerSession(uses_ids=uses_ids)
            session.update(body.topics)
            return session
        session = self._continued(session_id, epoch, uses_ids=uses_ids)
        session.used_s = now_s
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        session.update(body.topics, body.forgotten_topics_data)
        if not session.wanted:
            del self._sessions[session_id]
            return ConsumerSession()
        return session

    def _continued(self, session_id: int, epoch: int, *, uses_ids: bool) -> ConsumerSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _begin(self, now_s: float, *, uses_ids: bool) -> ConsumerSession:
        while len(self._sessions) >= self._sessions_max:
            del self._sessions[min(self._sessions, key=lambda other: self._sessions[other].used_s)]
        session = ConsumerSession(random.randint(1, 2**31 - 1), uses_ids=uses_ids)
        session.used_s = now_s
        self._sessions[session.id] = session
        return session
