"""The data plane over the Kafka protocol: Produce, Fetch, ListOffsets and OffsetForLeaderEpoch.

Theory of operation. A request names topics by name, or by id in its newest versions; both are looked up in the metadata that the
broker has published. Each partition goes to the same leader's code that peer frames call (`DataPlane`), as whole record batches
that are never decoded here. A partition that the caller may not use, or that does not exist, is refused in its place of the
answer; the others proceed. Records of a fetch that are stored in large files go from the file to the connection (`FilePart`).
The leader's errors become those that the version of the request knows (`error_versions.py`).

A client that asks the wrong broker gets the leader and its KAFKA listener with the error (KIP-951), so it needs no new metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

import trio

from kraftlab.access.authorizer import Rights
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.config.models import KAFKA_LISTENER
from kraftlab.messages.generated import fetch_response, list_offsets_response, produce_response
from kraftlab.messages.generated.fetch_request import FetchPartition as FetchedPosition
from kraftlab.messages.generated.fetch_request import FetchRequest
from kraftlab.messages.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kraftlab.messages.generated.offset_for_leader_epoch_request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kraftlab.messages.generated.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kraftlab.messages.generated.produce_request import PartitionProduceData
from kraftlab.messages.generated.produce_request import ProduceRequest as KafkaProduceRequest
from kraftlab.metadata.acls import Operation, ResourceType
from kraftlab.metadata.image import MetadataImage, TopicImage
from kraftlab.metadata.peer_rpc import (
    EpochEnd,
    EpochEndsRequest,
    EpochEndsResponse,
    FetchedPartition,
    FetchPartition,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    WantedEpoch,
    WantedOffset,
)
from kraftlab.metadata.topic_names import INTERNAL_TOPICS
from kraftlab.records.record_batch import ATTRIBUTES_AT, HEADER_BYTES, LENGTH_FROM, TRANSACTIONAL, size_as_written
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.turns import Turns
from kraftlab.wire.parts import NOTHING, FilePart

from .codec import KafkaRequest
from .error_versions import known_code

MISLED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors whose answers name the leader."""
NO_TRANSACTIONS = "This cluster coordinates no transactions; leave transactional.id out of the producer's configuration."
SPECIAL_TIMES_SINCE = {-3: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamp of ListOffsets → the first version that has it."""
NO_DIVERGENCE = -1, -1
UNSEEN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Errors of partitions that a consumer cannot see. Their answers have an empty list of transactions, others null."""
READ_COMMITTED = 1
"""The isolation level whose answers list aborted transactions: there are none."""
IDS_SINCE = 13
"""The first version of Fetch, and of Produce, that names topics by their ids."""
FOLLOWERS_SINCE = 11
"""The first version of Fetch that may read from a follower (KIP-392)."""
LEADERS_SINCE = 16
"""The first version of Fetch whose answers name the leader."""
LEAST_BYTES = 1
"""A limit of 0 gets one batch too: with none a consumer would not get on."""
TWO_BATCHES = "A produce request holds one record batch for each partition; send the others with further requests."

Query = TypeVar("Query")
Entry = TypeVar("Entry")


class ReadableTopics(NamedTuple):
    """Topics as one consumer names and may read them: all by id, or all by the bytes of their names.

    `find` returns a topic's id or the error of its partitions. As long as `view` is the same, so are the answers for existing
    topics.
    """

    uses_ids: bool
    view: object
    find: Callable[[bytes], Uuid | ErrorCode]


class DataPlane(Protocol):
    """The leader's side of the broker, as peer frames call it too. Errors are in the partitions' answers, except those of a
    fetch session.
    """

    async def produce(self, request: ProduceRequest, /) -> ProduceResponse: ...

    async def fetch(
        self, request: ReplicaFetchRequest, topics: ReadableTopics, /
    ) -> tuple[ReplicaFetchResponse, Mapping[tuple[Uuid, int], FilePart]]: ...

    async def list_offsets(self, request: ListOffsetsRequest, /) -> ListOffsetsResponse: ...

    async def epoch_ends(self, request: EpochEndsRequest, /) -> EpochEndsResponse: ...


class Acks0Failed(Exception):
    """A produce request with acks=0 failed; close the connection so that the producer refreshes its metadata."""


class Refusal(NamedTuple):
    """Reason why a topic is not served to a caller."""

    code: ErrorCode
    message: str | None = None


class DataCalls:
    """Answers data requests of one broker. `rights` returns a caller's rights by the published ACLs."""

    def __init__(self, data: DataPlane, image: Callable[[], MetadataImage], rights: Callable[[str, str], Rights]) -> None:
        self._data = data
        self._image = image
        self._rights = rights

    def _topic(self, named: str | Uuid, operation: Operation, rights: Rights) -> TopicImage | Refusal:
        """Return the topic that an entry of a request names, by its id or its name, or the refusal of all its partitions."""
        topics = self._image().topics
        if isinstance(named, bytes):
            topic = topics.by_id.get(named)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            if not rights.allow(operation, ResourceType.TOPIC, named):
                return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            topic = topics.get(named)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            return Refusal(unknown)
        if not rights.allow(operation, ResourceType.TOPIC, topic.name):
            return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return topic

    def _leader(self, topic_id: Uuid, index: int) -> tuple[int, int]:
        """(leader, leader epoch) of a partition by the published metadata, (-1, -1) if it does not exist."""
        partition = self._image().topics.partition(topic_id, index)
        return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)

    def _endpoints(self, node_ids: Iterable[int]) -> list[tuple[int, str, int, str | None]]:
        """(id, host, port, rack) of brokers with a KAFKA listener."""
        brokers = self._image().cluster.brokers
        found = []
        for node_id in sorted(set(node_ids)):
            broker = brokers.get(node_id)
            listener = None if broker is None else broker.listener(KAFKA_LISTENER)
            if broker is not None and listener is not None:
                found.append((node_id, listener.host, listener.port, broker.rack))
        return found

    # --- Produce -------------------------------------------------------------------------------------------------------------

    async def produce(self, request: KafkaRequest, caller: Caller) -> produce_response.ProduceResponse | None:
        """Append the batches of each partition, all partitions beside each other; None for acks=0. Acks0Failed."""
        body: KafkaProduceRequest = request.body
        rights = self._rights(caller.principal, caller.host)
        answers: list[list[produce_response.PartitionProduceResponse]] = []
        turns = Turns()
        async with trio.open_nursery() as nursery:
            for data in body.topic_data:
                await turns.step()
                topic = self._writable(data.topic_id if request.header.version >= IDS_SINCE else data.name, rights)
                code, message = topic if isinstance(topic, Refusal) else (ErrorCode.NONE, None)
                row = [_refused_produce(partition.index, code, message) for partition in data.partition_data]
                answers.append(row)
                if isinstance(topic, TopicImage):
                    for place, partition in enumerate(data.partition_data):
                        await turns.step()
                        nursery.start_soon(self._produce_one, request, topic.topic_id, partition, row, place)
        failed = [answer for row in answers for answer in row if answer.error_code]
        if not body.acks:
            if failed:
                first = failed[0]
                raise Acks0Failed(f"a batch for partition {first.index} with acks=0 was not written: error {first.error_code}")
            return None
        return produce_response.ProduceResponse(
            responses=[
                produce_response.TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=row)
                for row, data in zip(answers, body.topic_data, strict=True)
            ],
            node_endpoints=[
                produce_response.NodeEndpoint(*endpoint)
                for endpoint in self._endpoints(answer.current_leader.leader_id for answer in failed)
            ],
        )

    def _writable(self, named: str | Uuid, rights: Rights) -> TopicImage | Refusal:
        """Return the topic that a producer writes to, or the refusal of all its partitions."""
        topic = self._topic(named, Operation.WRITE, rights)
        if isinstance(topic, TopicImage) and topic.name in INTERNAL_TOPICS:
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic.name}")
        return topic

    async def _produce_one(
        self,
        request: KafkaRequest,
        topic_id: Uuid,
        partition: PartitionProduceData,
        row: list[produce_response.PartitionProduceResponse],
        place: int,
    ) -> None:
        """Append the batch of one partition, and put the answer into its place."""
        body: KafkaProduceRequest = request.body
        records = partition.records or NOTHING
        assert isinstance(records, memoryview), "records that were read are a view of the frame"
        if body.transactional_id is not None and _is_transactional(records):
            row[place] = _refused_produce(partition.index, ErrorCode.INVALID_PRODUCER_ID_MAPPING, NO_TRANSACTIONS)
            return
        if _holds_two(records):
            row[place] = _refused_produce(partition.index, ErrorCode.INVALID_RECORD, TWO_BATCHES)
            return
        wanted = ProduceRequest(topic_id, partition.index, body.acks, body.timeout_ms, records)
        response = await self._data.produce(wanted)
        leader = self._leader(topic_id, partition.index) if response.error in MISLED else (-1, -1)
        row[place] = produce_response.PartitionProduceResponse(
            index=partition.index,
            error_code=known_code(request.header, response.error),
            error_message=response.message,
            base_offset=response.base_offset,
            log_append_time_ms=response.log_append_time_ms,
            log_start_offset=response.log_start_offset,
            record_errors=[produce_response.BatchIndexAndErrorMessage(*error) for error in response.record_errors],
            current_leader=produce_response.LeaderIdAndEpoch(*leader),
        )

    # --- Fetch ---------------------------------------------------------------------------------------------------------------

    async def fetch(self, request: KafkaRequest, caller: Caller) -> fetch_response.FetchResponse:
        """Read records of the wanted partitions, with sessions (KIP-227): the answer to a later fetch of a session leaves out
        partitions without news.
        """
        body: FetchRequest = request.body
        uses_ids = request.header.version >= IDS_SINCE
        turns = Turns()
        positions: list[FetchPartition] = []
        for topic in body.topics:
            named = topic.topic_id if uses_ids else topic.topic.encode()
            for entry in topic.partitions:
                await turns.step()
                positions.append(_position(named, entry))
        response, stored = await self._data.fetch(
            ReplicaFetchRequest(
                *(-1, -1, body.max_wait_ms, body.min_bytes, max(body.max_bytes, LEAST_BYTES), tuple(positions)),
                session_id=body.session_id,
                session_epoch=body.session_epoch,
                forgotten=tuple(
                    (gone.topic_id if uses_ids else gone.topic.encode(), partition)
                    for gone in body.forgotten_topics_data
                    for partition in gone.partitions
                ),
                any_replica=request.header.version >= FOLLOWERS_SINCE,
            ),
            self._readable(caller, uses_ids=uses_ids),
        )
        topics: dict[bytes, list[fetch_response.PartitionData]] = {}
        leaders = set()
        for part in response.partitions:
            await turns.step()
            answer = self._fetched(request, part, stored.get((part.topic_id, part.partition)))
            topics.setdefault(part.topic_id, []).append(answer)
            leaders.add(answer.current_leader.leader_id)
        return fetch_response.FetchResponse(
            error_code=response.error,
            session_id=response.session_id,
            responses=[
                fetch_response.FetchableTopicResponse(topic_id=named, partitions=partitions)
                if uses_ids
                else fetch_response.FetchableTopicResponse(topic=named.decode(), partitions=partitions)
                for named, partitions in topics.items()
            ],
            node_endpoints=[fetch_response.NodeEndpoint(*endpoint) for endpoint in self._endpoints(leaders)],
        )

    def _readable(self, caller: Caller, *, uses_ids: bool) -> ReadableTopics:
        rights = self._rights(caller.principal, caller.host)

        @cache
        def find(named: bytes) -> Uuid | ErrorCode:
            topic = self._topic(named if uses_ids else named.decode(), Operation.READ, rights)
            return topic.code if isinstance(topic, Refusal) else topic.topic_id

        return ReadableTopics(uses_ids, (caller.principal, caller.host, self._image().acls), find)

    def _fetched(self, request: KafkaRequest, part: FetchedPartition, stored: FilePart | None) -> fetch_response.PartitionData:
        if part.error:
            is_shown = part.error in MISLED and request.header.version >= LEADERS_SINCE
            return _refused_fetch(
                part.partition,
                known_code(request.header, part.error),
                self._leader(part.topic_id, part.partition) if is_shown else (-1, -1),
            )
        return fetch_response.PartitionData(
            partition_index=part.partition,
            high_watermark=part.high_watermark,
            last_stable_offset=part.high_watermark,
            log_start_offset=part.log_start_offset,
            diverging_epoch=fetch_response.EpochEndOffset(*(part.diverging or NO_DIVERGENCE)),
            aborted_transactions=() if request.body.isolation_level == READ_COMMITTED else None,
            records=part.records if stored is None else stored,
        )

    # --- ListOffsets and OffsetForLeaderEpoch --------------------------------------------------------------------------------

    async def list_offsets(self, request: KafkaRequest, caller: Caller) -> list_offsets_response.ListOffsetsResponse:
        """Find offsets by time, or the ends of logs. A partition that is named twice is refused, and answered once."""
        topics: Sequence[ListOffsetsTopic] = request.body.topics
        named = Counter((topic.name, entry.partition_index) for topic in topics for entry in topic.partitions)

        def want(name: str, entry: ListOffsetsPartition, topic_id: Uuid) -> WantedOffset | ErrorCode:
            if named[name, entry.partition_index] > 1:
                return ErrorCode.INVALID_REQUEST
            if _is_impossible(entry.current_leader_epoch):
                return ErrorCode.FENCED_LEADER_EPOCH
            if request.header.version < SPECIAL_TIMES_SINCE.get(entry.timestamp, 0):
                return ErrorCode.UNSUPPORTED_VERSION
            return WantedOffset(topic_id, entry.partition_index, entry.timestamp, entry.current_leader_epoch)

        wanted = await self._wanted([(topic.name, topic.partitions) for topic in topics], caller, want)
        asked = tuple(each for each in wanted if isinstance(each, WantedOffset))
        found = iter((await self._data.list_offsets(ListOffsetsRequest(asked))).partitions)
        rows = iter([each if isinstance(each, ErrorCode) else next(found) for each in wanted])

        def answer(index: int, row: ListedOffset | ErrorCode) -> list_offsets_response.ListOffsetsPartitionResponse:
            if isinstance(row, ErrorCode):
                return list_offsets_response.ListOffsetsPartitionResponse(partition_index=index, error_code=row)
            return list_offsets_response.ListOffsetsPartitionResponse(
                partition_index=index,
                error_code=known_code(request.header, row.error),
                timestamp=row.timestamp_ms,
                offset=row.offset,
                leader_epoch=row.leader_epoch,
            )

        answers: dict[str, dict[int, list_offsets_response.ListOffsetsPartitionResponse]] = {}
        for topic in topics:
            of_topic = answers.setdefault(topic.name, {})
            of_topic |= {entry.partition_index: answer(entry.partition_index, next(rows)) for entry in topic.partitions}
        return list_offsets_response.ListOffsetsResponse(
            topics=[
                list_offsets_response.ListOffsetsTopicResponse(name=name, partitions=list(of_topic.values()))
                for name, of_topic in answers.items()
            ]
        )

    async def epoch_ends(self, request: KafkaRequest, caller: Caller) -> OffsetForLeaderEpochResponse:
        """Find the ends of leader epochs (KIP-320)."""
        topics: Sequence[OffsetForLeaderTopic] = request.body.topics

        def want(_: str, entry: OffsetForLeaderPartition, topic_id: Uuid) -> WantedEpoch | ErrorCode:
            if _is_impossible(entry.current_leader_epoch):
                return ErrorCode.FENCED_LEADER_EPOCH
            return WantedEpoch(topic_id, entry.partition, entry.leader_epoch, entry.current_leader_epoch)

        wanted = await self._wanted([(topic.topic, topic.partitions) for topic in topics], caller, want)
        asked = tuple(each for each in wanted if isinstance(each, WantedEpoch))
        found = iter((await self._data.epoch_ends(EpochEndsRequest(asked))).partitions)
        rows = iter([each if isinstance(each, ErrorCode) else next(found) for each in wanted])

        def answer(index: int, row: EpochEnd | ErrorCode) -> EpochEndOffset:
            if isinstance(row, ErrorCode):
                return EpochEndOffset(partition=index, error_code=row)
            return EpochEndOffset(
                partition=index,
                error_code=known_code(request.header, row.error),
                leader_epoch=row.leader_epoch,
                end_offset=row.end_offset,
            )

        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[answer(entry.partition, next(rows)) for entry in topic.partitions]
                )
                for topic in topics
            ]
        )

    async def _wanted(
        self,
        topics: Sequence[tuple[str, Sequence[Entry]]],
        caller: Caller,
        want: Callable[[str, Entry, Uuid], Query | ErrorCode],
    ) -> list[Query | ErrorCode]:
        """Return the question about each partition of the request, or the code of its refusal, in order."""
        rights = self._rights(caller.principal, caller.host)
        wanted: list[Query | ErrorCode] = []
        turns = Turns()
        for name, entries in topics:
            await turns.step()
            found = self._topic(name, Operation.DESCRIBE, rights)
            for entry in entries:
                await turns.step()
                wanted.append(found.code if isinstance(found, Refusal) else want(name, entry, found.topic_id))
        return wanted


def _is_impossible(leader_epoch: int) -> bool:
    """Return True for an epoch that no leader has; -1 stands for no epoch."""
    return leader_epoch < -1


def _is_transactional(records: memoryview) -> bool:
    return len(records) >= HEADER_BYTES and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def _holds_two(records: memoryview) -> bool:
    """Return True if a whole batch follows the first one."""
    if len(records) < HEADER_BYTES:
        return False
    size_bytes = size_as_written(records)
    return size_bytes >= LENGTH_FROM and len(records) - size_bytes >= HEADER_BYTES


def _position(named: bytes, entry: FetchedPosition) -> FetchPartition:
    """Return the position as the broker's own fetches have it."""
    return FetchPartition(
        *(named, entry.partition, entry.current_leader_epoch, entry.fetch_offset, entry.last_fetched_epoch, -1),
        max(entry.partition_max_bytes, LEAST_BYTES),
    )


def _refused_produce(index: int, code: int, message: str | None) -> produce_response.PartitionProduceResponse:
    return produce_response.PartitionProduceResponse(index=index, error_code=code, error_message=message, base_offset=-1)


def _refused_fetch(index: int, code: int, leader: tuple[int, int] = (-1, -1)) -> fetch_response.PartitionData:
    """Return the answer about a partition that cannot be read."""
    aborted = () if code in UNSEEN else None
    return fetch_response.PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        current_leader=fetch_response.LeaderIdAndEpoch(*leader),
        aborted_transactions=aborted,
        records=NOTHING,
    )
