"""The offsets of all partitions and consumer groups of a cluster at one moment, with few requests.

Theory of operation. One Metadata request names brokers and partitions. Then every broker at once is asked for the groups that it
coordinates, their members, and their committed offsets: one request each for hundreds of groups (KIP-709), one for each group
where a broker is older than Kafka 3.0. Only then every leader is asked for the first and the last offsets of its partitions, so
the order of requests puts no committed offset above the end of its log. A broker that does not answer costs its own groups and
partitions alone, and is named.

A topic that is created after the first request is not seen yet; one that is deleted meanwhile has no offsets. Members of groups
of the protocol `consumer` (KIP-848) are not known: DescribeGroups is for classic groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError
from kraftlab.messages.generated.describe_groups_request import DescribeGroupsRequest
from kraftlab.messages.generated.describe_groups_response import DescribeGroupsResponse
from kraftlab.messages.generated.list_groups_request import ListGroupsRequest
from kraftlab.messages.generated.list_groups_response import ListGroupsResponse
from kraftlab.messages.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kraftlab.messages.generated.list_offsets_response import ListOffsetsResponse
from kraftlab.messages.generated.metadata_request import MetadataRequest
from kraftlab.messages.generated.metadata_response import MetadataResponse, MetadataResponseTopic
from kraftlab.messages.generated.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kraftlab.messages.generated.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup

from .attempts import NoAnswer
from .errors import ClusterUnreachable, api_error
from .groups import CONSUMER, EARLIEST, LATEST, NAMES_TOPICS, GroupCalls, TopicPartition

ATTEMPT_S = 3.0
"""Patience with one request, so that a broker that hangs leaves time to ask the others."""
GROUPS_AT_ONCE = 500
SEVERAL_GROUPS = 8
"""Version of OffsetFetch from which on a request can be about several groups."""
THREADS_MAX = 32

K = TypeVar("K")
V = TypeVar("V")


class PartitionOffsets(NamedTuple):
    """A partition and its log: first offset and end, None if its leader did not say. `leader` is -1 without one."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    first: int | None = None
    end: int | None = None


class GroupOffsets(NamedTuple):
    """A consumer group: number of members, None if that is not known, and committed offsets. `state` and `group_type` are "" if
    the broker is too old to tell them.
    """

    members: int | None
    committed: Mapping[TopicPartition, int]
    state: str = ""
    group_type: str = ""


class ClusterOffsets(NamedTuple):
    """Answers of a cluster. `silent`: brokers without an answer, and why."""

    brokers: Mapping[int, Endpoint]
    partitions: Mapping[TopicPartition, PartitionOffsets]
    groups: Mapping[str, GroupOffsets]
    silent: Mapping[int, str]


def look(calls: GroupCalls, is_topic: Callable[[str], object], is_group: Callable[[str], object]) -> ClusterOffsets:
    """Ask for topics and groups with such names. ApiError; ClusterUnreachable if no broker answers."""
    try:
        metadata = calls.ask_any(MetadataRequest(None, allow_auto_topic_creation=False), MetadataResponse, ATTEMPT_S)
    except NoAnswer as error:
        raise ClusterUnreachable(f"no broker answers ({error}); check that the brokers run") from error
    brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in metadata.brokers}
    partitions = _partitions(metadata, is_topic)
    led: dict[int, list[TopicPartition]] = {}
    for key, partition in partitions.items():
        led.setdefault(partition.leader, []).append(key)
    silent: dict[int, str] = {}
    with ThreadPoolExecutor(max(1, min(len(brokers), THREADS_MAX))) as pool:

        def from_each(ask: Callable[[int], Mapping[K, V]]) -> dict[K, V]:
            asked = {broker: pool.submit(ask, broker) for broker in brokers if broker not in silent}
            found: dict[K, V] = {}
            for broker, answer in asked.items():
                try:
                    found |= answer.result()
                except (NoAnswer, ApiError) as error:
                    silent[broker] = str(error)
            return found

        groups = from_each(lambda broker: _groups(calls, brokers[broker], is_group))
        logs = from_each(lambda broker: _logs(calls, brokers[broker], led.get(broker, ())))
    partitions |= {key: partitions[key]._replace(first=first, end=end) for key, (first, end) in logs.items()}
    return ClusterOffsets(brokers, partitions, groups, silent)


def _partitions(metadata: MetadataResponse, is_topic: Callable[[str], object]) -> dict[TopicPartition, PartitionOffsets]:
    found = {}
    for topic in metadata.topics or ():
        assert isinstance(topic, MetadataResponseTopic)
        if not topic.error_code and topic.name and is_topic(topic.name):
            for entry in topic.partitions:
                offsets = PartitionOffsets(entry.leader_id, tuple(entry.replica_nodes), tuple(entry.isr_nodes))
                found[topic.name, entry.partition_index] = offsets
    return found


def _groups(calls: GroupCalls, broker: Endpoint, is_group: Callable[[str], object]) -> dict[str, GroupOffsets]:
    """Return the groups that a broker coordinates."""
    listed = calls.exchange(broker, ListGroupsRequest(), ListGroupsResponse, attempt_s=ATTEMPT_S)
    if listed.error_code:
        raise api_error(listed.error_code, None)
    own = {each.group_id: each for each in listed.groups if each.protocol_type in CONSUMER and is_group(each.group_id)}
    ids = [*own]
    members: dict[str, int] = {}
    for some in _pieces(ids, GROUPS_AT_ONCE):
        described = calls.exchange(broker, DescribeGroupsRequest(some), DescribeGroupsResponse, attempt_s=ATTEMPT_S)
        members |= {group.group_id: len(group.members) for group in described.groups if not group.error_code}
    committed: dict[str, dict[TopicPartition, int]] = {}
    at_once = GROUPS_AT_ONCE if calls.offered(broker, OffsetFetchRequest.KEY) >= SEVERAL_GROUPS else 1
    for some in _pieces(ids, at_once):
        wanted = [OffsetFetchRequestGroup(group_id, topics=None) for group_id in some]
        request = OffsetFetchRequest(some[0], None, wanted)
        fetched = calls.exchange(broker, request, OffsetFetchResponse, NAMES_TOPICS, ATTEMPT_S)
        answers: dict[str, OffsetFetchResponse | OffsetFetchResponseGroup] = {group.group_id: group for group in fetched.groups}
        for group_id, whole in (answers or {some[0]: fetched}).items():
            if not whole.error_code:
                committed[group_id] = {
                    (topic.name, entry.partition_index): entry.committed_offset
                    for topic in whole.topics
                    for entry in topic.partitions
                    if not entry.error_code and entry.committed_offset >= 0
                }
    return {
        group_id: GroupOffsets(members.get(group_id), committed.get(group_id, {}), each.group_state, each.group_type)
        for group_id, each in own.items()
    }


def _logs(
    calls: GroupCalls, broker: Endpoint, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """Return first offset and end of the partitions that a broker leads."""
    if not partitions:
        return {}
    first, end = (_list_offsets(calls, broker, partitions, timestamp) for timestamp in (EARLIEST, LATEST))
    return {key: (first.get(key), end.get(key)) for key in partitions}


def _list_offsets(
    calls: GroupCalls, broker: Endpoint, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, number in partitions:
        topics.setdefault(name, []).append(ListOffsetsPartition(number, timestamp=timestamp))
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(name, entries) for name, entries in topics.items()])
    answer = calls.exchange(broker, request, ListOffsetsResponse, attempt_s=ATTEMPT_S)
    return {
        (topic.name, entry.partition_index): entry.offset
        for topic in answer.topics
        for entry in topic.partitions
        if not entry.error_code and entry.offset >= 0
    }


def _pieces(ids: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(ids[start : start + size]) for start in range(0, len(ids), size))
