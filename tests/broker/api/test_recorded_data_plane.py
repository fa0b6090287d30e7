"""The broker's produce and fetch answer as recorded from Apache Kafka 4.3 (docs/recorded-cases.md has the format).

A recorded request names topics and carries many partitions; ours has a topic id and one partition. So each partition of a
recorded request is sent alone, and error codes, offsets, timestamps and records are compared. `DIFFERENCES` says where ours are
better.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import (
    EpochEndsRequest,
    FetchedPartition,
    FetchPartition,
    ListOffsetsRequest,
    ProduceRequest,
    ReplicaFetchRequest,
    WantedEpoch,
    WantedOffset,
)
from kraftlab.metadata.records import RESOURCE_TOPIC

from ...helpers.waiting import eventually
from ..conftest import Broker, World

RECORDINGS = Path(__file__).parents[2] / "cases" / "recordings"
PLAYED = ["402", "403", "405", "406", "408", "409", "411", "412", "414", "415", "417", "418", "421", "423", "424"]
BY_HAND_UNTIL_MS = 1_790_000_000_000
"""Timestamps of recorded batches are older; the leader's own are newer."""

FIRST_BATCH_OF_415 = (
    "000000000000000000000049000000000216bb3e570000000000020000018bcfe568000000018bcfe56802ffffffffffffffffff"
    "ffffffffff000000030e000000010261000e000202010262000e00040401026300"
)
DIFFERENCES: dict[tuple[str, int], tuple[dict[str, Any], str]] = {
    ("403", 7): ({"error": 87}, "null records: Kafka does not answer; a request without a batch is refused"),
    ("403", 17): (
        {"error": 76},
        "an unknown codec is the producer's fault, not an UNKNOWN_SERVER_ERROR",
    ),
    ("414", 2): ({"error": 53}, "there are no transactions, so there is no mapping of a producer id that could be wrong"),
    ("415", 16): ({"records": FIRST_BATCH_OF_415}, "only whole batches travel: a reader would drop the part of the second one"),
    ("415", 17): ({"records": ""}, "a reader that takes 0 bytes gets none"),
    ("417", 6): ({"error": 6}, "consumers read at the leader only"),
    ("418", 10): (
        {"error": 0, "diverging": (0, 6), "high_watermark": 6, "log_start_offset": 0},
        "a reader with an epoch from the future is told where the logs diverge",
    ),
    ("421", 9): ({"error": 0}, "the version of the request, which has no -6 yet, is checked before"),
}
NOT_SENT = {("403", 8)}
"""Two batches in a request, which Kafka's format refuses: ours may hold several, which are stored all or none."""
SKIPPED_FROM = {"408": 3}
"""The first step that is not played: brokers do not compress batches again (compression.type)."""

Answer = dict[str, Any]


def scenario(number: str) -> dict[str, Any]:
    (path,) = RECORDINGS.glob(f"{number}-*.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


class Player:
    def __init__(self, world: World, number: str) -> None:
        self.world, self.number = world, number
        self.calls: dict[str, Callable[[dict[str, Any], Broker], Awaitable[list[Answer]]]] = {
            "Produce": self.produce,
            "Fetch": self.fetch,
            "ListOffsets": self.list_offsets,
            "OffsetForLeaderEpoch": self.epoch_ends,
        }

    async def play(self) -> None:
        steps = scenario(self.number)["steps"]
        for index, step in enumerate(steps[: SKIPPED_FROM.get(self.number)]):
            if "action" in step:
                await self.act(step)
            elif step["api"] in self.calls and (self.number, index) not in NOT_SENT:
                broker = self.world.brokers[step["to"]]
                assert isinstance(broker, Broker)
                ours = await self.calls[step["api"]](step["request"], broker)
                expected = list(recorded_answers(step["response"])) or [{}]
                difference, why = DIFFERENCES.get((self.number, index), ({}, ""))
                for answer, recorded in zip(ours, expected, strict=True):
                    assert answer == shaped({**recorded, **difference}, answer), f"step {index}: {answer}; {why}"

    async def act(self, step: dict[str, Any]) -> None:
        if step["action"] == "stop_broker":
            await self.stop(self.world.brokers[step["broker"]])
            return
        if step["action"] == "start_broker":
            return
        assert step["action"] == "create_topic", step
        for replicas in step["assignment"].values():
            for broker_id in {*replicas, 0, 1, 3}:
                if broker_id not in self.world.brokers:
                    await self.world.add_broker(broker_id, log_dirs=1)
        if "configs" in step:
            configs = {name.replace(".", "_"): value for name, value in step["configs"].items()}
            await self.world.configure(RESOURCE_TOPIC, step["topic"], **configs)
        await self.world.create_topic(step["topic"], *step["assignment"].values())
        # Kafka's high watermark was recorded after all replicas had the records.
        await eventually(lambda: all(broker.replicas.partitions for broker in self.hosts(step)), "the replicas are there")

    async def stop(self, broker: Any) -> None:
        """Stop a leader; the other replica of its partition leads from then on."""
        ((topic_id, number),) = broker.replicas.partitions
        topic = self.world.image.topics.by_id[topic_id].name
        (heir,) = set(self.world.state(topic, number).replicas) - {broker.broker_id}
        broker.crash()
        await self.world.change(topic, number, leader=heir, isr=(heir,))

    async def list_offsets(self, request: dict[str, Any], broker: Broker) -> list[Answer]:
        answers = []
        for topic, wanted in parts(request["topics"], "partitions"):
            one = WantedOffset(
                *(self.world.image.topics.by_name[topic["name"]], wanted["partition_index"], wanted["timestamp"]),
                wanted["current_leader_epoch"],
            )
            (found,) = (await broker.data_plane.offsets.list_offsets(ListOffsetsRequest((one,)))).partitions
            answers.append(
                {
                    "error": found.error,
                    "timestamp": found.timestamp_ms,
                    "offset": found.offset,
                    "leader_epoch": found.leader_epoch,
                }
            )
        return answers

    async def epoch_ends(self, request: dict[str, Any], broker: Broker) -> list[Answer]:
        answers: list[Answer] = []
        for topic, wanted in parts(request["topics"], "partitions"):
            topic_id = self.world.image.topics.by_name.get(topic["topic"])
            if topic_id is None:
                answers.append({"error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
                continue
            one = WantedEpoch(topic_id, wanted["partition"], wanted["leader_epoch"], wanted["current_leader_epoch"])
            (found,) = (await broker.data_plane.offsets.epoch_ends(EpochEndsRequest((one,)))).partitions
            answers.append({"error": found.error, "leader_epoch": found.leader_epoch, "end_offset": found.end_offset})
        return answers

    def hosts(self, step: dict[str, Any]) -> Iterator[Any]:
        return (self.world.brokers[broker_id] for replicas in step["assignment"].values() for broker_id in replicas)

    async def produce(self, request: dict[str, Any], broker: Broker) -> list[Answer]:
        answers = []
        for topic, partition in parts(request["topic_data"], "partition_data"):
            topic_id = self.world.image.topics.by_name.get(topic["name"])
            if topic_id is None:
                answers.append({"error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
                continue
            records = bytes.fromhex(partition["records"] or "")
            answer = await broker.data_plane.produce(
                ProduceRequest(topic_id, partition["index"], request["acks"], request["timeout_ms"], records)
            )
            answers.append(
                {
                    "error": answer.error,
                    "base_offset": answer.base_offset,
                    "log_append_time_ms": answer.log_append_time_ms,
                    "log_start_offset": answer.log_start_offset,
                    "record_errors": [index for index, _ in answer.record_errors],
                }
            )
        return answers

    async def fetch(self, request: dict[str, Any], broker: Broker) -> list[Answer]:
        answers = []
        for topic, wanted in parts(request["topics"], "partitions"):
            topic_id = self.world.image.topics.by_name.get(topic["topic"])
            if topic_id is None:
                answers.append({"error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
                continue
            part = FetchPartition(
                *(topic_id, wanted["partition"], wanted["current_leader_epoch"], wanted["fetch_offset"]),
                *(wanted["last_fetched_epoch"], wanted["log_start_offset"], wanted["partition_max_bytes"]),
            )
            response = await broker.fetches.fetch(
                ReplicaFetchRequest(-1, -1, request["max_wait_ms"], request["min_bytes"], request["max_bytes"], (part,))
            )
            answers.append(fetched(response.partitions[0]))
        return answers


def parts(topics: list[Any], name: str) -> Iterator[tuple[Any, Any]]:
    """Each partition of a request, with its topic."""
    return ((topic, part) for topic in topics for part in topic[name])


def fetched(part: FetchedPartition) -> Answer:
    found: Answer = {"error": part.error}
    if not part.error:
        found |= {
            "high_watermark": part.high_watermark,
            "log_start_offset": part.log_start_offset,
            "diverging": part.diverging,
            "records": part.records.hex(),
        }
    return found


def recorded_answers(response: dict[str, Any] | None) -> Iterator[Answer]:
    """Yield the recorded answers of the partitions, with our names."""
    for topic in (response or {}).get("topics", ()):
        for part in topic["partitions"]:
            yield {**part, "error": part["error_code"]}
    for topic in (response or {}).get("responses", ()):
        for part in topic.get("partition_responses", ()):
            yield {
                "error": part["error_code"],
                "base_offset": part["base_offset"],
                "log_append_time_ms": part["log_append_time_ms"],
                "log_start_offset": part["log_start_offset"],
                "record_errors": [error["batch_index"] for error in part["record_errors"]],
            }
        for part in topic.get("partitions", ()):
            diverging = part["diverging_epoch"]
            yield {
                "error": part["error_code"],
                "high_watermark": part["high_watermark"],
                "log_start_offset": part["log_start_offset"],
                "diverging": None if diverging["epoch"] < 0 else (diverging["epoch"], diverging["end_offset"]),
                "records": part["records"],
            }


def shaped(recorded: Answer, ours: Answer) -> Answer:
    """Only the fields that ours has; the leader's own time is any of its times."""
    expected = {name: recorded.get(name, value) for name, value in ours.items()}
    at = expected.get("log_append_time_ms", -1)
    if at > BY_HAND_UNTIL_MS and ours["log_append_time_ms"] > BY_HAND_UNTIL_MS:
        expected["log_append_time_ms"] = ours["log_append_time_ms"]
    return expected


@pytest.mark.parametrize("number", PLAYED)
async def test_produce_and_fetch_answer_as_recorded(number: str, world: World, autojump_clock: trio.abc.Clock) -> None:
    await Player(world, number).play()
