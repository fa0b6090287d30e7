"""The mutation quota (KIP-599) as clients see it: counted calls, strict and permissive versions, the charged user."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.controller.api.apis import HANDLERS
from kraftlab.controller.configs import client_quotas
from kraftlab.rpc.server import Call

THROTTLED = 89


class Client:
    """A client with a quota of one partition a second for alice, a burst of 11."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.cluster = served.cluster

    async def call(self, api: str, request: Any, *, user: str = "alice", version: int | None = None) -> Any:
        if version is not None:
            request.header.api_version = version
        return await self.served.ask(Call(api, request, f"User:{user}"))

    async def create(self, name: str, partitions: int, **options: Any) -> tuple[int, int]:
        """(code of the topic, throttle time in ms)."""
        validate_only = options.pop("validate_only", False)
        topic = pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = pb.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        response = await self.call("CreateTopics", request, **options)
        return response.topics[0].error_code, response.header.throttle_time_ms


@pytest.fixture
async def client(cluster: Any, tools: Any) -> Client:
    await cluster.start_brokers(0)
    request = pb.AlterClientQuotasRequest()
    entry = request.entries.add()
    entry.entity.add(entity_type="user", entity_name="alice")
    entry.ops.add(key="controller_mutation_rate", value=1.0)
    await cluster.write(client_quotas.alter, request)
    return Client(tools.ServedController(cluster))


async def test_a_request_may_overshoot_once_and_the_next_one_waits(client: Client) -> None:
    assert await client.create("a", 20) == (0, 0)
    assert await client.create("b", 1) == (THROTTLED, 9000)
    assert await client.create("b", 1, user="bob") == (0, 0), "others have no quota"
    await client.cluster.pass_time(9000)
    assert await client.create("c", 1) == (0, 0)


async def test_older_clients_are_served_and_get_a_time_to_wait(client: Client) -> None:
    assert await client.create("a", 20, version=5) == (0, 9000)
    assert await client.create("b", 1, version=5) == (0, 10_000)


async def test_each_topic_of_a_request_counts_by_itself(client: Client) -> None:
    topics = [pb.CreatableTopic(name=name, num_partitions=8, replication_factor=1) for name in "abc"]
    response = await client.call("CreateTopics", pb.CreateTopicsRequest(topics=topics))
    assert [topic.error_code for topic in response.topics] == [0, 0, THROTTLED]


async def test_validation_costs_nothing(client: Client) -> None:
    for _ in range(3):
        assert await client.create("a", 20, validate_only=True) == (0, 0)


async def test_deleting_and_adding_partitions_count_as_well(client: Client) -> None:
    await client.create("a", 4)
    await client.create("b", 2)
    grown = pb.CreatePartitionsRequest(topics=[pb.CreatePartitionsTopic(name="b", count=4)])
    assert (await client.call("CreatePartitions", grown)).results[0].error_code == 0
    deleted = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name="a")])
    assert (await client.call("DeleteTopics", deleted)).responses[0].error_code == 0
    assert await client.create("c", 1) == (THROTTLED, 1000)
    counted = pb.AlterPartitionCountsRequest(topics=[pb.TopicPartitionCount(name="b", count=5)])
    assert (await client.call("AlterPartitionCounts", counted)).topics[0].error_code == THROTTLED


async def test_a_request_refused_for_another_reason_costs_nothing(client: Client) -> None:
    for _ in range(30):
        assert (await client.create("a b", 1))[0] == 17
    assert await client.create("a", 1) == (0, 0)


def test_exactly_the_calls_that_create_or_delete_partitions_count() -> None:
    assert {api: row.strict_from for api, row in HANDLERS.items() if row.strict_from is not None} == {
        "CreateTopics": 6,
        "CreatePartitions": 3,
        "DeleteTopics": 5,
        "AlterPartitionCounts": 0,
    }
