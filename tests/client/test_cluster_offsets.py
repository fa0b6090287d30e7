"""One look at the offsets of a cluster, against scripted brokers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlab.client import AdminClient, ClusterUnreachable, cluster_offsets
from kraftlab.client.cluster_offsets import ClusterOffsets, GroupOffsets, PartitionOffsets, look
from kraftlab.common.errors import ErrorCode
from kraftlab.messages.generated.describe_groups_response import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kraftlab.messages.generated.list_groups_response import ListedGroup, ListGroupsResponse
from kraftlab.messages.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kraftlab.messages.generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlab.messages.generated.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

from .scripted_broker import Broker

NEW = {"Metadata": (0, 12), "ListGroups": (0, 5), "DescribeGroups": (0, 5), "OffsetFetch": (1, 9), "ListOffsets": (1, 7)}
Look = Callable[..., ClusterOffsets]


def scripted(**ranges: tuple[int, int]) -> Broker:
    """A broker with two partitions of `t`, of which broker 2 leads the second, and the groups a and b."""
    broker = Broker(**NEW | ranges)
    partitions = [MetadataResponsePartition(0, number, number + 1, -1, (1, 2), (1,)) for number in (0, 1)]
    broker.answers |= {
        "ListGroups": lambda _: ListGroupsResponse(groups=[*map(listed, ("a", "b")), listed("connect-x", "connect")]),
        "DescribeGroups": lambda body: DescribeGroupsResponse(groups=[described(name) for name in body.groups]),
        "OffsetFetch": fetched,
        "ListOffsets": lambda body: ListOffsetsResponse(topics=[ended(body.topics[0].name, body.topics[0].partitions)]),
    }
    brokers = [MetadataResponseBroker(1, broker.endpoint.host, broker.endpoint.port)]
    topics = [MetadataResponseTopic(0, "t", partitions=partitions), MetadataResponseTopic(3, "odd")]
    broker.answers["Metadata"] = lambda _: MetadataResponse(brokers=brokers, topics=topics)
    return broker


def listed(name: str, kind: str = "consumer") -> ListedGroup:
    return ListedGroup(name, kind, "Stable", "consumer" if name == "b" else "classic")


def described(name: str) -> DescribedGroup:
    """Group b is of the protocol `consumer`, which DescribeGroups does not know."""
    if name == "b":
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, group_id=name)
    return DescribedGroup(0, group_id=name, members=[DescribedGroupMember()] * 2)


def fetched(body: Any) -> OffsetFetchResponse:
    """Each group has committed 4 in t-0, and an error in t-1."""
    if body.groups:
        entries = [OffsetFetchResponsePartitions(0, 4), OffsetFetchResponsePartitions(1, 9, error_code=3)]
        topics = [OffsetFetchResponseTopics("t", partitions=entries)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id, topics) for group in body.groups])
    old = [OffsetFetchResponsePartition(0, 4), OffsetFetchResponsePartition(1, 9, error_code=3)]
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", old)])


def ended(name: str, partitions: Any) -> ListOffsetsTopicResponse:
    (timestamp,) = {entry.timestamp for entry in partitions}
    offset = {-2: 3, -1: 10}[timestamp]
    entries = [ListOffsetsPartitionResponse(entry.partition_index, 0, offset=offset) for entry in partitions]
    return ListOffsetsTopicResponse(name, entries)


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    made: list[Broker] = []
    yield made
    for broker in made:
        broker.close()


def looked(broker: Broker, is_group: Callable[[str], object] = lambda name: True) -> ClusterOffsets:
    with AdminClient(f"kafka://{broker.endpoint}") as client:
        return look(client.group_calls(10_000), lambda name: True, is_group)


def test_a_look_sees_partitions_groups_and_what_is_missing(brokers: list[Broker]) -> None:
    brokers.append(scripted())
    found = looked(brokers[0])
    assert found.partitions == {
        ("t", 0): PartitionOffsets(1, (1, 2), (1,), 3, 10),
        ("t", 1): PartitionOffsets(2, (1, 2), (1,)),
    }
    assert found.groups == {
        "a": GroupOffsets(2, {("t", 0): 4}, "Stable", "classic"),
        "b": GroupOffsets(None, {("t", 0): 4}, "Stable", "consumer"),
    }
    assert (found.brokers, found.silent) == ({1: brokers[0].endpoint}, {})


def test_offsets_of_groups_are_read_before_the_ends_of_logs_and_all_in_one_request(brokers: list[Broker]) -> None:
    brokers.append(scripted())
    looked(brokers[0])
    asked = [name for name, _ in brokers[0].seen if name != "ApiVersions"]
    assert asked == ["Metadata", "ListGroups", "DescribeGroups", "OffsetFetch", "ListOffsets", "ListOffsets"]


def test_a_broker_that_is_too_old_for_that_is_asked_for_each_group(brokers: list[Broker]) -> None:
    brokers.append(scripted(OffsetFetch=(1, 7), ListGroups=(0, 2), DescribeGroups=(0, 1), Metadata=(0, 4)))
    assert looked(brokers[0]).groups["a"] == GroupOffsets(2, {("t", 0): 4})
    assert [version for name, version in brokers[0].seen if name == "OffsetFetch"] == [7, 7]


def test_groups_that_are_not_wanted_cost_nothing(brokers: list[Broker]) -> None:
    brokers.append(scripted())
    assert looked(brokers[0], lambda name: False).groups == {}
    assert {"DescribeGroups", "OffsetFetch"}.isdisjoint(name for name, _ in brokers[0].seen)


def test_a_broker_that_hangs_is_named_and_the_others_are_seen(brokers: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_offsets, "ATTEMPT_S", 0.5)
    brokers.append(scripted())
    metadata = brokers[0].answers["Metadata"](None)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        both = [*metadata.brokers, MetadataResponseBroker(2, *mute.getsockname())]
        brokers[0].answers["Metadata"] = lambda _: MetadataResponse(brokers=both, topics=metadata.topics)
        found = looked(brokers[0])
    assert ([*found.silent], found.partitions["t", 0].end, found.partitions["t", 1].end) == ([2], 10, None)
    assert found.groups["a"].committed == {("t", 0): 4}


def test_a_group_that_may_not_be_read_has_no_offsets(brokers: list[Broker]) -> None:
    brokers.append(scripted())

    def refused(body: Any) -> OffsetFetchResponse:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id, error_code=code) for group in body.groups])

    brokers[0].answers["OffsetFetch"] = refused
    assert looked(brokers[0]).groups["a"] == GroupOffsets(2, {}, "Stable", "classic")


def test_a_cluster_without_a_broker_that_answers_is_unreachable(brokers: list[Broker]) -> None:
    brokers.append(scripted())
    brokers[0].close()
    with pytest.raises(ClusterUnreachable, match="check that the brokers run"):
        looked(brokers[0])
