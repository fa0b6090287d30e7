"""Values of Kafka's FetchResponse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kraftlab.wire.parts import Part


class EpochEndOffset(msgspec.Struct):
    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(msgspec.Struct):
    leader_id: int = -1
    leader_epoch: int = -1


class PartitionData(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    aborted_transactions: Sequence[Any] | None = None
    preferred_read_replica: int = -1
    records: Part | None = None


class FetchableTopicResponse(msgspec.Struct):
    topic: str = ""
    topic_id: bytes = bytes(16)
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(msgspec.Struct):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class FetchResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
