"""The operations of the workloads `topics` and `reassignments`, executed by kafka-python's admin client.

Each request is sent once. Answers of the Kafka protocol have no metadata offset and requests no id, so the witness judges
refusals alone. Descriptions and lists come from the copy of some broker, which may be old: `LoggedReads` compares them with
everything that was ever committed. The protocol has no compare-and-set of reassignments.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kafka import KafkaAdminClient, TopicPartition

from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import from_text, to_text

from ..generators import Invocation
from ..history import FAIL, OK
from ..kafka_clients import outcome_of
from ..outcomes import error_name
from ..workload import CallFailed, Completion, KafkaPort, Options, Port
from . import reassignments, topics

T = TypeVar("T")


async def _asked(port: Port, call: Callable[[KafkaAdminClient], T]) -> T:
    """Return the result of a call of the admin client. CallFailed."""
    return await cast(KafkaPort, port).in_kafka(lambda clients: clients.ask(call))


def completion(code: int, result: object = None) -> Completion:
    """Return the end of an operation by the error code of its entry."""
    return Completion(OK, result) if not code else Completion(outcome_of(code), result, error_name(code))


class KafkaTopics:
    """The client of one process. It remembers the last id of each name that it saw, which may be gone."""

    def __init__(self, options: Options, process: int) -> None:
        self._factor = min(topics.FACTOR_MAX, options.brokers)
        self._timeout_ms = options.timeout_ms
        self._seen: dict[str, str] = {}

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        name = invocation.key
        match invocation.f:
            case "create":
                return await self._create(name, cast(int, invocation.value), port)
            case "delete":
                return await self._delete(name, name, port)
            case "delete-id":
                return await self._delete_by_id(name, port)
            case "describe" | "peek":
                [found] = await _asked(port, lambda admin: admin.describe_topics([name]))
                if found["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return Completion(OK)
                self._seen[name] = _text(found["topic_id"])
                return completion(found["error_code"], [_text(found["topic_id"]), len(found["partitions"])])
        rows = await _asked(port, lambda admin: admin.describe_topics())
        return Completion(
            OK, sorted([row["name"], _text(row["topic_id"])] for row in rows if row["name"].startswith(topics.PREFIX))
        )

    async def _create(self, name: str, tag: int, port: Port) -> Completion:
        wanted = {
            "num_partitions": topics.partitions_of(tag),
            "replication_factor": self._factor,
            "configs": {config: str(tag) for config in topics.TAGGED},
        }
        answer = await _asked(port, lambda admin: admin.create_topics({name: wanted}, self._timeout_ms, raise_errors=False))
        [row] = answer["topics"]
        if not row["error_code"]:
            self._seen[name] = _text(row["topic_id"])
        return completion(row["error_code"], _text(row["topic_id"]))

    async def _delete_by_id(self, name: str, port: Port) -> Completion:
        if name not in self._seen:
            try:
                [found] = await _asked(port, lambda admin: admin.describe_topics([name]))
            except CallFailed as failed:
                return Completion(FAIL, error=f"not sent, the id is unknown: {failed.error}")
            if found["error_code"]:
                return Completion(FAIL, error=topics.NO_ID)
            self._seen[name] = _text(found["topic_id"])
        topic_id = self._seen[name]
        ending = await self._delete(name, uuid.UUID(bytes=from_text(topic_id)), port)
        return ending._replace(result=topic_id)

    async def _delete(self, name: str, named: str | uuid.UUID, port: Port) -> Completion:
        answer = await _asked(port, lambda admin: admin.delete_topics([named], self._timeout_ms, raise_errors=False))
        [row] = answer["topics"]
        return completion(row["error_code"], _text(row["topic_id"]))


def _text(topic_id: Any) -> str:
    """Return kafka-python's form of an id as 22 characters, None as ""."""
    return "" if topic_id is None else to_text(uuid.UUID(str(topic_id)).bytes)


class KafkaReassignments:
    """The client of one process."""

    def __init__(self, options: Options, process: int) -> None:
        self._timeout_ms = options.timeout_ms

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        topic = invocation.key
        match invocation.f:
            case "cas":
                return Completion(FAIL, error="not sent, the Kafka protocol has no expected partition epoch")
            case "describe" | "peek":
                [found] = await _asked(port, lambda admin: admin.describe_topics([topic]))
                shown = [[list(each["replica_nodes"]), sorted(each["isr_nodes"])] for each in found["partitions"]]
                return completion(found["error_code"], shown)
            case "moving" | "settled":
                listed = await _asked(port, lambda admin: admin.list_partition_reassignments(timeout_ms=self._timeout_ms))
                moving = {each.topic: list(sets.values()) for each, sets in listed.items()}
                if invocation.f == "settled" and moving:
                    return Completion(FAIL, len(moving), reassignments.STILL_MOVING)
                return Completion(OK, moving)
        places = cast("list[int] | None", invocation.value)
        brokers = sorted(port.brokers)
        target = None if places is None else [brokers[place % len(brokers)] for place in places]
        wanted = {TopicPartition(topic, 0): target}
        [error] = (await _asked(port, lambda admin: admin.alter_partition_reassignments(wanted, self._timeout_ms))).values()
        return completion(0 if error is None else error.errno)
