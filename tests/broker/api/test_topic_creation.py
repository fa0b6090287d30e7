"""Automatic creation of topics that Kafka clients ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.broker.api.topic_creation import TIMEOUT_MS, TopicCreation, offsets_topic_creator
from kraftlab.broker.control.dynamic_configs import DynamicConfigs
from kraftlab.common.errors import ErrorCode
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.server import Call
from kraftlab.simulation.crash_images.world import broker_config

CALLER = Caller("User:alice", "10.0.0.1", "app")


class Controller:
    """Answers CreateTopics, and publishes the change when a test lets it."""

    def __init__(self, code: int = 0) -> None:
        self.calls: list[Call] = []
        self.is_published = trio.Event()
        self._code = code

    async def dispatch(self, call: Call) -> Message:
        self.calls.append(call)
        response = admin_pb2.CreateTopicsResponse(header=admin_pb2.ResponseHeader(metadata_offset=40))
        response.topics.add(name="new", error_code=self._code)
        return response

    async def published(self, offset: int) -> None:
        assert offset == 40
        await self.is_published.wait()

    def creation(self, **settings: str) -> TopicCreation:
        return TopicCreation(self.dispatch, self.published, DynamicConfigs(broker_config(1, (Path("/nowhere/d0"),), **settings)))


async def test_a_topic_that_a_client_asks_for_is_created_unless_that_is_switched_off() -> None:
    assert Controller().creation().creator() is not None
    assert Controller().creation(auto_create_topics_enable="false").creator() is None


async def test_the_topic_has_the_defaults_and_is_the_callers(autojump_clock: Any) -> None:
    controller = Controller()
    controller.is_published.set()
    await controller.creation().create("new", CALLER)
    [call] = controller.calls
    assert (call.api, call.principal, call.host, call.client_id) == ("CreateTopics", *CALLER)
    assert isinstance(call.request, admin_pb2.CreateTopicsRequest)
    [topic] = call.request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("new", -1, -1)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
async def test_the_answer_waits_until_this_broker_knows_the_topic(code: ErrorCode, autojump_clock: Any) -> None:
    controller = Controller(code)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.creation().create, "new", CALLER)
        await trio.sleep(1)
        controller.is_published.set()
    assert 1 <= trio.current_time() - began < 2
    slow = Controller(code)
    began = trio.current_time()
    assert await slow.creation().create("new", CALLER) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert trio.current_time() - began == pytest.approx(TIMEOUT_MS / 1000)


async def test_a_refusal_of_the_controller_reaches_the_client() -> None:
    controller = Controller(ErrorCode.INVALID_REPLICATION_FACTOR)
    assert await controller.creation().create("new", CALLER) == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
async def test_the_topic_of_offsets_is_compacted_and_the_brokers_own(code: ErrorCode) -> None:
    controller = Controller(code)
    assert await offsets_topic_creator(controller.dispatch, "User:admin", 1 << 20)(50, 3) is None
    [call] = controller.calls
    assert (call.api, call.principal) == ("CreateTopics", "User:admin")
    assert isinstance(call.request, admin_pb2.CreateTopicsRequest)
    [topic] = call.request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("__consumer_offsets", 50, 3)
    values = {config.name: config.value for config in topic.configs}
    assert values == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "1048576"}


async def test_a_refusal_to_create_the_topic_of_offsets_is_returned_as_a_reason() -> None:
    controller = Controller(ErrorCode.INVALID_REPLICATION_FACTOR)
    assert await offsets_topic_creator(controller.dispatch, "User:admin", 1 << 20)(50, 3) is not None
