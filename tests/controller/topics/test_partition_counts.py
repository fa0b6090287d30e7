"""CreatePartitions: every check with its code and text, and the new partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import UNASSIGNED
from kraftlab.controller.configs.mutation_quota import MutationCharge
from kraftlab.controller.topics.partition_counts import create_partitions

Growth = tuple[str, int, Sequence[tuple[int, ...]] | None]


def request_for(growths: Sequence[Growth], validate_only: bool = False) -> admin_pb2.CreatePartitionsRequest:
    request = admin_pb2.CreatePartitionsRequest(validate_only=validate_only)
    for name, count, assignments in growths:
        topic = request.topics.add(name=name, count=count)
        if assignments is not None:
            topic.assignments.SetInParent()
            for replicas in assignments:
                topic.assignments.values.add(broker_ids=replicas)
    return request


async def grow(cluster: Any, *growths: Growth, validate_only: bool = False) -> list[tuple[str, int, str | None]]:
    response = await cluster.write(create_partitions, request_for(growths, validate_only))
    return [
        (result.name, result.error_code, result.error_message if result.HasField("error_message") else None)
        for result in response.results
    ]


def partition_count(cluster: Any, name: str) -> int:
    return len(cluster.controller.committed.image.topics.get(name).partitions)


NOT_REGISTERED = "but no such broker is registered."


@pytest.mark.parametrize(
    ("growth", "code", "text"),
    [
        (("no-such", 3, None), 3, None),
        (("a b", 3, None), 3, None),
        (("", 3, None), 3, None),
        (("t", 2, None), 37, "Topic already has 2 partition(s)."),
        (("t", 1, None), 37, "The topic t currently has 2 partition(s); 1 would not be an increase."),
        (("t", -1, None), 37, "The topic t currently has 2 partition(s); -1 would not be an increase."),
        (
            ("t", 4, [(3, 4)]),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (("t", 3, []), 39, "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."),
        (("t", 3, [(3, 3)]), 39, "The manual partition assignment includes the broker 3 more than once."),
        (("t", 3, [(3, 99)]), 39, f"The manual partition assignment includes broker 99, {NOT_REGISTERED}"),
        (("t", 3, [(3, -1)]), 39, f"The manual partition assignment includes broker -1, {NOT_REGISTERED}"),
        (("t", 3, [()]), 39, "The manual partition assignment includes an empty replica list."),
        (
            ("t", 3, [(3,)]),
            39,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous "
            "partitions, which have 2 replica(s).",
        ),
        (
            ("t", 4, [(0, 1), (1, 2, 3)]),
            39,
            "The manual partition assignment includes a partition with 3 replica(s), but this is not consistent with previous "
            "partitions, which have 2 replica(s).",
        ),
    ],
)
async def test_growth_is_refused(five: Any, growth: Growth, code: int, text: str | None) -> None:
    await five.create("t", (0, 1), (1, 2))
    for validate_only in (True, False):
        assert await grow(five, growth, validate_only=validate_only) == [(growth[0], code, text)]
    assert partition_count(five, "t") == 2


async def test_an_assignment_is_taken_as_it_is(five: Any, tools: Any) -> None:
    await five.create("t", (0, 1), (1, 2))
    assert await grow(five, ("t", 4, [(3, 4), (4, 0)])) == [("t", 0, None)]
    assert [five.state("t", index)[:3] for index in (2, 3)] == [((3, 4), (3, 4), 3), ((4, 0), (4, 0), 4)]
    assert five.partition("t", 2).directories == (tools.directory(3, 0), tools.directory(4, 0))


async def test_a_broker_with_several_directories_chooses_one_itself(five: Any, tools: Any) -> None:
    await five.start_brokers(5, log_dirs=(tools.directory(5, 0), tools.directory(5, 1)))
    await five.create("t", (0,))
    await grow(five, ("t", 2, [(5,)]))
    assert five.partition("t", 1).directories == (UNASSIGNED,)


async def test_placed_partitions_have_the_replication_factor_of_the_topic(five: Any) -> None:
    await five.create("t", (0, 1), (1, 2))
    assert await grow(five, ("t", 40, None)) == [("t", 0, None)]
    for index in range(2, 40):
        replicas, isr, leader, adding, removing = five.state("t", index)
        assert len(set(replicas)) == 2 and (isr, leader, adding, removing) == (replicas, replicas[0], (), ())


async def test_while_the_topic_moves_the_factor_is_that_of_the_target(five: Any) -> None:
    await five.create("t", (0, 1, 2))
    await five.reassign("t", (3, 4))
    assert five.state("t")[0] == (3, 4, 0, 1, 2)
    ((_, code, _),) = await grow(five, ("t", 2, [(3, 4, 0, 1, 2)]))
    assert code == 39
    assert await grow(five, ("t", 2, None)) == [("t", 0, None)]
    assert len(five.state("t", 1)[0]) == 2


async def test_fenced_and_stopping_brokers_are_replicas_out_of_sync(five: Any) -> None:
    await five.create("t", (0, 1))
    await five.create("led-by-2", (2, 0))
    await five.stop_broker(4)
    await five.heartbeat(2, want_shutdown=True)
    assert await grow(five, ("t", 3, [(4, 0), (2, 1)])) == [("t", 0, None)]
    assert [five.state("t", index)[:3] for index in (1, 2)] == [((4, 0), (0,), 0), ((2, 1), (1,), 1)]
    ((_, code, text),) = await grow(five, ("t", 4, [(4, 2)]))
    assert (code, text) == (
        39,
        "All brokers specified in the manual partition assignment for partition 3 are fenced or in controlled shutdown.",
    )


async def test_nothing_can_be_placed_without_an_active_broker(five: Any) -> None:
    await five.create("t", (0, 1))
    for broker_id in range(4):
        await five.stop_broker(broker_id)
    await five.create("led-by-4", (4,))
    await five.heartbeat(4, want_shutdown=True)
    ((_, code, _),) = await grow(five, ("t", 2, None))
    assert code == 38


async def test_topics_are_judged_one_by_one_and_a_name_given_twice_once(five: Any) -> None:
    for name in "ab":
        await five.create(name, (0, 1))
    answers = await grow(five, ("no-such", 3, None), ("a", 2, [(4, 3)]), ("b", 3, None), ("b", 4, None))
    assert answers == [("no-such", 3, None), ("a", 0, None), ("b", 42, "Duplicate topic name.")]
    assert (partition_count(five, "a"), partition_count(five, "b")) == (2, 1)


async def test_validate_only_writes_nothing(five: Any) -> None:
    await five.create("t", (0, 1))
    end = five.quorum.end_offset
    assert await grow(five, ("t", 5, None), validate_only=True) == [("t", 0, None)]
    assert five.quorum.end_offset == end


@pytest.mark.parametrize("count", [10_002, 2_147_483_647])
async def test_more_than_a_batch_holds_refuse_the_whole_request(five: Any, count: int) -> None:
    await five.create("t", (0, 1))
    await five.create("u", (0, 1))
    end = five.quorum.end_offset
    with pytest.raises(ApiError) as caught:
        await grow(five, ("u", 2, None), ("t", count, None))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert five.quorum.end_offset == end
    assert await grow(five, ("no-such", count, None)) == [("no-such", 3, None)]


async def test_a_mutation_quota_counts_added_partitions(five: Any) -> None:
    class Account(MutationCharge):
        taken: tuple[int, ...] = ()

        def take(self, partitions: int) -> None:
            if self.taken:
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            self.taken += (partitions,)

    account = Account()
    for name in "ab":
        await five.create(name, (0, 1))
    request = request_for([("no-such", 4, None), ("a", 3, None), ("b", 5, None)])
    response = await five.write(
        lambda state, request, context: create_partitions(state, request, context._replace(mutations=account)), request
    )
    assert [(result.name, result.error_code) for result in response.results] == [("no-such", 3), ("a", 0), ("b", 89)]
    assert account.taken == (2,)
    assert (partition_count(five, "a"), partition_count(five, "b")) == (3, 1)
