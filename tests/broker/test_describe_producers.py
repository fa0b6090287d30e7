"""DescribeProducers and ListTransactions: the producers of a partition at its replicas, and no transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.broker.api.producers import DescribeProducers, list_transactions
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.records.record_batch import Record, build_batch

from .conftest import batch

TIMESTAMP_MS = 1_700_000_000_000
INVALID_NAME = "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
UNKNOWN_TOPIC = "This server does not host this topic-partition."


@pytest.fixture
async def pair(world: Any) -> Any:
    """Topic `t` on brokers 0 (leader) and 1; broker 2 has no replica."""
    await world.add_brokers(3)
    await world.create_topic("t", [0, 1], [1, 0])
    return world


async def described(world: Any, broker_id: int, *asked: tuple[str, list[int]]) -> list[Any]:
    request = pb.DescribeProducersRequest()
    for name, indexes in asked:
        request.topics.add(name=name, partition_indexes=indexes)
    response: Any = await DescribeProducers(world.brokers[broker_id].replicas).describe(request)
    assert [topic.name for topic in response.topics] == [name for name, _ in asked]
    return [partition for topic in response.topics for partition in topic.partitions]


async def test_the_newest_batch_of_each_producer_is_described(pair: Any) -> None:
    for producer, sequence, count in ((9, 0, 2), (7, 5, 1), (9, 2, 3)):
        records = [Record(b"k", b"v", TIMESTAMP_MS)] * count
        numbered = build_batch(records, producer_id=producer, producer_epoch=1, base_sequence=sequence)
        assert (await pair.brokers[0].produce("t", 0, numbered)).error == 0
    (partition,) = await described(pair, 0, ("t", [0]))
    assert (partition.error_code, partition.HasField("error_message")) == (0, False)
    found = [(each.producer_id, each.producer_epoch, each.last_sequence) for each in partition.active_producers]
    assert found == [(7, 1, 5), (9, 1, 4)]
    for each in partition.active_producers:
        assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
        assert each.last_timestamp == TIMESTAMP_MS


async def test_a_follower_knows_the_producers_of_the_batches_that_it_has(autojump_clock: Any, pair: Any) -> None:
    numbered = build_batch([Record(b"k", b"v", TIMESTAMP_MS)], producer_id=9, producer_epoch=0, base_sequence=0)
    assert (await pair.brokers[0].produce("t", 0, numbered)).error == 0
    (partition,) = await described(pair, 1, ("t", [0]))
    assert [each.producer_id for each in partition.active_producers] == [9]


async def test_a_partition_without_producers_has_none(pair: Any) -> None:
    assert (await pair.brokers[0].produce("t", 0, batch(2))).error == 0
    (partition,) = await described(pair, 0, ("t", [0]))
    assert (partition.error_code, list(partition.active_producers)) == (0, [])


@pytest.mark.parametrize(
    ("broker", "topic", "index", "code", "text"),
    [
        (0, "no-such", 0, 3, UNKNOWN_TOPIC),
        (0, "a b", 0, 17, INVALID_NAME),
        (0, "t", 7, 3, None),
        (2, "t", 0, 6, None),
    ],
)
async def test_a_partition_that_is_not_hosted_has_a_code(
    pair: Any, broker: int, topic: str, index: int, code: int, text: str | None
) -> None:
    (partition,) = await described(pair, broker, (topic, [index]))
    shown = partition.error_message if partition.HasField("error_message") else None
    assert (partition.partition_index, partition.error_code, shown) == (index, code, text)


async def test_there_are_no_transactions_and_unknown_states_are_named() -> None:
    request = pb.ListTransactionsRequest(state_filters=["ongoing", "Bogus", "Empty"], producer_id_filters=[1])
    response: Any = await list_transactions(request)
    assert list(response.unknown_state_filters) == ["ongoing", "Bogus"]
    assert list(response.transaction_states) == []


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 10_000 + ")" * 10_000])
async def test_a_pattern_that_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError, match=r"' is not a regular expression") as refused:
        await list_transactions(pb.ListTransactionsRequest(transactional_id_pattern=pattern))
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
