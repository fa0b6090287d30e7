"""Descriptions of topics and of the cluster: in portions, by name or by id, by kind of node."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.cluster import describe as cluster
from kraftlab.controller.topics import description

UNKNOWN_ID = "EjRWeBI0EjQSNBI0VniavA"


def portion(
    five: Any, names: list[str] | None, limit: int | None, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    """(topic, described partitions) in order, and the next cursor."""
    request = pb.DescribeTopicPartitionsRequest(response_partition_limit=limit)
    if names is not None:
        request.topics.CopyFrom(pb.TopicNames(names=names))
    if cursor is not None:
        request.cursor.CopyFrom(pb.TopicPartitionCursor(topic_name=cursor[0], partition_index=cursor[1]))
    response = description.describe(five.controller.committed, request)
    described = [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]
    following = response.next_cursor
    return described, (following.topic_name, following.partition_index) if response.HasField("next_cursor") else None


@pytest.fixture
async def two_topics(five: Any) -> Any:
    await five.create("a", (0,), (1,), (2,))
    await five.create("b", (0,), (1,))
    return five


@pytest.mark.parametrize(
    ("limit", "described", "following"),
    [
        (1, [("a", [0])], ("a", 1)),
        (3, [("a", [0, 1, 2])], ("b", 0)),
        (4, [("a", [0, 1, 2]), ("b", [0])], ("b", 1)),
        (5, [("a", [0, 1, 2]), ("b", [0, 1])], None),
        (2000, [("a", [0, 1, 2]), ("b", [0, 1])], None),
        (None, [("a", [0, 1, 2]), ("b", [0, 1])], None),
        (0, [("a", [0])], ("a", 1)),
        (-5, [("a", [0])], ("a", 1)),
    ],
)
async def test_a_limit_counts_partitions_and_the_cursor_follows_them(
    two_topics: Any, limit: int | None, described: list[Any], following: tuple[str, int] | None
) -> None:
    assert portion(two_topics, None, limit) == (described, following)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
async def test_portions_together_are_the_whole(two_topics: Any, limit: int) -> None:
    found: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        described, cursor = portion(two_topics, None, limit, cursor)
        found += [(name, index) for name, indexes in described for index in indexes]
        if cursor is None:
            break
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


@pytest.mark.parametrize("answer_bytes", [1, 40, 60, 61, 100, 130])
async def test_an_answer_without_limit_stops_where_it_would_be_too_large(
    two_topics: Any, answer_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(description, "ANSWER_BYTES", answer_bytes)
    found: list[tuple[str, int]] = []
    described, cursor = portion(two_topics, None, None)
    assert cursor is not None
    while True:
        assert any(indexes for _, indexes in described)
        found += [(name, index) for name, indexes in described for index in indexes]
        if cursor is None:
            break
        described, cursor = portion(two_topics, None, None, cursor)
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


async def test_an_answer_is_hardly_larger_than_its_limit(two_topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    request = pb.DescribeTopicPartitionsRequest()
    half = description.describe(two_topics.controller.committed, request).ByteSize() // 2
    monkeypatch.setattr(description, "ANSWER_BYTES", half)
    response = description.describe(two_topics.controller.committed, request)
    assert response.HasField("next_cursor")
    assert half <= response.ByteSize() < 2 * half


async def test_named_topics_come_sorted_and_once_and_unknown_ones_cost_nothing(two_topics: Any) -> None:
    assert portion(two_topics, ["b", "no-such", "a", "b"], 4) == ([("a", [0, 1, 2]), ("b", [0])], ("b", 1))
    assert portion(two_topics, ["0-no-such", "a"], 3) == ([("0-no-such", []), ("a", [0, 1, 2])], None)


async def test_a_cursor_after_the_last_partition_gives_an_empty_topic(two_topics: Any) -> None:
    assert portion(two_topics, ["a", "b"], 10, ("a", 9)) == ([("a", []), ("b", [0, 1])], None)
    assert portion(two_topics, ["a", "b"], 10, ("b", 1)) == ([("b", [1])], None)
    assert portion(two_topics, None, 10, ("zzz", 0)) == ([], None)


@pytest.mark.parametrize("cursor", [("a", -1), ("zzz", 0)])
async def test_a_cursor_that_is_nowhere_is_refused(two_topics: Any, cursor: tuple[str, int]) -> None:
    with pytest.raises(ApiError, match="The cursor is at") as refused:
        portion(two_topics, ["a", "b"], 10, cursor)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


# --- DescribeCluster ----------------------------------------------------------------------------------------------------


def describe_cluster(five: Any, **fields: Any) -> pb.DescribeClusterResponse:
    request = pb.DescribeClusterRequest(**fields)
    return cluster.describe(five.controller.committed, request, five.controller.settings, 3000)


async def test_without_a_kind_of_endpoint_both_kinds_are_described(five: Any) -> None:
    response = describe_cluster(five)
    assert [broker.broker_id for broker in response.brokers] == [0, 1, 2, 3, 4]
    assert (response.controller_id, response.endpoint_type) == (3000, 1)


async def test_a_controller_lists_controllers_in_the_place_of_brokers(five: Any) -> None:
    response = describe_cluster(five, endpoint_type=2)
    registered = sorted(five.controller.committed.image.cluster.controllers)
    assert [broker.broker_id for broker in response.brokers] == registered
    assert response.endpoint_type == 2 and not response.controllers
