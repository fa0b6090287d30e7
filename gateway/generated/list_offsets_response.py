"""Values of Kafka's ListOffsetsResponse."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class ListOffsetsPartitionResponse(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(msgspec.Struct):
    name: str = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: Sequence[ListOffsetsTopicResponse] = ()
