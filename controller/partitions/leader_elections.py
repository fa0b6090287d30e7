"""ElectLeaders, and the elections that the active controller holds itself (KIP-183, KIP-460).

Theory of operation. A preferred election moves the leadership to the first replica if that is valid. An unclean one may give a
partition without a leader to a replica that lacks records. Both build a change with `partition_change.py` in that mode, so
either may also complete a reassignment, or bring back a leader that is valid anyway. Each partition is judged against the
state before the request. A partition that is named twice is answered twice and changed once. An unclean election on request
needs no permission of the topic; one that the controller holds itself does (`unclean.leader.election.enable`).

The controller balances leaders every `leader.imbalance.check.interval.seconds` if `auto.leader.rebalance.enable` is true. It
looks for partitions that an unclean election helps every `unclean.leader.election.interval.ms`, and after each change of
configuration. A run makes a limited number of changes and says whether there are more to make.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.metadata.eligible_leaders import min_isr_if_on
from kraftlab.metadata.image import MetadataImage, PartitionImage, TopicImage
from kraftlab.metadata.index import MetadataIndex
from kraftlab.metadata.moves import TopicPartition
from kraftlab.metadata.records import NO_LEADER, PartitionChange

from ..configs.description import unclean_election_enabled
from ..engine.state import Context, ControllerState, Outcome
from .election import Election
from .partition_change import build_change
from .partitions import Eligibility, default_directory

MAX_ELECTIONS_PER_RUN = 1000
LONG_PARTITIONS = 1000
"""More elections take longer than the quorum should wait for its leader: about 15 µs each."""


class _Kind(NamedTuple):
    """An election type: its mode, and the error if no replica can be elected."""

    election: Election
    unavailable: ErrorCode
    text: str

    def is_needed(self, partition: PartitionImage) -> bool:
        if self.election is Election.PREFERRED:
            return partition.leader != partition.replicas[0]
        return partition.leader == NO_LEADER

    def needing(self, index: MetadataIndex) -> list[TopicPartition]:
        """All partitions that need this election."""
        return index.led_by_others() if self.election is Election.PREFERRED else index.leaderless()


PREFERRED, UNCLEAN = 0, 1
ELECTION_TYPES = {
    PREFERRED: _Kind(Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    UNCLEAN: _Kind(
        Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
    ),
}
"""Number in the request → kind of election."""


def elect_leaders(
    state: ControllerState, request: admin_pb2.ElectLeadersRequest, context: Context
) -> Outcome[admin_pb2.ElectLeadersResponse]:
    """Elect leaders. If all partitions are requested, the answer leaves out those that need no election, but keeps their
    topics.

    ApiError INVALID_REQUEST for an unknown type. Per partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED,
    PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    kind = ELECTION_TYPES.get(request.election_type)
    if kind is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    of_all = not request.HasField("topic_partitions")
    response = admin_pb2.ElectLeadersResponse()
    changes: dict[TopicPartition, PartitionChange] = {}
    for name, numbers in _every_needing(state, kind) if of_all else _requested(request):
        result = response.replica_election_results.add(topic=name)
        for number in numbers:
            error = _elect_one(state.image, kind, name, number, changes)
            answer = result.partition_result.add(partition_id=number)
            if error is not None:
                set_error(answer, error)
    return Outcome(list(changes.values()), response, atomic=False)


def is_long(state: ControllerState, request: admin_pb2.ElectLeadersRequest) -> bool:
    """Return True for a request of many elections. For all partitions, every partition counts: the image does not say which
    need one.
    """
    if request.HasField("topic_partitions"):
        requested = sum(len(topic.partitions) for topic in request.topic_partitions.values)
    else:
        requested = sum(len(topic.partitions) for topic in state.image.topics.by_id.values())
    return requested > LONG_PARTITIONS


def names_no_partition(request: admin_pb2.ElectLeadersRequest) -> bool:
    """Return True for an empty list of partitions."""
    return request.HasField("topic_partitions") and not request.topic_partitions.values


def _every_needing(state: ControllerState, kind: _Kind) -> Iterator[tuple[str, Iterable[int]]]:
    """All topics, with their partitions that need that election."""
    numbers: defaultdict[Uuid, list[int]] = defaultdict(list)
    for topic_id, number in kind.needing(state.index):
        numbers[topic_id].append(number)
    for name, topic_id in sorted(state.image.topics.by_name.items()):
        yield name, sorted(numbers.get(topic_id, ()))


def _requested(request: admin_pb2.ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    for topic in request.topic_partitions.values:
        yield topic.topic, topic.partitions


def _elect_one(
    image: MetadataImage, kind: _Kind, name: str, number: int, changes: dict[TopicPartition, PartitionChange]
) -> ApiError | None:
    """Add the change of one partition to `changes`. Return the error if there is no change."""
    topic = image.topics.get(name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(number)
    if partition is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
    if not kind.is_needed(partition):
        return ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    record = _build(image, topic, number, kind.election)
    if record is None:
        return ApiError(kind.unavailable, kind.text)
    changes[topic.topic_id, number] = record
    return None


def _build(image: MetadataImage, topic: TopicImage, number: int, election: Election) -> PartitionChange | None:
    partition = topic.partitions[number]
    brokers = image.cluster.brokers
    return build_change(
        partition,
        number,
        topic.topic_id,
        accepts=Eligibility(brokers).accepts,
        default_directory=default_directory(brokers),
        min_isr=min_isr_if_on(image, topic.name),
        election=election,
    )


# --- what the controller does by itself ---------------------------------------------------------------------------------------


def balance_leaders(state: ControllerState, context: Context) -> Outcome[bool]:
    """Move leaderships to preferred replicas that are in sync and active. The response says whether there are more to move."""
    image = state.image
    movable = (key for key in state.index.led_by_others() if _can_lead(image, key))
    return _limited(image, movable, Election.PREFERRED)


def _can_lead(image: MetadataImage, key: TopicPartition) -> bool:
    """Return True if the preferred replica is in sync and active. This check is cheaper than building a change, and most of
    the other preferred replicas are down.
    """
    partition = image.topics.by_id[key[0]].partitions[key[1]]
    preferred = partition.replicas[0]
    return preferred in partition.isr and Eligibility(image.cluster.brokers).accepts(partition, preferred)


def elect_uncleanly(state: ControllerState, context: Context) -> Outcome[bool]:
    """Elect leaders for partitions without one, where the topic allows unclean elections. The response says whether there are
    more.
    """
    image = state.image
    allowed: dict[bytes, bool] = {}

    def is_allowed(key: TopicPartition) -> bool:
        topic_id = key[0]
        if topic_id not in allowed:
            allowed[topic_id] = unclean_election_enabled(image, image.topics.by_id[topic_id].name, context.settings)
        return allowed[topic_id]

    return _limited(image, filter(is_allowed, state.index.leaderless()), Election.UNCLEAN)


def _limited(image: MetadataImage, keys: Iterable[TopicPartition], election: Election) -> Outcome[bool]:
    """Changes of the first partitions that have one. The response says whether the limit cut off the rest."""
    records: list[PartitionChange] = []
    for topic_id, number in keys:
        if len(records) == MAX_ELECTIONS_PER_RUN:
            return Outcome(records, True, atomic=False)
        record = _build(image, image.topics.by_id[topic_id], number, election)
        if record is not None:
            records.append(record)
    return Outcome(records, False, atomic=False)
