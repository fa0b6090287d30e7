"""Calls about partitions of existing topics: their number, their leaders, the start of their logs.

Functions over `AdminClient`, which has a method for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc.methods import AdminRequest, Response

from .entries import EntriesFailed, answer_of
from .errors import ClusterUnreachable, api_error
from .names import partition_in
from .results import Topic

TopicPartition = tuple[str, int]

PREFERRED, UNCLEAN = 0, 1
"""Election types."""


class BrokerCaller(Protocol):
    """The part of `AdminClient` that finds the leaders of partitions and calls them."""

    def describe_topics(self, names: Iterable[str] | None = None, *, timeout_ms: int | None = None) -> dict[str, Topic]: ...

    def call_broker(
        self, broker_id: int, answer: type[Response], request: AdminRequest, *, timeout_ms: int | None = None
    ) -> Response: ...


class NewPartitions(msgspec.Struct, frozen=True):
    """New number of partitions of a topic, and the replicas of each new partition in order; None for a placement by the
    controller.
    """

    count: int
    assignments: Sequence[Sequence[int]] | None = None


class DeletedRecords(NamedTuple):
    """Smallest log start offset of the live replicas of a partition, or the error."""

    low_watermark: int
    error: ApiError | None = None


def describe_whole(
    request: pb.DescribeTopicPartitionsRequest,
    ask: Callable[[pb.DescribeTopicPartitionsRequest], pb.DescribeTopicPartitionsResponse],
) -> pb.DescribeTopicPartitionsResponse:
    """Return all parts of a large answer as one."""
    whole = ask(request)
    while whole.HasField("next_cursor"):
        request.cursor.CopyFrom(whole.next_cursor)
        request.header.min_offset = max(request.header.min_offset, whole.header.metadata_offset)
        part = ask(request)
        topics = list(part.topics)
        if topics and whole.topics and topics[0].name == whole.topics[-1].name:
            begun = whole.topics[-1]
            if topics[0].topic_id != begun.topic_id:
                # The topic was deleted meanwhile, and perhaps created again: describe it from its beginning.
                del whole.topics[-1]
                whole.next_cursor.partition_index = 0
                continue
            begun.partitions.extend(topics.pop(0).partitions)
        whole.topics.extend(topics)
        if part.HasField("next_cursor"):
            whole.next_cursor.CopyFrom(part.next_cursor)
        else:
            whole.ClearField("next_cursor")
    return whole


def create_partitions_request(topics: Mapping[str, NewPartitions], validate_only: bool) -> pb.CreatePartitionsRequest:
    request = pb.CreatePartitionsRequest(validate_only=validate_only)
    for name, wanted in topics.items():
        if not isinstance(wanted, NewPartitions):
            raise TypeError(f"{wanted!r} for the topic {name!r} is not the new number of partitions; pass NewPartitions(count)")
        topic = request.topics.add(name=name, count=wanted.count)
        if wanted.assignments is not None:
            topic.assignments.SetInParent()
            for replicas in wanted.assignments:
                topic.assignments.values.add(broker_ids=replicas)
    return request


def elect_leaders_request(election_type: int, partitions: Iterable[TopicPartition] | None) -> pb.ElectLeadersRequest:
    request = pb.ElectLeadersRequest(election_type=election_type)
    if partitions is not None:
        request.topic_partitions.SetInParent()
        by_topic: dict[str, list[int]] = {}
        for topic, partition in map(partition_in, partitions):
            by_topic.setdefault(topic, []).append(partition)
        for topic, numbers in by_topic.items():
            request.topic_partitions.values.add(topic=topic, partitions=numbers)
    return request


def delete_records(
    client: BrokerCaller, offsets: Mapping[TopicPartition, int], timeout_ms: int | None
) -> dict[TopicPartition, DeletedRecords]:
    """Delete records at the leaders. Partitions whose leader has moved are tried once again. EntriesFailed."""
    done: dict[TopicPartition, DeletedRecords] = {}
    left = dict(offsets)
    for _ in range(2):
        results = _at_leaders(client, left, timeout_ms)
        done |= results
        left = {
            key: offsets[key]
            for key, result in results.items()
            if result.error is not None and result.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        }
        if not left:
            break
    found = {key: done[key] for key in offsets}
    failures = [(f"partition {topic}-{index}", result.error) for (topic, index), result in found.items() if result.error]
    if failures:
        succeeded = [f"partition {topic}-{index}" for (topic, index), result in found.items() if result.error is None]
        raise EntriesFailed(failures, succeeded, found)
    return found


def _at_leaders(
    client: BrokerCaller, offsets: Mapping[TopicPartition, int], timeout_ms: int | None
) -> dict[TopicPartition, DeletedRecords]:
    results: dict[TopicPartition, DeletedRecords] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    names = sorted({topic for topic, _ in map(partition_in, offsets)})
    described = answer_of(lambda: client.describe_topics(names, timeout_ms=timeout_ms))
    leaders = {
        (topic.name, partition.partition_index): partition.leader_id
        for topic in described.values()
        for partition in topic.partitions
    }
    for topic, number in offsets:
        leader = leaders.get((topic, number))
        if (topic, number) not in leaders:
            text = f"there is no partition {topic}-{number}"
            results[topic, number] = _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elif leader is None:
            text = f"{topic}-{number} has no leader; see kraftlab topics --describe --topic {topic}"
            results[topic, number] = _failed(ErrorCode.LEADER_NOT_AVAILABLE, text)
        else:
            by_leader.setdefault(leader, []).append((topic, number))
    for leader, keys in by_leader.items():
        request = pb.DeleteRecordsRequest()
        for topic, number in keys:
            request.topics.add(name=topic).partitions.add(partition_index=number, offset=offsets[topic, number])
        try:
            response = client.call_broker(leader, pb.DeleteRecordsResponse, request, timeout_ms=timeout_ms)
        except ClusterUnreachable as error:
            results |= dict.fromkeys(keys, _failed(ErrorCode.BROKER_NOT_AVAILABLE, str(error)))
            continue
        except ApiError as error:
            results |= dict.fromkeys(keys, DeletedRecords(-1, error))
            continue
        answers = {(topic.name, entry.partition_index): entry for topic in response.topics for entry in topic.partitions}
        for key in keys:
            entry = answers[key]
            error_code = entry.error_code
            failed = _failed(error_code, entry.error_message) if error_code else None
            results[key] = failed or DeletedRecords(entry.low_watermark)
    return results


def _failed(code: int, text: str) -> DeletedRecords:
    return DeletedRecords(-1, api_error(code, text))
