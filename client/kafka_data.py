"""`KafkaDataClient`: record batches of a cluster that speaks the Kafka protocol, for what the consoles do.

Produce, Fetch and ListOffsets go to the leaders, with the numbers and retries of `DataClient`: a batch that is sent again is
stored once. The other calls of `DataClient` are between our own nodes, and are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid, to_text
from kraftlab.metadata.peer_rpc import FetchedPartition, ProduceResponse
from kraftlab.records.record_batch import LENGTH_FROM, size_as_written
from kraftlab.wire.parts import InMemory

from .admin import AdminClient
from .attempts import NoAnswer
from .data import DataClient, PeerConnection, Response
from .errors import api_error
from .kafka_channels import KafkaChannels
from .numbering import Attempts

EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets."""


class KafkaDataClient(DataClient):
    """`produce` (acks 1 and all), `fetch` and `bounds` over the Kafka protocol. The AdminClient has to speak it too."""

    def __init__(self, admin: AdminClient, *, timeout_ms: int = 30_000) -> None:
        super().__init__(admin, timeout_ms=timeout_ms)
        assert isinstance(admin.transport, KafkaChannels)
        self._channels = admin.transport

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
            wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
            values = {
                "replica_id": -1,
                "max_wait": min(max_wait_ms, int(left_s * 1000)),
                "min_bytes": 1,
                "max_bytes": max_bytes,
                "topics": [{"topic": topic, "topic_id": to_text(topic_id), "partitions": [wanted]}],
            }
            answer = self._ask(leader, "Fetch", values, left_s)
            _raise_error(answer)
            found = _only(answer.responses, "partitions")
            _raise_error(found)
            records = whole_batches(memoryview(found.records or b""))
            return FetchedPartition(topic_id, partition, 0, found.high_watermark, found.log_start_offset, records=records)

        return self._retried(topic, partition, ask, timeout_ms)

    def bounds(self, topic: str, partition: int, *, timeout_ms: int | None = None) -> tuple[int, int]:
        """Return the log start offset and high watermark of a partition: the range of `fetch`. ApiError, ClusterUnreachable."""

        def ask(topic_id: Uuid, leader: Endpoint, left_s: float) -> tuple[int, int]:
            found = []
            for timestamp in (EARLIEST, LATEST):
                wanted = {"partition_index": partition, "timestamp": timestamp}
                values = {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}], "timeout": int(left_s * 1000)}
                listed = _only(self._ask(leader, "ListOffsets", values, left_s).topics, "partitions")
                _raise_error(listed)
                found.append(int(listed.offset))
            return found[0], found[1]

        return self._retried(topic, partition, ask, timeout_ms)

    def _send(
        self,
        topic: str,
        partition: int,
        records: InMemory,
        acks: int,
        attempts: Attempts,
        deadline: float,
        *,
        keep_offsets: bool = False,
    ) -> ProduceResponse:
        if keep_offsets:
            _refuse("batches with offsets of their own")

        def ask(topic_id: Uuid, leader: Endpoint, left_s: float) -> ProduceResponse:
            data = {"index": partition, "records": bytes(records)}
            values = {
                "acks": acks,
                "timeout": int(left_s * 1000),
                "topic_data": [{"name": topic, "topic_id": to_text(topic_id), "partition_data": [data]}],
            }
            attempts.send()
            found = _only(self._ask(leader, "Produce", values, left_s).responses, "partition_responses")
            message = getattr(found, "error_message", None)
            answer = ProduceResponse(int(found.error_code), message, base_offset=int(found.base_offset))
            attempts.answered(answer)
            _raise_error(found)
            return answer

        return self._retried(topic, partition, ask, max(1, int((deadline - time.monotonic()) * 1000)))

    def _ask(self, leader: Endpoint, api: str, values: Mapping[str, object], left_s: float) -> Any:
        try:
            return self._channels.exchange(leader, api, values, left_s)
        except NoAnswer as error:
            raise ConnectionError(f"{leader}: {error}") from error

    def _endpoint_of(self, broker: pb.DescribedBroker) -> Endpoint:
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


def _only(topics: Sequence[Any], partitions: str) -> Any:
    """Return the answer about the one partition of a request. ConnectionError if it is about none or several."""
    found = [entry for topic in topics for entry in getattr(topic, partitions)]
    if len(found) != 1:
        raise ConnectionError(f"the answer is about {len(found)} partitions, not one")
    return found[0]


def _raise_error(found: Any) -> None:
    code = int(getattr(found, "error_code", 0))
    if code:
        raise api_error(code, getattr(found, "error_message", None))


def _refuse(what: str) -> NoReturn:
    raise ApiError(
        ErrorCode.UNSUPPORTED_VERSION, f"{what} needs the peer ports of our own nodes; this cluster speaks Kafka's protocol"
    )
