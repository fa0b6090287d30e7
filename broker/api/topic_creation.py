"""Automatic creation of topics: those that Kafka clients ask for (`auto.create.topics.enable`), and the topic of offsets.

The broker asks the active controller, with the client's rights and the cluster's defaults. Several clients that ask for the same
topic at once are all answered when the topic is there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ErrorCode
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.server import Call, Dispatch

from ..control.dynamic_configs import DynamicConfigs
from ..groups.coordinator import OFFSETS_TOPIC, CreateTopic

TIMEOUT_MS = 5_000
"""The client asks again after this time, with the error that the topic does not exist yet."""
DEFAULT = -1


class TopicCreation:
    def __init__(self, dispatch: Dispatch, published: Callable[[int], Awaitable[None]], configs: DynamicConfigs) -> None:
        self._dispatch = dispatch
        self._published = published
        self._configs = configs

    def creator(self) -> Callable[[str, Caller], Awaitable[ErrorCode]] | None:
        """Return `create`, None if topics are not created automatically."""
        return self.create if self._configs.broker("auto.create.topics.enable") == "true" else None

    async def create(self, name: str, caller: Caller) -> ErrorCode:
        """Create a topic with the defaults of the cluster, and wait until this broker knows it. Return the error."""
        request = admin_pb2.CreateTopicsRequest()
        request.header.timeout_ms = TIMEOUT_MS
        request.topics.add(name=name, num_partitions=DEFAULT, replication_factor=DEFAULT)
        response: Any = await self._dispatch(Call("CreateTopics", request, caller.principal, caller.host, caller.client_id))
        if response.header.error_code or not response.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = ErrorCode(response.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            with trio.move_on_after(TIMEOUT_MS / 1000):
                await self._published(response.header.metadata_offset)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return code


def offsets_topic_creator(dispatch: Dispatch, principal: str, segment_bytes: int) -> CreateTopic:
    """Return a function that creates the topic of committed offsets in the name of the broker."""

    async def create(partitions: int, replicas: int) -> str | None:
        request = admin_pb2.CreateTopicsRequest()
        topic = request.topics.add(name=OFFSETS_TOPIC, num_partitions=partitions, replication_factor=replicas)
        values = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(segment_bytes)}
        for name, value in values.items():
            topic.configs.add(name=name, value=value)
        response: Any = await dispatch(Call("CreateTopics", request, principal))
        if response.header.error_code:
            return str(response.header.error_message)
        (result,) = response.topics
        is_there = result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        return None if is_there else str(result.error_message)

    return create
