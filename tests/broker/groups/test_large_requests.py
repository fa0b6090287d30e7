"""Requests with many entries: the work for each does not grow with their number, and other tasks get their turn."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
import trio

from kraftlab.broker.api import consumer_groups, group_offsets
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.line_limit import LINES_AT_ONCE
from kraftlab.messages.generated.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kraftlab.messages.generated.offset_delete_request import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kraftlab.messages.generated.offset_fetch_request import OffsetFetchRequestTopic
from kraftlab.rpc.calls import OFFERS
from kraftlab.rpc.turns import ELEMENTS_AT_ONCE


async def turns_during(cluster: Any, api: str, version: int | None = None, **fields: Any) -> tuple[int, Any]:
    """Return how many turns another task got during a call, and the answer."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        answer = await cluster.call(cluster.coordinator("a"), api, version, **fields)
        nursery.cancel_scope.cancel()
    return turns, answer


async def test_groups_are_described_once_each_in_the_order_of_the_request(cluster: Any, autojump_clock: Any) -> None:
    await cluster.alone("a")
    await cluster.alone("b")
    here = cluster.coordinator("a")
    names = ["none", "a", "", "b", "a", "none", ""]
    answer = await cluster.call(here, "DescribeGroups", 5, groups=tuple(names))
    assert [row.group_id for row in answer.groups] == ["none", "a", "", "b"]
    states = {row.group_id: (row.error_code, row.group_state) for row in answer.groups}
    assert states["a"] == (ErrorCode.NONE, "Stable")
    assert states["b"] == ((ErrorCode.NONE, "Stable") if cluster.coordinator("b") is here else (ErrorCode.NOT_COORDINATOR, ""))


async def test_the_coordinator_is_asked_about_many_groups_at_once(cluster: Any, autojump_clock: Any) -> None:
    """A shard answers for all groups of a lot in one turn. Groups of other brokers are not asked about."""
    count = 4 * consumer_groups.GROUPS_AT_ONCE
    names = [f"g{number}" for number in range(count)]
    shard = cluster.coordinator("a").groups.shard_of("a")
    asked: list[object] = []
    ask = shard.ask

    async def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return await ask(*arguments, **options)

    shard.ask = counted
    turns, answer = await turns_during(cluster, "DescribeGroups", groups=tuple(names))
    assert [row.group_id for row in answer.groups] == names
    assert len(asked) == 4
    assert turns >= 3


@pytest.mark.parametrize(
    ("api", "field"), [("FindCoordinator", "coordinator_keys"), ("DeleteGroups", "groups_names"), ("DescribeGroups", "groups")]
)
async def test_other_tasks_get_turns_while_many_groups_are_answered(
    cluster: Any, autojump_clock: Any, api: str, field: str
) -> None:
    names = [f"{number}" * 40_000 for number in range(4)] + [f"g{number}" for number in range(8 * consumer_groups.GROUPS_AT_ONCE)]
    turns, _ = await turns_during(cluster, api, **{field: tuple(names)})
    assert turns >= 3


@pytest.mark.parametrize("api", ["OffsetCommit", "OffsetFetch", "OffsetDelete"])
async def test_other_tasks_get_turns_while_many_offsets_are_answered(cluster: Any, autojump_clock: Any, api: str) -> None:
    count = 8 * ELEMENTS_AT_ONCE
    topics: dict[str, Any] = {
        "OffsetCommit": [OffsetCommitRequestTopic("none", partitions=[OffsetCommitRequestPartition()] * count)],
        "OffsetFetch": [OffsetFetchRequestTopic("none", tuple(range(count)))],
        "OffsetDelete": [OffsetDeleteRequestTopic("none", [OffsetDeleteRequestPartition()] * count)],
    }
    turns, _ = await turns_during(cluster, api, min(7, OFFERS[api].highest), group_id="a", topics=topics[api])
    assert turns >= 3


async def test_faults_of_requests_fill_no_disk(cluster: Any, autojump_clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*arguments: object) -> object:
        raise ZeroDivisionError

    shard = cluster.coordinator("a").groups.shard_of("a")
    for _ in range(LINES_AT_ONCE + 5):
        with pytest.raises(ApiError):
            await shard.ask(dict, fail)
    assert 0 < caplog.text.count("Traceback") < LINES_AT_ONCE + 5


@pytest.mark.parametrize("api", ["OffsetDelete", "OffsetCommit"])
async def test_the_work_for_a_topic_does_not_grow_with_their_number(cluster: Any, autojump_clock: Any, api: str) -> None:
    steps = {count: await steps_of(cluster, api, count) for count in (200, 800)}
    assert 200 < steps[800] < 5 * steps[200]


async def steps_of(cluster: Any, api: str, count: int) -> int:
    """Return how many lines of `group_offsets` run for a call with so many unknown topics."""
    topic: Any
    topic, partition = {
        "OffsetDelete": (OffsetDeleteRequestTopic, OffsetDeleteRequestPartition()),
        "OffsetCommit": (OffsetCommitRequestTopic, OffsetCommitRequestPartition()),
    }[api]
    topics = [topic(name=f"unknown{number}", partitions=[partition]) for number in range(count)]
    steps = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != group_offsets.__file__:
            return None
        steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        answer = await cluster.call(cluster.coordinator("a"), api, min(9, OFFERS[api].highest), group_id="a", topics=topics)
    finally:
        sys.settrace(before)
    assert [row.name for row in answer.topics] == [each.name for each in topics]
    return steps
