"""Consumer groups over the Kafka protocol: lists, members, committed offsets, and their changes.

Theory of operation. Group calls exist in the Kafka protocol alone. Any broker lists its groups; everything else is a request to
the group's coordinator, which FindCoordinator names. A coordinator that has moved, or still loads (NOT_COORDINATOR,
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS), is looked up again until the deadline, as is one that does not answer.
All requests but DeleteGroups can be repeated without a difference; a repeated deletion may find no group.

Offsets are named by topic, not by topic id: a deleted topic has no id, and its offsets must still be seen.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.messages.generated.delete_groups_request import DeleteGroupsRequest
from kraftlab.messages.generated.delete_groups_response import DeleteGroupsResponse
from kraftlab.messages.generated.describe_groups_request import DescribeGroupsRequest
from kraftlab.messages.generated.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kraftlab.messages.generated.find_coordinator_request import FindCoordinatorRequest
from kraftlab.messages.generated.find_coordinator_response import FindCoordinatorResponse
from kraftlab.messages.generated.list_groups_request import ListGroupsRequest
from kraftlab.messages.generated.list_groups_response import ListGroupsResponse
from kraftlab.messages.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kraftlab.messages.generated.list_offsets_response import ListOffsetsResponse
from kraftlab.messages.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from kraftlab.messages.generated.metadata_response import MetadataResponse, MetadataResponseTopic
from kraftlab.messages.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftlab.messages.generated.offset_commit_response import OffsetCommitResponse
from kraftlab.messages.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kraftlab.messages.generated.offset_delete_response import OffsetDeleteResponse
from kraftlab.messages.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kraftlab.messages.generated.offset_fetch_response import OffsetFetchResponse
from kraftlab.messages.schema import Message

from .attempts import NoAnswer
from .entries import EntriesFailed
from .errors import ClusterUnreachable, api_error
from .kafka_channels import KafkaChannels
from .names import names_in, partition_in
from .results import Result

TopicPartition = tuple[str, int]
Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")

EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets."""
NAMES_TOPICS = 9
"""Newest version of OffsetFetch and OffsetCommit that names topics; later ones have their ids."""
CONSUMER = ("consumer", "")
"""Protocol types of consumer groups; a group that only committed offsets has none."""
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_LEADER_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
ATTEMPT_S = 8.0
"""Patience with one broker, which may hang: longer than a coordinator waits for the replicas of a commit."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5


class ListedGroup(Result, frozen=True):
    """A consumer group. `state` and `group_type` are "" if its broker is too old to tell them."""

    group_id: str
    state: str
    group_type: str


class GroupMember(Result, frozen=True):
    """A member of a group. `assignment` has its partitions, sorted."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class ConsumerGroup(Result, frozen=True):
    """A described group and its coordinator. `assignor` is "" without members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator_id: int
    coordinator: Endpoint
    members: tuple[GroupMember, ...]


class CommittedOffset(Result, frozen=True):
    """A committed offset: the next one to read. `metadata` is the consumer's note."""

    offset: int
    leader_epoch: int | None
    metadata: str


class GroupCalls:
    """The group calls of one client until a deadline. `servers` are KAFKA listeners, of which any may be down."""

    def __init__(self, channels: KafkaChannels, servers: Sequence[Endpoint], timeout_ms: int) -> None:
        self._channels = channels
        self._servers = tuple(servers)
        self._seconds = timeout_ms / 1000
        self._deadline = time.monotonic() + self._seconds
        self._coordinators: dict[str, tuple[int, Endpoint]] = {}

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> tuple[ListedGroup, ...]:
        """Return the consumer groups of all brokers by id, in these states and of these types, whatever their case."""
        wanted = [{name.lower() for name in names_in(names)} for names in (states, types)]

        def ask(broker: Endpoint) -> ListGroupsResponse:
            answer = self.exchange(broker, ListGroupsRequest(), ListGroupsResponse)
            _raise(answer.error_code)
            return answer

        found = {}
        for broker in self._patiently("the list of brokers", lambda: self._metadata([]))[0].values():
            for group in self._patiently("the groups of each broker", partial(ask, broker)).groups:
                own = (group.group_state, group.group_type)
                is_wanted = all(not names or name.lower() in names for names, name in zip(wanted, own, strict=True))
                if group.protocol_type in CONSUMER and is_wanted:
                    found[group.group_id] = ListedGroup(group.group_id, *own)
        return tuple(found[group_id] for group_id in sorted(found))

    def describe(self, group_ids: Iterable[str]) -> dict[str, ConsumerGroup]:
        def describe(group_id: str) -> ConsumerGroup:
            request = DescribeGroupsRequest((group_id,))

            def check(answer: DescribeGroupsResponse) -> DescribedGroup:
                (found,) = answer.groups
                if not found.error_code and found.group_state == "Dead":  # before version 6
                    raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
                _raise(found.error_code, found.error_message)
                return found

            found = self._at_coordinator(group_id, request, DescribeGroupsResponse, check)
            return _described(found, *self._coordinators[group_id])

        return _each(names_in(group_ids), describe)

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        old, topics = None, None  # None asks for all
        if partitions is not None:
            wanted = [(topic, tuple(numbers)) for topic, numbers in _by_topic(partitions).items()]
            old = [OffsetFetchRequestTopic(topic, numbers) for topic, numbers in wanted]
            topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=numbers) for topic, numbers in wanted]
        request = OffsetFetchRequest(group_id, old, [OffsetFetchRequestGroup(group_id, topics=topics)])

        def check(answer: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
            whole = answer.groups[0] if answer.groups else answer
            _raise(whole.error_code)
            entries = {(topic.name, entry.partition_index): entry for topic in whole.topics for entry in topic.partitions}
            found = {
                key: CommittedOffset(
                    entry.committed_offset,
                    None if entry.committed_leader_epoch < 0 else entry.committed_leader_epoch,
                    entry.metadata or "",
                )
                for key, entry in entries.items()
                if not entry.error_code and entry.committed_offset >= 0
            }
            _raise_entries({key: entry.error_code for key, entry in entries.items()}, found)
            return found

        return self._at_coordinator(group_id, request, OffsetFetchResponse, check, NAMES_TOPICS)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic, partitions=[OffsetCommitRequestPartition(number, offsets[topic, number]) for number in numbers]
            )
            for topic, numbers in _by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(group_id, topics=topics)
        self._at_coordinator(group_id, request, OffsetCommitResponse, _check_partitions, NAMES_TOPICS)

    def delete(self, group_ids: Iterable[str]) -> None:
        def delete(group_id: str) -> None:
            request = DeleteGroupsRequest((group_id,))
            self._at_coordinator(group_id, request, DeleteGroupsResponse, lambda answer: _raise(answer.results[0].error_code))

        _each(names_in(group_ids), delete)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers])
            for topic, numbers in _by_topic(partitions).items()
        ]

        def check(answer: OffsetDeleteResponse) -> None:
            _raise(answer.error_code)
            _check_partitions(answer)

        self._at_coordinator(group_id, OffsetDeleteRequest(group_id, topics), OffsetDeleteResponse, check)

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset at each time; None without such a record, without a leader, and without the partition."""
        return self._patiently("the offsets of partitions", lambda: self._list_offsets(timestamps))

    def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        brokers, leaders = self._metadata(sorted(_by_topic(timestamps)))
        found: dict[TopicPartition, int | None] = dict.fromkeys(timestamps)
        for leader in {leaders[key] for key in timestamps if leaders.get(key) in brokers}:
            own = _by_topic(key for key in timestamps if leaders.get(key) == leader)
            topics = [
                ListOffsetsTopic(name, [ListOffsetsPartition(number, timestamp=timestamps[name, number]) for number in numbers])
                for name, numbers in own.items()
            ]
            answer = self.exchange(brokers[leader], ListOffsetsRequest(-1, topics=topics), ListOffsetsResponse)
            for topic in answer.topics:
                for entry in topic.partitions:
                    if entry.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        _raise(entry.error_code)
                    found[topic.name, entry.partition_index] = entry.offset if entry.offset >= 0 else None
        return found

    def partitions_of(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the partitions of topics with their leaders, -1 without one. A topic that does not exist has none."""
        return self._patiently("topics", lambda: self._metadata(list(names_in(topics))))[1]

    def _metadata(self, topics: Sequence[str]) -> tuple[dict[int, Endpoint], dict[TopicPartition, int]]:
        """Return the brokers, and the leaders of the partitions of topics, from the first server that answers. NoAnswer."""
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)
        answer = self.ask_any(request, MetadataResponse)
        found = [topic for topic in answer.topics or () if isinstance(topic, MetadataResponseTopic)]
        for topic in found:
            if topic.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                _raise(topic.error_code, f"{topic.name}: {api_error(topic.error_code, None)}")
        brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in answer.brokers}
        leaders = {(topic.name or "", entry.partition_index): entry.leader_id for topic in found for entry in topic.partitions}
        return brokers, leaders

    def offered(self, server: Endpoint, key: int) -> int:
        """Return the newest version of a request that a broker offers, -1 if it offers none. NoAnswer."""
        found = self._channels.connection(server).versions(self._deadline).get(key)
        return -1 if found is None else found.highest

    def _at_coordinator(
        self, group_id: str, request: Message, kind: type[Answer], check: Callable[[Answer], T], newest: int | None = None
    ) -> T:
        """Return what `check` makes of the coordinator's answer; `check` raises the errors of the answer."""

        def ask() -> T:
            try:
                if group_id not in self._coordinators:
                    self._coordinators[group_id] = self._find(group_id)
                return check(self.exchange(self._coordinators[group_id][1], request, kind, newest))
            except (NoAnswer, ApiError):
                self._coordinators.pop(group_id, None)
                raise

        return self._patiently(f"the coordinator of the group {group_id!r}", ask)

    def _find(self, group_id: str) -> tuple[int, Endpoint]:
        answer = self.ask_any(FindCoordinatorRequest(group_id, coordinator_keys=(group_id,)), FindCoordinatorResponse)
        found = answer.coordinators[0] if answer.coordinators else answer
        _raise(found.error_code, found.error_message)
        return found.node_id, Endpoint(found.host, found.port)

    def ask_any(self, request: Message, kind: type[Answer], attempt_s: float = ATTEMPT_S) -> Answer:
        """Return the answer of the first server that gives one. NoAnswer."""
        faults = []
        for server in self._servers:
            try:
                return self.exchange(server, request, kind, attempt_s=attempt_s)
            except NoAnswer as error:
                faults.append(f"{server}: {error}")
        raise NoAnswer("; ".join(faults))

    def exchange(
        self,
        server: Endpoint,
        request: Message,
        kind: type[Answer],
        newest: int | None = None,
        attempt_s: float = ATTEMPT_S,
    ) -> Answer:
        """Return a broker's answer to a request in a version up to `newest`. NoAnswer, ApiError UNSUPPORTED_VERSION."""
        left_s = min(max(self._deadline - time.monotonic(), 0.001), attempt_s)
        return self._channels.exchange(server, request, kind, left_s, newest)

    def _patiently(self, what: str, ask: Callable[[], T]) -> T:
        """Repeat a request until its answer is final. ApiError; ClusterUnreachable if no broker answers until the deadline."""
        pause_s = _FIRST_PAUSE_S
        while True:
            has_time = time.monotonic() + pause_s < self._deadline
            try:
                return ask()
            except ApiError as error:
                if isinstance(error, EntriesFailed) or error.code not in _MOVED | _LEADER_MOVED or not has_time:
                    raise
            except NoAnswer as error:
                if not has_time:
                    text = f"{what}: no broker answered within {self._seconds:g} s ({error}); check that the brokers run"
                    raise ClusterUnreachable(text) from error
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _described(found: DescribedGroup, coordinator_id: int, coordinator: Endpoint) -> ConsumerGroup:
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(bytes(member.member_assignment)) if found.protocol_type in CONSUMER else (),
        )
        for member in found.members
    )
    assignor = found.protocol_data
    return ConsumerGroup(found.group_id, found.group_state, found.protocol_type, assignor, coordinator_id, coordinator, members)


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Read the partitions in a consumer's assignment, sorted: version i16, topics i32, each with name and partitions. An
    assignment that cannot be read has none: it is made by clients.
    """
    found, at = [], 0

    def number(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(form, assignment, at)
        at += struct.calcsize(form)
        return int(value)

    try:
        number(">h")
        for _ in range(number(">i")):
            size = number(">H")
            topic = assignment[at : at + size].decode()
            at += size
            found += [(topic, number(">i")) for _ in range(number(">i"))]
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(map(partition_in, partitions)):
        topics.setdefault(topic, []).append(number)
    return topics


def _raise(code: int, message: str | None = None) -> None:
    if code:
        raise api_error(code, message)


def _check_partitions(answer: OffsetCommitResponse | OffsetDeleteResponse) -> None:
    codes = {(topic.name, entry.partition_index): entry.error_code for topic in answer.topics for entry in topic.partitions}
    _raise_entries(codes, None)


def _raise_entries(codes: Mapping[TopicPartition, int], response: object) -> None:
    """Raise the errors of partitions: EntriesFailed, and the ApiError of a coordinator that moved."""
    for code in codes.values():
        if code in _MOVED:
            raise api_error(code, None)
    failures = [(f"partition {topic}-{number}", api_error(code, None)) for (topic, number), code in codes.items() if code]
    if failures:
        done = [f"partition {topic}-{number}" for (topic, number), code in codes.items() if not code]
        raise EntriesFailed(failures, done, response)


def _each(group_ids: Iterable[str], call: Callable[[str], T]) -> dict[str, T]:
    """Return the answers about groups. EntriesFailed has the errors of groups, and the others' answers."""
    found: dict[str, T] = {}
    failures = []
    for group_id in dict.fromkeys(group_ids):
        try:
            found[group_id] = call(group_id)
        except ApiError as error:
            failures.append((f"group {group_id}", error))
    if failures:
        raise EntriesFailed(failures, [f"group {group_id}" for group_id in found], found)
    return found
