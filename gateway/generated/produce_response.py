"""Values of Kafka's ProduceResponse."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class BatchIndexAndErrorMessage(msgspec.Struct):
    batch_index: int
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(msgspec.Struct):
    leader_id: int = -1
    leader_epoch: int = -1


class PartitionProduceResponse(msgspec.Struct):
    index: int
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


class TopicProduceResponse(msgspec.Struct):
    name: str = ""
    topic_id: bytes = bytes(16)
    partition_responses: Sequence[PartitionProduceResponse] = ()


class NodeEndpoint(msgspec.Struct):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class ProduceResponse(msgspec.Struct):
    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()
