"""The clients of kafka-python that one process of a workload uses, and honest outcomes of their calls.

Each client is made when it is first needed. Its own retries are bounded by the timeout of the options, so that a call ends when
kafka-python has given it up. The outcome of a failed call is CallFailed:

- `fail`: no byte was sent (there was no connection or no metadata), or a broker refused an admin request;
- `info`: everything else. A producer sends a batch several times; its last error says nothing about earlier sendings, so an
  append that was sent is never a failure. REQUEST_TIMED_OUT is unknown too: the protocol does not say if anything was begun.

A read has no effect and fails. Calls block, so they belong in a thread. One call runs at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import (
    BrokerResponseError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RetriableError,
    UnknownBrokerIdError,
)

from kraftlab.common.errors import ErrorCode

from .history import FAIL, INFO, Outcome
from .outcomes import error_name, of_error_code
from .workload import CallFailed, PollResult

T = TypeVar("T")
SESSION_TIMEOUT_MS = 6_000
"""Brokers allow no shorter one by default. A member that does not poll for so long leaves the group."""
POLL_MS = 1_000
"""Time that a member waits for records. A member that is still joining continues with its next poll."""
GRACE_MS = 500
"""A client waits longer for an answer than the broker takes: the answer says whether anything was done."""
_REFUSED_TWICE = "Failed to find active controller id!"
"""The text of kafka-python's RuntimeError after two answers NOT_CONTROLLER."""
_NEVER_SENT = (NodeNotReadyError, UnknownBrokerIdError)

logging.getLogger("kafka").addHandler(logging.NullHandler())  # faults are expected


class KafkaClients:
    """A producer, a consumer, a member of a group, and an admin client. `login`: arguments of kafka-python with the user."""

    def __init__(self, servers: str, timeout_ms: int, login: Mapping[str, str] | None = None) -> None:
        self.timeout_ms = timeout_ms
        self._common = {"bootstrap_servers": servers.split(","), "bootstrap_timeout_ms": timeout_ms, **(login or {})}
        self._producer: Any = None
        self._consumer: Any = None
        self._member: Any = None
        self._admin: Any = None

    def append(self, topic: str, key: bytes, value: bytes) -> int:
        """Send a record to partition 0 with an idempotent producer and wait for all in-sync replicas; return its offset."""
        self._producer = self._producer or self._made(
            KafkaProducer,
            delivery_timeout_ms=self.timeout_ms,
            request_timeout_ms=self.timeout_ms // 2,
            max_block_ms=self.timeout_ms,
        )
        try:
            sent = self._producer.send(topic, value, key=key, partition=0)
        except KafkaError as error:
            raise CallFailed(FAIL, f"not sent: {name_of(error)}") from error
        try:
            return int(sent.get((self.timeout_ms + GRACE_MS) / 1000).offset)
        except KafkaError as error:
            raise CallFailed(INFO, name_of(error)) from error

    def read(self, topic: str) -> list[tuple[int, str]]:
        """Read partition 0 from its beginning to its present end; return (offset, value) of all records."""
        self._consumer = self._consumer or self._made(
            KafkaConsumer,
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=self.timeout_ms,
        )
        consumer, partition, found = self._consumer, TopicPartition(topic, 0), list[tuple[int, str]]()
        try:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            end = consumer.end_offsets([partition], self.timeout_ms)[partition]
            while (position := consumer.position(partition, self.timeout_ms)) is None or position < end:
                polled = consumer.poll(self.timeout_ms)
                if not polled:
                    raise KafkaTimeoutError(f"no record after offset {position} of {end}")
                found += [(record.offset, record.value.decode()) for record in polled[partition]]
        except KafkaError as error:
            raise CallFailed(FAIL, name_of(error)) from error
        return found

    def poll(self, group: str, topics: Sequence[str]) -> PollResult:
        """Poll once as a member of a group that subscribes to topics, and commit the ends of the records."""
        if self._member is None:
            self._member = self._made(
                KafkaConsumer,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                request_timeout_ms=2 * self.timeout_ms,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=SESSION_TIMEOUT_MS // 6,
                max_poll_interval_ms=SESSION_TIMEOUT_MS,
                partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            )
            self._member.subscribe(topics)
        records: list[tuple[str, int, str]] = []
        ends: dict[Any, Any] = {}
        generation = -1
        try:
            polled = self._member.poll(POLL_MS)
            generation = self._member.group_metadata().generation_id
            for partition, found in polled.items():
                records += [(partition.topic, record.offset, record.value.decode()) for record in found]
                ends[partition] = OffsetAndMetadata(found[-1].offset + 1)
            if ends:
                self._member.commit(ends, timeout_ms=self.timeout_ms)
        except KafkaError as error:
            return PollResult(generation, records, error=name_of(error))
        return PollResult(generation, records, is_committed=bool(ends))

    def leave(self) -> None:
        """Leave the group. The next poll makes a new member."""
        self._member, member = None, self._member
        if member is not None:
            _ended(member.close)

    def committed(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Return the offset that the group committed for partition 0 of each topic, if any."""
        with self._made(KafkaConsumer, group_id=group, enable_auto_commit=False) as consumer:
            try:
                found = {topic: consumer.committed(TopicPartition(topic, 0), timeout_ms=self.timeout_ms) for topic in topics}
            except KafkaError as error:
                raise CallFailed(FAIL, name_of(error)) from error
        return {topic: offset for topic, offset in found.items() if offset is not None}

    def ask(self, call: Callable[[KafkaAdminClient], T]) -> T:
        """Return the result of an admin call. An answer that refuses an entry is a result; `refused` gives its outcome."""
        self._admin = self._admin or self._made(KafkaAdminClient, request_timeout_ms=self.timeout_ms + GRACE_MS)
        try:
            return call(self._admin)
        except RuntimeError as error:
            if str(error) != _REFUSED_TWICE:
                raise
            raise CallFailed(FAIL, "NOT_CONTROLLER") from error
        except KafkaError as error:
            # The client would keep to a broker that is down.
            self._admin, left = None, self._admin
            _ended(left.close)
            outcome = FAIL if isinstance(error, _NEVER_SENT) else INFO
            if isinstance(error, BrokerResponseError):
                outcome = outcome_of(error.errno)
            raise CallFailed(outcome, name_of(error)) from error

    def close(self) -> None:
        """Close all clients. Records of the producer that are not acknowledged yet are dropped when their time is over."""
        for client in (self._producer, self._consumer, self._member, self._admin):
            if client is not None:
                _ended(client.close)

    def _made(self, kind: Callable[..., Any], **configs: Any) -> Any:
        try:
            return kind(**self._common, **configs)
        except RetriableError as error:
            raise CallFailed(FAIL, f"not sent, no connection: {name_of(error)}") from error


def _ended(close: Callable[[], object]) -> None:
    with suppress(KafkaError):
        close()


def outcome_of(code: int) -> Outcome:
    """Return the outcome of an answer to an admin request by its error code."""
    return of_error_code(code, outcome_unknown=code == ErrorCode.REQUEST_TIMED_OUT)


def name_of(error: KafkaError) -> str:
    """Return Kafka's name of an error that a broker answered, otherwise that of kafka-python's exception."""
    code = getattr(error, "errno", None)
    return type(error).__name__ if code is None else error_name(code)
