"""Brokers in one process that coordinate groups, and their clients, which send frames of the Kafka protocol."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.broker.api import consumer_groups
from kraftlab.broker.api.group_offsets import GroupOffsets
from kraftlab.broker.groups.coordinator import OFFSETS_TOPIC
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.gateway.client_codec import decode_response, encode_request
from kraftlab.gateway.codec import decode_request
from kraftlab.gateway.door import Door
from kraftlab.messages.catalog import request_class, response_class
from kraftlab.messages.generated.describe_groups_response import DescribedGroup
from kraftlab.messages.generated.join_group_request import JoinGroupRequestProtocol
from kraftlab.messages.generated.join_group_response import JoinGroupResponse
from kraftlab.messages.generated.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kraftlab.messages.generated.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kraftlab.messages.generated.sync_group_request import SyncGroupRequestAssignment
from kraftlab.messages.generated.sync_group_response import SyncGroupResponse
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import OFFERS
from kraftlab.wire.parts import InMemory

SESSION_MS, REBALANCE_MS = 30_000, 60_000
RANGE = [JoinGroupRequestProtocol("range", b"\x01\x02")]
OF_TWO = {"offsets_topic_num_partitions": "2", "group_initial_rebalance_delay_ms": "0"}
"""Settings of brokers in most tests."""


EVERYTHING = Authorizer(AccessSettings()).rights(None, "User:ANONYMOUS", "127.0.0.1")


async def unused(*_: object) -> Any:
    raise AssertionError("the broker answers calls of groups itself")


class Clients:
    """Sends calls to brokers of a world. `rights`: those of all clients."""

    def __init__(self, world: Any, rights: Rights = EVERYTHING) -> None:
        self.world = world
        self.rights = rights

    async def call(self, broker: Any, api: str, version: int | None = None, **fields: Any) -> Any:
        """Send a call to a broker, in the newest version if none is given."""
        offer = OFFERS[api]
        version = offer.highest if version is None else version
        kind: Any = request_class(offer.key)
        return await self.send(broker, api, version, encode_request(1, "recorder", kind(**fields), version)[4:])

    async def send(self, broker: Any, api: str, version: int, frame: bytes) -> Any:
        def rights(principal: str, host: str) -> Rights:
            return self.rights

        offsets = GroupOffsets(broker.groups, rights, broker.config.offset_metadata_max_bytes)
        local = {**consumer_groups.calls(broker.groups, rights), **offsets.calls()}
        door = Door(unused, unused, local)
        parts = await door.answer(decode_request(frame), Caller("User:ANONYMOUS", "127.0.0.1", "recorder"))
        answer = b"".join(part for part in parts or () if isinstance(part, InMemory))
        return decode_response(answer[4:], response_class(OFFERS[api].key), version)

    def coordinator(self, group_id: str) -> Any:
        """The broker that coordinates a group."""
        broker_id, _ = next(iter(self.world.brokers.values())).groups.find(group_id)
        return self.world.brokers[broker_id]

    async def loaded(self, group_id: str) -> Any:
        """Wait until a broker coordinates the group; return the broker."""
        with trio.fail_after(30):
            while True:
                try:
                    broker = self.coordinator(group_id)
                except (ApiError, KeyError):
                    await trio.sleep(0.01)
                    continue
                response = await self.call(broker, "DescribeGroups", groups=(group_id,))
                if response.groups[0].error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                    return broker
                await trio.sleep(0.01)

    async def join(self, group_id: str, member_id: str = "", **fields: Any) -> JoinGroupResponse:
        sent = {"protocol_type": "consumer", "protocols": RANGE, "session_timeout_ms": SESSION_MS, **fields}
        sent.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return await self.call(self.coordinator(group_id), "JoinGroup", group_id=group_id, member_id=member_id, **sent)

    async def alone(self, group_id: str, assignment: bytes = b"\x07\x07") -> str:
        """Make a stable group of one member; return the member's id."""
        member_id = (await self.join(group_id)).member_id
        joined = await self.join(group_id, member_id)
        assert joined.error_code == ErrorCode.NONE
        assigned = [SyncGroupRequestAssignment(member_id, assignment)]
        synced = await self.sync(group_id, member_id, joined.generation_id, assignments=assigned)
        assert synced.assignment == assignment
        return member_id

    async def sync(self, group_id: str, member_id: str, generation: int, **fields: Any) -> SyncGroupResponse:
        sent = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        broker = self.coordinator(group_id)
        return await self.call(broker, "SyncGroup", group_id=group_id, member_id=member_id, generation_id=generation, **sent)

    async def beat(self, group_id: str, member_id: str, generation: int = 1) -> int:
        fields = {"group_id": group_id, "member_id": member_id, "generation_id": generation}
        response = await self.call(self.coordinator(group_id), "Heartbeat", **fields)
        return int(response.error_code)

    async def commit(self, group_id: str, offset: int, metadata: str = "", topic: str = "t", **fields: Any) -> int:
        """Commit an offset of partition 0; return the error."""
        partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata=metadata)
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        response = await self.call(self.coordinator(group_id), "OffsetCommit", 9, group_id=group_id, topics=topics, **fields)
        return int(response.topics[0].partitions[0].error_code)

    async def committed(self, group_id: str, topic: str = "t") -> tuple[int, str]:
        """Return the committed offset of partition 0 and its note; the error, negative, if the group has one."""
        groups = [OffsetFetchRequestGroup(group_id, topics=[OffsetFetchRequestTopics(topic, partition_indexes=(0,))])]
        response = await self.call(self.coordinator(group_id), "OffsetFetch", 9, groups=groups)
        (row,) = response.groups
        if row.error_code:
            return -1000 - row.error_code, ""
        partition = row.topics[0].partitions[0]
        return partition.committed_offset, partition.metadata

    async def describe(self, group_id: str) -> DescribedGroup:
        response = await self.call(self.coordinator(group_id), "DescribeGroups", groups=(group_id,))
        return response.groups[0]  # type: ignore[no-any-return]


@pytest.fixture
async def clients(world: Any) -> Clients:
    return Clients(world)


@pytest.fixture
async def cluster(world: Any, clients: Clients) -> Clients:
    """Three brokers, the topic of offsets with two partitions on all of them, and a topic t."""
    for broker_id in range(3):
        await world.add_broker(broker_id, **OF_TWO)
    await world.create_topic(OFFSETS_TOPIC, [0, 1, 2], [1, 2, 0])
    await world.configure(2, OFFSETS_TOPIC, cleanup_policy="compact")
    await world.create_topic("t", [0, 1, 2])
    for group_id in ("a", "b"):
        await clients.loaded(group_id)
    return clients
