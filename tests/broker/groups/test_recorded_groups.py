"""Requests that Apache Kafka 4.3 was recorded with, at brokers in one process: the same answers, in Kafka's form."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import re
import typing
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kraftlab.broker.groups.coordinator import OFFSETS_TOPIC, partition_of
from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.client_codec import encode_request
from kraftlab.messages.catalog import request_class
from kraftlab.messages.reading import read
from kraftlab.messages.writing import write
from kraftlab.rpc.calls import OFFERS

RECORDINGS = Path(__file__).parents[2] / "cases" / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.glob("4[2-4]*.json") if int(path.name[:3]) >= 426)
VOLATILE = {"throttle_time_ms", "node_id", "host", "port"}
FREE_TEXT = {"error_message"}
BROKERS = 5


class Player:
    """Plays one recording. `names`: what the recording calls `{member:1}` → our id."""

    def __init__(self, clients: Any) -> None:
        self.clients = clients
        self.names: dict[str, str] = {}

    async def play(self, recording: dict[str, Any]) -> None:
        await self.clients.world.create_topic(OFFSETS_TOPIC, [1, 4, 2], [2, 3, 0])
        for number, step in enumerate(recording["steps"]):
            if "api" in step:
                await self.request(number, step)
            elif step["action"] == "create_topic":
                await self.clients.world.create_topic(step["topic"], *step["assignment"].values())
            elif step["action"] == "stop_broker":
                world, broker_id = self.clients.world, step["broker"]
                for partition, leader in ((0, 4), (1, 2)):
                    await world.change(OFFSETS_TOPIC, partition, leader=leader)
                world.brokers[broker_id].crash()
                await self.clients.loaded(next(self.group_ids(recording["steps"][number + 1])))

    def group_ids(self, step: dict[str, Any]) -> Any:
        request = step["request"]
        for field in ("group_id", "groups", "groups_names"):
            found = request.get(field, [])
            for each in [found] if isinstance(found, str) else found:
                yield each["group_id"] if isinstance(each, dict) else each

    async def request(self, number: int, step: dict[str, Any]) -> None:
        api, version = step["api"], step["version"]
        key = OFFERS[api].key
        group_ids = list(self.group_ids(step))
        broker = await self.clients.loaded(group_ids[0]) if group_ids else self.clients.world.brokers[0]
        if "NOT_COORDINATOR" in json.dumps(step["response"]):
            broker = next(each for each in self.clients.world.brokers.values() if each is not broker)
        schema: Any = load_request_schema(key, version)
        entity = self.entity(schema, step["request"])
        buffer = io.BytesIO()
        entity_writer(schema)(buffer, entity)
        request, _ = read(request_class(key), version, buffer.getvalue())
        response = await self.clients.send(broker, api, version, encode_request(1, "recorder", request, version)[4:])
        body = b"".join(write(response, version))  # type: ignore[arg-type]
        answered = plain(entity_reader(load_response_schema(key, version))(body, 0)[0])
        self.compare(f"step {number}", step["response"], answered)

    def entity(self, kind: Any, value: Any) -> Any:
        """Make an entity of kio from JSON."""
        hints = typing.get_type_hints(kind)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        made = {}
        for name, field in fields.items():
            raw = value[name] if name in value else value[f"{name}_ms"]
            made[name] = self.value(hints[name], field.metadata.get("kafka_type", ""), raw)
        return kind(**made)

    def value(self, hint: Any, kafka_type: str, raw: Any) -> Any:
        if raw is None:
            return None
        inner = next((each for each in typing.get_args(hint) if each is not type(None)), hint) if is_union(hint) else hint
        if isinstance(raw, list):
            item = typing.get_args(inner)[0]
            return tuple(self.value(item, kafka_type, each) for each in raw)
        if dataclasses.is_dataclass(inner):
            return self.entity(inner, raw)
        if kafka_type == "bytes":
            return bytes.fromhex(raw)
        if kafka_type == "uuid":
            topic = re.fullmatch(r"\{topic_id:(.+)\}", raw)
            return uuid.UUID(bytes=self.clients.world.image.topics.by_name[topic[1]]) if topic else uuid.UUID(raw)
        if kafka_type.startswith("timedelta"):
            return datetime.timedelta(milliseconds=raw)
        return self.names.get(raw, raw) if isinstance(raw, str) else raw

    def compare(self, where: str, recorded: Any, answered: Any) -> None:
        if isinstance(recorded, dict):
            for name in recorded.keys() - {"error"} - VOLATILE:
                if name not in FREE_TEXT:
                    self.compare(f"{where}.{name}", recorded[name], answered[name])
        elif isinstance(recorded, list):
            assert len(recorded) == len(answered), f"{where}: {answered} instead of {recorded}"
            for index, pair in enumerate(zip(recorded, answered, strict=True)):
                self.compare(f"{where}[{index}]", *pair)
        elif isinstance(recorded, str) and recorded.startswith("{topic_id:"):
            assert uuid.UUID(answered).bytes == self.clients.world.image.topics.by_name[recorded[10:-1]], where
        elif isinstance(recorded, str) and re.fullmatch(r"\{member:\d+\}", recorded):
            assert self.names.setdefault(recorded, answered) == answered, where
        else:
            assert recorded == answered, f"{where}: {answered!r} instead of {recorded!r}"


def is_union(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def plain(value: Any) -> Any:
    """Write an entity as the recordings do."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name + ("_ms" if isinstance(getattr(value, field.name), datetime.timedelta) else ""): plain(
                getattr(value, field.name)
            )
            for field in dataclasses.fields(value)
        }
    match value:
        case tuple():
            return [plain(each) for each in value]
        case bytes():
            return value.hex()
        case uuid.UUID():
            return str(value)
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case bool() | str() | None:
            return value
        case _:
            return int(value)


@pytest.mark.parametrize("name", NAMES)
async def test_groups_are_served_as_recorded(name: str, clients: Any, autojump_clock: object) -> None:
    recording = json.loads((RECORDINGS / name).read_text())
    if name.startswith("426"):
        for step in recording["steps"]:
            if step["request"].get("key_type") == 1:  # A coordinator of transactions is not offered.
                (row,) = step["response"]["coordinators"]
                row["error_code"] = ErrorCode.UNSUPPORTED_VERSION
    for broker_id in range(BROKERS):
        await clients.world.add_broker(broker_id)
    await Player(clients).play(recording)


def test_groups_fall_into_partitions_by_the_hash_of_java() -> None:
    assert partition_of("hello", 2**31) == 99162322
    assert partition_of("polygenelubricants", 50) == 0  # Its hash is the smallest number.
    assert partition_of("", 50) == 0
    assert partition_of("😀", 2**31) == abs(0xD83D * 31 + 0xDE00)
