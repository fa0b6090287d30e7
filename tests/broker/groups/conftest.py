"""Brokers in one process that coordinate groups, and their clients, which send messages of the Admin service."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.broker.api import consumer_groups
from kraftlab.broker.api.admin_service import AdminService
from kraftlab.broker.api.group_offsets import GroupOffsets
from kraftlab.broker.groups.coordinator import OFFSETS_TOPIC
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call

SESSION_MS, REBALANCE_MS = 30_000, 60_000
RANGE = [pb.JoinGroupProtocol(name="range", metadata=b"\x01\x02")]
OF_TWO = {"offsets_topic_num_partitions": "2", "group_initial_rebalance_delay_ms": "0"}
"""Settings of brokers in most tests."""


class Published:
    """A broker's metadata, which a test publishes."""

    controller_id = -1

    def __init__(self, broker: Any) -> None:
        self.image = broker.replicas.image
        self.offset = 0

    async def wait_for(self, offset: int) -> None:
        pass


class Clients:
    """Sends calls to brokers of a world."""

    def __init__(self, world: Any) -> None:
        self.world = world

    async def call(self, broker: Any, api: str, **fields: Any) -> Any:
        """Send a call to a broker; a refusal of the whole call is in the response's header."""
        return await self.send(broker, api, METHODS[api].request(**fields))

    async def send(self, broker: Any, api: str, request: Any) -> Any:
        membership = consumer_groups.GroupMembership(broker.groups)
        offsets = GroupOffsets(broker.groups, broker.config.offset_metadata_max_bytes)
        local = {
            **consumer_groups.calls(membership, consumer_groups.GroupAdmin(broker.groups)),
            "OffsetCommit": offsets.commit,
            "OffsetFetch": offsets.fetch,
            "OffsetDelete": offsets.delete,
        }
        parts: Any = (Published(broker), Published(broker))
        service = AdminService("cluster", *parts, local, of_callers={"JoinGroup": membership.join})
        return await service.dispatch(Call(api, request, "User:ANONYMOUS", "127.0.0.1", "recorder"))

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
                response = await self.call(broker, "DescribeGroups", groups=[group_id])
                if response.groups[0].error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                    return broker
                await trio.sleep(0.01)

    async def join(self, group_id: str, member_id: str = "", **fields: Any) -> pb.JoinGroupResponse:
        sent = {"protocol_type": "consumer", "protocols": RANGE, "session_timeout_ms": SESSION_MS, **fields}
        sent.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return await self.call(self.coordinator(group_id), "JoinGroup", group_id=group_id, member_id=member_id, **sent)

    async def alone(self, group_id: str, assignment: bytes = b"\x07\x07") -> str:
        """Make a stable group of one member; return the member's id."""
        member_id = (await self.join(group_id)).member_id
        joined = await self.join(group_id, member_id)
        assert joined.header.error_code == ErrorCode.NONE
        assigned = [pb.SyncGroupAssignment(member_id=member_id, assignment=assignment)]
        synced = await self.sync(group_id, member_id, joined.generation_id, assignments=assigned)
        assert synced.assignment == assignment
        return member_id

    async def sync(self, group_id: str, member_id: str, generation: int, **fields: Any) -> pb.SyncGroupResponse:
        sent = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        broker = self.coordinator(group_id)
        return await self.call(broker, "SyncGroup", group_id=group_id, member_id=member_id, generation_id=generation, **sent)

    async def beat(self, group_id: str, member_id: str, generation: int = 1) -> int:
        fields = {"group_id": group_id, "member_id": member_id, "generation_id": generation}
        response = await self.call(self.coordinator(group_id), "Heartbeat", **fields)
        return int(response.header.error_code)

    async def commit(self, group_id: str, offset: int, metadata: str = "", topic: str = "t", **fields: Any) -> int:
        """Commit an offset of partition 0; return the error."""
        partition = pb.OffsetCommitPartition(committed_offset=offset, committed_metadata=metadata)
        header = pb.RequestHeader(api_version=9)
        topics = [pb.OffsetCommitTopic(name=topic, partitions=[partition])]
        fields = {"header": header, "group_id": group_id, "topics": topics, **fields}
        response = await self.call(self.coordinator(group_id), "OffsetCommit", **fields)
        return int(response.topics[0].partitions[0].error_code)

    async def committed(self, group_id: str, topic: str = "t") -> tuple[int, str]:
        """Return the committed offset of partition 0 and its note; the error, negative, if the group has one."""
        asked = pb.OffsetFetchTopics(values=[pb.OffsetFetchTopic(name=topic, partition_indexes=[0])])
        groups = [pb.OffsetFetchGroup(group_id=group_id, topics=asked)]
        header = pb.RequestHeader(api_version=9)
        response = await self.call(self.coordinator(group_id), "OffsetFetch", header=header, groups=groups)
        (row,) = response.groups
        if row.error_code:
            return -1000 - row.error_code, ""
        partition = row.topics[0].partitions[0]
        return partition.committed_offset, partition.metadata

    async def describe(self, group_id: str) -> pb.DescribedGroup:
        response = await self.call(self.coordinator(group_id), "DescribeGroups", groups=[group_id])
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
