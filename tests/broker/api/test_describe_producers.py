"""DescribeProducers and ListTransactions: the producers of a partition at its replicas, and no transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.broker.api.producers import DescribeProducers, list_transactions
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.gateway.codec import Header, KafkaRequest
from kraftlab.messages.generated.describe_producers_request import DescribeProducersRequest, TopicRequest
from kraftlab.messages.generated.list_transactions_request import ListTransactionsRequest
from kraftlab.metadata.acls import Acl, AclsImage, Operation
from kraftlab.records.record_batch import Record, build_batch
from kraftlab.rpc.caller import Caller

from ..conftest import batch

TIMESTAMP_MS = 1_700_000_000_000
INVALID_NAME = "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
UNKNOWN_TOPIC = "This server does not host this topic-partition."


@pytest.fixture
async def pair(world: Any) -> Any:
    """Topic `t` on brokers 0 (leader) and 1; broker 2 has no replica."""
    await world.add_brokers(3)
    await world.create_topic("t", [0, 1], [1, 0])
    return world


CALLER = Caller("User:alice", "127.0.0.1")


async def described(world: Any, broker_id: int, *asked: tuple[str, list[int]], acls: AclsImage | None = None) -> list[Any]:
    """Describe partitions. Without `acls`, everybody may."""

    def rights(principal: str, host: str) -> Rights:
        return Authorizer(AccessSettings(is_enabled=acls is not None)).rights(acls, principal, host)

    request = DescribeProducersRequest([TopicRequest(name, tuple(indexes)) for name, indexes in asked])
    api = DescribeProducers(world.brokers[broker_id].replicas, rights)
    response = await api.describe(KafkaRequest(Header(61, 0, 1), "", request), CALLER)
    assert sorted(topic.name for topic in response.topics) == sorted(name for name, _ in asked)
    return [partition for topic in response.topics for partition in topic.partitions]


async def test_the_newest_batch_of_each_producer_is_described(pair: Any) -> None:
    for producer, sequence, count in ((9, 0, 2), (7, 5, 1), (9, 2, 3)):
        records = [Record(b"k", b"v", TIMESTAMP_MS)] * count
        numbered = build_batch(records, producer_id=producer, producer_epoch=1, base_sequence=sequence)
        assert (await pair.brokers[0].produce("t", 0, numbered)).error == 0
    (partition,) = await described(pair, 0, ("t", [0]))
    assert (partition.error_code, partition.error_message) == (0, None)
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
    assert (partition.partition_index, partition.error_code, partition.error_message) == (index, code, text)


async def test_topics_without_the_right_come_last(pair: Any) -> None:
    acls = AclsImage().after({bytes(16): Acl(2, "t", 3, "User:alice", "*", Operation.READ, 3)})
    seen, refused = await described(pair, 0, ("hidden", [3]), ("t", [0]), acls=acls)
    assert (seen.partition_index, seen.error_code) == (0, 0)
    assert (refused.partition_index, refused.error_code) == (3, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def listing(**fields: Any) -> KafkaRequest:
    return KafkaRequest(Header(66, 2, 1), "", ListTransactionsRequest(**fields))


async def test_there_are_no_transactions_and_unknown_states_are_named() -> None:
    response = await list_transactions(listing(state_filters=("ongoing", "Bogus", "Empty"), producer_id_filters=(1,)), CALLER)
    assert response.unknown_state_filters == ("ongoing", "Bogus")
    assert response.transaction_states == ()


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 10_000 + ")" * 10_000])
async def test_a_pattern_that_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError, match=r"' is not a regular expression") as refused:
        await list_transactions(listing(transactional_id_pattern=pattern), CALLER)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
