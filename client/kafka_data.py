"""`KafkaDataClient`: record batches of a cluster that speaks the Kafka protocol, for what the consoles do.

Produce, Fetch and ListOffsets go to the leaders, with the numbers and retries of `DataClient`: a batch that is sent again is
stored once. The other calls of `DataClient` are between our own nodes, and are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.messages.generated import produce_response
from kraftlab.messages.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kraftlab.messages.generated.fetch_response import FetchResponse
from kraftlab.messages.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kraftlab.messages.generated.list_offsets_response import ListOffsetsResponse
from kraftlab.messages.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlab.messages.schema import Message
from kraftlab.metadata.peer_rpc import FetchedPartition, ProduceResponse
from kraftlab.records.record_batch import LENGTH_FROM, size_as_written
from kraftlab.wire.parts import NOTHING, InMemory

from .admin import AdminClient
from .attempts import NoAnswer
from .data import DataClient, PeerConnection, Response
from .errors import api_error
from .kafka_channels import KafkaChannels
from .kafka_connection import Answer
from .numbering import SendAttempts
from .results import Broker

Entry = TypeVar("Entry")
EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets."""


class KafkaDataClient(DataClient):
    """`produce` (acks 1 and all), `fetch` and `bounds` over the Kafka protocol. The AdminClient has to speak it too."""

    def __init__(self, admin: AdminClient, *, timeout_ms: int = 30_000) -> None:
        super().__init__(admin, timeout_ms=timeout_ms)
        assert isinstance(admin.channels, KafkaChannels)
        self._channels = admin.channels

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> FetchedPartition:
        """Return whole batches below the high watermark, from the batch with `offset`. ApiError, ClusterUnreachable."""

        def ask(topic_id: Uuid, leader: Endpoint, left_s: float) -> FetchedPartition:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
            request = FetchRequest(
                max_wait_ms=min(max_wait_ms, int(left_s * 1000)),
                min_bytes=1,
                max_bytes=max_bytes,
                topics=(FetchTopic(topic=topic, topic_id=topic_id, partitions=(wanted,)),),
            )
            answer = self._ask(leader, request, FetchResponse, left_s)
            _raise_error(answer.error_code)
            found = _only([entry for topic in answer.responses for entry in topic.partitions])
            _raise_error(found.error_code)
            records = found.records or NOTHING
            assert isinstance(records, memoryview), "records that were read are a view of the answer"
            records = whole_batches(records)
            return FetchedPartition(topic_id, partition, 0, found.high_watermark, found.log_start_offset, records=records)

        return self._retried(topic, partition, ask, timeout_ms)

    def bounds(self, topic: str, partition: int, *, timeout_ms: int | None = None) -> tuple[int, int]:
        """Return the log start offset and high watermark of a partition: the range of `fetch`. ApiError, ClusterUnreachable."""

        def ask(topic_id: Uuid, leader: Endpoint, left_s: float) -> tuple[int, int]:
            found = []
            for timestamp in (EARLIEST, LATEST):
                wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                topics = (ListOffsetsTopic(name=topic, partitions=(wanted,)),)
                request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=int(left_s * 1000))
                answer = self._ask(leader, request, ListOffsetsResponse, left_s)
                listed = _only([entry for topic in answer.topics for entry in topic.partitions])
                _raise_error(listed.error_code)
                found.append(listed.offset)
            return found[0], found[1]

        return self._retried(topic, partition, ask, timeout_ms)

    def _send(
        self,
        topic: str,
        partition: int,
        records: InMemory,
        acks: int,
        attempts: SendAttempts,
        deadline: float,
        *,
        keep_offsets: bool = False,
    ) -> ProduceResponse:
        if keep_offsets:
            _refuse("batches with offsets of their own")

        def ask(topic_id: Uuid, leader: Endpoint, left_s: float) -> ProduceResponse:
            data = PartitionProduceData(index=partition, records=records)
            topics = (TopicProduceData(name=topic, topic_id=topic_id, partition_data=(data,)),)
            attempts.send()
            request = ProduceRequest(acks=acks, timeout_ms=int(left_s * 1000), topic_data=topics)
            responses = self._ask(leader, request, produce_response.ProduceResponse, left_s).responses
            found = _only([entry for topic in responses for entry in topic.partition_responses])
            answer = ProduceResponse(found.error_code, found.error_message, base_offset=found.base_offset)
            attempts.answered(answer)
            _raise_error(found.error_code, found.error_message)
            return answer

        return self._retried(topic, partition, ask, max(1, int((deadline - time.monotonic()) * 1000)))

    def _ask(self, leader: Endpoint, request: Message, kind: type[Answer], left_s: float) -> Answer:
        try:
            return self._channels.exchange(leader, request, kind, left_s)
        except NoAnswer as error:
            raise ConnectionError(f"{leader}: {error}") from error

    def _endpoint_of(self, broker: Broker) -> Endpoint:
        return Endpoint(broker.host, broker.port)

    def _send_only(self, topic: str, partition: int, records: InMemory, deadline: float) -> NoReturn:
        _refuse("acks=0")

    def _at_leader(
        self,
        topic: str,
        partition: int,
        build: Callable[[Uuid, int], tuple[int, Sequence[InMemory]]],
        answer_type: type[Response],
        fault_of: Callable[[Response], tuple[int, str | None]],
        timeout_ms: int | None,
    ) -> NoReturn:
        _refuse("this call")

    def _connection(self, endpoint: Endpoint) -> PeerConnection:
        _refuse("this call")


def whole_batches(records: memoryview) -> memoryview:
    """Return records without the batch that a broker cut off at the end. The first batch is always whole, so a first batch that
    is larger than the records has a damaged size, and stays for its reader to report.
    """
    end = 0
    while len(records) - end >= LENGTH_FROM:
        size_bytes = size_as_written(records, end)
        following = end + size_bytes
        if size_bytes < LENGTH_FROM or following > len(records):
            break
        end = following
    return records[:end] if end else records


def _only(found: Sequence[Entry]) -> Entry:
    """Return the answer about the one partition of a request. ConnectionError if it is about none or several."""
    if len(found) != 1:
        raise ConnectionError(f"the answer is about {len(found)} partitions, not one")
    return found[0]


def _raise_error(code: int, message: str | None = None) -> None:
    if code:
        raise api_error(code, message)


def _refuse(what: str) -> NoReturn:
    raise ApiError(
        ErrorCode.UNSUPPORTED_VERSION, f"{what} needs the peer ports of our own nodes; this cluster speaks Kafka's protocol"
    )
